import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { type RunningGateway, startGateway } from '@warmpath/gateway';
import { Collections } from '@warmpath/retrieval';
import type { Command } from 'commander';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { learnedKinds } from '../../gateway/test/learned-kinds.js';
import { startFakeEmbeddings } from '../../retrieval/test/fake-embeddings.js';
import { createContext } from '../src/command-context.js';
import { reportFailure } from '../src/failure.js';
import { createProgram } from '../src/program.js';
import { Terminal } from '../src/terminal.js';
import { type FakeEngine, startFakeEngine } from './fake-engine.js';
import { startCli } from './run-cli.js';

const TIMEOUT = { timeout: 180_000 };
/** Clears the screen, sets a title, turns the direction of text, writes over the line, and forges one. */
const HOSTILE =
  'evil\u001b[2J\u001b]0;title\u0007\u009b31m\u001b[31mred\u202e\u2066\u200b\u{e0041}\u007f\b\rover\u2028\u0085x\nforged line';
/** An answer may have lines. */
const ANSWER = `yes\n\t👍${HOSTILE.replace('\n', ' ')}\ud83d`;
/** The same in a name of a file. */
const NAME = HOSTILE.replaceAll('/', '');
/** Id of a prompt kind with such a text. */
const KIND = 'abcdef0123456789';
/** Half of a character, which JSON can hold. */
const HALF = '\ud83d';

/** What Warmpath itself sends to a terminal: colours, and the start of a line that is rewritten. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for.
const OWN = /\u001b\[(?:1|2|22|31|32|33|36|39)m|\r\u001b\[2K/g;
const UNPRINTABLE =
  /(?!\n|\t|\u200c|\u200d|\p{Variation_Selector})[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\ufffd]/u;

interface Run {
  readonly argv: readonly string[];
  readonly input?: string;
  readonly environment?: Readonly<Record<string, string>>;
}

interface Printed {
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command in this process and gives what it wrote. */
async function print({ argv, input = '', environment = {} }: Run, isTTY: boolean): Promise<Printed> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()].map((stream) => Object.assign(stream, { isTTY }));
  const written = [stdout!, stderr!].map((stream) => {
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    return chunks;
  });
  const streams = { stdout, stderr } as unknown as { stdout: NodeJS.WriteStream; stderr: NodeJS.WriteStream };
  const terminal = new Terminal(streams, { json: argv.includes('--json'), environment: {} });
  const stdin = Readable.from([Buffer.from(input)]) as NodeJS.ReadStream;
  const context = { ...createContext(terminal), argv, stdin, environment: { ...process.env, ...environment } };
  try {
    await (await createProgram(context)).parseAsync(argv, { from: 'user' });
  } catch (error) {
    reportFailure(error, terminal);
  }
  const [out, err] = written.map((chunks) => Buffer.concat(chunks).toString());
  return { stdout: out!, stderr: err! };
}

function expectPrintable({ stdout, stderr }: Printed, isTTY: boolean): void {
  for (const text of [stdout, stderr]) {
    expect(text).not.toContain('\u001b[31mred');
    expect(UNPRINTABLE.exec(isTTY ? text.replace(OWN, '') : text)?.[0], JSON.stringify(text)).toBeUndefined();
    expect(text.split('\n')).not.toContain('forged line');
  }
}

let folder: string;
let environment: Record<string, string>;
let engine: FakeEngine;
let gateway: RunningGateway;
let socket: string;
const path = (...names: string[]) => join(folder, ...names);
const json = (value: unknown) => JSON.stringify(value);

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-hostile-'));
  environment = { WARMPATH_DATA_DIR: path('data') };
  const docs = path('docs', NAME);
  await mkdir(docs, { recursive: true });
  await writeFile(join(docs, `${NAME}.md`), `# ${NAME.replace(/\s/g, ' ')} Velka\n\nThe weight of Velka is 42 kg.\n`);
  await writeFile(join(docs, `${NAME}.png`), Buffer.from([0, 1]));
  const line = { id: HOSTILE, title: `${HOSTILE} Velka`, text: `The weight of Velka is 17 kg. ${HOSTILE}` };
  await writeFile(join(docs, `${NAME}.jsonl`), `${json(line)}\n{"a${HOSTILE.replace(/\s/g, '')}\n`);
  await writeFile(path(`${NAME}.yaml`), `${json({ [HOSTILE]: HOSTILE, upstream: { url: HOSTILE } })}\n`);
  const log = {
    documents: [
      { id: HOSTILE, tokens: 300 },
      { id: 'b', tokens: 300 },
    ],
    session: HOSTILE,
  };
  await writeFile(path(`${NAME}.log`), `${json(log)}\n{${HOSTILE.replace(/\n/g, '')}\n${json(log)}\n`);
  await writeFile(
    path(`${NAME}.trace`),
    json({
      requests: [
        [HOSTILE, 'b'],
        ['b', HOSTILE],
      ],
    }),
  );
  engine = await startFakeEngine({
    model: `${HOSTILE}${HALF}`,
    owner: HOSTILE,
    answers: () => ANSWER,
    streamsUnits: true,
  });
  const collections = new Collections(join(environment['WARMPATH_DATA_DIR']!, 'collections'));
  await (await collections.getOrMake('default', 'documents')).ingest([path('docs')]);
  await collections.close();
  socket = path('admin.sock');
  const promptKinds = learnedKinds();
  const segments = [HOSTILE, `\u001b[2J> documents${HALF}`];
  const program = { id: KIND, role: 'user', segments, opens: true, closes: false, documents: 1 } as const;
  for (const tenant of [HOSTILE, 'anonymous']) promptKinds.restore(tenant, program);
  gateway = await startGateway(
    {
      upstream: { url: engine.url },
      server: { port: 0 },
      admin: { socket },
      collections: { folder: join(environment['WARMPATH_DATA_DIR']!, 'collections') },
      log: { level: 'silent' },
    },
    { promptKinds },
  );
});
afterAll(async () => {
  await gateway.close();
  await engine.close();
  await rm(folder, { recursive: true, force: true });
});

const tagged = (id: string) =>
  `<document id="${id}">${'The mill was built of oak in the year of the flood. '.repeat(4)}</document>`;
const chat = (...ids: string[]) =>
  json({ model: HOSTILE, messages: [{ role: 'user', content: `${ids.map(tagged).join('\n')}\n${HOSTILE}?` }] });

/** For each command, command lines that make it print names from elsewhere. */
const RUNS: Readonly<Record<string, () => readonly Run[]>> = {
  up: () => [{ argv: ['up', '--config', NAME] }],
  // Runs until it is stopped: below, as a process.
  serve: () => [{ argv: ['serve', '--config', path(`${NAME}.yaml`)] }],
  engine: () => [{ argv: ['engine', '--model', path(`${NAME}.gguf`)] }],
  demo: () => [{ argv: ['demo', '--engine', engine.url, '--questions', '2'] }],
  ingest: () => [
    { argv: ['ingest', path('docs'), '--collection', 'fresh'] },
    { argv: ['ingest', path('docs', NAME, `${NAME}.png`)] },
    { argv: ['ingest', path('docs'), '--collection', NAME] },
    { argv: ['ingest', NAME] },
  ],
  ask: () => [
    { argv: ['ask', 'What is the weight of Velka evil?', '--gateway', gateway.url] },
    { argv: ['ask', HOSTILE, '--gateway', gateway.url, '--collection', NAME] },
  ],
  'collections list': () => [{ argv: ['collections', 'list', '--folder', path(NAME)] }],
  'collections export': () => [
    { argv: ['collections', 'export', 'documents'] },
    { argv: ['collections', 'export', NAME] },
    { argv: ['collections', 'export', 'documents', path(`${NAME}.export`)] },
  ],
  'collections import': () => [
    { argv: ['collections', 'import', 'copy'], input: `{"id": ${json(HOSTILE)}, "passages": ${json(HOSTILE)}}\n` },
    { argv: ['collections', 'import', 'copy', NAME] },
  ],
  'collections remove': () => [{ argv: ['collections', 'remove', 'documents', `none ${NAME}`] }],
  'collections delete': () => [{ argv: ['collections', 'delete', NAME] }],
  doctor: () => [{ argv: ['doctor', '--engine', engine.url] }, { argv: ['doctor', '--engine', gateway.url] }],
  arrange: () => [
    { argv: ['arrange'], input: json({ documents: [{ id: `${HOSTILE}${HALF}`, content: 'A.' }] }) },
    { argv: ['arrange'], input: json({ documents: [], policy: HOSTILE }) },
    { argv: ['arrange'], input: HOSTILE },
  ],
  explain: () => [{ argv: ['explain'], input: chat(HOSTILE, 'b') }, { argv: ['explain', NAME] }],
  'lab run': () => [
    { argv: ['lab', 'run', '--trace', path(`${NAME}.trace`), '--policies', 'retrieval,exact'] },
    { argv: ['lab', 'run', NAME] },
    { argv: ['lab', 'run', 'headline', '--policies', NAME] },
  ],
  'lab replay': () => [
    { argv: ['lab', 'replay', path(`${NAME}.log`), '--policies', 'retrieval', '--caches', '500'] },
    { argv: ['lab', 'replay', path(`${NAME}.log`), '--caches', NAME] },
  ],
  'lab profile': () => [
    { argv: ['lab', 'profile', '--engine', 'http://127.0.0.1:9', '--output', path(`${NAME}.json`)] },
  ],
  'lab eval': () => [{ argv: ['lab', 'eval', '--data', NAME] }],
  'lab calibrate': () => [{ argv: ['lab', 'calibrate', '--data', NAME, '--engine', engine.url] }],
  'models list': () => [{ argv: ['models', 'list', '--cache-dir', path('docs', NAME)] }],
  'models pull': () => [{ argv: ['models', 'pull', NAME, '--cache-dir', path('models')] }],
  'models remove': () => [{ argv: ['models', 'remove', NAME, '--cache-dir', path('models')] }],
  'prompts list': () => [{ argv: ['prompts', '--gateway', gateway.url] }],
  'prompts show': () => [
    { argv: ['prompts', 'show', 'abc', '--tenant', HOSTILE, '--gateway', gateway.url] },
    { argv: ['prompts', 'show', 'abc', '--gateway', gateway.url] },
    { argv: ['prompts', 'show', NAME, '--gateway', gateway.url] },
  ],
  ...Object.fromEntries(
    ['allow', 'refuse', 'forget'].map((name) => [
      `prompts ${name}`,
      () => [
        { argv: ['prompts', name, KIND, '--tenant', HOSTILE, '--gateway', gateway.url] },
        { argv: ['prompts', name, NAME, '--gateway', gateway.url] },
      ],
    ]),
  ),
  plan: () => [
    { argv: ['plan', '-'], input: `${json({ documents: [HOSTILE, 'b'] })}\n` },
    { argv: ['plan', path(`${NAME}.log`)] },
    { argv: ['plan', NAME] },
  ],
  'sessions export': () => [
    { argv: ['sessions', 'export', '--socket', socket, '--tenant', 'anonymous'] },
    { argv: ['sessions', 'export', '--socket', NAME] },
  ],
  'sessions import': () => [
    { argv: ['sessions', 'import', '--socket', socket], input: `{"version": ${json(HOSTILE)}}\n` },
    { argv: ['sessions', 'import', NAME, '--socket', socket] },
  ],
  'sessions forget': () => [
    { argv: ['sessions', 'forget', '--socket', socket, '--tenant', HOSTILE, '--session', HOSTILE] },
  ],
  watch: () => [
    { argv: ['watch', '--once', '--gateway', gateway.url] },
    { argv: ['watch', '--once', '--gateway', NAME] },
  ],
  wrap: () => [
    { argv: ['wrap', '--gateway', gateway.url, NAME] },
    { argv: ['wrap', '--engine', NAME, '--model', HOSTILE, 'claude'] },
  ],
  'check-config': () => [{ argv: ['check-config', path(`${NAME}.yaml`)] }, { argv: ['check-config', NAME] }],
};

function leavesOf(command: Command, above = ''): readonly string[] {
  const name = `${above} ${command.name()}`.trim();
  return command.commands.length === 0 ? [name] : command.commands.flatMap((each) => leavesOf(each, name));
}

describe('names from elsewhere on a terminal', () => {
  it('are tried on every command', async () => {
    const terminal = new Terminal(process, { json: false, environment: {} });
    const program = await createProgram({ ...createContext(terminal), argv: [] });
    expect(program.commands.flatMap((command) => leavesOf(command)).toSorted()).toEqual(Object.keys(RUNS).toSorted());
  });

  describe.each([false, true])('terminal: %s', (isTTY) => {
    it.each(Object.entries(RUNS))('%s', TIMEOUT, async (_, runs) => {
      for (const run of runs()) {
        const asJson = [...run.argv, '--json'];
        for (const argv of isFull ? [run.argv, asJson] : [isTTY ? run.argv : asJson]) {
          const printed = await print({ ...run, argv, environment }, isTTY);
          expect(`${printed.stdout}${printed.stderr}`, argv.join(' ')).not.toBe('');
          expectPrintable(printed, isTTY);
        }
      }
    });

    it.runIf(isFull || isTTY).each(Object.keys(RUNS))(
      '%s with a hostile option, argument and value',
      TIMEOUT,
      async (command) => {
        const words = command.split(' ');
        for (const rest of [
          [`--${NAME}`],
          [`-${NAME}`],
          ['--json', `--${NAME}`],
          ['--config', NAME],
          [NAME, NAME, NAME, NAME],
        ]) {
          if (command === 'ingest' && rest.length === 4) continue;
          expectPrintable(await print({ argv: [...words, ...rest], environment }, isTTY), isTTY);
        }
      },
    );

    it.each([
      [[NAME]],
      [['help', NAME]],
      [['lab', NAME]],
      [['sessions', 'help', NAME]],
      [[`--${NAME}`]],
      [[NAME, '--json']],
    ])('of no command: %#', async (argv) => {
      const printed = await print({ argv }, isTTY);
      expect(`${printed.stdout}${printed.stderr}`).not.toBe('');
      expectPrintable(printed, isTTY);
    });
  });

  it('stay readable: what is left of an answer and of the names of its sources', async () => {
    const { argv } = RUNS['ask']!()[0]!;
    const { stdout } = await print({ argv, environment }, false);
    expect(stdout).toMatch(/^yes\n\t👍evil\[2J/m);
    expect(stdout).toMatch(/^ {2}1 {2}evil\[2J.* Velka .*\d$/m);
    const told = JSON.parse((await print({ argv: [...argv, '--json'], environment }, false)).stdout) as object;
    expect(told).toMatchObject({ answer: ANSWER });
  });

  it('survive in what commands hand on: an export is imported as it was', async () => {
    const exported = await print({ argv: ['collections', 'export', 'documents'], environment }, false);
    await print({ argv: ['collections', 'import', 'again'], input: exported.stdout, environment }, false);
    const again = await print({ argv: ['collections', 'export', 'again'], environment }, false);
    const lines = ({ stdout }: Printed) =>
      stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as object);
    expect(lines(again)).toEqual(lines(exported));
    expect(json(lines(exported))).toContain(json(HOSTILE).slice(1, -1));
  });

  it('of engines, in what serve says and logs', TIMEOUT, async () => {
    const cli = startCli(['serve', '--engine', engine.url, '--port', '0', '--live'], { environment });
    await cli.waitForNote(/it serves evil/);
    const [, url] = await cli.waitFor(/listens at (\S+)/);
    const headers = { 'content-type': 'application/json' };
    await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body: chat(HOSTILE, 'b') });
    await cli.waitFor(/chat\/completions/);
    cli.process.kill('SIGTERM');
    expectPrintable(await cli.ended, false);
  });

  it('and errors of engines and of embeddings', TIMEOUT, async () => {
    const failing = await startFakeEngine({ answers: () => ({ status: 400, message: HOSTILE }) });
    const embeddings = await startFakeEmbeddings();
    embeddings.answer = () => ({ status: 401, body: { error: { message: HOSTILE } } });
    const config = path('embeddings.yaml');
    const settings = `{ url: "${embeddings.url}", model: fake }`;
    await writeFile(config, `collections:\n  folder: ${path('other')}\n  embeddings: ${settings}\n`);
    try {
      for (const isTTY of [false, true]) {
        for (const argv of [
          ['doctor', '--engine', failing.url],
          ['demo', '--engine', failing.url, '--questions', '1'],
          ['ask', 'Why?', '--gateway', failing.url],
          ['ingest', path('docs'), '--config', config],
        ]) {
          const printed = await print({ argv, environment }, isTTY);
          expect(printed.stderr, argv.join(' ')).toContain('evil');
          expectPrintable(printed, isTTY);
        }
      }
    } finally {
      await failing.close();
      await embeddings.close();
    }
  });
});

it('no file of the command line but its start writes to a stream of the process or a console', async () => {
  const source = join(import.meta.dirname, '../src');
  const files = await readdir(source, { recursive: true });
  const writers: string[] = [];
  for (const file of files.filter((name) => name.endsWith('.ts'))) {
    const text = await readFile(join(source, file), 'utf8');
    if (/process\s*\.\s*std(?:out|err)|\bconsole\s*\.|process\s*\[|\bwriteSync\b/.test(text)) writers.push(file);
  }
  expect(writers).toEqual(['main.ts']);
});
