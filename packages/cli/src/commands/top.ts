import { WarmpathError } from '@warmpath/core';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { Interruption, withInterruption } from '../interruption.js';
import { addGatewayOption, keyFrom } from '../options.js';
import { drawFrame, type Screen } from '../top/draw-frame.js';
import { type FeedAddress, readFeed } from '../top/feed.js';
import { FeedState, type Figures } from '../top/figures.js';

interface TopOptions {
  readonly gateway: string;
  readonly operatorKeyEnv?: string;
  readonly once?: true;
}

/** Seconds until a gateway that is gone is asked again: after the first time, the second, and so on. */
const RETRY_S = [1, 2, 4, 8];
/** Ticks after which one frame is shown, whether or not all engines have answered. */
const MOST_TICKS = 5;
const ESCAPE = '\u001b';
/** The other screen, without a cursor; and back. */
const ENTER = `${ESCAPE}[?1049h${ESCAPE}[?25l`;
const LEAVE = `${ESCAPE}[?25h${ESCAPE}[?1049l`;
const HOME = `${ESCAPE}[H`;
const CLEAR_LINE = `${ESCAPE}[K`;
const CLEAR_BELOW = `${ESCAPE}[J`;
const CONTROL_C = '\u0003';

/** Adds `warmpath top`. */
export function addTopCommand(program: Command, context: CommandContext): void {
  const about = 'show what a running gateway does: TTFT, reuse, queue, engines and the last requests';
  addGatewayOption(addCommand(program, 'top', about))
    .option('--operator-key-env <name>', "environment variable that holds the gateway's operator key")
    .option('--once', 'print one frame and end')
    .action(async ({ gateway, operatorKeyEnv, once }: TopOptions) => {
      const operatorKey = keyFrom(operatorKeyEnv === undefined ? {} : { keyEnv: operatorKeyEnv }, context.environment);
      const address = { url: gateway, operatorKey };
      await withInterruption(async (signal) => {
        if (once || context.terminal.json || !process.stdout.isTTY) await showOnce(address, context, signal);
        else await showUntilLeft(address, context, signal);
      });
    });
}

/** One frame, for scripts; as JSON with `--json`. Waits a moment for what engines answer to the gateway. */
async function showOnce(address: FeedAddress, { terminal }: CommandContext, signal: AbortSignal): Promise<void> {
  let state: FeedState | undefined;
  let ticks = 0;
  for await (const event of readFeed(address, signal)) {
    if (event.kind === 'start') state = new FeedState(event.start);
    else if (state !== undefined) {
      const figures = state.take(event.tick);
      const isKnown = figures.engines.every((engine) => engine.state !== 'unknown');
      if (!isKnown && ++ticks < MOST_TICKS) continue;
      terminal.data(figures);
      const columns = process.stdout.columns ?? 80;
      const screen = { columns, rows: Number.POSITIVE_INFINITY, style: terminal.style };
      for (const line of drawFrame(address.url, figures, screen)) terminal.line(line);
      return;
    }
  }
  throw new WarmpathError('WARMPATH_GATEWAY_UNREACHABLE', {
    detail: `the gateway at ${address.url} ended the connection.`,
  });
}

/** Frames until somebody leaves. The terminal is afterwards as it was before, however this ends. */
async function showUntilLeft(address: FeedAddress, context: CommandContext, signal: AbortSignal): Promise<void> {
  const { stdout } = process;
  const { stdin } = context;
  const left = new AbortController();
  const end = AbortSignal.any([signal, left.signal]);
  let figures: Figures | undefined;
  let remark = 'Connecting …';
  const draw = () => stdout.write(frameText(address.url, figures, remark, screenOf(context)));
  const onKeys = (keys: Buffer) => {
    const text = keys.toString('latin1');
    if (text.includes('q') || text.includes('Q')) left.abort();
    else if (text.includes(CONTROL_C)) left.abort(new Interruption('SIGINT'));
  };
  stdout.write(ENTER);
  stdout.on('resize', draw);
  // The terminal hands keys on one by one, and Ctrl-C as one of them.
  if (stdin.isTTY) stdin.setRawMode(true);
  stdin.on('data', onKeys);
  try {
    draw();
    for (let failures = 0; !end.aborted; ) {
      try {
        let state: FeedState | undefined;
        for await (const event of readFeed(address, end)) {
          if (event.kind === 'start') state = new FeedState(event.start);
          else if (state !== undefined) figures = state.take(event.tick);
          [failures, remark] = [0, ''];
          if (event.kind === 'tick') draw();
        }
        remark = 'The gateway ended the connection.';
      } catch (error) {
        if (end.aborted) break;
        if (!WarmpathError.isInstance(error) || error.code !== 'WARMPATH_GATEWAY_UNREACHABLE') throw error;
        remark = `The gateway does not answer (${error.message.split('. ')[0]}).`;
      }
      const seconds = RETRY_S[Math.min(failures++, RETRY_S.length - 1)]!;
      remark = `${remark} Next try in ${seconds} s.`;
      draw();
      await waited(seconds * 1_000, end);
    }
  } finally {
    stdin.off('data', onKeys);
    if (stdin.isTTY) stdin.setRawMode(false);
    stdin.pause();
    stdout.off('resize', draw);
    stdout.write(LEAVE);
  }
  if (left.signal.reason instanceof Interruption) throw left.signal.reason;
}

function screenOf({ terminal }: CommandContext): Screen {
  // A terminal that does not know its size says 0.
  const { columns, rows } = process.stdout;
  return { columns: columns || 80, rows: rows || 24, style: terminal.style };
}

/** All of a frame in one piece, so that none is seen half drawn. */
function frameText(url: string, figures: Figures | undefined, remark: string, screen: Screen): string {
  const { columns, rows, style } = screen;
  const room = remark === '' ? rows : rows - 1;
  const lines = figures === undefined ? [] : [...drawFrame(url, figures, { ...screen, rows: room })];
  if (remark !== '') lines.unshift(style.yellow(remark.slice(0, columns)));
  return `${HOME}${lines.map((line) => `${line}${CLEAR_LINE}`).join('\r\n')}${CLEAR_BELOW}`;
}

function waited(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const onAbort = () => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', onAbort);
      resolve();
    }, ms);
    signal.addEventListener('abort', onAbort, { once: true });
  });
}
