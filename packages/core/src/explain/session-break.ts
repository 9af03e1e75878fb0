import {
  BREAK_CAUSES,
  type BreakCause,
  findPrefixBreak,
  isOpeningPiece,
  isSameOutline,
  type OutlinedPiece,
  type PromptOutline,
  type PromptPiece,
} from './prefix-break.js';

/** Why an engine had not cached what the prompt shares with the one before, and what to do about it. */
const MISS_CAUSES = {
  'other-engine': 'The prompt went to another engine than the one before it.',
  expired: 'The cache keeps a prefix for a time only, and the session was idle for longer.',
  evicted:
    'The engine no longer had the prefix: it was evicted, the engine restarted, or the prompt reached another machine of it. Some chat templates also write earlier turns in another way.',
} as const;

/** Why a session computed again what it had computed before. */
export const SESSION_BREAK_CAUSES = { ...BREAK_CAUSES, ...MISS_CAUSES };
type SessionBreakCause = BreakCause | keyof typeof MISS_CAUSES;

/** Causes that a gateway can take away: it may write the same prompt as before, or choose the same engine. */
const AVOIDABLE: ReadonlySet<SessionBreakCause> = new Set([
  'tools-order',
  'json-keys',
  'documents-order',
  'other-engine',
]);

/** Tokens and part of the earlier prompt from which on a miss counts: counts of engines are not exact. */
const MIN_LOST_TOKENS = 64;
const MIN_LOST_PART = 0.05;

/** A prompt that was answered. */
export interface AnsweredPrompt {
  readonly outline: PromptOutline;
  /** Its name. */
  readonly engine: string;
  /** Tokens that the engine should have cached of it afterwards, as it counts them. */
  readonly heldTokens: number;
  /** Milliseconds: when it was answered, and for how long it stays cached where the engine says so. */
  readonly answeredAt: number;
  readonly keptMs: number | undefined;
}

/** The next prompt of the same session. */
interface NextPrompt {
  readonly pieces: readonly PromptPiece[];
  readonly outline: PromptOutline;
  readonly engine: string;
  readonly dispatchedAt: number;
  readonly promptTokens: number;
  /** `undefined` where the engine does not say. */
  readonly cachedTokens: number | undefined;
  /** Tokens of so many that the engine can reuse: whole blocks, for instance. */
  readonly reusable: (tokens: number) => number;
}

/** What a session computed again, and why. */
export interface SessionBreak {
  readonly cause: SessionBreakCause;
  /** Whether a gateway can avoid it. */
  readonly isAvoidable: boolean;
  /** Where the prompt parts from the earlier one; `null` where it does not. */
  readonly piece: string | null;
  /** UTF-16 units of the piece before the difference, which is within 64 units behind it. */
  readonly offset: number;
  /** Tokens that the earlier prompt had in the cache, that this one has too, and that were not read from the cache. */
  readonly lostTokens: number;
}

/**
 * Finds what the next prompt of a session lost of the cache, and why; `undefined` where it lost nothing. O(length).
 */
export function findSessionBreak(before: AnsweredPrompt, after: NextPrompt): SessionBreak | undefined {
  const parted = findPrefixBreak(before.outline, after.pieces, after.outline);
  const cause = parted && sessionCause(parted.cause, before.outline, after.outline);
  const shared = sharedParts(before.outline, after.outline, parted?.offset ?? 0, mayShareRest(cause));
  const tokensOf = (part: number) =>
    after.reusable(Math.min(after.promptTokens - 1, Math.round(part * before.heldTokens)));
  const everything = tokensOf(shared.all);
  // Models share nothing. Templates differ in whether tools or the system prompt come first.
  const prefix = cause === 'model' || (parted !== undefined && shared.isInOpening) ? 0 : tokensOf(shared.prefix);
  const cached = after.cachedTokens ?? prefix;
  const lostTokens = Math.max(0, everything - cached);
  const missed = Math.max(0, prefix - cached);
  const isMiss = missed >= Math.max(MIN_LOST_TOKENS, MIN_LOST_PART * before.heldTokens);
  if (parted !== undefined && cause !== undefined && !(isMiss && missed > lostTokens - missed)) {
    // Another question or agent, or a prompt of another kind that has a text in common.
    if (lostTokens < MIN_LOST_TOKENS && (parted.cause === 'question' || tokensOf(shared.prefix) < MIN_LOST_TOKENS))
      return undefined;
    const { piece, offset } = parted;
    return { cause, isAvoidable: AVOIDABLE.has(cause), piece, offset, lostTokens };
  }
  if (!isMiss) return undefined;
  const missCause = missCauseOf(before, after);
  return { cause: missCause, isAvoidable: AVOIDABLE.has(missCause), piece: null, offset: 0, lostTokens };
}

/** Part of the earlier prompt, by pieces, or of its system prompt that stands in the next one of the thread. */
const MIN_COMMON_PART = 1 / 2;

/**
 * Whether a prompt goes on with an earlier one, broken or not: it has the same tools and system prompt, or half of the
 * texts, or other tools and most of the system prompt. An agent also sends prompts of another kind, to find a title for
 * instance. O(length).
 */
export function isSameThread(before: PromptOutline, after: PromptOutline): boolean {
  const [earlier, later] = [before.pieces.filter(isWritten), after.pieces.filter(isWritten)];
  if (hasSameOpening(earlier, later)) return true;
  const known = new Set(later.map(keyOf));
  const common = earlier.filter((piece) => known.has(keyOf(piece))).length;
  return common >= MIN_COMMON_PART * earlier.length || hasSameSystem(earlier, later, known);
}

/** Whether both have tools, and the later one has most of the system prompt: its history may be compacted. */
function hasSameSystem(earlier: readonly OutlinedPiece[], later: readonly OutlinedPiece[], known: ReadonlySet<string>) {
  if (![earlier, later].every((pieces) => pieces.some(({ kind }) => kind === 'tools'))) return false;
  const system = openingOf(earlier).filter(({ kind }) => kind === 'system');
  const common = lengthOf(system.filter((piece) => known.has(keyOf(piece))));
  return common > 0 && common >= MIN_COMMON_PART * lengthOf(system);
}

function openingOf(pieces: readonly OutlinedPiece[]): readonly OutlinedPiece[] {
  const end = pieces.findIndex((piece) => !isOpeningPiece(piece));
  return end < 0 ? pieces : pieces.slice(0, end);
}

function lengthOf(pieces: readonly OutlinedPiece[]): number {
  return pieces.reduce((sum, { length }) => sum + length, 0);
}

/** Whether the first prompt has tools or a system prompt, and the other the same. */
function hasSameOpening(earlier: readonly OutlinedPiece[], later: readonly OutlinedPiece[]): boolean {
  const opening = openingOf(earlier);
  const isIn = (piece: OutlinedPiece, place: number) =>
    later[place] !== undefined && isSameOutline(piece, later[place]);
  return opening.length > 0 && opening.every(isIn);
}

/** Prices of a million prompt tokens. */
interface PromptPrice {
  readonly input: number;
  readonly cached: number;
  /** Of tokens that are written into the cache. Default: `input`. */
  readonly cacheWrite?: number | undefined;
}

/** Tokens of a prompt that were read from the cache and written into it; all others were computed. */
interface PricedTokens {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly cacheWriteTokens: number;
}

/** What Anthropic asks for writing a token that stays for an hour, by the price of one that is computed. */
const HOUR_WRITE_PART = 2;

/** The price with what a written token of this prompt costs on average. */
export function withHourWrites<Price extends PromptPrice>(
  price: Price,
  tokens: { readonly cacheWriteTokens?: number | undefined; readonly hourWriteTokens?: number | undefined },
): Price {
  const { cacheWriteTokens = 0, hourWriteTokens = 0 } = tokens;
  if (hourWriteTokens === 0) return price;
  const { input, cacheWrite = input } = price;
  const part = hourWriteTokens / Math.max(cacheWriteTokens, hourWriteTokens);
  return { ...price, cacheWrite: part * HOUR_WRITE_PART * input + (1 - part) * cacheWrite };
}

/** What a prompt cost. */
export function promptCost({ promptTokens, cachedTokens, cacheWriteTokens }: PricedTokens, price: PromptPrice): number {
  const computed = Math.max(0, promptTokens - cachedTokens - cacheWriteTokens);
  const { input, cached, cacheWrite = input } = price;
  return (input * computed + cached * cachedTokens + cacheWrite * cacheWriteTokens) / 1e6;
}

/** What lost tokens cost beyond the price of cached ones. They follow the cached prefix, so they are written first. */
export function lostCost(lostTokens: number, tokens: PricedTokens, price: PromptPrice): number {
  const cacheWriteTokens = Math.min(lostTokens, tokens.cacheWriteTokens);
  const paid = promptCost({ promptTokens: lostTokens, cachedTokens: 0, cacheWriteTokens }, price);
  return paid - (price.cached * lostTokens) / 1e6;
}

/** The last question of the earlier prompt is history in the next one, where an answer stands behind it. */
function sessionCause(cause: BreakCause, before: PromptOutline, { pieces }: PromptOutline): BreakCause {
  if (cause !== 'question') return cause;
  const at = before.pieces.findIndex(
    (piece, place) => pieces[place] === undefined || !isSameOutline(piece, pieces[place]),
  );
  return pieces.slice(at).some(({ kind }) => kind === 'assistant') ? 'history-changed' : cause;
}

/** Whether the piece that differs is mostly the same text: a question or a summary is a new one. */
function mayShareRest(cause: BreakCause | undefined): boolean {
  return cause !== 'question' && cause !== 'history-compacted' && cause !== 'history-cut';
}

function missCauseOf(before: AnsweredPrompt, after: NextPrompt): keyof typeof MISS_CAUSES {
  if (before.engine !== after.engine) return 'other-engine';
  const idleMs = after.dispatchedAt - before.answeredAt;
  return before.keptMs !== undefined && idleMs > before.keptMs ? 'expired' : 'evicted';
}

/** Parts of the earlier prompt that the next one has, too, by characters: at its beginning, and at any place. */
function sharedParts(before: PromptOutline, after: PromptOutline, offset: number, withRest: boolean) {
  const written = before.pieces.filter(isWritten);
  const next = after.pieces.filter(isWritten);
  let at = 0;
  let prefix = 0;
  while (at < written.length && at < next.length && isSameOutline(written[at]!, next[at]!))
    prefix += written[at++]!.length;
  const [earlier, later] = [written[at], next[at]];
  const left = new Map<string, number>();
  for (const piece of written.slice(at)) left.set(keyOf(piece), (left.get(keyOf(piece)) ?? 0) + 1);
  let all = prefix;
  for (const piece of next.slice(at)) {
    const key = keyOf(piece);
    const count = left.get(key) ?? 0;
    if (count > 0) all += piece.length;
    left.set(key, count - 1);
  }
  if (earlier !== undefined && later !== undefined && earlier.kind === later.kind) {
    const isElsewhere = next.some((piece) => isSameOutline(piece, earlier));
    prefix += Math.min(offset, earlier.length, later.length);
    if (!isElsewhere)
      all += withRest ? Math.min(earlier.length, later.length) : Math.min(offset, earlier.length, later.length);
  }
  const length = Math.max(1, lengthOf(written));
  const isInOpening = written.slice(0, at + 1).every(isOpeningPiece);
  return { prefix: prefix / length, all: Math.max(prefix, all) / length, isInOpening };
}

/** Whether it is in the prompt: the name of the model is not. */
function isWritten({ kind }: OutlinedPiece): boolean {
  return kind !== 'model';
}

function keyOf({ kind, length, chunks }: OutlinedPiece): string {
  return `${kind} ${length} ${chunks.join()}`;
}
