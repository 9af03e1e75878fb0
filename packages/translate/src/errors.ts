import { type AnswerFailure, failureOfText, readFailure } from '@warmpath/core/internal';

/** What can go wrong, in the codes of Warmpath's error table (docs/reference/errors.md). */
export type TranslateErrorCode =
  | 'WARMPATH_INVALID_JSON'
  | 'WARMPATH_INVALID_REQUEST'
  | 'WARMPATH_NOT_TRANSLATABLE'
  | 'WARMPATH_UPSTREAM_ERROR'
  | 'WARMPATH_UPSTREAM_CUT';

const MARKER = Symbol.for('warmpath.translate-error');

/** Every error that this package raises on purpose. Recognise it with `TranslateError.isInstance`, then read `code`. */
export class TranslateError extends Error {
  override readonly name = 'TranslateError';
  readonly [MARKER] = true;
  readonly code: TranslateErrorCode;
  /** What is wrong, without the path. */
  readonly detail: string;
  /** What the engine says of an error of its own. */
  readonly failure: AnswerFailure | undefined;
  /**
   * The place in the request's body, for instance `messages[0].content[1].type`; `undefined` for errors of the answer.
   */
  readonly path: string | undefined;

  constructor(code: TranslateErrorCode, detail: string, path?: string, failure?: AnswerFailure) {
    super(path === undefined ? detail : `${path}: ${detail}`);
    this.code = code;
    this.detail = detail;
    this.path = path;
    this.failure = failure;
  }

  /** Works across duplicated copies of this package, unlike `instanceof`. */
  static isInstance(error: unknown): error is TranslateError {
    return typeof error === 'object' && error !== null && (error as Record<symbol, unknown>)[MARKER] === true;
  }
}

/** An error of the engine, or of what stands before it. */
export function engineError(detail: string, failure?: AnswerFailure): TranslateError {
  return new TranslateError('WARMPATH_UPSTREAM_ERROR', detail, undefined, failure);
}

/** The error in an engine's answer with an error status: what it states, or its text. */
export function readEngineError(text: string, status: number): AnswerFailure {
  const isText = text.trim() !== '' && !/^\s*[<{[]/.test(text);
  const unread = isText ? failureOfText(text) : { message: `The engine answered with status ${status}.`, code: null };
  return { ...(readFailure(parseObject(text)) ?? unread), status };
}

/** A JSON object as `JSON.parse` gives it. */
export type JsonObject = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The object that a text is the JSON of; `undefined` if it is none. */
export function parseObject(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
