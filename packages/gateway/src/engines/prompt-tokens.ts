import type { PromptTokens } from '@warmpath/core/internal';
import { type TranslatedApi, translate } from '@warmpath/translate';
import type { ApiName } from '../apis/prompt-view.js';
import { BodyView } from '../json/json-body.js';

/** Fields of a body that decide which tokens a prompt becomes. */
const CHAT_FIELDS = [
  'model',
  'messages',
  'tools',
  'chat_template',
  'chat_template_kwargs',
  'add_generation_prompt',
  'continue_final_message',
  'add_special_tokens',
];
const COMPLETION_FIELDS = ['model', 'prompt', 'add_special_tokens'];

/** Members that request the text of each token. Each engine reads its own. */
export const TOKENS_WITH_TEXTS = { with_pieces: true, return_token_strs: true } as const;

/**
 * Whether engines tokenize prompts of an API only in a translation. It may differ from what the engine makes of the
 * original: the tokens count only if they are as many as the engine counted.
 */
export function isTokenizedAsChat(api: ApiName): api is TranslatedApi {
  return api === 'messages' || api === 'responses';
}

/**
 * The body of `POST /tokenize`: which tokens a prompt becomes, and the text of each. llama-server and the embedded
 * engine read `with_pieces`, vLLM reads `return_token_strs`.
 *
 * @returns `undefined` for a body with neither messages nor one text
 * @throws TranslateError for a body that cannot be translated
 */
export function tokenizeBody(sent: BodyView, api: ApiName): Buffer | undefined {
  const body = isTokenizedAsChat(api) ? new BodyView(Buffer.from(translate({ api, body: sent.bytes }).body)) : sent;
  const messages = body.raw('messages');
  const prompt = body.raw('prompt');
  if (messages === undefined && prompt?.startsWith('"') !== true) return undefined;
  const fields = (messages === undefined ? COMPLETION_FIELDS : CHAT_FIELDS).flatMap((name) => {
    const value = body.raw(name);
    return value === undefined ? [] : [`"${name}":${value}`];
  });
  return Buffer.from(`{${fields.join(',')},${JSON.stringify(TOKENS_WITH_TEXTS).slice(1)}`);
}

/** A prompt's tokens, and the byte at which each ends. */
interface TokenisedText {
  readonly tokens: readonly number[];
  readonly text: Buffer;
  readonly ends: Float64Array;
}

/**
 * Reads an engine's answer to `tokenizeBody` and finds the documents in it.
 *
 * @param documents the text of each document in the prompt, in prompt order
 * @returns `undefined` for an invalid answer, or if a document is not found
 */
export function readPromptTokens(answer: Buffer, documents: readonly string[]): Omit<PromptTokens, 'salt'> | undefined {
  const tokenised = readTokens(answer);
  if (tokenised === undefined) return undefined;
  const { tokens, text, ends } = tokenised;
  const documentEnds: number[] = [];
  let preambleEnd: number | undefined;
  let from = 0;
  for (const document of documents) {
    const start = text.indexOf(document, from);
    if (start < 0) return undefined;
    from = start + Buffer.byteLength(document);
    preambleEnd ??= tokensUpTo(ends, start);
    documentEnds.push(tokensUpTo(ends, from));
  }
  return { tokens, preambleEnd: preambleEnd ?? 0, documentEnds };
}

function readTokens(answer: Buffer): TokenisedText | undefined {
  let parsed: { readonly tokens?: unknown; readonly token_strs?: unknown };
  try {
    parsed = JSON.parse(answer.toString());
  } catch {
    return undefined;
  }
  const { tokens: listed, token_strs: strings } = parsed ?? {};
  if (!Array.isArray(listed)) return undefined;
  const tokens: number[] = [];
  const pieces: Buffer[] = [];
  for (const [place, item] of listed.entries()) {
    const token = typeof item === 'number' ? item : item?.id;
    const piece =
      typeof item === 'number'
        ? pieceOfString(Array.isArray(strings) ? strings[place] : undefined)
        : pieceOf(item?.piece);
    if (!Number.isSafeInteger(token) || piece === undefined) return undefined;
    tokens.push(token);
    pieces.push(piece);
  }
  const ends = new Float64Array(pieces.length);
  let end = 0;
  for (const [place, piece] of pieces.entries()) {
    end += piece.length;
    ends[place] = end;
  }
  return { tokens, text: Buffer.concat(pieces), ends };
}

/** llama-server writes pieces that are not valid UTF-8 as lists of bytes. */
function pieceOf(piece: unknown): Buffer | undefined {
  if (typeof piece === 'string') return Buffer.from(piece);
  return Array.isArray(piece) ? Buffer.from(piece) : undefined;
}

/** vLLM writes tokens as in the tokenizer's vocabulary: bytes as printable characters, or `▁` for a space. */
function pieceOfString(text: unknown): Buffer | undefined {
  if (typeof text !== 'string') return undefined;
  const bytes: number[] = [];
  for (const character of text) {
    const byte = BYTE_OF_CHARACTER.get(character);
    if (byte === undefined) return Buffer.from(text.replaceAll('▁', ' '));
    bytes.push(byte);
  }
  return Buffer.from(bytes);
}

/** Byte-level BPE (GPT-2): printable bytes are written as themselves, others as characters from U+0100 on. */
const BYTE_OF_CHARACTER: ReadonlyMap<string, number> = (() => {
  const map = new Map<string, number>();
  let others = 0;
  for (let byte = 0; byte < 256; byte++) {
    const isPrintable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    map.set(String.fromCharCode(isPrintable ? byte : 256 + others++), byte);
  }
  return map;
})();

/** How many leading tokens end at or before a byte. O(log n). */
function tokensUpTo(ends: Float64Array, byte: number): number {
  let low = 0;
  let high = ends.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (ends[middle]! <= byte) low = middle + 1;
    else high = middle;
  }
  return low;
}
