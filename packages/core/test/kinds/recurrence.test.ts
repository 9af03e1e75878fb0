import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { RecurrenceHistory } from '../../src/internal.js';
import '../seed.js';

/** A document as the hashes of its stretches. */
type Stretches = readonly number[];

/** A history of prompts, each a list of documents. */
function historyOf(prompts: readonly (readonly Stretches[])[], maxBytes = 1_000_000): RecurrenceHistory {
  const history = new RecurrenceHistory(maxBytes);
  for (const documents of prompts) history.learn(documents.flat());
  return history;
}

/** The units of a prompt as stretches. */
function unitsOf(history: RecurrenceHistory, documents: readonly Stretches[]): Stretches[] {
  const hashes = documents.flat();
  return history.unitsOf(hashes).units.map(({ from, to }) => hashes.slice(from, to));
}

/** Documents that a cut goes through. */
function cutDocuments(history: RecurrenceHistory, documents: readonly Stretches[]): Stretches[] {
  const hashes = documents.flat();
  const cuts = new Set(history.unitsOf(hashes).units.map(({ from }) => from));
  let from = 0;
  return documents.filter((document) => {
    const start = from;
    from += document.length;
    return document.some((_, at) => at > 0 && cuts.has(start + at));
  });
}

/** Prompts with random choices of documents in random order. */
function promptsOf(documents: readonly Stretches[], seeds: readonly number[], perPrompt: number): Stretches[][] {
  return seeds.map((seed) => {
    let state = seed;
    const random = () => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return state / 2 ** 32;
    };
    const rest = [...documents];
    return Array.from({ length: Math.min(perPrompt, rest.length) }, () => {
      return rest.splice(Math.floor(random() * rest.length), 1)[0]!;
    });
  });
}

const [A, B, C, D]: Stretches[] = [[1], [2, 3], [4], [5, 6, 7]];

test('documents that stood in different company part', () => {
  const history = historyOf([
    [A!, B!, C!],
    [C!, A!, D!],
    [B!, A!, C!],
    [D!, C!, B!],
  ]);
  expect(unitsOf(history, [A!, B!, C!, D!])).toEqual([A, B, C, D]);
});

test('what was never seen stays with its neighbours', () => {
  const history = historyOf([
    [A!, B!, C!],
    [C!, A!, D!],
    [B!, A!, C!],
    [D!, C!, B!],
  ]);
  expect(unitsOf(history, [A!, B!, [99], C!, D!])).toEqual([A, [...B!, 99, ...C!], D]);
});

test('stretches that have always followed each other stay together', () => {
  const history = historyOf([
    [A!, B!, C!],
    [A!, B!, D!],
    [D!, A!, B!],
  ]);
  expect(unitsOf(history, [C!, A!, B!])).toContainEqual([...A!, ...B!]);
});

test('nothing is known of a first text', () => {
  const history = new RecurrenceHistory(1_000);
  expect(history.unitsOf([1, 2, 3])).toEqual({
    units: [{ from: 0, to: 3 }],
    isStartCertain: false,
    isEndCertain: false,
  });
  expect(history.unitsOf([]).units).toEqual([]);
});

test('a text that always comes last has no certain end', () => {
  const question = [77];
  const history = historyOf([
    [A!, B!, question],
    [C!, A!, question],
    [B!, C!, question],
  ]);
  expect(history.unitsOf([...C!, ...B!, ...question]).isEndCertain).toBe(false);
});

describe('no document is cut', () => {
  const seeds = fc.array(fc.nat(2 ** 31), { minLength: 5, maxLength: 80 });
  const perPrompt = fc.integer({ min: 2, max: 6 });
  const lengths = fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 3, maxLength: 14 });

  /** Documents of these lengths, each stretch in one of them alone. */
  function distinct(sizes: readonly number[]): number[][] {
    let next = 1_000;
    return sizes.map((size) => Array.from({ length: size }, () => next++));
  }

  /** Every prompt is asked about before it is learned, as it would be in use. */
  function neverCut(documents: readonly Stretches[], given: readonly number[], count: number) {
    const history = new RecurrenceHistory(1_000_000);
    for (const prompt of promptsOf(documents, given, count)) {
      expect(cutDocuments(history, prompt)).toEqual([]);
      history.learn(prompt.flat());
    }
  }

  const HEAD = 1;
  const TAIL = 2;
  const kinds: Readonly<Record<string, (documents: number[][]) => Stretches[]>> = {
    'of their own words': (documents) => documents,
    'with the same first stretch': (documents) => documents.map((each) => [HEAD, ...each]),
    'with the same last stretch': (documents) => documents.map((each) => [...each, TAIL]),
    'some with the same first, some with the same last stretch': (documents) =>
      documents.map((each, i) => [...(i % 3 === 0 ? [HEAD] : []), ...each, ...(i % 3 === 1 ? [TAIL] : [])]),
    'with a footer and a header inside': (documents) =>
      documents.map((each, i) => (i % 4 === 0 ? [HEAD, ...each, TAIL, HEAD, 9_000 + i, TAIL] : [HEAD, ...each, TAIL])),
    'with a line that repeats inside': (documents) => documents.map((each) => each.flatMap((one) => [one, TAIL])),
    'in a version with one more stretch': (documents) => [
      ...documents,
      ...documents.slice(0, 3).map((each, i) => [...each.slice(0, 1), 9_000 + i, ...each.slice(1)]),
    ],
    'in a version with another first stretch': (documents) => [
      ...documents,
      ...documents.slice(0, 3).map((each, i) => [9_000 + i, ...each.slice(1)]),
    ],
    'in a version with another last stretch': (documents) => [
      ...documents,
      ...documents.slice(0, 3).map((each, i) => [...each.slice(0, -1), 9_000 + i]),
    ],
    'that overlap': (documents) => documents.map((each, i) => [i, ...each, i + 1]),
  };

  test.each(Object.keys(kinds))('%s', (name) => {
    fc.assert(
      fc.property(lengths, seeds, perPrompt, (sizes, given, count) =>
        neverCut(kinds[name]!(distinct(sizes)), given, count),
      ),
      { numRuns: runs(300) },
    );
  });
});

test('the history forgets the oldest texts beyond its bytes', () => {
  fc.assert(
    fc.property(fc.array(fc.array(fc.nat(400), { maxLength: 30 }), { maxLength: 60 }), (texts) => {
      const history = new RecurrenceHistory(20_000);
      for (const text of texts) {
        history.learn(text);
        expect(history.bytes).toBeLessThanOrEqual(20_000);
      }
      const fresh = new RecurrenceHistory(20_000);
      for (const text of texts.slice(texts.length - history.size)) fresh.learn(text);
      expect(fresh.size).toBe(history.size);
    }),
  );
});
