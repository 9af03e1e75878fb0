import { copyFile, mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { endianness, tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isFull, pairs, runs } from '../../../../test/suite.js';
import { buildVectorIndex } from '../../src/vector/build-index.js';
import { readVectorIndex, writeVectorIndex } from '../../src/vector/index-file.js';
import type { VectorIndex, VectorIndexKind, VectorStage } from '../../src/vector/vector-index.js';
import type { Metric } from '../../src/vector/vector-table.js';
import { seededVectors } from './seeded-vectors.js';

const { signal } = new AbortController();
const KINDS: VectorIndexKind[] = ['exact', 'ivf', 'hnsw'];
/** Vectors of an index that is built anew for each test. */
const COUNT = isFull ? 1500 : 600;
const METRICS: Metric[] = ['cosine', 'dot', 'l2'];

const entriesOf = (vectors: readonly Float32Array[]) => vectors.map((vector, i) => ({ id: `v${i}`, vector }));

async function stagesOf(index: VectorIndex, vector: ArrayLike<number>, k: number): Promise<VectorStage[]> {
  const stages: VectorStage[] = [];
  for await (const stage of index.search(vector, { k, signal })) stages.push(stage);
  return stages;
}

const found = async (index: VectorIndex, vector: ArrayLike<number>, k: number) =>
  (await stagesOf(index, vector, k)).at(-1)!.ids;

/** The closest by the metric's definition, in doubles. */
function closest(vectors: readonly Float32Array[], query: Float32Array, k: number, metric: Metric): string[] {
  const dot = (a: Float32Array, b: Float32Array) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
  const score = (vector: Float32Array) => {
    if (metric === 'dot') return dot(vector, query);
    if (metric === 'cosine') return dot(vector, query) / Math.sqrt(dot(vector, vector) * dot(query, query));
    return -vector.reduce((sum, value, i) => sum + (value - query[i]!) ** 2, 0);
  };
  return vectors
    .map((vector, i) => ({ id: `v${i}`, score: score(vector) }))
    .sort((a, b) => b.score - a.score)
    .slice(0, k)
    .map(({ id }) => id);
}

async function recall(
  index: VectorIndex,
  queries: readonly Float32Array[],
  truth: readonly string[][],
): Promise<number> {
  let hits = 0;
  for (const [i, query] of queries.entries()) {
    const ids = new Set(await found(index, query, truth[i]!.length));
    hits += truth[i]!.filter((id) => ids.has(id)).length;
  }
  return hits / truth.flat().length;
}

describe.each(pairs(METRICS, KINDS))('search by %s', (metric, kind) => {
  const data = { clustered: seededVectors(1000, 32, 1, 20), random: seededVectors(1000, 24, 2) };
  const queries = { clustered: seededVectors(25, 32, 1, 20), random: seededVectors(25, 24, 3) };
  // What each must reach; `dot` has no metric's triangle for a graph to rest on, and random data no lists to find.
  const least = {
    exact: { clustered: 1, random: 1 },
    ivf: { clustered: 0.99, random: metric === 'dot' ? 0.8 : 0.7 },
    hnsw: { clustered: 0.99, random: metric === 'dot' ? 0.9 : 0.97 },
  };
  it(`by ${kind} finds what a plain scan finds`, async () => {
    for (const name of ['clustered', 'random'] as const) {
      const vectors = data[name];
      const truth = queries[name].map((query) => closest(vectors, query, 10, metric));
      const index = await buildVectorIndex(entriesOf(vectors), { dimension: vectors[0]!.length, metric, kind });
      expect(await recall(index, queries[name], truth)).toBeGreaterThanOrEqual(least[kind][name]);
    }
  });
});

describe.each(KINDS)('an index of kind %s', (kind) => {
  const vectors = seededVectors(COUNT, 32, 7, 20);
  const queries = seededVectors(20, 32, 8, 20);
  const build = (some = vectors) => buildVectorIndex(entriesOf(some), { dimension: 32, kind });

  it('is the same for the same vectors, and answers in stages of which the last is final', async () => {
    const [one, two] = [await build(), await build()];
    for (const query of queries) {
      const stages = await stagesOf(one, query, 10);
      expect(await stagesOf(two, query, 10)).toEqual(stages);
      expect(stages.map(({ index, final }) => [index, final])).toEqual(
        stages.map((_, i) => [i, i === stages.length - 1]),
      );
      expect(stages.length).toBeGreaterThanOrEqual(kind === 'exact' ? 1 : 3);
      for (const { ids, scores } of stages) {
        expect(new Set(ids).size).toBe(ids.length);
        expect([...scores].sort((a, b) => b - a)).toEqual(scores);
      }
    }
  });

  it('grows and shrinks in place, and finds what it then holds', async () => {
    const index = await build(vectors.slice(0, 400));
    await index.add(entriesOf(vectors).slice(400));
    const gone = entriesOf(vectors).filter((_, i) => i % 3 === 0);
    expect(index.delete(gone.map(({ id }) => id))).toBe(gone.length);
    expect(index.delete(['v0', 'never there'])).toBe(0);
    expect([index.size, index.deletedCount]).toEqual([vectors.length - gone.length, gone.length]);
    const left = vectors.map((vector, i) => (i % 3 === 0 ? new Float32Array(32).fill(1e-9) : vector));
    const truth = queries.map((query) =>
      closest(left, query, 10, 'cosine').filter((id) => Number(id.slice(1)) % 3 > 0),
    );
    expect(await recall(index, queries, truth)).toBeGreaterThan(0.97);
    for (const query of queries) expect((await found(index, query, 1000)).every((id) => index.has(id))).toBe(true);
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
    expect(await stagesOf(index, queries[0]!, 10)).toMatchObject([{ ids: [], final: true }]);
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
    const adding = index.add(seededVectors(100, 32, 99).map((vector, i) => ({ id: `new${i}`, vector })));
    const during = await Promise.all(queries.map((query) => found(index, query, 10)));
    await adding;
    index.delete(Array.from({ length: 100 }, (_, i) => `new${i}`));
    for (const [i, ids] of during.entries()) {
      const before = new Set(alone[i]!.at(-1)!.ids);
      expect(ids.filter((id) => !before.has(id) && !id.startsWith('new'))).toEqual([]);
    }
  });

  it('comes back from its file as it was', async () => {
    const index = await build();
    index.delete(['v3', 'v4']);
    await index.add([{ id: 'ü\ud800"\n', vector: queries[0]! }]);
    const path = join(folder, `${kind}.index`);
    await writeVectorIndex(index, path);
    const read = await readVectorIndex(path);
    expect([read.kind, read.size, read.deletedCount, read.metric]).toEqual([kind, COUNT - 1, 2, 'cosine']);
    for (const query of queries) expect(await stagesOf(read, query, 10)).toEqual(await stagesOf(index, query, 10));
    await read.add([{ id: 'later', vector: queries[1]! }]);
    expect(await found(read, queries[1]!, 1)).toEqual(['later']);
  });

  it('is refused when its file is damaged at any place, cut off or longer', async () => {
    const path = join(folder, `${kind}-whole.index`);
    const damaged = join(folder, `${kind}-damaged.index`);
    await writeVectorIndex(await build(vectors.slice(0, 100)), path);
    const bytes = await readFile(path);
    for (let at = 0; at < bytes.length; at += Math.ceil(bytes.length / runs(40))) {
      const changed = Buffer.from(bytes);
      changed[at]! ^= 0x10;
      await writeFile(damaged, changed);
      await expect(readVectorIndex(damaged)).rejects.toMatchObject({ code: 'WARMPATH_INDEX_FILE', path: damaged });
    }
    for (const length of [0, 7, 15, 16, 100, bytes.length - 1]) {
      await copyFile(path, damaged);
      await truncate(damaged, length);
      await expect(readVectorIndex(damaged)).rejects.toMatchObject({ code: 'WARMPATH_INDEX_FILE' });
    }
    await writeFile(damaged, Buffer.concat([bytes, Buffer.from('x')]));
    await expect(readVectorIndex(damaged)).rejects.toThrow('cut off, or something was added');
  });
});

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-vectors-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe('a file of an index', () => {
  it('is refused as a file, where its header describes an index that cannot be', async () => {
    const path = join(folder, 'impossible');
    const header = { endianness: endianness(), kind: 'exact', count: 0, numbers: {}, sections: [] };
    const json = Buffer.from(JSON.stringify({ ...header, options: { dimension: 0 } }));
    const prefix = Buffer.alloc(16);
    prefix.write('WARMVEC1');
    prefix.writeUInt32LE(json.length, 8);
    prefix.writeUInt32LE(crc32(json), 12);
    await writeFile(path, Buffer.concat([prefix, json]));
    await expect(readVectorIndex(path)).rejects.toMatchObject({ code: 'WARMPATH_INDEX_FILE' });
  });

  it('is told from what is none', async () => {
    const path = join(folder, 'foreign');
    await writeFile(path, 'PK\u0003\u0004 something else altogether');
    await expect(readVectorIndex(path)).rejects.toThrow('it is no vector index');
    await expect(readVectorIndex(join(folder, 'missing'))).rejects.toThrow('there is no such file or folder');
    await expect(readVectorIndex(folder)).rejects.toMatchObject({ code: 'WARMPATH_INDEX_FILE' });
  });

  it('stays as it is where a new one cannot be written, and leaves nothing beside it', async () => {
    const index = await buildVectorIndex(entriesOf(seededVectors(10, 8, 1)), { dimension: 8 });
    const inside = join(folder, 'no', 'folder');
    await expect(writeVectorIndex(index, inside)).rejects.toThrow('there is no such file or folder');
    expect((await readdir(folder)).filter((name) => name.endsWith('.partial'))).toEqual([]);
  });
});

describe('building', () => {
  it('takes the kind that suits the number of vectors', async () => {
    expect((await buildVectorIndex([], { dimension: 4 })).kind).toBe('exact');
    const many = entriesOf(seededVectors(10_001, 4, 1));
    const hnsw = { links: 2, buildBreadth: 10 };
    expect((await buildVectorIndex(many, { dimension: 4, hnsw })).kind).toBe('hnsw');
  });

  it.each(KINDS)('answers from an empty index of kind %s, and fills it later', async (kind) => {
    const index = await buildVectorIndex([], { dimension: 3, kind });
    expect(await stagesOf(index, [1, 0, 0], 5)).toMatchObject([{ ids: [], final: true }]);
    await index.add([{ id: 'a', vector: [1, 1, 0] }]);
    expect(await found(index, [1, 0, 0], 5)).toEqual(['a']);
  });

  it('names the vector that it cannot take', async () => {
    const entries = entriesOf(seededVectors(5, 4, 1));
    entries[3] = { id: 'x', vector: new Float32Array(3) };
    await expect(buildVectorIndex(entries, { dimension: 4 })).rejects.toMatchObject({
      code: 'WARMPATH_INVALID_VECTOR',
      path: 'vectors[3]',
    });
    await expect(buildVectorIndex([], { dimension: 4, hnsw: { links: 1 } })).rejects.toThrow('hnsw.links');
    await expect(buildVectorIndex([], { dimension: 4, metric: 'far' as Metric })).rejects.toThrow('one of cosine');
  });

  it('tells how far it is, leaves the event loop free and ends when it is aborted', async () => {
    const vectors = seededVectors(4000, 64, 4);
    const shares: number[] = [];
    const abort = new AbortController();
    const reason = new Error('no longer wanted');
    let turns = 0;
    const building = buildVectorIndex(entriesOf(vectors), {
      dimension: 64,
      kind: 'hnsw',
      signal: abort.signal,
      onProgress: (share) => {
        shares.push(share);
        abort.abort(reason);
      },
    });
    const count = setInterval(() => turns++, 1);
    await expect(building).rejects.toBe(reason);
    clearInterval(count);
    expect(turns).toBeGreaterThan(5);
    expect(shares[0]).toBeGreaterThan(0);
    expect(shares[0]).toBeLessThan(1);
  });

  it('lets others have their turn within a long search, and throws the reason when it is aborted there', async () => {
    // Several turns of work, on a fast machine as well.
    const vector = new Float32Array(384).fill(0.5);
    const entries = Array.from({ length: 120_000 }, (_, i) => ({ id: `${i}`, vector }));
    const index = await buildVectorIndex(entries, { dimension: 384, kind: 'exact' });
    const abort = new AbortController();
    const reason = new Error('gone');
    setImmediate(() => abort.abort(reason));
    await expect(index.search(vector, { k: 5, signal: abort.signal }).next()).rejects.toBe(reason);
  });

  it('throws the reason between two stages', async () => {
    const index = await buildVectorIndex(entriesOf(seededVectors(500, 32, 1)), { dimension: 32, kind: 'ivf' });
    const abort = new AbortController();
    const search = index.search(seededVectors(1, 32, 2)[0]!, { k: 5, signal: abort.signal });
    await search.next();
    const reason = new Error('gone');
    abort.abort(reason);
    await expect(search.next()).rejects.toBe(reason);
  });
});
