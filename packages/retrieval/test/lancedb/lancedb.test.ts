import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type LanceDbOptions,
  LanceDbRetriever,
  type LanceDbTable,
  type LanceDbVectorQuery,
} from '../../src/stores/lancedb.js';
import { allStages, type CaseDocument, DOCUMENTS, runStagedRetrieverCases } from '../staged-retriever.cases.js';
import { seededVectors } from '../vector/seeded-vectors.js';
import { FakeLanceDbTable, RECORDING, recordedError } from './fake-lancedb.js';
import { ask, EMBEDDER, RealLanceDb, type RecordedRow, type TableName } from './recording.js';

// LanceDB is no dependency, for it is 200 MB of native code. Where WARMPATH_LANCEDB names the folder that it was
// installed in (`npm install --prefix`), these tests search real tables; elsewhere a fake that answers as recorded.
const INSTALLED = process.env['WARMPATH_LANCEDB'];

let folder: string;
let real: RealLanceDb | undefined;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-lancedb-'));
  if (INSTALLED !== undefined) real = new RealLanceDb(INSTALLED, folder);
});

afterAll(() => rm(folder, { recursive: true, force: true }));

const KINDS = ['none', 'ivf', 'hnsw'] as const;

const passages = async (documents: readonly CaseDocument[], index: (typeof KINDS)[number] = 'none') =>
  real?.passages(documents, index) ?? FakeLanceDbTable.passages(documents, index);

const types = async () => real?.types() ?? new FakeLanceDbTable(RECORDING.rows.types);

const FIELDS = { title: 'heading', metadata: 'meta' };

const over = (table: LanceDbTable, options: Partial<LanceDbOptions> = {}) =>
  new LanceDbRetriever({ table, embedder: EMBEDDER, vectorColumn: 'embedding', fields: FIELDS, ...options });

const where = INSTALLED === undefined ? 'recorded' : 'real';
for (const index of KINDS) {
  runStagedRetrieverCases(`LanceDB (${where}, ${index})`, async (documents) => ({
    retriever: over(await passages(documents, index), { index }),
  }));
}

describe(`LanceDB (${where})`, () => {
  it.each(RECORDING.exchanges)('answers as it was recorded: $name', async (exchange) => {
    const { rows = [], error } = exchange;
    const tables: Record<TableName, () => Promise<LanceDbTable>> = {
      passages: () => passages(DOCUMENTS),
      types,
      ivf: () => passages(DOCUMENTS, 'ivf'),
      hnsw: () => passages(DOCUMENTS, 'hnsw'),
    };
    const answer = await ask(await tables[exchange.table](), exchange);
    expect(answer.error).toBe(error);
    const found = answer.rows ?? [];
    const distances = found.map(({ _distance }) => Number(_distance));
    expect(distances).toEqual([...distances].sort((a, b) => a - b));
    // Rows at the same distance have no order of their own.
    const byId = ({ id: a }: RecordedRow, { id: b }: RecordedRow) => (String(a) < String(b) ? -1 : 1);
    const rounded = (row: RecordedRow) => ({ ...row, _distance: expect.closeTo(Number(row['_distance']), 5) });
    expect([...found].sort(byId)).toEqual([...rows].sort(byId).map(rounded));
  });

  it('gives metadata as JSON has them, and no row without an id', async () => {
    const [stage] = await allStages(over(await types(), { fields: { metadata: 'meta' } }), 'harbour master', 10);
    const found = new Map(stage!.candidates.map(({ score: _, ...document }) => [document.id, document]));
    const typed = found.get('typed');
    expect(typed).toEqual({
      id: 'typed',
      content: 'Everything.',
      metadata: {
        line: 12,
        tags: ['a', 'ü'],
        beyond: '9007199254740993',
        unsigned: 5,
        double: 0.5,
        flag: false,
        at: Date.parse('2026-06-01T12:00:00.250Z'),
        day: Date.parse('2026-06-01'),
        bytes: 'AP8B',
        holes: [true, null],
        integers: [1, 2],
        nested: { x: 3, list: [{ y: 4 }, {}] },
      },
    });
    expect(JSON.parse(JSON.stringify(typed))).toEqual(typed);
    expect(found.get('bare')).toEqual({ id: 'bare', content: 'Nothing.' });
    expect(found.size).toBe(2);
  });

  it.each(['cosine', 'dot', 'l2'] as const)('scores the negated distance by %s', async (metric) => {
    const recorded = RECORDING.exchanges.find(({ name }) => name === `all rows by ${metric}`)!;
    const query = { text: '', vector: Float32Array.from(recorded.vector) };
    const { signal } = new AbortController();
    for await (const { candidates } of over(await passages(DOCUMENTS), { metric }).search(query, { k: 3, signal })) {
      const closest = recorded.rows!.slice(0, 3).map(({ id, _distance }) => [id, -Number(_distance)] as const);
      expect(candidates.map(({ id, score }) => [id, score])).toEqual(
        closest.map(([id, score]) => [id, expect.closeTo(score, 5)]),
      );
    }
  });

  it('finds more at the second stage, and then what a comparison of all rows finds', async () => {
    const points = seededVectors(2000, 16, 4);
    const table = await pointsTable(points);
    const queries = seededVectors(10, 16, 5).map((vector) => ({ text: '', vector }));
    const idsOf = (options: Partial<LanceDbOptions>) =>
      Promise.all(
        queries.map(async (query) => {
          const stages: string[][] = [];
          const { signal } = new AbortController();
          const retriever = over(table, { fields: {}, metric: 'l2', ...options });
          for await (const { candidates } of retriever.search(query, { k: 10, signal })) {
            stages.push(candidates.map(({ id }) => id));
          }
          return stages;
        }),
      );
    const truth = (await idsOf({})).map(([ids]) => new Set(ids));
    const found = await idsOf({ index: 'ivf', breadths: [1, 20] });
    const hits = [0, 1].map((stage) =>
      found.reduce((sum, stages, i) => sum + stages[stage]!.filter((id) => truth[i]!.has(id)).length, 0),
    );
    expect(hits[1]).toBeGreaterThanOrEqual(95);
    expect(hits[0]).toBeLessThan(hits[1]!);
  });

  it('says what LanceDB says, with a code', async () => {
    const table = await passages(DOCUMENTS);
    for (const [options, words] of [
      [{ vectorColumn: 'nowhere' }, 'column nowhere does not exist in schema'],
      [{ fields: { content: 'nowhere' } }, 'No field named nowhere'],
      [{ embedder: { name: 'e', embed: async () => [Float32Array.of(1, 0)] } }, 'query dim(2)'],
    ] as const) {
      const failure = await allStages(over(table, options), 'harbour', 3).catch((error: unknown) => error);
      expect(failure).toMatchObject({ code: 'WARMPATH_RETRIEVAL_ERROR', path: table.name });
      const { message } = failure as Error;
      expect(message).toContain(words);
      // A place in LanceDB's own source and a list of all columns are of no use.
      expect(message).not.toMatch(/\.rs:|\n/);
    }
  });
});

async function pointsTable(points: readonly Float32Array[]): Promise<LanceDbTable> {
  if (real !== undefined) return real.points(points);
  const rows = points.map((point, i) => ({
    id: `${i}`,
    content: `c${i}`,
    embedding: { type: 'Vector' as const, values: [...point] },
  }));
  return new FakeLanceDbTable(rows, { kind: 'ivf', partitions: 20 });
}

describe('what LanceDB is asked', () => {
  const VECTOR = Float32Array.of(...EMBEDDER.vector('harbour'));
  const asked = async (options: Partial<LanceDbOptions>, k = 5) => {
    const table = FakeLanceDbTable.passages(DOCUMENTS, options.index ?? 'none');
    await allStages(over(table, options), 'harbour', k);
    return table.queries.map((calls) => calls.filter(([method]) => method !== 'column' && method !== 'distanceType'));
  };

  it('names the columns that are read, and each once', async () => {
    const short = ['id', 'content', '_distance'];
    expect(await asked({ fields: {} })).toEqual([[['select', short], ['limit', 5], ['bypassVectorIndex']]]);
    const twice = [['select', ['content', '_distance']], ['limit', 5], ['bypassVectorIndex']];
    expect(await asked({ fields: { id: 'content' } })).toEqual([twice]);
  });

  it('has more partitions of each stage searched, or more candidates, and never too few', async () => {
    const probes = await asked({ index: 'ivf' });
    expect(probes.map((calls) => calls.slice(2))).toEqual(
      [1, 4, 16].map((nprobes) => [
        ['refineFactor', 4],
        ['nprobes', nprobes],
      ]),
    );
    const candidates = await asked({ index: 'hnsw' });
    expect(candidates.map((calls) => calls.at(-1))).toEqual([20, 64, 256].map((ef) => ['ef', ef]));
  });

  it('asks nothing for a vector of zeros', async () => {
    const table = FakeLanceDbTable.passages(DOCUMENTS, 'ivf');
    const embedder = { name: 'zeros', embed: async () => [new Float32Array(VECTOR.length)] };
    expect(await allStages(over(table, { index: 'ivf', embedder }), '?', 3)).toEqual([
      { candidates: [], index: 0, final: true },
    ]);
    expect(table.queries).toEqual([]);
  });

  it('asks nothing more for a caller who goes between two stages', async () => {
    const table = FakeLanceDbTable.passages(DOCUMENTS, 'ivf');
    const abort = new AbortController();
    const stages = over(table, { index: 'ivf' }).search({ text: 'harbour' }, { k: 3, signal: abort.signal });
    const search = async () => {
      for await (const _ of stages) abort.abort(new Error('gone'));
    };
    await expect(search()).rejects.toThrow('gone');
    expect(table.queries).toHaveLength(1);
  });

  /** A table whose queries end in `answer`. */
  const ending = (answer: LanceDbVectorQuery['toArray']): LanceDbTable => {
    const table = FakeLanceDbTable.passages(DOCUMENTS, 'none');
    const vectorSearch = (vector: Float32Array) => Object.assign(table.vectorSearch(vector), { toArray: answer });
    return { name: 'slow', vectorSearch };
  };

  it('gives up on a table that is silent, and believes LanceDB that the time is over', async () => {
    const silent = ending(() => new Promise(() => undefined));
    const late = { code: 'WARMPATH_RETRIEVAL_TIMEOUT', path: 'slow' };
    await expect(allStages(over(silent, { timeoutMs: 20 }), 'harbour', 3)).rejects.toMatchObject(late);
    const given: unknown[] = [];
    const ended = ending(async (options) => {
      given.push(options);
      throw recordedError('no time');
    });
    await expect(allStages(over(ended, { timeoutMs: 1500.5 }), 'harbour', 3)).rejects.toMatchObject(late);
    expect(given).toEqual([{ timeoutMs: 1501 }]);
  });

  it('ends a search whose query does not answer when it is aborted', async () => {
    const abort = new AbortController();
    const reason = new Error('the client has gone');
    const silent = ending(async () => {
      abort.abort(reason);
      return new Promise(() => undefined);
    });
    await expect(allStages(over(silent), 'harbour', 3, abort.signal)).rejects.toBe(reason);
  });

  it('takes a table that is closed, or throws something else, for one that failed', async () => {
    const closed = ending(() => {
      throw new Error('Table passages is closed');
    });
    await expect(allStages(over(closed), 'harbour', 3)).rejects.toMatchObject({
      code: 'WARMPATH_RETRIEVAL_ERROR',
      message: expect.stringContaining('Table passages is closed.') as string,
    });
  });
});
