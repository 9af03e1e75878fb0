import type { WarmpathError } from '@warmpath/core';
import { isObject } from './content-texts.js';
import { messagesApi } from './messages-api.js';
import type { JsonObject } from './request-texts.js';
import { responsesApi } from './responses-api.js';

/** How the clients of an API are told of errors. */
export interface ErrorShape {
  /** The body of an answer. */
  body(error: WarmpathError, requestId: string): object;
  /** The last event of a stream that breaks off, in SSE. Starts with a blank line, which ends a torn event. */
  event(error: WarmpathError): string;
  /** The body for an error that an engine told in OpenAI's shape, or in none. */
  translated(status: number, text: string, requestId: string): string;
}

/** OpenAI's shape; for streams both `event: error` and an `error` member, as clients look for the one or the other. */
const openAIErrors: ErrorShape = {
  body: (error) => error.toOpenAI(),
  event: (error) => sse(error.toOpenAI()),
  translated: (_, text) => text,
};

/** The Responses API has its own event, beside the member that OpenAI's client looks for. */
const responsesErrors: ErrorShape = {
  body: (error) => error.toOpenAI(),
  event: (error) => {
    const { code, message, param } = error.toOpenAI().error;
    return sse({ type: 'error', code, message, param, ...error.toOpenAI() });
  },
  translated: (status, text) => {
    if (isObject(readError(text))) return text;
    const error = { message: messageOf(text, status), type: 'upstream_error', param: null, code: null };
    return JSON.stringify({ error });
  },
};

/** Anthropic's shape, with the code, the path and the remedy of the table beside its own members. */
const messagesErrors: ErrorShape = {
  body: (error, requestId) => ({ ...messagesError(error), request_id: requestId }),
  event: (error) => sse(messagesError(error)),
  translated: (status, text, requestId) => {
    const { code, param } = (readError(text) ?? {}) as JsonObject;
    const error = { type: messagesErrorType(status), message: messageOf(text, status), code, param };
    return JSON.stringify({ type: 'error', error, request_id: requestId });
  },
};

/** The shape for a request to that URL, whatever lies below the API's own path included. */
export function errorShapeOf(url: string): ErrorShape {
  if (url.startsWith(messagesApi.path)) return messagesErrors;
  return url.startsWith(responsesApi.path) ? responsesErrors : openAIErrors;
}

/** What Anthropic calls an error with that status. */
export function messagesErrorType(status: number): string {
  return ERROR_TYPES.get(status) ?? (status < 500 ? 'invalid_request_error' : 'api_error');
}

const ERROR_TYPES: ReadonlyMap<number, string> = new Map([
  [401, 'authentication_error'],
  [402, 'billing_error'],
  [403, 'permission_error'],
  [404, 'not_found_error'],
  [413, 'request_too_large'],
  [429, 'rate_limit_error'],
  [503, 'overloaded_error'],
  [504, 'timeout_error'],
  [529, 'overloaded_error'],
]);

function messagesError(error: WarmpathError): object {
  const { message, code, param, remedy } = error.toOpenAI().error;
  return { type: 'error', error: { type: messagesErrorType(error.status), message, code, param, remedy } };
}

function sse(data: object): string {
  return `\n\nevent: error\ndata: ${JSON.stringify(data)}\n\n`;
}

/** The `error` member of a body; `undefined` for what is not JSON, or has none. */
function readError(text: string): unknown {
  return readBody(text)['error'];
}

/** Nothing for what is not a JSON object. */
function readBody(text: string): JsonObject {
  try {
    const body: unknown = JSON.parse(text);
    return isObject(body) ? body : {};
  } catch {
    return {};
  }
}

function messageOf(text: string, status: number): string {
  const { error, message, detail } = readBody(text);
  // OpenAI's shape, an older vLLM's, FastAPI's.
  const said = [isObject(error) ? error['message'] : error, message, detail].find((told) => typeof told === 'string');
  return typeof said === 'string' ? said : `The engine answered with status ${status}.`;
}
