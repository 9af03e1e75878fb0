import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type AnsweredQuestion,
  bootstrapMeans,
  drawConversations,
  type EvaluationQuestions,
  type EvaluationStrategy,
  evaluationFinding,
  evaluationPage,
  evaluationReport,
  fitShiftPrice,
  normalisedWords,
  pairedTTest,
  pricedStrategy,
  priceLadder,
  type ReadQuestionsOptions,
  readQuestions,
  renderReport,
  scoreAnswer,
  signFlipTest,
  studentTPValue,
  tooLongNote,
} from '../src/index.js';

describe('scoreAnswer', () => {
  const score = (answer: string, ...answers: string[]) => scoreAnswer(answer, { answers });

  it.each([
    ['The  U.S. Army', ['us', 'army']],
    ['an apple a day', ['apple', 'day']],
    ['the a an', []],
    ['it’s «25 %»', ['it’s', '«25', '»']],
    ['well-known', ['wellknown']],
    // Letters of any script are letters: the article is not the end of a word.
    ['ça va, Thea', ['ça', 'va', 'thea']],
  ])('normalises %j as SQuAD does', (text, words) => {
    expect(normalisedWords(text)).toEqual(words);
  });

  it.each([
    ['RNA interference', ['RNA interference pathway', 'RNA interference'], { exact: 1, contains: 1, f1: 1 }],
    ['The answer is 63 days.', ['63', '63 days'], { exact: 0, contains: 1, f1: 4 / 6 }],
    ['know', ['no'], { exact: 0, contains: 0, f1: 0 }],
    ['no, not now', ['No'], { exact: 0, contains: 1, f1: 0.5 }],
    ['days 63', ['63 days'], { exact: 0, contains: 0, f1: 1 }],
    ['b b b', ['b'], { exact: 0, contains: 1, f1: 0.5 }],
    ['', ['x'], { exact: 0, contains: 0, f1: 0 }],
    ['x', ['the'], { exact: 0, contains: 0, f1: 0 }],
    ['A!', ['the'], { exact: 1, contains: 1, f1: 1 }],
  ])('scores %j against %j', (answer, answers, expected) => {
    expect(score(answer, ...answers)).toEqual(expected);
  });

  it('wants a refusal where there is no answer, and only there', () => {
    expect(score('Unanswerable.')).toEqual({ exact: 1, contains: 1, f1: 1 });
    expect(score('')).toEqual({ exact: 1, contains: 1, f1: 1 });
    expect(score('This is unanswerable')).toEqual({ exact: 0, contains: 1, f1: 0 });
    expect(score('Paris')).toEqual({ exact: 0, contains: 0, f1: 0 });
    expect(score('unanswerable', 'Paris')).toEqual({ exact: 0, contains: 0, f1: 0 });
  });

  it('orders its figures, and gives full marks for a right answer however it is written', () => {
    const text = fc.string({ unit: fc.constantFrom('a', 'the', 'b', ' ', '.', 'É', '1') });
    fc.assert(
      fc.property(text, fc.array(text, { minLength: 1, maxLength: 3 }), (answer, answers) => {
        const { exact, contains, f1 } = score(answer, ...answers);
        expect(exact).toBeLessThanOrEqual(contains);
        expect(exact).toBeLessThanOrEqual(f1);
        expect(f1).toBeLessThanOrEqual(1);
        expect(score(`  ${answers[0]!.toUpperCase()} !`, ...answers)).toEqual({ exact: 1, contains: 1, f1: 1 });
        expect(score(answer, ...answers, 'another').f1).toBeGreaterThanOrEqual(f1);
      }),
      { seed: 5 },
    );
  });
});

describe('studentTPValue', () => {
  // Critical values as printed in every table of Student's t, two-sided.
  it.each([
    [12.706, 1, 0.05],
    [63.657, 1, 0.01],
    [4.303, 2, 0.05],
    [2.776, 4, 0.05],
    [2.571, 5, 0.05],
    [2.228, 10, 0.05],
    [3.169, 10, 0.01],
    [4.587, 10, 0.001],
    [2.042, 30, 0.05],
    [2.75, 30, 0.01],
    [1.984, 100, 0.05],
    [3.291, 1e6, 0.001],
  ])('t = %d with %d degrees of freedom is p = %d', (t, degreesOfFreedom, p) => {
    expect(studentTPValue(t, degreesOfFreedom) / p).toBeCloseTo(1, 2);
    expect(studentTPValue(-t, degreesOfFreedom)).toBe(studentTPValue(t, degreesOfFreedom));
  });

  it('is what closed forms say for 1, 2 and 4 degrees of freedom', () => {
    fc.assert(
      fc.property(fc.double({ min: 1e-6, max: 1e3, noNaN: true }), (t) => {
        const root = Math.sqrt(4 + t * t);
        const s = t / root;
        const closed = [
          [1, (2 / Math.PI) * Math.atan2(1, t)],
          [2, 1 - t / Math.sqrt(2 + t * t)],
          [4, 1 - s * (1.5 - 0.5 * s * s)],
        ] as const;
        for (const [degreesOfFreedom, p] of closed) {
          expect(Math.abs(studentTPValue(t, degreesOfFreedom) - p)).toBeLessThan(1e-12);
        }
      }),
      { seed: 11 },
    );
  });

  it('is 1 for no difference and 0 for an infinite one', () => {
    expect(studentTPValue(0, 7)).toBe(1);
    expect(studentTPValue(Number.POSITIVE_INFINITY, 7)).toBe(0);
  });
});

describe('pairedTTest', () => {
  it("is right on Student's own data: hours of sleep gained by two soporifics", () => {
    // Student 1908, the data set `sleep` of R: t = 4.0621, df = 9, p = 0.002833.
    const first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0, 2];
    const second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
    const { t, degreesOfFreedom, p } = pairedTTest(second, first);
    expect(t).toBeCloseTo(4.0621, 4);
    expect(degreesOfFreedom).toBe(9);
    expect(p).toBeCloseTo(0.002833, 6);
  });

  it('knows pairs that do not differ, and pairs that all differ alike', () => {
    expect(pairedTTest([1, 0, 1], [1, 0, 1])).toEqual({ t: 0, degreesOfFreedom: 2, p: 1 });
    expect(pairedTTest([1, 1], [0, 0])).toEqual({ t: null, degreesOfFreedom: 1, p: 0 });
  });
});

describe('signFlipTest', () => {
  /** Over all patterns of signs, one by one. */
  function enumerated(differences: readonly number[]): number {
    const found = Math.abs(differences.reduce((sum, difference) => sum + difference, 0));
    let extreme = 0;
    for (let signs = 0; signs < 2 ** differences.length; signs++) {
      const sum = differences.reduce(
        (total, difference, i) => total + (signs & (1 << i) ? difference : -difference),
        0,
      );
      if (Math.abs(sum) >= found) extreme++;
    }
    return extreme / 2 ** differences.length;
  }

  it('is what trying all signs gives', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: -4, max: 4 }), { maxLength: 9 }), (differences) => {
        expect(signFlipTest(differences)).toBeCloseTo(enumerated(differences), 12);
      }),
      { seed: 17 },
    );
  });

  it("is McNemar's exact test for questions that stand alone", () => {
    // 1 lost and 8 gained: 2 × (1 + 9) / 2^9.
    expect(signFlipTest([-1, ...Array<number>(8).fill(1), 0, 0])).toBeCloseTo(20 / 512, 12);
    expect(signFlipTest([0, 0])).toBe(1);
    expect(signFlipTest([])).toBe(1);
    expect(() => signFlipTest([0.5])).toThrow(RangeError);
  });
});

describe('bootstrapMeans', () => {
  const sample = Array.from({ length: 200 }, (_, i) => ((i * 37) % 2 === 0 ? 1 : 0));

  it('gives the interval that theory gives for a share, and the same for the same seed', () => {
    const shares = sample.map((_, i) => (i % 5 === 0 ? 1 : 0));
    const { mean, low, high } = bootstrapMeans([shares], { seed: 1 }).mean(0);
    const margin = 1.96 * Math.sqrt((0.2 * 0.8) / 200);
    expect(mean).toBeCloseTo(0.2, 12);
    expect(low).toBeCloseTo(0.2 - margin, 1.5);
    expect(high).toBeCloseTo(0.2 + margin, 1.5);
    const lengths = sample.map((_, i) => Math.sqrt(i));
    const of = (seed: number) => bootstrapMeans([lengths], { seed }).mean(0);
    expect(of(1)).toEqual(of(1));
    expect(of(2)).not.toEqual(of(1));
  });

  it('pairs: samples that differ by a constant differ by it in every replicate', () => {
    const shifted = sample.map((value) => value + 0.25);
    const difference = bootstrapMeans([sample, shifted], { seed: 3, replicates: 500 }).difference(1, 0);
    expect(difference.mean).toBeCloseTo(0.25, 12);
    expect(difference.low).toBeCloseTo(0.25, 12);
    expect(difference.high).toBeCloseTo(0.25, 12);
  });

  it('draws units whole: questions that always agree with each other say less than as many that do not', () => {
    const values = Array.from({ length: 800 }, (_, i) => (Math.floor(i / 4) % 2 === 0 ? 1 : 0));
    const units = Array.from({ length: 200 }, (_, unit) => [0, 1, 2, 3].map((place) => 4 * unit + place));
    const width = ({ low, high }: { readonly low: number; readonly high: number }) => high - low;
    const alone = width(bootstrapMeans([values], { seed: 9 }).mean(0));
    const together = width(bootstrapMeans([values], { seed: 9, units }).mean(0));
    // Four times fewer independent observations: intervals twice as wide.
    expect(together / alone).toBeGreaterThan(1.8);
    expect(together / alone).toBeLessThan(2.2);
  });

  it('covers the true mean about as often as it says', () => {
    let covered = 0;
    for (let seed = 1; seed <= 200; seed++) {
      const values = Array.from({ length: 60 }, (_, i) => (Math.sin(seed * 1_000 + i * 78.233) * 43_758.5453) % 1);
      const truth = values.map((value) => (value - Math.floor(value) < 0.3 ? 1 : 0));
      const { low, high } = bootstrapMeans([truth], { seed, replicates: 400 }).mean(0);
      if (low <= 0.3 && 0.3 <= high) covered++;
    }
    expect(covered / 200).toBeGreaterThan(0.88);
    expect(covered / 200).toBeLessThan(0.99);
  });
});

const THREE = ['retrieval', 'arranged', 'arranged-hints'] as const satisfies readonly EvaluationStrategy[];

const SETTINGS = {
  data: 'beir',
  engine: 'http://127.0.0.1:8000',
  model: 'm',
  policy: 'exact',
  topK: 5,
  passages: 'found by BM25',
  concurrency: 1,
  seed: 42,
  contextTokens: 4_096,
  strategies: THREE,
};

function answer(
  question: string,
  strategy: EvaluationStrategy,
  exact: number,
  more: Partial<AnsweredQuestion> = {},
): AnsweredQuestion {
  const score = { exact, contains: exact, f1: exact };
  return {
    question,
    strategy,
    answer: `${exact}`,
    score,
    ttftMs: 10,
    promptTokens: 100,
    cachedTokens: 0,
    placesMoved: 0,
    ...more,
  };
}

/** Questions that were asked: those in `unanswerable` have no answer. */
function asked(count: number, ...unanswerable: readonly string[]) {
  const ids = Array.from({ length: count }, (_, i) => `q${i}`);
  return ids.map((id) => ({ id, gold: { answers: unanswerable.includes(id) ? [] : ['yes'] } }));
}

function answers(byStrategy: Readonly<Record<(typeof THREE)[number], readonly number[]>>): AnsweredQuestion[] {
  return THREE.flatMap((strategy) => byStrategy[strategy].map((exact, i) => answer(`q${i}`, strategy, exact)));
}

/** Two questions of a kind, with the means of each strategy. */
function kind(name: string, means: readonly number[]) {
  const strategies = THREE.map((strategy, s) => ({ strategy, exact: means[s], f1: means[s] }));
  return { kind: name, questions: 2, strategies };
}

describe('the price of moving documents', () => {
  const at = (price: number, low: number, moved = 1_000) => ({
    price,
    questions: 1_000,
    moved,
    placesMoved: 1,
    f1: { mean: 0, low, high: 0.1 },
    computed: null,
  });

  it('is the lowest that keeps the answers, and so do all above it', () => {
    const suggest = (...lows: readonly number[]) =>
      fitShiftPrice(lows.map((low, i) => at(8 - 2 * i, low)).toReversed(), 0.02);
    expect(suggest(0, -0.01, -0.02).suggested).toBe(4);
    expect(suggest(0, -0.03, -0.01).suggested).toBe(8);
    expect(suggest(-0.03, 0, 0).suggested).toBeNull();
    expect(suggest(0, -0.03).prices.map(({ price, keepsAnswers }) => [price, keepsAnswers])).toEqual([
      [6, false],
      [8, true],
    ]);
  });

  it('does not take silence for proof: a loss that so few questions may not have shown is not ruled out', () => {
    const mayLose = (moved: number) => fitShiftPrice([at(1, 0, moved)], 0.02).prices[0]!.mayLose;
    expect(mayLose(0)).toBe(0);
    expect(mayLose(1)).toBeCloseTo(0.975 / 1_000, 9);
    // 0 of 30: one in 8.6 at most, with a chance of 0.025 to be wrong.
    expect(mayLose(30)).toBeCloseTo((0.1157 * 30) / 1_000, 5);
    const few = { ...at(1, 0, 10), questions: 10 };
    expect(fitShiftPrice([few], 0.02).suggested).toBeNull();
    expect(fitShiftPrice([few], 0.31).suggested).toBe(1);
  });

  it('is tried from none up to a quarter of a document a place, where a list is not given', () => {
    expect(priceLadder(128)).toEqual([0, 8, 16, 32]);
    expect(priceLadder(333)).toEqual([0, 21, 42, 83]);
    expect(priceLadder(0)).toEqual([0]);
  });

  it('comes from the interval of token F1 and from what was not in the cache', () => {
    const strategies = ['retrieval', pricedStrategy(0), pricedStrategy(2.5)] as const;
    const answered = strategies.flatMap((strategy, s) =>
      Array.from({ length: 40 }, (_, i) =>
        answer(`q${i}`, strategy, s === 1 && i % 4 === 0 ? 0 : 1, {
          cachedTokens: [20, 60, 40][s]!,
          placesMoved: 4 - s,
        }),
      ),
    );
    const report = evaluationReport(
      { ...SETTINGS, strategies, tolerance: 0.1 },
      { answered, failed: [], questions: asked(40) },
    )!;
    const { prices, suggested } = report.shiftPrices!;
    expect(suggested).toBe(2.5);
    expect(prices[0]).toMatchObject({ price: 0, placesMoved: 3, computed: -0.5, keepsAnswers: false });
    expect(prices[0]!.f1.mean).toBeCloseTo(-0.25);
    expect(prices[1]).toMatchObject({ price: 2.5, placesMoved: 2, computed: -0.25, keepsAnswers: true });
    expect(prices[1]!.f1).toEqual({ mean: 0, low: 0, high: 0 });
    expect(prices[1]!.mayLose).toBeCloseTo(1 - 0.025 ** (1 / 40), 9);
    expect(evaluationFinding(report)).toContain('`arrange.shiftPrice: 2.5` is the lowest price tried');
    const worse = answered.filter(({ strategy }) => strategy !== strategies[2]);
    const one = evaluationReport(
      { ...SETTINGS, strategies: strategies.slice(0, 2), tolerance: 0.1 },
      { answered: worse, failed: [], questions: asked(40) },
    )!;
    expect(evaluationFinding(one)).toContain('no price of moving documents is shown to keep the answers');
  });
});

describe('evaluationReport', () => {
  const answered = answers({
    retrieval: [1, 0, 0, 0],
    arranged: [1, 1, 0, 0],
    'arranged-hints': [1, 1, 1, 0],
  });

  it('counts by hand: means, paired differences and tests', () => {
    const report = evaluationReport(SETTINGS, { answered, failed: [], questions: asked(5, 'q3', 'q4') })!;
    expect(report.questions).toEqual({ asked: 4, scored: 4, unanswerable: 1, tooLong: 0, conversations: 0 });
    expect(report.strategies.map(({ exact }) => exact.mean)).toEqual([0.25, 0.5, 0.75]);
    const [arranged, hints] = report.differences;
    // Differences 0, 1, 0, 0: mean 1/4, standard error 1/4, t = 1 with 3 degrees of freedom, p = 0.391.
    expect(arranged).toMatchObject({ strategy: 'arranged', exact: { mean: 0.25, t: 1, degreesOfFreedom: 3 } });
    expect(arranged!.exact.p).toBeCloseTo(0.391, 3);
    // Differences 0, 1, 1, 0: mean 1/2, standard error 0.2887, t = 1.732, p = 0.1817.
    expect(hints!.f1.t).toBeCloseTo(1.732, 3);
    expect(hints!.f1.p).toBeCloseTo(0.1817, 4);
  });

  it('compares hints with the same strategy without them, and counts answers with another text', () => {
    const { differences } = evaluationReport(SETTINGS, { answered, failed: [], questions: asked(4) })!;
    expect(differences.map(({ strategy, baseline }) => [strategy, baseline])).toEqual([
      ['arranged', 'retrieval'],
      ['arranged-hints', 'retrieval'],
      ['arranged-hints', 'arranged'],
    ]);
    expect(differences.map(({ exact }) => exact.mean)).toEqual([0.25, 0.5, 0.25]);
    expect(differences.map(({ answers: { changed, lost, gained } }) => [changed, lost, gained])).toEqual([
      [1, 0, 1],
      [2, 0, 2],
      [1, 0, 1],
    ]);
    // A wrong answer may become another wrong one.
    const reworded = answered.map((each) =>
      each.question === 'q3' && each.strategy === 'arranged' ? { ...each, answer: 'other' } : each,
    );
    const [arranged] = evaluationReport(SETTINGS, { answered: reworded, failed: [], questions: asked(4) })!.differences;
    expect(arranged!.answers).toMatchObject({ changed: 2, lost: 0, gained: 1 });
  });

  it('counts the rounds of a question as one', () => {
    const rounds = asked(4).map((question, i) => ({ ...question, unit: i < 2 ? 'a' : 'b' }));
    const { differences } = evaluationReport(SETTINGS, { answered, failed: [], questions: rounds })!;
    expect(differences[0]!.exact.degreesOfFreedom).toBe(1);
  });

  it('is over the questions that all strategies answered, and names what failed', () => {
    const some = answered.filter(({ question, strategy }) => question !== 'q0' || strategy !== 'arranged');
    const failed = [{ question: 'q0', strategy: 'arranged', code: 'WARMPATH_UPSTREAM_TIMEOUT' } as const];
    const report = evaluationReport(SETTINGS, { answered: some, failed, questions: asked(4) })!;
    expect(report.questions).toEqual({ asked: 4, scored: 3, unanswerable: 0, tooLong: 0, conversations: 0 });
    expect(report.strategies.map(({ exact }) => exact.mean)).toEqual([0, 1 / 3, 2 / 3]);
    expect(report.strategies.map(({ failures }) => failures)).toEqual([{}, { WARMPATH_UPSTREAM_TIMEOUT: 1 }, {}]);
  });

  it('sums up tokens, does not invent what the engine does not say, and sees a cache that was warm', () => {
    const tokens = (cachedTokens: number | null) =>
      THREE.flatMap((strategy) => [
        answer('q0', strategy, 1, { cachedTokens, placesMoved: strategy === 'retrieval' ? 0 : 4, ttftMs: 10 }),
        answer('q1', strategy, 1, { cachedTokens: cachedTokens === null ? null : 80, ttftMs: 30 }),
      ]);
    const outcomes = (cachedTokens: number | null) => ({
      answered: tokens(cachedTokens),
      failed: [],
      questions: asked(2),
    });
    const cold = evaluationReport(SETTINGS, outcomes(20))!;
    expect(cold.startedWarm).toBe(false);
    expect(cold.strategies[1]).toMatchObject({
      promptTokens: 200,
      cachedTokens: 100,
      cachedShare: 0.5,
      moved: 1,
      placesMoved: 2,
      ttftMs: { mean: 20 },
    });
    expect(evaluationReport(SETTINGS, outcomes(90))!.startedWarm).toBe(true);
    expect(evaluationReport(SETTINGS, outcomes(null))!.strategies[0]).toMatchObject({
      cachedTokens: null,
      cachedShare: null,
    });
  });

  it('counts conversations as one each, tells kinds apart, and says what did not fit', () => {
    const conversation = (id: string) => ({ id, before: [] });
    const questions = [
      { id: 'q0', gold: { answers: ['yes'] }, kind: 'first turn', conversation: conversation('a') },
      { id: 'q1', gold: { answers: ['yes'] }, kind: 'document new', conversation: conversation('a') },
      { id: 'q2', gold: { answers: ['yes'] }, kind: 'first turn', conversation: conversation('b') },
      { id: 'q3', gold: { answers: ['yes'] }, kind: 'document new', conversation: conversation('b') },
      { id: 'q4', gold: { answers: ['yes'] }, kind: 'document new', conversation: conversation('b') },
    ];
    const failed = [
      { question: 'q4', strategy: 'retrieval', code: 'WARMPATH_CONTEXT_TOO_LONG' },
      { question: 'q4', strategy: 'arranged', code: 'WARMPATH_CONTEXT_TOO_LONG' },
    ] as const;
    const all = answers({ retrieval: [1, 1, 0, 0], arranged: [1, 0, 1, 1], 'arranged-hints': [1, 1, 1, 1] });
    const report = evaluationReport(SETTINGS, { answered: all, failed, questions })!;
    expect(report.questions).toEqual({ asked: 5, scored: 4, unanswerable: 0, tooLong: 1, conversations: 2 });
    expect(tooLongNote(report)).toContain('1 of 5 questions did not fit the 4,096 tokens of the model');
    expect(tooLongNote(report)).toContain('(retrieval 1, arranged 1)');
    // Sums over conversations: -1 and 2 for arranged, of four patterns of signs two are as far from 0; both gained for
    // the hints.
    const [arranged, hints] = report.differences;
    expect(arranged!.answers).toEqual({ changed: 3, lost: 1, gained: 2, p: 1 });
    expect(hints!.answers).toEqual({ changed: 2, lost: 0, gained: 2, p: 1 });
    expect(arranged!.exact).toMatchObject({ mean: 0.25, degreesOfFreedom: 1 });
    expect(report.kinds).toEqual([kind('document new', [0.5, 0.5, 1]), kind('first turn', [0.5, 1, 1])]);
  });

  it('has nothing to say before a question is answered by all', () => {
    expect(
      evaluationReport(SETTINGS, { answered: answered.slice(0, 4), failed: [], questions: asked(4) }),
    ).toBeUndefined();
  });

  it('finds what the interval says, no more', async () => {
    const flat = Array.from({ length: 30 }, (_, i) => i % 2);
    const finding = (arranged: readonly number[]) =>
      evaluationFinding(
        evaluationReport(SETTINGS, {
          answered: answers({ retrieval: flat, arranged, 'arranged-hints': flat }),
          failed: [],
          questions: asked(30),
        })!,
      );
    expect(finding(flat)).toContain('no difference that can be told from chance');
    expect(finding(flat.map(() => 1))).toContain('arranging improves the answers');
    expect(finding(flat.map(() => 0))).toContain('arranging costs answers');
    expect(finding(flat)).not.toContain('says little');
    const none = answers({ retrieval: [0, 0, 0], arranged: [0, 0, 0], 'arranged-hints': [0, 0, 0] });
    const weak = evaluationReport(SETTINGS, { answered: none, failed: [], questions: asked(4) })!;
    expect(evaluationFinding(weak)).toContain('the model answers hardly anything right, so this says little');
    const report = evaluationReport(SETTINGS, { answered, failed: [], questions: asked(4) })!;
    const html = await renderReport(evaluationPage(report), { command: 'warmpath lab eval', version: '1' });
    expect(html).toContain('<th scope="row">arranged</th><td>50.00</td>');
  });
});

describe('drawConversations', () => {
  const entities = Array.from(
    { length: 40 },
    (_, i) => `entity${String.fromCharCode(97 + (i % 26), 97 + ((i * 7) % 26), 97 + i / 2)}`,
  );
  const passages = entities.map((entity, i) => ({
    id: `p${i}`,
    title: entity,
    content: `The weight of ${entity} is ${i} kg. The colour of ${entity} is shade${i % 6}.`,
  }));
  const questions = entities.flatMap((entity, i) => [
    { text: `What is the weight of ${entity}?`, gold: { answers: [`${i} kg`, `${i}`] }, sources: [`p${i}`] },
    { text: `What is the colour of ${entity}?`, gold: { answers: [`shade${i % 6}`] }, sources: [`p${i}`] },
  ]);
  const draw = (seed: number) => drawConversations(questions, passages, { seed, conversations: 12, turns: 4, topK: 4 });

  it('is the same for the same seed, and asks questions as evenly as it can', () => {
    expect(draw(3)).toEqual(draw(3));
    expect(draw(4)).not.toEqual(draw(3));
    const asked = draw(3).map(({ text }) => text);
    expect(new Set(asked).size).toBeGreaterThan(40);
  });

  it('never gives an answer away, always has the document at hand, and says where it stood', () => {
    for (let seed = 1; seed <= 10; seed++) {
      for (const { text, gold, passages: context, conversation, kind: named } of draw(seed)) {
        const [source] = questions.find((one) => one.text === text)!.sources;
        const before = conversation!.before;
        expect(context.map(({ id }) => id)).toContain(source);
        expect(before.map(({ answer: earlier }) => earlier)).not.toContain(gold.answers[0]);
        const shown = before.findIndex((turn) => turn.passages.some(({ id }) => id === source));
        const back = before.length - shown;
        const expected = shown < 0 ? 'document new' : `document shown ${back} ${back === 1 ? 'turn' : 'turns'} before`;
        expect(named).toBe(before.length === 0 ? 'first turn' : expected);
      }
    }
  });

  it('asks about what was shown two times of three behind the first turn', () => {
    const kinds = Array.from({ length: 10 }, (_, i) => draw(i + 1)).flatMap((drawn) => drawn.map((one) => one.kind!));
    const later = kinds.filter((one) => one !== 'first turn');
    const shown = later.filter((one) => one.startsWith('document shown')).length;
    expect(shown / later.length).toBeCloseTo(2 / 3, 1);
  });

  it('refuses what cannot be drawn', () => {
    const few = questions.slice(0, 2);
    // Both are about one passage: the second turn is, whatever the seed would have it be.
    for (let seed = 1; seed <= 6; seed++) {
      const drawn = drawConversations(few, passages, { seed, conversations: 1, turns: 2, topK: 4 });
      expect(drawn.map((one) => one.kind)).toEqual(['first turn', 'document shown 1 turn before']);
    }
    expect(() => drawConversations(few, passages, { seed: 1, conversations: 1, turns: 4, topK: 4 })).toThrow(/turn 3/);
  });

  it('wants all passages that an answer takes: found together, and shown together or not at all', () => {
    const both = entities.slice(1).flatMap((entity, i) =>
      ['weight', 'colour'].map((property) => ({
        text: `Do ${entities[i]} and ${entity} have one ${property}?`,
        gold: { answers: [`${property} ${i}`] },
        sources: [`p${i}`, `p${i + 1}`],
      })),
    );
    const drawn = drawConversations(both, passages, { seed: 2, conversations: 10, turns: 2, topK: 4 });
    for (const { text, passages: context, conversation, kind: named } of drawn) {
      const { sources } = both.find((one) => one.text === text)!;
      expect(context.map(({ id }) => id)).toEqual(expect.arrayContaining(sources));
      const shown = conversation!.before.flatMap((turn) => turn.passages.map(({ id }) => id));
      const count = sources.filter((source) => shown.includes(source)).length;
      if (named !== 'first turn') expect(count).toBe(named === 'document new' ? 0 : 2);
    }
    expect(new Set(drawn.map((one) => one.kind)).size).toBe(3);
  });
});

describe('readQuestions', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-beir-'));
    await mkdir(join(folder, 'qrels'));
    await writeFile(
      join(folder, 'corpus.jsonl'),
      lines(
        { _id: 'p1', title: 'Clock', text: 'The clock strikes.' },
        { _id: 'p2', text: 'The tower stands.' },
        { _id: 'p3', text: ' ', title: 'clock' },
      ),
    );
  });
  afterEach(() => rm(folder, { recursive: true }));

  const lines = (...values: object[]) => values.map((value) => `${JSON.stringify(value)}\n`).join('');
  const query = (id: string, metadata?: object) => ({
    _id: id,
    text: 'What does the clock do?',
    ...(metadata && { metadata }),
  });
  const read = async (queries: readonly object[], options: Partial<ReadQuestionsOptions> = {}) => {
    await writeFile(join(folder, 'queries.jsonl'), lines(...queries));
    return readQuestions(folder, { topK: 2, seed: 1, ...options });
  };

  it('reads answers in each of the layouts, with the passages that BM25 finds', async () => {
    const { questions, withoutAnswer } = await read([
      query('a', { answer: 'strikes' }),
      query('b', { answers: ['it strikes', '', 'strikes', 'strikes'] }),
      query('c', { ground_truth: { answers: ['strikes'], is_impossible: false } }),
      query('d', { ground_truth: { answers: ['plausible'], is_impossible: true } }),
      query('e', { ground_truth: { answers: [''], is_impossible: true } }),
      query('f', { topic: 'clocks' }),
      query('g'),
    ]);
    expect(withoutAnswer).toBe(2);
    expect(questions.map(({ id, gold }) => [id, gold.answers])).toEqual([
      ['a', ['strikes']],
      ['b', ['it strikes', 'strikes']],
      ['c', ['strikes']],
      ['d', []],
      ['e', []],
    ]);
    // A passage without text is no passage, whatever its title.
    expect(questions[0]!.passages.map(({ id }) => id)).toEqual(['p1']);
  });

  it('takes the first so many', async () => {
    const { questions } = await read([query('x'), query('a', { answer: 'y' }), query('b', { answer: 'z' })], {
      limit: 1,
    });
    expect(questions.map(({ id }) => id)).toEqual(['a']);
  });

  it.each([
    ['no answers at all', [query('a'), query('b')], /metadata\.answer/],
    ['an answer of another type', [query('a', { answer: 3 })], /queries\.jsonl line 1: metadata\.answer/],
    ['a flag of another type', [query('a', { answers: [], is_impossible: 'no' })], /is_impossible/],
    ['an id twice', [query('a', { answer: 'x' }), query('a', { answer: 'y' })], /"a" is taken/],
  ])('refuses %s', async (_, queries, message) => {
    await expect(read(queries)).rejects.toThrow(message);
  });

  describe('with passages of its own', () => {
    const NAMES = ['clock', 'tower', 'bridge', 'well', 'gate', 'wall'];
    const own = (id: string, context: readonly string[]) => ({
      ...query(id, { answer: 'x', context }),
      text: 'clock tower',
    });
    beforeEach(async () => {
      await writeFile(
        join(folder, 'corpus.jsonl'),
        lines(...NAMES.map((name) => ({ _id: name, title: name, text: `The ${name} stands.` }))),
      );
      await writeFile(join(folder, 'qrels', 'test.tsv'), 'query-id\tcorpus-id\tscore\na\tgate\t1\na\twall\t0\n');
    });
    const ids = ({ questions }: EvaluationQuestions) => questions.map(({ passages }) => passages.map(({ id }) => id));

    it('takes those that a query lists, all of them, best first', async () => {
      const context = ['well', 'clock', 'gate', 'wall'];
      expect(ids(await read([own('a', context)], { topK: undefined }))).toEqual([['clock', 'well', 'gate', 'wall']]);
      expect(ids(await read([own('a', context)]))).toEqual([['clock', 'well']]);
      await expect(read([own('a', ['clock', 'moon'])])).rejects.toThrow(/metadata\.context\[1\].*"moon"/);
      await expect(read([own('a', ['clock', 'clock'])])).rejects.toThrow(/stands twice/);
    });

    it('puts the right passage at a place, and in the place of the last one where it was not found', async () => {
      const plain = { ...query('a', { answer: 'x' }), text: 'clock tower bridge' };
      const at = async (ranks: number) => ids(await read([plain], { ranks, topK: 3 }))[0]!;
      const found = ids(await read([plain], { topK: 3 }))[0]!;
      expect([...found].sort()).toEqual(['bridge', 'clock', 'tower']);
      expect(await at(1)).toEqual(['gate', ...found.slice(0, 2)]);
      expect(await at(2)).toEqual([found[0], 'gate', found[1]]);
      expect(await at(9)).toEqual([...found.slice(0, 2), 'gate']);
      const other = { ...plain, _id: 'b' };
      await expect(read([other], { ranks: 1 })).rejects.toThrow(/qrels\/test\.tsv.*"b"/);
    });

    it('draws random orders from the seed: others for every round, all about the same question', async () => {
      const queries = ['a', 'b', 'c'].map((id) => own(id, NAMES));
      const options = { topK: undefined, ranks: 'random', rounds: 4 } as const;
      const { questions } = await read(queries, options);
      expect(questions.map(({ id }) => id).slice(0, 4)).toEqual(['a', 'b', 'c', 'a, round 2']);
      expect(questions.map(({ unit }) => unit)).toEqual(Array(4).fill(['a', 'b', 'c']).flat());
      const orders = ids({ questions, withoutAnswer: 0 });
      for (const order of orders) expect([...order].sort()).toEqual([...NAMES].sort());
      expect(new Set(orders.map(String)).size).toBeGreaterThan(6);
      for (const { shuffled } of questions) expect([...shuffled!].sort()).toEqual([0, 1, 2, 3, 4, 5]);
      expect((await read(queries, options)).questions).toEqual(questions);
      expect((await read(queries, { ...options, seed: 2 })).questions).not.toEqual(questions);
      // A retriever's own order is the same in every round; only what is shuffled changes.
      const retrieved = (await read(queries, { ...options, ranks: 'retrieved' })).questions;
      expect(new Set(ids({ questions: retrieved, withoutAnswer: 0 }).map(String)).size).toBe(1);
      expect(new Set(retrieved.map(({ shuffled }) => String(shuffled))).size).toBeGreaterThan(6);
    });

    it('draws conversations from the questions that have an answer and a right passage', async () => {
      const judged = NAMES.map((name) => `about ${name}\t${name}\t1\n`).join('');
      await writeFile(join(folder, 'qrels', 'test.tsv'), judged);
      const queries = NAMES.map((name) => ({ ...query(`about ${name}`, { answer: `of ${name}` }), text: name }));
      const none = { ...query('none', { answers: [] }), text: 'clock' };
      const { questions } = await read([none, ...queries, query('unjudged', { answer: 'x' })], { turns: 2 });
      expect(questions).toHaveLength(6);
      expect(questions.map(({ conversation }) => conversation!.before.length)).toEqual([0, 1, 0, 1, 0, 1]);
    });
  });
});
