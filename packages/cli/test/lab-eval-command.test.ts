import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { spawnEngine } from '@warmpath/engine';
import {
  type AnsweredQuestion,
  EVALUATION_STRATEGIES,
  type EvaluationReport,
  type EvaluationStrategy,
} from '@warmpath/lab';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { readAlmanac } from '../src/demo/almanac.js';
import { type FakeEngine, type FakeEngineOptions, type ReceivedBody, startFakeEngine } from './fake-engine.js';
import { runCli, startCli } from './run-cli.js';

/** Real prefill, on a machine that may be busy. */

let folder: string;
let engine: FakeEngine | undefined;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-eval-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));
afterEach(async () => {
  await engine?.close();
  engine = undefined;
});

/** A BEIR folder. */
async function dataset(name: string, passages: readonly object[], queries: readonly object[]): Promise<string> {
  const path = join(folder, name);
  const lines = (values: readonly object[]) => values.map((value) => `${JSON.stringify(value)}\n`).join('');
  await mkdir(path, { recursive: true });
  await writeFile(join(path, 'corpus.jsonl'), lines(passages));
  await writeFile(join(path, 'queries.jsonl'), lines(queries));
  return path;
}

const PASSAGES = ['red clock', 'red tower', 'blue clock', 'blue tower'].map((text, i) => ({
  _id: `p${i}`,
  title: '',
  text: `${text} stands here`,
}));
/** Longer than what refers to them. */
const LONG_PASSAGES = PASSAGES.map((passage) => ({
  ...passage,
  text: `${passage.text} ${'and stays there '.repeat(8)}now`,
}));
const QUESTIONS = [
  { _id: 'q0', text: 'which red clock', metadata: { answer: 'alpha' } },
  { _id: 'q1', text: 'which blue tower', metadata: { answers: ['beta gamma'] } },
  { _id: 'q2', text: 'which clock red', metadata: { ground_truth: { answers: ['x'], is_impossible: true } } },
  { _id: 'q3', text: 'which tower blue', metadata: { answer: 'the delta' } },
];

const question = ({ messages }: ReceivedBody) => messages[1]!.content.split('\n').at(-1)!;
const documents = ({ messages }: ReceivedBody, at = 1) =>
  [...messages.at(at)!.content.matchAll(/<document id="([^"]+)"/g)].map(([, label]) => label!);
const mark = ({ messages }: ReceivedBody) => messages[0]!.content.slice(0, 12);

/** How vLLM refuses a prompt. */
const TOO_LONG = { status: 400, message: "This model's maximum context length is 8 tokens." };

async function evaluate(options: FakeEngineOptions, ...args: string[]) {
  engine = await startFakeEngine(options);
  const data = await dataset('small', PASSAGES, QUESTIONS);
  const result = await runCli(['lab', 'eval', '--engine', engine.url, '--data', data, '--json', ...args]);
  return { ...result, received: engine.received };
}

describe('warmpath lab eval on a fake engine', () => {
  const ANSWERS: Readonly<Record<string, string>> = {
    'which red clock': 'Alpha.',
    'which blue tower': 'it is beta gamma',
    'which clock red': 'unanswerable',
    'which tower blue': 'no idea',
  };

  it('prints the figures that counting by hand gives', async () => {
    const { code, stdout, stderr } = await evaluate({ answers: (body) => ANSWERS[question(body)]! });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const report = JSON.parse(stdout) as EvaluationReport;
    expect(report).toMatchObject({
      model: 'fake-model',
      policy: 'foresight',
      topK: 5,
      concurrency: 1,
      seed: 42,
      questions: { asked: 4, scored: 4, unanswerable: 1, tooLong: 0, conversations: 0 },
      startedWarm: false,
    });
    for (const { exact, contains, f1, failures } of report.strategies) {
      // Right: q0 and the refusal of q2. q1 contains the answer: 2 of 4 words, all of the right ones, F1 2/3.
      expect([exact.mean, contains.mean]).toEqual([0.5, 0.75]);
      expect(f1.mean).toBeCloseTo((1 + 2 / 3 + 1 + 0) / 4, 12);
      expect(failures).toEqual({});
    }
    for (const { exact } of report.differences) {
      expect(exact).toEqual({ mean: 0, low: 0, high: 0, t: 0, degreesOfFreedom: 3, p: 1 });
    }
  });

  it('sends the strategies the same but for mark, order and hint', async () => {
    const { received, stdout } = await evaluate({});
    const report = JSON.parse(stdout) as EvaluationReport;
    expect(report.strategies.map(({ strategy }) => strategy)).toEqual([...EVALUATION_STRATEGIES]);
    const lanes = [...new Set(received.map(mark))].map((each) => received.filter((body) => mark(body) === each));
    expect(lanes.map((bodies) => bodies.length)).toEqual(Array(6).fill(4));
    const bodiesOf = (strategy: EvaluationStrategy, i: number) => {
      const number = report.strategies.findIndex((figures) => figures.strategy === strategy);
      return lanes[number]!.find((body) => question(body) === QUESTIONS[i]!.text)!;
    };
    const isHinted = ({ messages }: ReceivedBody) => messages[1]!.content.includes('order of relevance');
    const isMoved = (strategy: EvaluationStrategy, i: number) =>
      String(documents(bodiesOf(strategy, i))) !== String(documents(bodiesOf('retrieval', i)));
    for (const { strategy, moved } of report.strategies) {
      expect(QUESTIONS.filter((_, i) => isMoved(strategy, i))).toHaveLength(moved);
      for (const [i] of QUESTIONS.entries()) {
        const [body, base] = [bodiesOf(strategy, i), bodiesOf('retrieval', i)];
        expect(isHinted(body)).toBe(strategy.endsWith('-hints') && isMoved(strategy, i));
        expect(documents(body).sort()).toEqual(documents(base).sort());
        expect(body.messages[0]!.content.slice(12)).toBe(base.messages[0]!.content.slice(12));
      }
    }
    const [, repeated, shuffled, shuffledHints, arranged] = report.strategies.map(({ moved }) => moved);
    expect(repeated).toBe(0);
    expect(Math.min(shuffled!, shuffledHints!, arranged!)).toBeGreaterThan(0);
    for (const [i] of QUESTIONS.entries()) {
      expect(documents(bodiesOf('shuffled-hints', i))).toEqual(documents(bodiesOf('shuffled', i)));
    }
  });

  it('parts the strategies by a cache salt on an engine that has them: equal documents are equal prompts', async () => {
    const { received } = await evaluate({ owner: 'vllm' });
    const salts = new Set(received.map(({ cache_salt: salt }) => salt));
    expect(salts.size).toBe(6);
    expect(salts).not.toContain(undefined);
    const first = received.filter((body) => question(body) === 'which red clock' && documents(body)[0] === 'p0');
    const prompts = new Set(first.map(({ messages }) => JSON.stringify(messages)));
    expect(first.length).toBeGreaterThan(prompts.size);
    expect(received[0]!.messages[0]!.content).toMatch(/^Answer the question/);
    expect((await evaluate({})).received.every(({ cache_salt: salt }) => salt === undefined)).toBe(true);
  });

  it('asks in random retrieval order, in rounds, and with the right passage at a place', async () => {
    const data = await dataset('ranked', PASSAGES, QUESTIONS);
    await mkdir(join(data, 'qrels'), { recursive: true });
    const judged = QUESTIONS.map(({ _id }, i) => `${_id}\tp${i}\t1\n`).join('');
    await writeFile(join(data, 'qrels', 'test.tsv'), judged);
    engine = await startFakeEngine({ owner: 'vllm', answers: () => 'alpha' });
    const run = async (...args: string[]) =>
      runCli(['lab', 'eval', '--engine', engine!.url, '--data', data, '--json', ...args]);
    const report = JSON.parse((await run('--ranks', '2', '--rounds', '2')).stdout) as EvaluationReport;
    expect(report.questions).toMatchObject({ asked: 8, scored: 8 });
    expect(report.passages).toBe('the right ones from place 2 on');
    expect(report.differences[0]!.exact.degreesOfFreedom).toBe(3);
    const [salt] = engine.received.map(({ cache_salt: each }) => each);
    const places = engine.received.flatMap((body) => {
      const right = `p${QUESTIONS.findIndex(({ text }) => text === question(body))}`;
      return body.cache_salt === salt ? documents(body).indexOf(right) : [];
    });
    expect(places).toEqual(Array(8).fill(1));
    const random = JSON.parse((await run('--ranks', 'random', '--seed', '5')).stdout) as EvaluationReport;
    expect(random.passages).toBe('in random order (seed 5)');
    expect((await run('--ranks', '0')).code).toBe(2);
    expect((await run('--ranks', 'best')).code).toBe(2);
    const refused = await run('--turns', '2', '--rounds', '2');
    expect(refused.code).toBe(2);
    expect(JSON.parse(refused.stdout).error.message).toContain('--rounds');
    const turns = JSON.parse((await run('--turns', '2')).stdout) as EvaluationReport;
    expect(turns.strategies.map(({ strategy }) => strategy)).toContain('deduplicated-hints');
    expect(turns.questions.conversations).toBe(1);
  });

  it('tries prices of moving documents, and suggests the lowest that is shown to keep the answers', async () => {
    // Whoever is told that the documents were moved answers wrongly.
    const isHinted = ({ messages }: ReceivedBody) => messages[1]!.content.includes('order of relevance');
    const answers = (body: ReceivedBody) => (isHinted(body) ? 'wrong' : ANSWERS[question(body)]!);
    const { code, stdout, received } = await evaluate({ answers }, '--shift-prices', '10000,0');
    expect(code).toBe(0);
    const report = JSON.parse(stdout) as EvaluationReport;
    expect(report.strategies.map(({ strategy }) => strategy)).toEqual(['retrieval', 'price-0', 'price-10000']);
    const { prices, suggested, tolerance } = report.shiftPrices!;
    expect({ suggested, tolerance }).toEqual({ suggested: 10_000, tolerance: 0.02 });
    expect(prices.map(({ price, keepsAnswers }) => [price, keepsAnswers])).toEqual([
      [0, false],
      [10_000, true],
    ]);
    expect(prices[1]).toMatchObject({ placesMoved: 0, f1: { mean: 0, low: 0, high: 0 } });
    expect(prices[0]!.f1.mean).toBeLessThan(0);
    const [retrieved, free] = [...new Set(received.map(mark))].map((each) =>
      received.filter((body) => mark(body) === each),
    );
    const places = free!.map((body) => {
      const ranks = documents(retrieved!.find((other) => question(other) === question(body))!);
      return documents(body).reduce((sum, label, place) => sum + Math.abs(ranks.indexOf(label) - place), 0);
    });
    expect(prices[0]!.placesMoved).toBe(places.reduce((sum, each) => sum + each, 0) / places.length);
  });

  it('takes prices from the length of the documents, prints them, and refuses what is none', async () => {
    const { code, stdout } = await evaluate(
      { answers: (body) => ANSWERS[question(body)]! },
      '--tolerance',
      '100',
      '--shift-prices',
    );
    expect(code).toBe(0);
    const { strategies, shiftPrices } = JSON.parse(stdout) as EvaluationReport;
    expect(strategies.length).toBeGreaterThan(3);
    expect(shiftPrices!.suggested).toBe(0);
    const data = await dataset('small', PASSAGES, QUESTIONS);
    const args = ['lab', 'eval', '--engine', engine!.url, '--data', data, '--seed', '7'];
    const printed = (await runCli([...args, '--shift-prices', '0,3.5', '--tolerance', '100'])).stdout;
    expect(printed).toContain('tokens a place');
    expect(printed).toMatch(/^ {2}3\.5 /m);
    expect(printed).toContain('`arrange.shiftPrice: 0` is the lowest price tried that keeps the answers');
    for (const list of [
      '-1',
      'x',
      '1,',
      Array(17)
        .fill(0)
        .map(String)
        .map((_, i) => i)
        .join(),
    ]) {
      expect((await runCli([...args, `--shift-prices=${list}`])).code).toBe(2);
    }
    expect((await runCli([...args, '--tolerance', '101'])).code).toBe(2);
  });

  it('asks the turns of conversations: all documents again, those of this turn alone, those still shown left out, with hints, in place', async () => {
    const speak = (...texts: string[]) => texts.map((text, i) => ({ speaker: i % 2 === 0 ? 'user' : 'agent', text }));
    const contexts = LONG_PASSAGES.map(({ _id, text }) => ({ document_id: _id, text }));
    const input = speak('which red clock', 'alpha', 'which red tower', 'beta', 'which blue');
    const file = join(folder, 'tasks.jsonl');
    const task = { conversation_id: 'c', contexts, input, targets: [{ speaker: 'agent', text: 'gamma' }] };
    await writeFile(file, `${JSON.stringify(task)}\n`);
    engine = await startFakeEngine({ answers: () => 'alpha' });
    const { code, stdout } = await runCli([
      'lab',
      'eval',
      '--engine',
      engine.url,
      '--data',
      file,
      '--top-k',
      '2',
      '--json',
    ]);
    expect(code).toBe(0);
    const report = JSON.parse(stdout) as EvaluationReport;
    expect(report.questions).toMatchObject({ asked: 3, scored: 3 });
    const [retrieval, forwarded, deduplicated, hinted, inPlace] = [...new Set(engine.received.map(mark))].map((each) =>
      engine!.received.filter((body) => mark(body) === each),
    );
    expect(report.strategies.map(({ strategy }) => strategy)).toEqual([
      'retrieval',
      'forwarded',
      'deduplicated',
      'deduplicated-hints',
      'in-place',
    ]);
    expect(report.questions).toMatchObject({ conversations: 1 });
    expect(report.strategies[0]!.exact.mean).toBeCloseTo(1 / 3);
    const last = (bodies: readonly ReceivedBody[] | undefined) =>
      bodies!.at(-1)!.messages.map(({ content }) => content);
    const text = (bodies: readonly ReceivedBody[] | undefined) => last(bodies).join('\n');
    const copies = (bodies: readonly ReceivedBody[] | undefined) =>
      LONG_PASSAGES.map((passage) => text(bodies).split(`${passage.text}\n`).length - 1);
    const location = 'Given earlier in this conversation: [';
    expect([retrieval, deduplicated, hinted, inPlace].map((bodies) => Math.max(...copies(bodies)))).toEqual([
      3, 1, 1, 1,
    ]);
    expect([retrieval, forwarded, deduplicated].map((bodies) => text(bodies).includes(location))).toEqual([
      false,
      false,
      false,
    ]);
    expect(text(hinted)).toContain(location);
    // Recognised where it stands: the document keeps its tags, and what says where it is stands between them.
    expect(text(inPlace)).toMatch(
      /<document id="[^"]+">\nGiven earlier in this conversation: \[[^\]]+\]\.\n<\/document>/,
    );
    // What is forwarded has this turn's documents alone.
    expect(last(forwarded).slice(1, -1)).toEqual(['which red clock', 'alpha', 'which red tower', 'beta']);
    expect(documents(forwarded!.at(-1)!, -1)).toEqual(documents(retrieval!.at(-1)!, -1));
    // Every other strategy sends again what it sent before, and the answers of the data.
    for (const bodies of [retrieval, deduplicated, hinted, inPlace]) {
      expect(bodies![2]!.messages.slice(0, 4)).toEqual(bodies![1]!.messages);
      expect(last(bodies)[4]).toBe('beta');
    }
  });

  it('sums tokens up as the engine reports them', async () => {
    const { stdout, received } = await evaluate({});
    const report = JSON.parse(stdout) as EvaluationReport;
    const words = (body: ReceivedBody) =>
      body.messages
        .map(({ role, content }) => `${role} ${content}`)
        .join('\n')
        .split(/\s+/).length;
    const total = received.reduce((sum, body) => sum + words(body), 0);
    expect(report.strategies.reduce((sum, { promptTokens }) => sum + promptTokens!, 0)).toBe(total);
    const [retrieval, arranged] = ['retrieval', 'arranged'].map((name) =>
      report.strategies.find(({ strategy }) => strategy === name),
    );
    expect(arranged!.cachedTokens).toBeGreaterThan(retrieval!.cachedTokens!);
    expect(JSON.parse((await evaluate({ reports: false })).stdout).strategies[0]).toMatchObject({
      cachedTokens: null,
      cachedShare: null,
    });
  });

  it('counts what fails by its code, and leaves that question out of every figure', async () => {
    let failures = 0;
    const { code, stdout } = await evaluate({
      answers: (body) => (question(body) === 'which red clock' && failures++ === 0 ? 503 : 'alpha'),
    });
    expect(code).toBe(0);
    const report = JSON.parse(stdout) as EvaluationReport;
    expect(report.questions).toEqual({ asked: 4, scored: 3, unanswerable: 1, tooLong: 0, conversations: 0 });
    expect(report.strategies.map((figures) => figures.failures)).toEqual([
      { WARMPATH_UPSTREAM_ERROR: 1 },
      ...Array(5).fill({}),
    ]);
  });

  it('gives up where nothing but failures comes, with the reason', async () => {
    const { code, stdout, received } = await evaluate({ answers: () => 500 });
    expect(code).toBe(1);
    expect(JSON.parse(stdout).error.code).toBe('WARMPATH_UPSTREAM_ERROR');
    expect(received).toEqual([]);
  });

  it('asks several at a time, to the same scores', async () => {
    const sequential = JSON.parse(
      (await evaluate({ answers: (body) => ANSWERS[question(body)]! })).stdout,
    ) as EvaluationReport;
    await engine?.close();
    const parallel = await evaluate({ answers: (body) => ANSWERS[question(body)]! }, '--concurrency', '4');
    const scores = ({ strategies }: EvaluationReport) =>
      strategies.map(({ exact, contains, f1 }) => ({ exact, contains, f1 }));
    expect(scores(JSON.parse(parallel.stdout))).toEqual(scores(sequential));
  });

  it('writes a page without any text of the data, and keeps the answers in a file without key or questions', async () => {
    const page = join(folder, 'eval.html');
    const state = join(folder, 'kept.jsonl');
    engine = await startFakeEngine({ apiKey: 'secret-key', answers: () => 'private answer' });
    const data = await dataset('small', PASSAGES, QUESTIONS);
    const args = [
      'lab',
      'eval',
      '--engine',
      engine.url,
      '--key-env',
      'EVAL_KEY',
      '--data',
      data,
      '--report',
      page,
      '--resume',
      state,
    ];
    const { code, stdout } = await runCli(args, { environment: { EVAL_KEY: 'secret-key' } });
    expect(code).toBe(0);
    expect(stdout).toContain('questions answered by all strategies of 4 asked');
    const html = await readFile(page, 'utf8');
    expect(html).toContain('Against retrieval order');
    for (const text of [html, stdout]) expect(text).not.toMatch(/secret-key|private answer|which red clock/);
    const kept = (await readFile(state, 'utf8')).trim().split('\n');
    expect(kept.join()).not.toMatch(/secret-key|which red clock/);
    const answers = kept.slice(1).map((line) => JSON.parse(line) as AnsweredQuestion);
    expect(answers).toHaveLength(24);
    expect(answers[0]).toMatchObject({ question: 'q0', strategy: 'retrieval', answer: 'private answer' });
  });

  it('goes on where it was interrupted: nothing is asked twice, and orders are those of one go', async () => {
    const data = await dataset('small', PASSAGES, QUESTIONS);
    const state = join(folder, 'interrupted.jsonl');
    // The one go to compare with.
    engine = await startFakeEngine();
    const inOneGo = await runCli(['lab', 'eval', '--engine', engine.url, '--data', data, '--json']);
    const wanted = engine.received.map((body) => [mark(body), question(body), documents(body)]);
    await engine.close();
    // One that does not answer the thirteenth request.
    engine = await startFakeEngine();
    const port = new URL(engine.url).port;
    const gate = await startGate(Number(port), 13);
    const command = ['lab', 'eval', '--engine', gate.url, '--data', data, '--json', '--resume', state];
    const running = startCli(command);
    await gate.held;
    running.process.kill('SIGINT');
    const stopped = await running.ended;
    expect(stopped.code).toBe(130);
    expect(JSON.parse(stopped.stdout).questions).toMatchObject({ scored: 2 });
    gate.open();
    const resumed = await runCli(command);
    expect(resumed.code).toBe(0);
    const asked = engine.received.map((body) => [mark(body), question(body), documents(body)]);
    expect(asked).toEqual(wanted);
    const figures = (text: string) =>
      JSON.parse(text, (key, value) => (key === 'ttftMs' || key === 'engine' ? undefined : value));
    expect(figures(resumed.stdout)).toEqual(figures(inOneGo.stdout));
    const other = await runCli([...command, '--seed', '1']);
    expect(other.code).toBe(2);
    expect(other.stdout).toContain('seed 42, not 1');
    await gate.close();
  });

  it.each([
    ['an engine that is not there', ['--engine', 'http://127.0.0.1:9'], 1, 'WARMPATH_UPSTREAM_UNREACHABLE'],
    ['a policy that is none', ['--engine', 'http://127.0.0.1:9', '--policy', 'exakt'], 1, 'did you mean `exact`'],
  ])('refuses %s', async (_, args, exitCode, message) => {
    const data = await dataset('small', PASSAGES, QUESTIONS);
    const { code, stderr } = await runCli(['lab', 'eval', '--data', data, ...args]);
    expect(code).toBe(exitCode);
    expect(stderr).toContain(message);
  });

  it('says how many questions did not fit the context, in whatever words the engine says it', async () => {
    const { code, stdout } = await evaluate({
      answers: (body) => (question(body) === 'which red clock' && documents(body).length > 1 ? TOO_LONG : 'alpha'),
    });
    expect(code).toBe(0);
    const report = JSON.parse(stdout) as EvaluationReport;
    expect(report.questions).toMatchObject({ asked: 4, scored: 3, tooLong: 1 });
    expect(report.strategies[5]!.failures).toEqual({ WARMPATH_CONTEXT_TOO_LONG: 1 });
    await engine?.close();
    engine = await startFakeEngine({ answers: (body) => (question(body) === 'which red clock' ? TOO_LONG : 'alpha') });
    const data = await dataset('small', PASSAGES, QUESTIONS);
    const shown = await runCli(['lab', 'eval', '--engine', engine.url, '--data', data]);
    expect(shown.stdout).toContain('1 of 4 questions did not fit');
  });

  it('draws the same conversations about the almanac for the same seed, and gives the figures of each kind', async () => {
    const gold = new Map((await readAlmanac()).questions.map(({ text, answer }) => [text, answer]));
    engine = await startFakeEngine({ answers: (body) => gold.get(body.messages.at(-1)!.content.split('\n').at(-1)!)! });
    const args = ['lab', 'eval', '--engine', engine.url, '--data', 'almanac', '--limit', '10', '--json'];
    const report = JSON.parse((await runCli(args)).stdout) as EvaluationReport;
    expect(report.questions).toMatchObject({ asked: 10, scored: 10, conversations: 3 });
    expect(report.strategies.map(({ exact }) => exact.mean)).toEqual([1, 1, 1, 1, 1]);
    expect(report.kinds.reduce((sum, { questions }) => sum + questions, 0)).toBe(10);
    expect(report.kinds.at(-1)).toMatchObject({ kind: 'first turn', questions: 3 });
    const same = { changed: 0, lost: 0, gained: 0, p: 1 };
    expect(report.differences.map(({ answers }) => answers)).toEqual(Array(5).fill(same));
    const asked = engine.received.map(({ messages }) => messages);
    await engine.close();
    engine = await startFakeEngine();
    await runCli([...args.slice(0, 3), engine.url, ...args.slice(4)]);
    expect(engine.received.map(({ messages }) => messages)).toEqual(asked);
  });

  it('says where it looked for answers when the data state none', async () => {
    const data = await dataset('bare', PASSAGES, [{ _id: 'q', text: 'which clock' }]);
    const { code, stderr } = await runCli(['lab', 'eval', '--engine', 'http://127.0.0.1:9', '--data', data]);
    expect(code).toBe(1);
    expect(stderr).toContain('metadata.ground_truth.answers');
  });
});

describe('warmpath lab eval on the embedded engine', () => {
  it.runIf(isFull)('starts by itself, and answers about the almanac', async () => {
    const { code, stdout } = await runCli(['lab', 'eval', '--data', 'almanac', '--limit', '2', '--json']);
    expect(code).toBe(0);
    const report = JSON.parse(stdout) as EvaluationReport;
    expect(report).toMatchObject({ engine: 'embedded', model: 'warmpath-tiny', contextTokens: 4_096 });
    expect(report.questions).toMatchObject({ asked: 2, scored: 2 });
    expect(report.topK).toBe(3);
    expect(report.strategies[0]!.exact.mean).toBeGreaterThan(0);
  });

  it.runIf(isFull)('prints what counting by hand over the bytes on the wire gives', async () => {
    const { entries, questions } = await readAlmanac();
    const asked = questions.slice(0, 8);
    const data = await dataset(
      'almanac',
      entries.map(({ id, title, content }) => ({ _id: id, title, text: content })),
      asked.map(({ id, text, answer }) => ({ _id: id, text, metadata: { answer } })),
    );
    const embedded = await spawnEngine({ port: 0 });
    const relay = await startRecorder(Number(new URL(embedded.url).port));
    try {
      const system = 'Answer the question using only the provided documents.';
      const args = ['lab', 'eval', '--engine', relay.url, '--data', data, '--system', system, '--json'];
      const { code, stdout } = await runCli(args);
      expect(code).toBe(0);
      const report = JSON.parse(stdout) as EvaluationReport;
      expect(report.questions).toEqual({ asked: 8, scored: 8, unanswerable: 0, tooLong: 0, conversations: 0 });
      expect(relay.exchanges).toHaveLength(48);
      const salt = (body: ReceivedBody) => body.cache_salt!;
      const marks = [...new Set(relay.exchanges.map(({ body }) => salt(body)))];
      for (const [i, figures] of report.strategies.entries()) {
        const own = relay.exchanges.filter(({ body }) => salt(body) === marks[i]);
        const right = own.filter(({ body, text }) => {
          const { answer } = asked.find((each) => each.text === question(body))!;
          return text.trim().replace(/\.$/, '').toLowerCase() === answer.toLowerCase();
        });
        expect(figures.exact.mean).toBe(right.length / 8);
        expect(figures.exact.mean).toBeGreaterThan(0.5);
        expect(figures.promptTokens).toBe(own.reduce((sum, { promptTokens }) => sum + promptTokens, 0));
        expect(figures.cachedTokens).toBe(own.reduce((sum, { cachedTokens }) => sum + cachedTokens, 0));
      }
      // Nothing of one strategy is served from what another left: every first prompt begins cold.
      for (const each of marks) {
        const first = relay.exchanges.find(({ body }) => salt(body) === each)!;
        expect(first.cachedTokens).toBeLessThan(16);
      }
    } finally {
      await relay.close();
      await embedded.stop();
    }
  });
});

/** A server in front of another on this machine. */
interface Relay {
  readonly url: string;
  close(): Promise<void>;
}

/** Passes everything on, and keeps what was asked and answered. */
async function startRecorder(port: number) {
  const exchanges: { body: ReceivedBody; text: string; promptTokens: number; cachedTokens: number }[] = [];
  const relay = await startRelay(port, (sent, received) => {
    if (sent === '') return;
    const chunks = [...received.matchAll(/^data: (\{.*\})$/gm)].map(([, json]) => JSON.parse(json!));
    const usage = chunks.findLast((chunk) => chunk.usage)?.usage;
    exchanges.push({
      body: JSON.parse(sent) as ReceivedBody,
      text: chunks.map((chunk) => chunk.choices?.[0]?.delta?.content ?? '').join(''),
      promptTokens: usage.prompt_tokens,
      cachedTokens: usage.prompt_tokens_details.cached_tokens,
    });
  });
  return { ...relay, exchanges };
}

/** Passes everything on but the completion of that number, which waits for good, until the gate is opened. */
async function startGate(port: number, heldNumber: number) {
  let completions = 0;
  let isOpen = false;
  let onHeld = () => {};
  const held = new Promise<void>((resolve) => {
    onHeld = resolve;
  });
  const relay = await startRelay(
    port,
    () => {},
    () => {
      completions++;
      if (isOpen || completions !== heldNumber) return false;
      onHeld();
      return true;
    },
  );
  return {
    ...relay,
    held,
    open: () => {
      isOpen = true;
    },
  };
}

async function startRelay(
  port: number,
  onExchange: (sent: string, received: string) => void,
  holds: () => boolean = () => false,
): Promise<Relay> {
  const server = createServer((incoming, outgoing) => {
    void (async () => {
      let sent = '';
      for await (const chunk of incoming.setEncoding('utf8')) sent += chunk;
      if (incoming.method === 'POST' && holds()) return;
      const { method, url, headers } = incoming;
      const forwarded = httpRequest({ port, host: '127.0.0.1', method, path: url, headers }, async (answer) => {
        outgoing.writeHead(answer.statusCode!, { 'content-type': answer.headers['content-type'] });
        let received = '';
        for await (const chunk of answer.setEncoding('utf8')) {
          received += chunk;
          outgoing.write(chunk);
        }
        onExchange(sent, received);
        outgoing.end();
      });
      forwarded.end(sent);
    })();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
