import {
  type ByteRange,
  byteChain,
  costOfBytes,
  fingerprint,
  type HeldPrompt,
  type HeldSpan,
} from '@warmpath/core/internal';
import { type PromptApi, PromptView } from '../apis/prompt-view.js';
import { BodyView, modelOf } from '../json/json-body.js';
import type { ByteSpan } from '../json/json-scanner.js';

/** Bytes of a prompt that are hashed. What stands behind them counts as computed. */
const MAX_HASHED_BYTES = 1_048_576;
/** Bytes of a span at the beginning. A span at byte n is n / 128 bytes long, so that few spans make a long prompt. */
const MIN_SPAN_BYTES = 16;
const SPAN_PART = 1 / 128;
/** Characters of base64 from which on they are a file. Its tokens have nothing to do with its length. */
const FILES = /[A-Za-z0-9+/]{2048,}={0,2}/g;
/** A breakpoint of a client's own, as Anthropic's API writes it, with one of the commas beside it. */
export const BREAKPOINTS = /,\s*"cache_control"\s*:\s*\{[^{}]*\}|"cache_control"\s*:\s*\{[^{}]*\}\s*,?/g;

/** One prompt as spans of its text, each with a key that stands for all text up to its end. No text is kept. */
export interface PromptSpans {
  /** Their `tokens` are costs (core's `costOfBytes`). */
  readonly spans: HeldPrompt;
  /** Cost of the whole prompt. */
  readonly cost: number;
  /** How many tokens the engine counted up to a place: the end of an earlier prompt's answer. */
  readonly counted: CountedStart | undefined;
  /** Numbers of spans in which the client set a cache breakpoint. */
  readonly marks: readonly number[];
  readonly model: string;
  /** Of the scope: model, settings that decide how the prompt begins, and who may share it. */
  readonly seed: string;
  /** Tools, the system prompt and messages, in this order: how many there are. */
  readonly pieces: number;
}

/** The start of a prompt, as a cost and as the engine counted it. */
export interface CountedStart {
  readonly cost: number;
  readonly tokens: number;
}

/** A prompt and its answer, as the engine counted them. */
export interface CountedAnswer {
  readonly promptTokens: number;
  readonly answerTokens: number;
  readonly answerCost: number;
}

export interface SpanOptions {
  readonly api: PromptApi;
  /** The tenant, where tenants share nothing in the engine's cache. */
  readonly salt: string | undefined;
  /** The answer that the engine gave to the prompt that ends with this key. */
  readonly answerTo: (key: string) => CountedAnswer | undefined;
  /** The earlier prompt that this one continues. */
  readonly continued?: Pick<PromptSpans, 'spans' | 'seed' | 'pieces'> | undefined;
}

/** Costs of an answer and of the same message in the next prompt may differ by a factor of 2, and by a template. */
const MAX_ANSWER_FACTOR = 2;
const TEMPLATE_COST = 800;

/** What chat templates write around one message, as a cost: some five tokens. */
const MESSAGE_COST = 100;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;

/** A piece of a prompt: what is hashed of it, and what is too far behind. */
interface PieceRanges {
  readonly hashed: readonly ByteRange[];
  readonly rest: ByteRange;
}

/** The key of the answer to the prompt that ends with this key. */
export function answerSpan(key: string, cost: number): HeldSpan {
  return { key: `${key}+`, tokens: cost };
}

/**
 * Divides a prompt into spans, in the order in which chat templates write it. O(body), one pass for hashes and one for
 * costs.
 *
 * @throws WarmpathError for a body that the API does not know.
 */
export function promptSpans(body: Buffer, { api, salt, answerTo, continued }: SpanOptions): PromptSpans {
  const { text, breakpoints } = normalised(body);
  const view = new BodyView(text);
  const prompt = PromptView.of(view, api);
  const model = modelOf(view);
  const scope = api.promptFields.filter((field) => field !== 'tools').map((field) => view.raw(field) ?? '');
  const seed = fingerprint([api.name, model, salt ?? '', ...scope]);
  const tools = view.value('tools');
  const pieces = piecesOf(view, tools, prompt);
  const firstMessage = pieces.length - (prompt?.length ?? 0);
  const start = continued?.seed === seed && continued.pieces <= pieces.length ? continued : undefined;
  const spans: HeldSpan[] = [...(start?.spans ?? [])];
  const marks: number[] = [];
  let counted: CountedStart | undefined;
  let cost = spans.reduce((sum, { tokens }) => sum + tokens, 0);
  let length = pieces.slice(0, start?.pieces ?? 0).reduce((sum, piece) => sum + piece.end - piece.start, 0);
  for (const [place, piece] of pieces.entries()) {
    if (place < (start?.pieces ?? 0)) continue;
    const before = spans.at(-1)?.key ?? seed;
    const ranges = rangesOf(piece, length);
    const isMessage = place >= firstMessage && prompt?.isText === false;
    const costs = piece === tools ? plainCosts(text, ranges) : textCosts(text, ranges, isMessage);
    const pieceCost = costs.reduce((sum, part) => sum + part, 0);
    const answer = answerTo(before);
    const isAnswered = answer !== undefined && isAnswer(pieceCost, answer.answerCost);
    if (isAnswered && prompt?.roleAt(place - firstMessage) === 'assistant') {
      spans.push(answerSpan(before, answer.answerCost));
      cost += answer.answerCost;
      counted = { cost, tokens: answer.promptTokens + answer.answerTokens };
    } else {
      const link = fingerprint([before]);
      const keys = byteChain(text, ranges.hashed);
      spans.push(...keys.map((key, i) => ({ key: link + key, tokens: costs[i]! })));
      cost += pieceCost;
    }
    length += piece.end - piece.start;
    if (breakpoints.some((at) => at > piece.start && at <= piece.end)) marks.push(spans.length - 1);
  }
  // A breakpoint of the whole request stands at the end of the prompt.
  const isInPiece = (at: number) => pieces.some(({ start, end }) => at > start && at <= end);
  if (!breakpoints.every(isInPiece) && marks.at(-1) !== spans.length - 1) marks.push(spans.length - 1);
  return { spans, cost, counted, marks, model, seed, pieces: pieces.length };
}

/** What of a body the model reads, in the order in which it does. */
function piecesOf(view: BodyView, tools: ByteSpan | undefined, prompt: PromptView | undefined): readonly ByteSpan[] {
  const before = [tools, prompt === undefined ? view.value('prompt') : prompt.opening];
  return [...before.filter((span) => span !== undefined), ...(prompt?.elements ?? [])];
}

/** Ranges of one piece that begins at byte `length` of the prompt. */
function rangesOf(piece: ByteSpan, length: number): PieceRanges {
  const ranges: ByteRange[] = [];
  const hashed = Math.min(piece.end, piece.start + Math.max(0, MAX_HASHED_BYTES - length));
  for (let start = piece.start; start < hashed; ) {
    const size = Math.max(MIN_SPAN_BYTES, Math.floor(SPAN_PART * (length + start - piece.start)));
    const end = Math.min(hashed, start + size);
    ranges.push({ start, end });
    start = end;
  }
  return { hashed: ranges, rest: { start: hashed, end: piece.end } };
}

function plainCosts(text: Buffer, { hashed, rest }: PieceRanges): readonly number[] {
  return [...hashed, rest].map(({ start, end }) => costOfBytes(text, start, end));
}

/**
 * Costs of the strings that are values: their quotes, keys and brackets are the API's, and no chat template writes
 * them. What templates write around a message is in the first cost.
 */
function textCosts(text: Buffer, { hashed, rest }: PieceRanges, isMessage: boolean): readonly number[] {
  let isInString = false;
  let isEscaped = false;
  let stringCost = 0;
  return [...hashed, rest].map(({ start, end }, i) => {
    let cost = i === 0 && isMessage ? MESSAGE_COST : 0;
    let from = start;
    for (let at = start; at < end; at++) {
      const byte = text[at]!;
      if (isEscaped) {
        isEscaped = false;
      } else if (isInString && byte === BACKSLASH) {
        const part = costOfBytes(text, from, at);
        stringCost += part;
        cost += part;
        from = at + 1;
        isEscaped = true;
      } else if (byte === QUOTE) {
        if (isInString) {
          const part = costOfBytes(text, from, at);
          cost = text[at + 1] === COLON ? Math.max(0, cost - stringCost) : cost + part;
        }
        isInString = !isInString;
        stringCost = 0;
        from = at + 1;
      }
    }
    if (isInString && from < end) {
      const part = costOfBytes(text, from, end);
      stringCost += part;
      cost += part;
    }
    return cost;
  });
}

function isAnswer(cost: number, answer: number): boolean {
  return cost <= MAX_ANSWER_FACTOR * answer + TEMPLATE_COST && answer <= MAX_ANSWER_FACTOR * cost;
}

/**
 * The body with what would make equal prompts differ, or distort their lengths, written otherwise: escapes of
 * characters, files, and breakpoints, whose places are answered.
 */
function normalised(body: Buffer): { readonly text: Buffer; readonly breakpoints: readonly number[] } {
  const hasEscapes = body.includes('\\u');
  const hasBreakpoints = body.includes('"cache_control"');
  const hasFiles = body.includes('base64');
  if (!hasEscapes && !hasBreakpoints && !hasFiles) return { text: body, breakpoints: [] };
  let json = body.toString();
  if (hasEscapes) json = JSON.stringify(JSON.parse(json));
  if (hasFiles) json = json.replace(FILES, (file) => fingerprint([file]));
  if (!hasBreakpoints) return { text: Buffer.from(json), breakpoints: [] };
  const breakpoints: number[] = [];
  let text = '';
  let from = 0;
  for (const {
    0: { length },
    index,
  } of json.matchAll(BREAKPOINTS)) {
    text += json.slice(from, index);
    from = index + length;
    breakpoints.push(Buffer.byteLength(text));
  }
  return { text: Buffer.from(text + json.slice(from)), breakpoints };
}
