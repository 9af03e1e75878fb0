import { PassThrough } from 'node:stream';
import { timeLeft } from '@warmpath/lab';
import type { Command } from 'commander';
import { describe, expect, it, vi } from 'vitest';
import { createContext, HELP_EXAMPLES } from '../src/command-context.js';
import { announceStart } from '../src/engine-settings.js';
import { describeRequest } from '../src/gateway-settings.js';
import { createProgram } from '../src/program.js';
import { startWaiting } from '../src/progress.js';
import { formatTable, Terminal } from '../src/terminal.js';

const ESCAPE = '\u001b';

/** A terminal whose streams are kept. */
function terminalOf({ isTTY = true, json = false, environment = {}, columns = 0 } = {}) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()].map((stream) =>
    Object.assign(stream, { isTTY, columns }),
  );
  const streams = { stdout, stderr } as unknown as { stdout: NodeJS.WriteStream; stderr: NodeJS.WriteStream };
  const terminal = new Terminal(streams, { json, environment });
  return { terminal, said: () => String(stdout!.read() ?? ''), noted: () => String(stderr!.read() ?? '') };
}

describe('colours', () => {
  it.each([
    ['a terminal', {}, true],
    ['NO_COLOR', { environment: { NO_COLOR: '1' } }, false],
    ['an empty NO_COLOR, which says nothing', { environment: { NO_COLOR: '' } }, true],
    ['a terminal that has none', { environment: { TERM: 'dumb' } }, false],
    ['no terminal', { isTTY: false }, false],
    ['JSON', { json: true }, false],
  ])('%s', (_, options, isColoured) => {
    expect(terminalOf(options).terminal.style.green('ok').includes(ESCAPE)).toBe(isColoured);
  });
});

describe('a line for a request', () => {
  const at = new Date(2026, 0, 2, 3, 4, 5);
  const plain = terminalOf({ isTTY: false }).terminal.style;
  const served = {
    route: '/v1/chat/completions',
    status: 200,
    durationMs: 412.3,
    documents: 5,
    documentsMoved: 2,
    promptTokens: 1_310,
    cachedTokens: 1_204,
    ttftMs: 84.2,
    errorCode: undefined,
  };

  it.each([
    [served, '03:04:05  200  chat/completions  5 documents   1,204 of 1,310 tokens reused (92 %)  TTFT 84 ms'],
    [
      { ...served, cachedTokens: undefined, documents: 1 },
      '03:04:05  200  chat/completions  1 document    1,310 tokens, reuse not reported  TTFT 84 ms',
    ],
    [
      {
        ...served,
        status: 502,
        errorCode: 'WARMPATH_UPSTREAM_UNREACHABLE',
        documents: undefined,
        promptTokens: undefined,
        ttftMs: undefined,
      },
      '03:04:05  502  chat/completions  WARMPATH_UPSTREAM_UNREACHABLE  412 ms',
    ],
  ] as const)('%#', (request, line) => {
    expect(describeRequest(request, plain, at)).toBe(line);
    expect(line.length).toBeLessThan(100);
  });
});

describe('tables', () => {
  it('that are too wide for 100 columns go on below, with the first column again', () => {
    const head = ['policy', ...Array.from({ length: 12 }, (_, i) => `column number ${i}`)];
    const lines = formatTable([head, ['exact', ...head.slice(1).map((_, i) => String(i))]]);
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(96);
    expect(lines.filter((line) => line.startsWith('exact'))).toHaveLength(3);
    expect(lines.join(' ').match(/column number \d+/g)).toEqual(head.slice(1));
    expect(formatTable([['a', 'b']])).toEqual(['a   b']);
  });
});

describe('the time left', () => {
  it.each([
    [500, 5, 10, ''],
    [2_000, 0, 10, ''],
    [2_000, 10, 10, ''],
    [10_000, 5, 10, 'about 10 s left'],
    [60_000, 1, 6, 'about 5 min left'],
    [3_600_000, 1, 4, 'about 3 h left'],
  ])('%i ms for %i of %i: %j', (ms, done, total, text) => {
    expect(timeLeft(ms, done, total)).toBe(text);
  });

  it('a status is no wider than the terminal', () => {
    const { terminal, noted } = terminalOf({ columns: 12 });
    terminal.status('Downloading the model');
    expect(noted()).toBe('\r\u001b[2KDownloading');
  });

  it('what is waited for is said at once, on a line each where there is no terminal', () => {
    const watched = terminalOf();
    startWaiting(watched.terminal, 'Starting …').stop();
    expect(watched.noted()).toMatch(/^\r.*Starting …\r/);
    const other = terminalOf({ isTTY: false });
    const waiting = startWaiting(other.terminal, 'Starting …');
    waiting.say('Loading …');
    waiting.stop();
    expect(other.noted()).toBe('Starting …\nLoading …\n');
  });

  it('a download is followed without a terminal too: a line every ten seconds, and at its end', () => {
    const { terminal, noted } = terminalOf({ isTTY: false });
    const now = vi.spyOn(performance, 'now').mockReturnValue(50_000);
    try {
      const start = announceStart(terminal);
      for (let second = 0; second <= 25; second++) {
        now.mockReturnValue(50_000 + second * 1_000);
        const bytes = second * 4 * 1_048_576;
        start.onProgress({ kind: 'download', name: 'hf:org/repo/model.gguf', bytes, totalBytes: 100 * 1_048_576 });
      }
      start.stop();
    } finally {
      now.mockRestore();
    }
    expect(noted().trim().split('\n')).toEqual([
      'Starting the embedded engine …',
      'hf:org/repo/model.gguf: download 0.0 MiB of 100.0 MiB',
      expect.stringMatching(/: download 40\.0 MiB of 100\.0 MiB {2}about 15 s left$/),
      expect.stringMatching(/: download 80\.0 MiB of 100\.0 MiB {2}about 5 s left$/),
      'hf:org/repo/model.gguf: download 100.0 MiB of 100.0 MiB',
    ]);
  });
});

describe('the commands that are loaded', () => {
  const programOf = (...argv: string[]) => createProgram({ ...createContext(terminalOf().terminal), argv });
  const named = (command: Command) => command.commands.map((each) => each.name());

  it('are the one that is named alone', async () => {
    expect(named(await programOf('arrange', '--json'))).toEqual(['arrange']);
    const program = await programOf('lab', 'run', '--json');
    expect([named(program), named(program.commands[0]!)]).toEqual([['lab'], ['run']]);
  });

  it.each([[], ['--help'], ['help', 'lab'], ['arange'], ['constructor'], ['--json', 'lab', 'run']])(
    'are all where none is named: %j',
    async (...argv) => {
      const program = await programOf(...argv);
      expect(named(program)).toHaveLength(18);
      expect(named(program.commands.find((each) => each.name() === 'lab')!)).toHaveLength(5);
    },
  );

  it.each([[['lab']], [['lab', '--help']], [['lab', 'rn']], [['lab', 'help', 'run']]])(
    'are all of the lab where none of those is named: %j',
    async (argv) => {
      const program = await programOf(...argv);
      expect([named(program), named(program.commands[0]!).length]).toEqual([['lab'], 5]);
    },
  );
});

describe('examples in the help', async () => {
  const program = await createProgram({ ...createContext(terminalOf().terminal), argv: [] });

  it.each(Object.entries(HELP_EXAMPLES))('%s', (name, examples) => {
    for (const example of examples) {
      const words = /warmpath ([^|]*)$/.exec(example)![1]!.split(' ');
      let command = program;
      for (let next = command; next !== undefined; ) {
        command = next;
        next = command.commands.find((each) => each.name() === words[0])!;
        if (next !== undefined) words.shift();
      }
      expect(`${example} `).toContain(`warmpath ${name} `);
      const options = command.options.flatMap(({ long, short }) => [long, short]);
      for (const flag of words.filter((word) => word.startsWith('--'))) expect(options).toContain(flag);
    }
  });
});
