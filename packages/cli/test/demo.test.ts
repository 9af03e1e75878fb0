import { afterEach, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import type { DemoReport } from '../src/demo/report.js';
import { documentationWorkload } from '../src/demo/workload.js';
import { type FakeEngine, type FakeEngineOptions, type ReceivedBody, startFakeEngine } from './fake-engine.js';
import { runCli } from './run-cli.js';

/** Real prefill of some 40,000 tokens, on a machine that may be busy. */

const STRATEGY = {
  ttftMs: { p50: expect.any(Number), p95: expect.any(Number), mean: expect.any(Number) },
  promptTokens: expect.any(Number),
  cachedTokens: expect.any(Number),
  cachedShare: expect.any(Number),
};

let engine: FakeEngine | undefined;

afterEach(async () => {
  await engine?.close();
  engine = undefined;
});

async function demo(...args: string[]) {
  const { code, stdout, stderr } = await runCli(['demo', ...args, '--json']);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return JSON.parse(stdout) as DemoReport;
}

async function demoOnFake(options: FakeEngineOptions, ...args: string[]) {
  engine = await startFakeEngine(options);
  const report = await demo('--engine', engine.url, ...args);
  // What opens a run has no documents.
  const asked = engine.received.filter(({ messages }) => messages[1]!.content.includes('<document'));
  return { report, asked };
}

const labels = ({ messages }: ReceivedBody) =>
  [...messages[1]!.content.matchAll(/<document id="([^"]+)"/g)].map(([, label]) => label);
const question = ({ messages }: ReceivedBody) => messages[1]!.content.split('\n').at(-1);

/** What was asked for question `i` in each order: retrieval order goes first at even turns. */
function turn(asked: readonly ReceivedBody[], i: number) {
  const pair = asked.slice(2 * i, 2 * i + 2);
  const [retrieval, arranged] = i % 2 === 0 ? pair : pair.toReversed();
  return { retrieval: retrieval!, arranged: arranged! };
}

describe('warmpath demo', () => {
  it.runIf(isFull)(
    'on the embedded engine: prefills fewer tokens when arranged, and prints what is documented and nothing else',
    async () => {
      const report = await demo('--questions', '10', '--almanac', '6');
      expect(report).toEqual({
        engine: 'embedded',
        model: 'warmpath-tiny',
        requests: 10,
        strategies: { retrieval: STRATEGY, arranged: STRATEGY },
        ratio: { ttftP50: expect.any(Number), ttftMean: expect.any(Number), uncachedTokens: expect.any(Number) },
        almanac: expect.objectContaining({ requests: 6 }),
      });
      const { retrieval, arranged } = report.strategies;
      expect(arranged.promptTokens! - arranged.cachedTokens!).toBeLessThan(
        retrieval.promptTokens! - retrieval.cachedTokens!,
      );
      expect(report.ratio.uncachedTokens).toBeLessThan(1);
      for (const { exactAnswers } of Object.values(report.almanac!.strategies)) {
        expect(exactAnswers).toBeGreaterThan(0);
        expect(exactAnswers).toBeLessThanOrEqual(6);
      }
    },
  );

  it('asks both orders the same questions with the same documents, the first of them in retrieval order', async () => {
    const { report, asked } = await demoOnFake({}, '--questions', '20');
    const { requests } = await documentationWorkload('focused', 20);
    expect(asked).toHaveLength(40);
    for (const [i, { question: wanted, documents }] of requests.entries()) {
      const { retrieval, arranged } = turn(asked, i);
      expect([question(retrieval), question(arranged)]).toEqual([wanted, wanted]);
      expect(labels(retrieval)).toHaveLength(documents.length);
      expect([...labels(arranged)].sort()).toEqual([...labels(retrieval)].sort());
    }
    const inRetrievalOrder = labels(asked[0]!);
    expect(inRetrievalOrder).toEqual(requests[0]!.documents.map(({ id }) => id));
    const moved = requests.filter((_, i) => {
      const { retrieval, arranged } = turn(asked, i);
      return String(labels(arranged)) !== String(labels(retrieval));
    });
    expect(moved).not.toEqual([]);
    expect(report.strategies.arranged.cachedTokens).toBeGreaterThan(report.strategies.retrieval.cachedTokens!);
  });

  it('starts each order cold on an engine that it cannot restart, with settings that are otherwise the same', async () => {
    const { report, asked } = await demoOnFake({}, '--questions', '5', '--repeat', '2');
    expect(report.requests).toBe(10);
    const prompts = asked.map(({ messages }) => messages[0]!.content);
    // Four cold starts, each with a number of its own before the same words.
    expect(new Set(prompts).size).toBe(4);
    expect(new Set(prompts.map((prompt) => prompt.replace(/^[0-9a-f]{12} /, ''))).size).toBe(1);
    const rest = asked.map(({ messages: _, ...settings }) => JSON.stringify(settings));
    expect(new Set(rest).size).toBe(1);
    // Each order keeps to its own system prompt, and who goes first alternates, so that a drift of the machine meets
    // both.
    const runs = [...new Set(prompts)].map((prompt) => prompts.flatMap((other, i) => (other === prompt ? [i] : [])));
    expect(runs).toEqual([
      [0, 3, 4, 7, 8],
      [1, 2, 5, 6, 9],
      [10, 13, 14, 17, 18],
      [11, 12, 15, 16, 19],
    ]);
    // Both repetitions start from an empty history and so send the same documents in the same order.
    const [first, second, third, fourth] = runs.map((run) => run.map((i) => labels(asked[i]!)));
    expect([third, fourth]).toEqual([first, second]);
    expect(second).not.toEqual(first);
  });

  it('says null where the engine reports no cached tokens', async () => {
    const { report } = await demoOnFake({ reports: false }, '--questions', '2', '--workload', 'broad');
    const { retrieval, arranged } = report.strategies;
    expect([retrieval.cachedTokens, retrieval.cachedShare, arranged.cachedShare]).toEqual([null, null, null]);
    expect(report.ratio.uncachedTokens).toBeNull();
    expect(report.almanac).toBeUndefined();
  });

  it('prints a table for people, plain where there is no terminal', async () => {
    engine = await startFakeEngine();
    const { code, stdout, stderr } = await runCli(['demo', '--engine', engine.url, '--questions', '4']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^ {2}uncached tokens +[\d,]+ +[\d,]+ +[−+][\d.]+ %$/m);
    expect(stdout).not.toContain('\u001b');
  });

  it("passes the engine's error on", async () => {
    engine = await startFakeEngine({ failsWith: 503 });
    const { code, stdout } = await runCli(['demo', '--engine', engine.url, '--questions', '1', '--json']);
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'WARMPATH_UPSTREAM_ERROR' } });
  });
});
