import type { ListedSession } from '@warmpath/gateway';
import { percent, type Terminal } from '../terminal.js';

/** What the sessions of an agent used, in the engine's count. Costs are `null` without `prices`. */
export type SessionAccount = ListedSession['sums'] & {
  /** Why prefixes broke: each cause with its breaks, of those that are still listed. */
  readonly causes: Readonly<Record<string, number>>;
};

type Sums = ListedSession['sums'];

/** What was used between two lists of a gateway's sessions; `undefined` where no prompt named a session. */
export function accountSince(
  before: readonly ListedSession[],
  after: readonly ListedSession[],
): SessionAccount | undefined {
  const earlier = new Map(before.map((session) => [session.id, session]));
  const used = after.map(({ id, sums, breaks }) => {
    const own = sumsSince(sums, earlier.get(id)?.sums);
    // The latest break comes first.
    return { sums: own, causes: breaks.slice(0, own.breaks).map(({ cause }) => cause) };
  });
  const sums = used.map((each) => each.sums).filter(({ prompts }) => prompts > 0);
  if (sums.length === 0) return undefined;
  const causes: Record<string, number> = {};
  for (const cause of used.flatMap((each) => each.causes)) causes[cause] = (causes[cause] ?? 0) + 1;
  return { ...sums.reduce((total, each) => combined(total, each, 1)), causes };
}

function sumsSince(sums: Sums, before: Sums | undefined): Sums {
  return before === undefined ? sums : combined(sums, before, -1);
}

/** The sums of both, the other ones times `factor`. */
function combined(one: Sums, other: Sums, factor: 1 | -1): Sums {
  const entries = Object.entries(one).map(([name, value]) => {
    const more = other[name as keyof Sums];
    return [name, value === null && more === null ? null : (value ?? 0) + factor * (more ?? 0)];
  });
  return Object.fromEntries(entries) as Sums;
}

/** Prints an account: on standard error, because standard output is the agent's; with `--json`, as its last line. */
export function printAccount(terminal: Terminal, account: SessionAccount): void {
  terminal.data(account);
  const { prompts, promptTokens, cachedTokens, cacheWriteTokens, computedTokens, cost, causes } = account;
  const count = (tokens: number): string => tokens.toLocaleString('en-US');
  const share = percent(cachedTokens / Math.max(1, promptTokens));
  const parts = [`${count(cachedTokens)} cached (${share})`];
  if (cacheWriteTokens > 0) parts.push(`${count(cacheWriteTokens)} written`);
  parts.push(`${count(computedTokens)} computed`);
  const number = `${count(prompts)} ${prompts === 1 ? 'prompt' : 'prompts'}`;
  terminal.note(`Warmpath: ${number}, ${count(promptTokens)} prompt tokens: ${parts.join(', ')}.`);
  if (cost !== null) terminal.note(`  cost    ${cost.toFixed(4)}`);
  if (account.breaks === 0) return;
  const why = Object.entries(causes).map(([cause, breaks]) => `${cause} ${breaks}`);
  const lost = account.lostCost === null ? '' : `, cost ${account.lostCost.toFixed(4)}`;
  terminal.note(
    `  breaks  ${account.breaks} (${why.join(', ')}): ${count(account.lostTokens)} cached tokens lost${lost}`,
  );
}
