import type { ListedSession } from '@warmpath/gateway';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { pause } from '../interruption.js';
import { addGatewayOption } from '../options.js';
import { percent, type Terminal } from '../terminal.js';
import { withGateway } from '../with-gateway.js';

const REFRESH_MS = 2_000;

interface WatchOptions {
  readonly gateway: string;
  readonly keyEnv?: string;
  readonly once?: boolean;
}

/** Adds `warmpath watch`. */
export function addWatchCommand(program: Command, context: CommandContext): void {
  const { terminal, environment } = context;
  addGatewayOption(
    addCommand(program, 'watch', 'tell what sessions read from caches, and what breaks of prefixes cost'),
  )
    .option('--key-env <name>', "environment variable that holds the gateway's operator key")
    .option('--once', 'print the sessions and end')
    .action((options: WatchOptions) =>
      withGateway(options, environment, async (client, signal) => {
        const list = await client.sessions(signal);
        terminal.data(list);
        printSessions(terminal, list.data);
        const told = new Set<string>();
        for (const session of list.data) printBreaks(terminal, session, told);
        while (options.once !== true) {
          await pause(REFRESH_MS, signal);
          for (const session of (await client.sessions(signal)).data) printBreaks(terminal, session, told);
        }
      }),
    );
}

function printSessions(terminal: Terminal, sessions: readonly ListedSession[]): void {
  if (sessions.length === 0) {
    terminal.line('The gateway has seen no session yet: agents name theirs in a header.');
    return;
  }
  const rows = sessions.map(({ id, client, startedBy, sums }) => [
    id,
    startedBy === null ? client : `${client}, by ${startedBy}`,
    sums.prompts.toLocaleString('en'),
    sums.promptTokens.toLocaleString('en'),
    percent(sums.promptTokens === 0 ? 0 : sums.cachedTokens / sums.promptTokens, 0),
    sums.cacheWriteTokens.toLocaleString('en'),
    sums.lostTokens.toLocaleString('en'),
    moneyOf(sums.cost),
    moneyOf(sums.lostCost),
  ]);
  const head = ['session', 'client', 'prompts', 'tokens', 'cached', 'written', 'lost', 'cost', 'of lost'];
  terminal.table([head, ...rows], '');
}

/** A line for each break that was not told before, the oldest first. */
function printBreaks(terminal: Terminal, { id, breaks }: ListedSession, told: Set<string>): void {
  const { yellow, dim } = terminal.style;
  for (const { requestId, cause, remedy, piece, offset, lostTokens, cost } of breaks.toReversed()) {
    const key = `${id} ${requestId}`;
    if (told.has(key)) continue;
    told.add(key);
    const price = cost === null ? '' : `, ${moneyOf(cost)}`;
    const place = piece === null ? '' : ` at ${piece}, character ${offset}`;
    const lost = `${lostTokens.toLocaleString('en')} tokens${price}`;
    terminal.line(`${id}  ${yellow(cause)}${place}: ${lost}  ${dim(`request ${requestId}`)}`);
    terminal.line(dim(`  ${remedy}`));
  }
}

function moneyOf(amount: number | null): string {
  return amount === null ? '' : amount.toLocaleString('en', { maximumSignificantDigits: 3 });
}
