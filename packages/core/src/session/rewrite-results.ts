/** A tool's result in a prompt. */
export interface ToolResult {
  readonly text: string;
  /** The call that it answers, as the prompt names it. */
  readonly call: string;
  /** What was read: equal for calls that read the same thing; `undefined` for calls that do more than read. */
  readonly source: string | undefined;
  readonly failed: boolean;
  /** Tokens of the prompt before it, as the client wrote it. */
  readonly tokensBefore: number;
  /** How it was sent in an earlier prompt with the same beginning; `undefined` if it was not. */
  readonly sent: string | undefined;
}

/** What the engine's cache keeps, and what a token costs. */
export interface CacheTerms {
  /** Tokens of a block: a cached prefix is a whole number of them. */
  readonly blockTokens: number;
  /** Prefixes with fewer tokens are not cached. */
  readonly minTokens: number;
  /** Price of a token that is computed (and written into the cache), and of one that is read from the cache. */
  readonly computed: number;
  readonly cached: number;
}

/** The texts to send, one a result, and what they spare. */
export interface RewrittenResults {
  readonly texts: readonly string[];
  /** Tokens by which the prompt is shorter than the client's. */
  readonly savedTokens: number;
  /** What that spares now, at least, and each time that the prompt is read from the cache. */
  readonly savedCost: number;
  readonly savedCostAgain: number;
}

/**
 * Replaces results that the model does not need by a note: one that says the same as an earlier result, and a read of
 * something that was read again later, with another text. A result that was sent before is sent the same, so no cached
 * prefix is lost. Others are replaced only where no later turn can cost more for it. O(texts).
 */
export function rewriteResults(
  results: readonly ToolResult[],
  terms: CacheTerms,
  countTokens: (text: string) => number,
): RewrittenResults {
  const latest = new Map<string, ToolResult>();
  for (const result of results) if (result.source !== undefined && !result.failed) latest.set(result.source, result);
  const shown = new Map<string, ToolResult>();
  let savedTokens = 0;
  let newTokens = 0;
  const texts = results.map((result) => {
    const { text, sent, tokensBefore } = result;
    const note = sent === undefined ? noteFor(result, latest, shown) : sent;
    const isKept = sent === undefined && tokensBefore - savedTokens < terms.minTokens;
    if (note === undefined || note === text || isKept) return show(result);
    const [tokens, noteTokens] = [countTokens(text), countTokens(note)];
    if (sent === undefined && !neverCostsMore({ tokens, noteTokens }, terms)) return show(result);
    savedTokens += tokens - noteTokens;
    if (sent === undefined) newTokens += tokens - noteTokens;
    return note;
  });
  const savedCostAgain = savedTokens * terms.cached;
  return {
    texts,
    savedTokens,
    savedCost: savedCostAgain + newTokens * (terms.computed - terms.cached),
    savedCostAgain,
  };

  function show(result: ToolResult): string {
    if (!shown.has(result.text)) shown.set(result.text, result);
    return result.text;
  }
}

/**
 * The price rule. The worst turn comes later: the client sends nearly the same result there in full, which would have
 * been cached, and the shorter prefix loses a part of a block. Reading the result from the cache must cost as much as
 * computing the note and that part.
 */
function neverCostsMore(
  { tokens, noteTokens }: { readonly tokens: number; readonly noteTokens: number },
  { blockTokens, cached, computed }: CacheTerms,
): boolean {
  return tokens * cached >= (noteTokens + blockTokens - 1) * computed;
}

/** What stands in place of a result; `undefined` for one that the model needs. */
function noteFor(
  { text, source, failed }: ToolResult,
  latest: ReadonlyMap<string, ToolResult>,
  shown: ReadonlyMap<string, ToolResult>,
): string | undefined {
  const last = source === undefined || failed ? undefined : latest.get(source);
  if (last !== undefined && last.text !== text) {
    return `[Left out: call ${last.call} read this again later. Call the tool again for the present content.]`;
  }
  const same = shown.get(text);
  return same && `[The same as the result of call ${same.call} above.]`;
}
