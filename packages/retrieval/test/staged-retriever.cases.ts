import { getEventListeners } from 'node:events';
import { afterAll, describe, expect, it } from 'vitest';
import type { Stage, StagedRetriever } from '../src/index.js';

/** A passage to be found. */
export interface CaseDocument {
  readonly id: string;
  readonly content: string;
  readonly title?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
}

/** A retriever over the documents it was built from, and how to end it. */
export interface BuiltRetriever {
  readonly retriever: StagedRetriever;
  close?(): Promise<void> | void;
}

/**
 * What every staged retriever does, wherever it searches. `build` gives one that holds exactly the documents it is
 * given, and that answers queries without a vector.
 */
export function runStagedRetrieverCases(
  name: string,
  build: (documents: readonly CaseDocument[]) => Promise<BuiltRetriever> | BuiltRetriever,
): void {
  describe(`${name} as a staged retriever`, () => {
    const built = new Map<readonly CaseDocument[], Promise<BuiltRetriever> | BuiltRetriever>();
    /** Searches change nothing: one retriever serves all cases over the same documents. */
    const over = async (documents: readonly CaseDocument[]) => {
      const one = built.get(documents) ?? build(documents);
      built.set(documents, one);
      return (await one).retriever;
    };
    afterAll(async () => {
      for (const one of built.values()) await (await one).close?.();
    });

    it('answers in stages that count up, of which the last is final, and only it', async () => {
      for (const k of [1, 3, 10, 1000]) {
        const stages = await allStages(await over(DOCUMENTS), 'the harbour master of Tromsø', k);
        expect(stages.length).toBeGreaterThan(0);
        expect(stages.map(({ index }) => index)).toEqual(stages.map((_, position) => position));
        expect(stages.map(({ final }) => final)).toEqual(stages.map((_, position) => position === stages.length - 1));
      }
    });

    it('gives at most k candidates, best first, each id once, and the documents as they are', async () => {
      const retriever = await over(DOCUMENTS);
      const byId = new Map(DOCUMENTS.map((document) => [document.id, document]));
      for (const text of QUERIES) {
        for (const k of [1, 2, 7, DOCUMENTS.length, 1000]) {
          for (const { candidates } of await allStages(retriever, text, k)) {
            expect(candidates.length).toBeLessThanOrEqual(k);
            expect(new Set(candidates.map(({ id }) => id)).size).toBe(candidates.length);
            const scores = candidates.map(({ score }) => score);
            expect(scores.every(Number.isFinite)).toBe(true);
            expect(scores).toEqual([...scores].sort((a, b) => b - a));
            for (const { score: _, ...document } of candidates) expect(document).toEqual(byId.get(document.id));
          }
        }
      }
    });

    it('finds a document by its own words', async () => {
      const retriever = await over(DOCUMENTS);
      for (const { id, content } of DOCUMENTS) {
        const stages = await allStages(retriever, content, 3);
        expect(stages.at(-1)!.candidates[0]?.id).toBe(id);
      }
    });

    it('gives the same stages for the same question', async () => {
      const retriever = await over(DOCUMENTS);
      for (const text of QUERIES) {
        expect(await allStages(retriever, text, 5)).toEqual(await allStages(retriever, text, 5));
      }
    });

    it('keeps searches that run at once apart', async () => {
      const retriever = await over(DOCUMENTS);
      const alone = [];
      for (const text of QUERIES) alone.push(await allStages(retriever, text, 5));
      expect(await Promise.all(QUERIES.map((text) => allStages(retriever, text, 5)))).toEqual(alone);
    });

    it('refuses a k out of range, with a code', async () => {
      const retriever = await over(DOCUMENTS);
      for (const k of [0, -1, 1.5, 1001, 10_000, Number.NaN, Number.POSITIVE_INFINITY]) {
        const refusal = await failure(() => allStages(retriever, 'harbour', k));
        expect(refusal).toMatchObject({ code: 'WARMPATH_INVALID_REQUEST', path: 'k' });
      }
    });

    it('answers from an empty collection with one final stage of nothing', async () => {
      const stages = await allStages(await over([]), 'harbour', 5);
      expect(stages.every(({ candidates }) => candidates.length === 0)).toBe(true);
      expect(stages.at(-1)).toMatchObject({ final: true });
    });

    it('answers a question without a word, with control characters or with very many words', async () => {
      const retriever = await over(DOCUMENTS);
      const hostile = ['', ' \n\t', '?!…', '\u0000\u0001', '\ud800', 'harbour '.repeat(5000), 'x'.repeat(100_000)];
      for (const text of hostile) {
        const stages = await allStages(retriever, text, 5);
        expect(stages.at(-1)).toMatchObject({ final: true });
      }
    });

    it('searches nothing for a caller who has gone, and throws the reason', async () => {
      const retriever = await over(DOCUMENTS);
      const reason = new Error('the client has gone');
      expect(await failure(() => allStages(retriever, 'harbour', 5, AbortSignal.abort(reason)))).toBe(reason);
    });

    it('ends between two stages when it is aborted, and throws the reason', async () => {
      const retriever = await over(DOCUMENTS);
      const count = (await allStages(retriever, 'harbour', 5)).length;
      for (let stop = 0; stop < count - 1; stop++) {
        const abort = new AbortController();
        const reason = new Error(`aborted after stage ${stop}`);
        const seen: number[] = [];
        const thrown = await failure(async () => {
          for await (const { index } of retriever.search({ text: 'harbour' }, { k: 5, signal: abort.signal })) {
            seen.push(index);
            if (index === stop) abort.abort(reason);
          }
        });
        expect(thrown).toBe(reason);
        expect(seen.at(-1)).toBe(stop);
      }
    });

    it('ends within a stage when it is aborted', async () => {
      const retriever = await over(DOCUMENTS);
      const abort = new AbortController();
      const reason = new Error('aborted while searching');
      const stages = retriever.search({ text: 'harbour' }, { k: 5, signal: abort.signal })[Symbol.asyncIterator]();
      const first = stages.next();
      abort.abort(reason);
      // A stage that was ready at once may still arrive; what comes after it may not.
      const second = first.then(async ({ value, done }) => {
        if (done || (value as Stage).final) throw reason;
        return stages.next();
      });
      expect(await failure(() => second)).toBe(reason);
    });

    it('leaves nothing on the signal, however the search ends', async () => {
      const retriever = await over(DOCUMENTS);
      const { signal } = new AbortController();
      await allStages(retriever, 'harbour', 5, signal);
      for await (const _ of retriever.search({ text: 'harbour' }, { k: 5, signal })) break;
      expect(getEventListeners(signal, 'abort')).toEqual([]);
    });
  });
}

/** All stages of a search. */
export async function allStages(
  retriever: StagedRetriever,
  text: string,
  k: number,
  signal: AbortSignal = new AbortController().signal,
): Promise<Stage[]> {
  const stages: Stage[] = [];
  for await (const stage of retriever.search({ text }, { k, signal })) stages.push(stage);
  return stages;
}

/** What `run` throws, now or later. */
async function failure(run: () => unknown): Promise<unknown> {
  try {
    await run();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}

/** Passages in several languages, with and without titles and metadata, two of them almost alike. */
export const DOCUMENTS: readonly CaseDocument[] = [
  { id: 'harbour', title: 'Harbours', content: 'The harbour master of Tromsø keeps the tide tables in the old tower.' },
  { id: 'harbour-2', content: 'The harbour master of Bodø keeps the tide tables in the new customs house.' },
  { id: 'bread', title: 'Bread › Rye', content: 'Rye bread rises slowly; the sourdough rests for sixteen hours.' },
  { id: 'de', content: 'Die Donaudampfschifffahrtsgesellschaft fuhr im Frühjahr über Passau nach Wien.' },
  { id: 'zh', content: '上海的夏天非常炎热，人们喜欢在晚上去江边散步。' },
  { id: 'ja', title: '鉄道', content: '新幹線は東京と大阪を二時間半で結んでいる。' },
  {
    id: 'code',
    content: 'function parseHttpHeader(rawLine) { return rawLine.split_once(": "); }',
    metadata: { line: 12 },
  },
  { id: 'glacier', content: 'Glaciers carve valleys and leave moraines behind when they retreat.' },
  {
    id: 'bees',
    content: 'A bee colony survives the winter by shivering around its queen.',
    metadata: { tags: ['insects'] },
  },
  { id: 'printing', content: 'Movable type was cast from an alloy of lead, tin and antimony.' },
  { id: 'unicode/ü?#', content: 'Café Müller opened in Wuppertal with a dance by Pina Bausch.' },
  { id: 'numbers', content: 'RFC 9110 defines HTTP semantics; status 404 means that nothing was found.' },
];

const QUERIES = [
  'Who keeps the tide tables?',
  'harbour master',
  'Wie kam man nach Wien?',
  '上海 夏天',
  'parse http header',
  'status 404',
  'nothing of all this',
];
