import type { IncomingHttpHeaders } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import { messagesErrorType } from '@warmpath/translate';
import { messagesApi, responsesApi } from './prompt-apis.js';

/** The form of errors in an API. */
export interface ErrorShape {
  /** The body of an answer. */
  body(error: WarmpathError, requestId: string): object;
  /** The last SSE event of a broken stream. Begins with a blank line, which ends an incomplete event. */
  event(error: WarmpathError): string;
}

/** OpenAI's form. Streams get both `event: error` and an `error` member, because clients look for either. */
const openAIErrors: ErrorShape = {
  body: (error) => error.toOpenAI(),
  event: (error) => sse(error.toOpenAI()),
};

/** The event of the Responses API, with the `error` member that OpenAI's client looks for. */
const responsesErrors: ErrorShape = {
  body: (error) => error.toOpenAI(),
  event: (error) => {
    const { code, message, param } = error.toOpenAI().error;
    return sse({ type: 'error', code, message, param, ...error.toOpenAI() });
  },
};

/** Anthropic's form, with code, path and remedy of the error table. */
const messagesErrors: ErrorShape = {
  body: (error, requestId) => ({ ...messagesError(error), request_id: requestId }),
  event: (error) => sse(messagesError(error)),
};

/** The form for a URL, also for paths below the API's own. */
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
 * The error for clients. Errors of the configuration or of a collection's files lose their details, which name folders
 * of the server.
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

/** Converts an engine's response into the client's. Each step may throw a WarmpathError. */
export interface ResponseBody {
  /** The head for the client; `undefined` if it is known only at the end. */
  head(head: ResponseHead): ResponseHead | undefined;
  /** Converts a chunk. Empty: the client gets nothing of it. */
  data(chunk: Buffer): Buffer | string;
  /** The rest of the response, and the head if it was not known before. */
  end(): { readonly head?: ResponseHead; readonly rest: string };
  /** The end of a broken stream. */
  broken(error: WarmpathError): string;
}

/** The engine's response without changes. */
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
