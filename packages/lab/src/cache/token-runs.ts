import type { PromptSpan } from '../workloads/workload.js';

/** Tokens `offset` to `offset + tokens - 1` of a span. Tokens are equal if, and only if, key and offset are. */
export interface TokenRun {
  readonly key: string;
  readonly offset: number;
  readonly tokens: number;
}

/**
 * Spans as runs; those without tokens are left out. A salt is a namespace: it changes the identity of every token.
 * O(spans).
 */
export function toRuns(spans: readonly PromptSpan[], salt = ''): TokenRun[] {
  const space = `${salt.length}:${salt}`;
  const runs: TokenRun[] = [];
  for (const { key, tokens } of spans) if (tokens > 0) runs.push({ key: space + key, offset: 0, tokens });
  return runs;
}

/** Tokens of all runs. */
export function countTokens(runs: readonly TokenRun[]): number {
  return runs.reduce((sum, { tokens }) => sum + tokens, 0);
}

/** The runs without their first `tokens` tokens. O(runs). */
export function dropTokens(runs: readonly TokenRun[], tokens: number): TokenRun[] {
  const rest: TokenRun[] = [];
  let left = tokens;
  for (const run of runs) {
    const dropped = Math.min(left, run.tokens);
    left -= dropped;
    if (dropped === run.tokens) continue;
    rest.push({ key: run.key, offset: run.offset + dropped, tokens: run.tokens - dropped });
  }
  return rest;
}

/** The first `tokens` tokens of the runs. O(runs). */
export function takeTokens(runs: readonly TokenRun[], tokens: number): TokenRun[] {
  const taken: TokenRun[] = [];
  let left = tokens;
  for (const run of runs) {
    if (left === 0) break;
    const length = Math.min(left, run.tokens);
    taken.push({ ...run, tokens: length });
    left -= length;
  }
  return taken;
}

/** Tokens that two sequences have in common at their start. O(runs). */
export function commonPrefix(a: readonly TokenRun[], b: readonly TokenRun[]): number {
  let common = 0;
  let [indexA, indexB, insideA, insideB] = [0, 0, 0, 0];
  while (indexA < a.length && indexB < b.length) {
    const runA = a[indexA]!;
    const runB = b[indexB]!;
    if (runA.key !== runB.key || runA.offset + insideA !== runB.offset + insideB) break;
    const length = Math.min(runA.tokens - insideA, runB.tokens - insideB);
    common += length;
    insideA += length;
    insideB += length;
    if (insideA === runA.tokens) [indexA, insideA] = [indexA + 1, 0];
    if (insideB === runB.tokens) [indexB, insideB] = [indexB + 1, 0];
  }
  return common;
}
