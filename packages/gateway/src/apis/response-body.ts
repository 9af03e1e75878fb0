import type { IncomingHttpHeaders } from 'node:http';
import type { WarmpathError } from '@warmpath/core';
import type { ErrorShape } from './error-shape.js';

/** Status and headers, names in lower case. */
export interface ResponseHead {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
}

/** How an engine's response becomes the one that the client gets. Any of its steps may throw a WarmpathError. */
export interface ResponseBody {
  /** The head for the client; `undefined` if that is known at the end only. */
  head(head: ResponseHead): ResponseHead | undefined;
  /** What the client gets of a chunk; nothing, if it is empty. */
  data(chunk: Buffer): Buffer | string;
  /** What the client gets when the engine is done, and the head, if it was not known before. */
  end(): { readonly head?: ResponseHead; readonly rest: string };
  /** What the client of a stream gets when it breaks off. */
  broken(error: WarmpathError): string;
}

/** The engine's response as it is. */
export class UntouchedBody implements ResponseBody {
  readonly #errors: ErrorShape;

  constructor(errors: ErrorShape) {
    this.#errors = errors;
  }

  head(head: ResponseHead): ResponseHead {
    return head;
  }

  data(chunk: Buffer): Buffer {
    return chunk;
  }

  end(): { readonly rest: string } {
    return { rest: '' };
  }

  broken(error: WarmpathError): string {
    return this.#errors.event(error);
  }
}
