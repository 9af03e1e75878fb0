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
  /**
   * The place in the request's body, for instance `messages[0].content[1].type`; `undefined` for errors of the answer.
   */
  readonly path: string | undefined;

  constructor(code: TranslateErrorCode, detail: string, path?: string) {
    super(path === undefined ? detail : `${path}: ${detail}`);
    this.code = code;
    this.detail = detail;
    this.path = path;
  }

  /** Works across duplicated copies of this package, unlike `instanceof`. */
  static isInstance(error: unknown): error is TranslateError {
    return typeof error === 'object' && error !== null && (error as Record<symbol, unknown>)[MARKER] === true;
  }
}

/** An error of the engine, or of what stands before it. */
export function engineError(detail: string): TranslateError {
  return new TranslateError('WARMPATH_UPSTREAM_ERROR', detail);
}

/** An error for the client, in no API's shape yet. */
export interface AnswerFailure {
  readonly message: string;
  readonly code: string | number | null;
  /** The engine's HTTP status, where it answered with an error. */
  readonly status?: number;
  /** The place in the request that the engine names. */
  readonly param?: string | null;
}

/**
 * The error in an engine's answer with an error status. Reads the shapes of OpenAI, older vLLM and FastAPI, or none.
 */
export function readEngineError(text: string, status: number): AnswerFailure {
  const { error, message, detail } = parseObject(text) ?? {};
  const { message: inner, code, param } = isObject(error) ? error : { message: error };
  const given = [inner, message, detail].find((candidate) => typeof candidate === 'string');
  return {
    message: typeof given === 'string' ? given : `The engine answered with status ${status}.`,
    code: typeof code === 'string' || typeof code === 'number' ? code : null,
    param: typeof param === 'string' ? param : null,
    status,
  };
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
