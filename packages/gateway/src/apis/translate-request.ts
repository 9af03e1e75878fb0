import { WarmpathError } from '@warmpath/core';
import type { WorkSteps } from '@warmpath/core/internal';
import {
  type TranslatedAnswer,
  TranslateError,
  type TranslateRequest,
  type TranslateWarning,
  translate,
} from '@warmpath/translate';
import { checkBounds } from '../json/json-body.js';
import type { ResponseBody, ResponseHead } from './prompt-apis.js';
import type { ApiName } from './prompt-view.js';

/** Headers that describe a body. The translation is another body. */
const OF_THE_ORIGINAL = ['content-length', 'content-encoding', 'content-type', 'etag', 'content-md5'];

/** A request translated into chat completions, and the translation of its response. */
export interface Translation {
  readonly body: Buffer;
  /** Warnings about fields that were left out. */
  readonly warnings: readonly TranslateWarning[];
  /** System messages that became the user's, in their place. */
  readonly movedSystem: number;
  readonly answer: ResponseBody;
}

/**
 * Translates a request in steps. Copies `documents` and `warmpath`. O(body).
 *
 * @param answered Gets a complete answer, as JSON.
 * @throws WarmpathError those of `checkBounds`; `WARMPATH_INVALID_REQUEST`, `WARMPATH_NOT_TRANSLATABLE`, with a path
 */
export function* translateRequest(
  request: TranslateRequest,
  answered: (whole: string) => void = () => {},
): WorkSteps<Translation> {
  checkBounds(request.body);
  const { body, warnings, movedSystem, answer } = withTableErrors(() => translate(request));
  yield request.body.length;
  return { body: Buffer.from(body), warnings, movedSystem, answer: new TranslatedBody(answer, answered) };
}

/** A body as chat completions; `undefined` for one that cannot be translated alone: it continues a stored response. */
export function chatBodyOf(api: ApiName, body: Buffer): Buffer | undefined {
  if (api !== 'messages' && api !== 'responses') return undefined;
  try {
    return Buffer.from(translate({ api, body }).body);
  } catch {
    return undefined;
  }
}

/** Translates the engine's response into the client's API. */
class TranslatedBody implements ResponseBody {
  readonly #answer: TranslatedAnswer;
  readonly #answered: (whole: string) => void;
  #head: ResponseHead = { status: 0, headers: {} };
  #isStreamed = false;

  constructor(answer: TranslatedAnswer, answered: (whole: string) => void) {
    this.#answer = answer;
    this.#answered = answered;
  }

  head({ status, headers }: ResponseHead): ResponseHead | undefined {
    const { 'content-type': type, 'content-encoding': encoding, ...others } = headers;
    const response = { status, contentType: type, contentEncoding: encoding };
    const { contentType, isStreamed } = withTableErrors(() => this.#answer.start(response));
    for (const name of OF_THE_ORIGINAL) delete others[name];
    this.#head = { status, headers: { ...others, 'content-type': contentType } };
    this.#isStreamed = isStreamed;
    return isStreamed ? this.#head : undefined;
  }

  data(chunk: Buffer): string {
    return withTableErrors(() => this.#answer.write(chunk));
  }

  end(): { readonly head?: ResponseHead; readonly rest: string } {
    const { status, headers } = this.#head;
    if (this.#isStreamed) return { rest: withTableErrors(() => this.#ended()) };
    try {
      return bodyOf(status, headers, this.#ended());
    } catch (error) {
      // An error of the engine reaches the client whole, and not with the status of an answer.
      const failure = TranslateError.isInstance(error) ? error.failure : undefined;
      if (failure === undefined) throw tableError(error);
      const told = this.#answer.fail(failure);
      return bodyOf(failure.status ?? 502, { ...headers, 'content-type': 'application/json; charset=utf-8' }, told);
    }
  }

  #ended(): string {
    const rest = this.#answer.end();
    if (this.#head.status < 300) this.#answered(this.#answer.whole());
    return rest;
  }

  broken({ message, code }: WarmpathError): string {
    return this.#answer.fail({ message, code });
  }
}

function bodyOf(status: number, headers: ResponseHead['headers'], rest: string) {
  return { head: { status, headers: { ...headers, 'content-length': String(Buffer.byteLength(rest)) } }, rest };
}

/** Codes of `translate` are codes of the error table. */
function withTableErrors<Result>(step: () => Result): Result {
  try {
    return step();
  } catch (error) {
    throw tableError(error);
  }
}

function tableError(error: unknown): unknown {
  if (!TranslateError.isInstance(error)) return error;
  const { code, path, detail } = error;
  return new WarmpathError(code, { ...(path !== undefined && { path }), detail, cause: error });
}
