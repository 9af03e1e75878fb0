import type { IncomingHttpHeaders } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import { messagesErrorType } from '@warmpath/translate';
import { messagesApi, responsesApi } from './prompt-apis.js';

/** The form of errors for the clients of an API. */
export interface ErrorShape {
  /** The body of an answer. */
  body(error: WarmpathError, requestId: string): object;
  /** The last event of a stream that breaks off, in SSE. Starts with a blank line, which ends a torn event. */
  event(error: WarmpathError): string;
}

/** OpenAI's shape; for streams both `event: error` and an `error` member, as clients look for the one or the other. */
const openAIErrors: ErrorShape = {
  body: (error) => error.toOpenAI(),
  event: (error) => sse(error.toOpenAI()),
};

/** The Responses API has its own event, beside the member that OpenAI's client looks for. */
const responsesErrors: ErrorShape = {
  body: (error) => error.toOpenAI(),
  event: (error) => {
    const { code, message, param } = error.toOpenAI().error;
    return sse({ type: 'error', code, message, param, ...error.toOpenAI() });
  },
};

/** Anthropic's shape, with the code, the path and the remedy of the table beside its own members. */
const messagesErrors: ErrorShape = {
  body: (error, requestId) => ({ ...messagesError(error), request_id: requestId }),
  event: (error) => sse(messagesError(error)),
};

/** The shape for a request to that URL, whatever lies below the API's own path included. */
export function errorShapeOf(url: string): ErrorShape {
  if (url.startsWith(messagesApi.path)) return messagesErrors;
  return url.startsWith(responsesApi.path) ? responsesErrors : openAIErrors;
}

function messagesError(error: WarmpathError): object {
  const { message, code, param, remedy } = error.toOpenAI().error;
  return { type: 'error', error: { type: messagesErrorType(error.status), message, code, param, remedy } };
}

function sse(data: object): string {
  return `\n\nevent: error\ndata: ${JSON.stringify(data)}\n\n`;
}

/**
 * The error as clients read it. A configuration error or an error of a collection's files loses its details, which name
 * folders of the server.
 */
export function clientError(error: WarmpathError): WarmpathError {
  const isOfCollection = error.code.startsWith('WARMPATH_COLLECTION_');
  if (error.status !== 500 || !(isOfCollection || error.type === 'configuration_error')) return error;
  const path = isOfCollection ? error.path : undefined;
  return new WarmpathError(error.code, { cause: error, ...(path !== undefined && { path }) });
}

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
