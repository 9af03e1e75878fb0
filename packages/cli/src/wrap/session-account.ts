import { percent, type Terminal } from '../terminal.js';

/** What prompts used, in the engine's count. */
export interface SessionAccount {
  readonly prompts: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** Tokens that were written into a hosted cache for a price of their own. */
  readonly writtenTokens: number;
  /** In the currency of `prices`; 0 without a configured price. */
  readonly cost: number;
  /** The same without the gateway. */
  readonly baselineCost: number;
}

/** The counters of a gateway that make an account; labels choose the routes of prompts. */
const COUNTERS = {
  prompts: /^warmpath_requests_total\{[^}]*route="\/v1\/(?:messages|responses|chat\/completions|completions)"[^}]*\}/,
  promptTokens: /^warmpath_prompt_tokens_total/,
  cachedTokens: /^warmpath_cached_tokens_total/,
  writtenTokens: /^warmpath_cache_write_tokens_total/,
  cost: /^warmpath_prompt_cost_total/,
  baselineCost: /^warmpath_baseline_cost_total/,
} as const satisfies Readonly<Record<keyof SessionAccount, RegExp>>;

/** The account of a gateway since its start, from its metrics in Prometheus's text format. */
export function readAccount(metrics: string): SessionAccount {
  const lines = metrics.split('\n');
  const entries = Object.entries(COUNTERS).map(([name, pattern]) => {
    const values = lines.filter((line) => pattern.test(line)).map((line) => Number(line.slice(line.lastIndexOf(' '))));
    return [name, values.reduce((sum, value) => sum + value, 0)] as const;
  });
  return Object.fromEntries(entries) as unknown as SessionAccount;
}

/** What was used between two accounts of a gateway. */
export function accountSince(before: SessionAccount, after: SessionAccount): SessionAccount {
  const entries = Object.entries(after).map(([name, value]) => [name, value - before[name as keyof SessionAccount]]);
  return Object.fromEntries(entries) as SessionAccount;
}

/** Prints an account: on standard error, because standard output is the agent's; with `--json`, as its last line. */
export function printAccount(terminal: Terminal, account: SessionAccount): void {
  terminal.data(account);
  const { prompts, promptTokens, cachedTokens, writtenTokens, cost, baselineCost } = account;
  const count = (tokens: number): string => tokens.toLocaleString('en-US');
  const share = percent(cachedTokens / Math.max(1, promptTokens));
  const parts = [`${count(cachedTokens)} cached (${share})`];
  if (writtenTokens > 0) parts.push(`${count(writtenTokens)} written`);
  parts.push(`${count(promptTokens - cachedTokens - writtenTokens)} computed`);
  terminal.note(`Warmpath: ${count(prompts)} prompts, ${count(promptTokens)} prompt tokens: ${parts.join(', ')}.`);
  if (baselineCost > 0) {
    terminal.note(`  cost  ${cost.toFixed(4)}; without the gateway ${baselineCost.toFixed(4)}`);
  }
}
