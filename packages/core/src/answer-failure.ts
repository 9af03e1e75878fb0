import { isRecord } from './document.js';

/** An error that an engine states in the place of an answer, or in the middle of one. */
export interface AnswerFailure {
  readonly message: string;
  readonly code: string | number | null;
  /** OpenAI's or Anthropic's name for its kind. */
  readonly type?: string | undefined;
  /** The place in the request that the engine names. */
  readonly param?: string | null;
  /** The HTTP status that fits it. */
  readonly status?: number | undefined;
}

/** Fields in which engines and proxies write the message of an error that is no object. */
const MESSAGES = ['message', 'detail', 'msg', 'error_msg', 'error_message', 'error_description'];
/** What an answer or an event has, and an error without `error` has not. */
const OF_ANSWERS = ['object', 'choices', 'content', 'output', 'response', 'delta', 'data', 'results', 'usage'];
/** Characters of a message. */
const MAX_MESSAGE_LENGTH = 8_192;

/**
 * The error in an answer or in one event of a stream, in the shapes of OpenAI, Anthropic, FastAPI, older vLLM and
 * proxies; `undefined` for what is none.
 */
export function readFailure(value: unknown): AnswerFailure | undefined {
  if (!isRecord(value)) return undefined;
  const { error, errors, object, type, response, choices } = value;
  if (isStated(error)) {
    if (isRecord(error)) return failureOf(error);
    return failureOf(typeof error === 'string' ? { ...value, message: error } : value);
  }
  if (object === 'error' || type === 'error') return failureOf(value);
  const inner = [response, Array.isArray(choices) ? choices[0] : undefined].find(
    (each) => isRecord(each) && isStated(each['error']),
  );
  if (inner !== undefined) return readFailure({ error: inner.error });
  if (OF_ANSWERS.some((name) => name in value)) return undefined;
  if (Array.isArray(errors) && errors.length > 0)
    return failureOf(isRecord(errors[0]) ? errors[0] : { message: errors[0] });
  const isTold = MESSAGES.some((name) => typeof value[name] === 'string' || Array.isArray(value[name]));
  return isTold ? failureOf(value) : undefined;
}

/** An engine's error that is a text, or a value without a message. */
export function failureOfText(text: string): AnswerFailure {
  return { message: cut(text.trim()) || 'The engine returned an error.', code: null };
}

function failureOf(error: Readonly<Record<string, unknown>>): AnswerFailure {
  const { code, type = error['error_type'], param } = error;
  const status = [error['status'], error['status_code'], error['http_code'], code].map(Number).find(isErrorStatus);
  return {
    message: cut(messageIn(error) ?? JSON.stringify(error)),
    code: typeof code === 'string' || typeof code === 'number' ? code : null,
    ...(typeof type === 'string' && type !== 'error' && { type }),
    ...(typeof param === 'string' && { param }),
    ...(status !== undefined && { status }),
  };
}

function messageIn(error: Readonly<Record<string, unknown>>): string | undefined {
  const given = MESSAGES.map((name) => error[name]).find((each) => each !== undefined && each !== null && each !== '');
  if (given === undefined || typeof given === 'string') return given;
  return JSON.stringify(given);
}

/** Some engines write `"error": null`, or an empty one, into answers that are none. */
function isStated(error: unknown): boolean {
  if (isRecord(error)) return Object.keys(error).length > 0;
  return (typeof error === 'string' && error !== '') || error === true || Array.isArray(error);
}

function isErrorStatus(status: number): boolean {
  return Number.isInteger(status) && status >= 400 && status < 600;
}

function cut(text: string): string {
  return text.slice(0, MAX_MESSAGE_LENGTH);
}
