import { describe, expect, it } from 'vitest';
import { isFull } from '../../../../test/suite.js';
import { VectorIndex, type VectorStage } from '../../src/vector/vector-index.js';
import { seededVectors } from './seeded-vectors.js';

const { signal } = new AbortController();
const COUNT = isFull ? 1500 : 600;

const entriesOf = (vectors: readonly Float32Array[]) => vectors.map((vector, i) => ({ id: `v${i}`, vector }));

async function indexOf(vectors: readonly Float32Array[], stagesFrom?: number): Promise<VectorIndex> {
  const index = new VectorIndex({ dimension: vectors[0]!.length, ...(stagesFrom !== undefined && { stagesFrom }) });
  await index.add(entriesOf(vectors));
  return index;
}

async function stagesOf(index: VectorIndex, vector: ArrayLike<number>, k: number): Promise<VectorStage[]> {
  const stages: VectorStage[] = [];
  for await (const stage of index.search(vector, { k, signal })) stages.push(stage);
  return stages;
}

const found = async (index: VectorIndex, vector: ArrayLike<number>, k: number) =>
  (await stagesOf(index, vector, k)).at(-1)!.ids;

/** The closest by cosine, in doubles. */
function closest(vectors: readonly Float32Array[], query: Float32Array, k: number): string[] {
  const dot = (a: Float32Array, b: Float32Array) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
  return vectors
    .map((vector, i) => ({ id: `v${i}`, score: dot(vector, query) / Math.sqrt(dot(vector, vector)) }))
    .sort((a, b) => b.score - a.score)
    .slice(0, k)
    .map(({ id }) => id);
}

describe.each([
  ['in one stage', undefined, 1],
  ['in stages', 100, 3],
])('a search %s', (_, stagesFrom, stageCount) => {
  const vectors = seededVectors(COUNT, 32, 7, 20);
  const queries = seededVectors(20, 32, 8, 20);
  const build = (some = vectors) => indexOf(some, stagesFrom);

  it('finds what a plain scan finds, among clustered and among random vectors', async () => {
    const random = seededVectors(1000, 24, 2);
    for (const [some, asked] of [
      [vectors, queries],
      [random, seededVectors(25, 24, 3)],
    ] as const) {
      const index = await build(some);
      for (const query of asked) expect(await found(index, query, 10)).toEqual(closest(some, query, 10));
    }
  });

  it('is the same for the same vectors, and answers in stages of which the last is final', async () => {
    const [one, two] = [await build(), await build()];
    for (const query of queries) {
      const stages = await stagesOf(one, query, 10);
      expect(await stagesOf(two, query, 10)).toEqual(stages);
      expect(stages.map(({ index, final }) => [index, final])).toEqual(
        Array.from({ length: stageCount }, (_, i) => [i, i === stageCount - 1]),
      );
      for (const { ids, scores } of stages) {
        expect(new Set(ids).size).toBe(ids.length);
        expect([...scores].sort((a, b) => b - a)).toEqual(scores);
      }
    }
  });

  it('gives the same order whether vectors came at once or one by one', async () => {
    const copies = [...vectors, ...vectors.slice(0, 50)];
    const grown = new VectorIndex({ dimension: 32, ...(stagesFrom !== undefined && { stagesFrom }) });
    for (const entry of entriesOf(copies)) await grown.add([entry]);
    const whole = await build(copies);
    for (const query of queries) expect(await found(grown, query, 100)).toEqual(await found(whole, query, 100));
  });

  it('grows and shrinks in place, and finds what it then holds', async () => {
    const index = await build(vectors.slice(0, 400));
    await index.add(entriesOf(vectors).slice(400));
    const gone = entriesOf(vectors).filter((_, i) => i % 3 === 0);
    expect(index.delete(gone.map(({ id }) => id))).toBe(gone.length);
    expect(index.delete(['v0', 'never there'])).toBe(0);
    expect([index.size, index.deletedCount]).toEqual([vectors.length - gone.length, gone.length]);
    for (const query of queries) {
      const left = closest(vectors, query, COUNT).filter((id) => Number(id.slice(1)) % 3 > 0);
      expect(await found(index, query, 10)).toEqual(left.slice(0, 10));
      expect(new Set(await found(index, query, 1000))).toEqual(new Set(left.slice(0, 1000)));
    }
  });

  it('replaces a vector whose id is added again', async () => {
    const index = await build();
    const far = queries[0]!.map((value) => -value);
    expect(await found(index, far, 1)).not.toEqual(['v5']);
    await index.add([{ id: 'v5', vector: far }]);
    expect(await found(index, far, 1)).toEqual(['v5']);
    expect([index.size, index.deletedCount]).toEqual([COUNT, 1]);
    expect(await found(index, vectors[5]!, 10)).not.toContain('v5');
  });

  it('finds what is left when almost all was deleted', async () => {
    const index = await build();
    const left = [0, 1, 2, 3].map((quarter) => `v${(quarter * COUNT) / 4}`);
    index.delete(vectors.map((_, i) => `v${i}`).filter((_, i) => i % (COUNT / 4) !== 0));
    expect([...(await found(index, queries[0]!, 10))].sort()).toEqual(left.toSorted());
    index.delete(left);
    expect(await found(index, queries[0]!, 10)).toEqual([]);
  });

  it('holds copies of one vector, and what stands beside them', async () => {
    const copies = Array.from({ length: 600 }, () => vectors[0]!);
    const index = await build([...copies, ...vectors.slice(1, 400)]);
    expect(await found(index, vectors[0]!, 600)).toHaveLength(600);
    expect((await found(index, vectors[100]!, 1))[0]).toBe('v699');
  });

  it('is searched by many at once, while vectors come and go, without mixing them up', async () => {
    const index = await build();
    const alone = await Promise.all(queries.map((query) => stagesOf(index, query, 10)));
    const adding = index.add(seededVectors(2 * COUNT, 32, 99).map((vector, i) => ({ id: `new${i}`, vector })));
    const during = await Promise.all(queries.map((query) => found(index, query, 10)));
    await adding;
    index.delete(Array.from({ length: 2 * COUNT }, (_, i) => `new${i}`));
    for (const [i, ids] of during.entries()) {
      const before = new Set(alone[i]!.at(-1)!.ids);
      expect(ids.filter((id) => !before.has(id) && !id.startsWith('new'))).toEqual([]);
    }
    for (const [i, query] of queries.entries()) {
      expect(await found(index, query, 10)).toEqual(alone[i]!.at(-1)!.ids);
    }
  });
});

describe('an index', () => {
  it('finds most of the final vectors in its early stages, among many', async () => {
    const vectors = seededVectors(10_000, 16, 1, 100);
    const index = await indexOf(vectors);
    const hits = [0, 0, 0];
    for (const query of seededVectors(20, 16, 2, 100)) {
      const stages = await stagesOf(index, query, 10);
      expect(stages).toHaveLength(3);
      for (const [i, { ids }] of stages.entries()) hits[i]! += stages[2]!.ids.filter((id) => ids.includes(id)).length;
    }
    expect(hits[0]! / hits[2]!).toBeGreaterThan(0.6);
    expect(hits[1]! / hits[2]!).toBeGreaterThan(0.9);
    expect(await stagesOf(await indexOf(vectors.slice(0, 9_999)), vectors[0]!, 10)).toHaveLength(1);
  });

  it('answers while it is empty, and is filled later', async () => {
    const index = new VectorIndex({ dimension: 3 });
    expect(await stagesOf(index, [1, 0, 0], 5)).toMatchObject([{ ids: [], final: true }]);
    await index.add([{ id: 'a', vector: [1, 1, 0] }]);
    expect(await found(index, [1, 0, 0], 5)).toEqual(['a']);
  });

  it('names the vector that it cannot take, and keeps those before it', async () => {
    const entries = entriesOf(seededVectors(5, 4, 1));
    entries[3] = { id: 'x', vector: new Float32Array(3) };
    const index = new VectorIndex({ dimension: 4 });
    await expect(index.add(entries)).rejects.toMatchObject({ code: 'WARMPATH_INVALID_VECTOR', path: 'vectors[3]' });
    expect([index.size, index.has('v2'), index.has('x')]).toEqual([3, true, false]);
    expect(() => new VectorIndex({ dimension: 0 })).toThrow('1 to 4096');
  });

  it('leaves the event loop free while it is filled, and ends when it is aborted', async () => {
    const abort = new AbortController();
    const reason = new Error('no longer wanted');
    const index = new VectorIndex({ dimension: 384 });
    const vector = new Float32Array(384).fill(0.5);
    setImmediate(() => abort.abort(reason));
    const endless = function* () {
      for (let i = 0; ; i++) yield { id: `${i}`, vector };
    };
    await expect(index.add(endless(), abort.signal)).rejects.toBe(reason);
  });

  it('lets others have their turn within a long search, and throws the reason when it is aborted there', async () => {
    // Several turns of work, on a fast machine as well.
    const vector = new Float32Array(384).fill(0.5);
    const index = new VectorIndex({ dimension: 384, stagesFrom: Number.POSITIVE_INFINITY });
    await index.add(Array.from({ length: 40_000 }, (_, i) => ({ id: `${i}`, vector })));
    const abort = new AbortController();
    const reason = new Error('gone');
    setImmediate(() => abort.abort(reason));
    await expect(index.search(vector, { k: 5, signal: abort.signal }).next()).rejects.toBe(reason);
  });

  it('throws the reason between two stages', async () => {
    const index = await indexOf(seededVectors(500, 32, 1), 100);
    const abort = new AbortController();
    const search = index.search(seededVectors(1, 32, 2)[0]!, { k: 5, signal: abort.signal });
    await search.next();
    const reason = new Error('gone');
    abort.abort(reason);
    await expect(search.next()).rejects.toBe(reason);
  });
});
