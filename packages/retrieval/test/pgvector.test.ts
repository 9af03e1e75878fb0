import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { vector } from '@electric-sql/pglite-pgvector';
import { PGLiteSocketServer } from '@electric-sql/pglite-socket';
import fc from 'fast-check';
import { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../../test/free-port.js';
import { isFull, runs } from '../../../test/suite.js';
import { Collections, HashedTfIdf } from '../src/index.js';
import { type PgVectorOptions, PgVectorRetriever } from '../src/stores/pgvector.js';
import { startFakeEmbeddings } from './fake-embeddings.js';
import { allStages, type CaseDocument, DOCUMENTS, runStagedRetrieverCases } from './staged-retriever.cases.js';
import { seededVectors } from './vector/seeded-vectors.js';
import { expected, DOCUMENTS as FILTERED, idsOf, wheres } from './where.cases.js';

let database: PGlite;
let server: PGLiteSocketServer;
let pool: Pool;
let folder: string;

// PostgreSQL with pgvector, compiled to WebAssembly, behind PostgreSQL's own protocol on a socket of its own.
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-pg-'));
  database = await PGlite.create({ extensions: { vector } });
  // The planner would rather read a small table than its index.
  await database.exec('CREATE EXTENSION vector; ALTER DATABASE postgres SET enable_seqscan = off');
  const path = join(folder, '.s.PGSQL.5432');
  server = new PGLiteSocketServer({ db: database, path, maxConnections: 10 });
  await server.start();
  pool = new Pool({ host: folder, port: 5432, user: 'postgres', database: 'postgres', max: 4 });
  pool.on('error', () => undefined);
});

afterAll(async () => {
  await pool.end();
  await server.stop();
  await database.close();
  await rm(folder, { recursive: true, force: true });
});

let tables = 0;
const EMBEDDER_TEXTS = DOCUMENTS.map(({ title, content }) => `${title ?? ''}\n${content}`);
const embedder = HashedTfIdf.learn(EMBEDDER_TEXTS, 512);

async function tableOf(documents: readonly CaseDocument[], index?: 'hnsw' | 'ivfflat'): Promise<string> {
  const table = `passages "${tables++}"`;
  const quoted = `"${table.replaceAll('"', '""')}"`;
  await pool.query(
    `CREATE TABLE ${quoted} (id text PRIMARY KEY, content text, heading text, meta jsonb, embedding vector(512))`,
  );
  for (const { id, content, title, metadata } of documents) {
    const values = embedder.vector(`${title ?? ''}\n${content}`);
    await pool.query(`INSERT INTO ${quoted} VALUES ($1, $2, $3, $4, $5)`, [
      id,
      content,
      title,
      metadata === undefined ? null : JSON.stringify(metadata),
      `[${values.join(',')}]`,
    ]);
  }
  if (index !== undefined) await pool.query(`CREATE INDEX ON ${quoted} USING ${index} (embedding vector_cosine_ops)`);
  return table;
}

const over = (table: string, options: Partial<PgVectorOptions> = {}) =>
  new PgVectorRetriever({ pool, table, embedder, fields: { title: 'heading', metadata: 'meta' }, ...options });

for (const index of isFull ? (['none', 'hnsw'] as const) : (['hnsw'] as const)) {
  runStagedRetrieverCases(`pgvector (${index})`, async (documents) => ({
    retriever: over(await tableOf(documents, index === 'none' ? undefined : index), { index }),
  }));
}

describe('pgvector', () => {
  it.each(['none', 'hnsw'] as const)('filters as a naive filter does (%s)', async (index) => {
    const retriever = over(await tableOf(FILTERED, index === 'none' ? undefined : index), { index });
    await fc.assert(
      fc.asyncProperty(wheres, async (where) => {
        expect(await idsOf(retriever, where)).toEqual(expected(where));
      }),
      { seed: 23, numRuns: runs(30) },
    );
    const without = over('none', { fields: {} });
    await expect(idsOf(without, { lang: 'de' })).rejects.toMatchObject({ code: 'WARMPATH_INVALID_REQUEST' });
  });

  it.each([
    ['hnsw', '', [10, 400]],
    ['ivfflat', ' WITH (lists = 20)', [1, 20]],
  ] as const)(
    'finds more with %s at the second stage, and then what a scan finds',
    async (index, options, breadths) => {
      const points = seededVectors(2000, 16, 4);
      const rows = points.map((point, i) => `(${i}, 'c${i}', '[${point.join(',')}]')`);
      await pool.query('DROP TABLE IF EXISTS points');
      await pool.query('CREATE TABLE points (id int, content text, embedding vector(16))');
      await pool.query(`INSERT INTO points VALUES ${rows.join(',')}`);
      const queries = seededVectors(10, 16, 5).map((vector) => ({ text: '', vector }));
      const idsOf = async (retriever: PgVectorRetriever) =>
        Promise.all(
          queries.map(async (query) =>
            (await stagesFor(retriever, query)).map(({ candidates }) => candidates.map(({ id }) => id)),
          ),
        );
      const truth = (await idsOf(over('public.points', { fields: {}, metric: 'l2' }))).map(([ids]) => new Set(ids));
      await pool.query(`CREATE INDEX ON points USING ${index} (embedding vector_l2_ops)${options}`);
      const found = await idsOf(over('points', { fields: {}, metric: 'l2', index, breadths }));
      const hits = [0, 1].map((stage) =>
        found.reduce((sum, stages, i) => sum + stages[stage]!.filter((id) => truth[i]!.has(id)).length, 0),
      );
      expect(hits[1]).toBeGreaterThanOrEqual(98);
      expect(hits[0]).toBeLessThan(hits[1]!);
    },
  );

  it('gives every connection back, however searches end', async () => {
    const table = await tableOf(DOCUMENTS, 'hnsw');
    const retriever = over(table, { index: 'hnsw' });
    for (let i = 0; i < 12; i++) {
      const abort = new AbortController();
      try {
        for await (const { index } of retriever.search({ text: 'harbour' }, { k: 3, signal: abort.signal })) {
          if (i % 3 === 0 && index === 1) break;
          if (i % 3 === 1) abort.abort(new Error('gone'));
        }
      } catch (error) {
        expect(String(error)).toBe('Error: gone');
      }
    }
    expect(pool.waitingCount).toBe(0);
    expect(pool.idleCount).toBe(pool.totalCount);
    expect(await allStages(retriever, 'harbour', 3)).toHaveLength(3);
  });

  it('gives up on a server that is silent, and has its connections back for when it is not', async () => {
    const table = await tableOf(DOCUMENTS);
    // Passes on what goes to and fro, until it loses it all.
    let isSilent = false;
    const proxy = createServer((client) => {
      const behind = connect(join(folder, '.s.PGSQL.5432'));
      const ends = [client, behind] as const;
      for (const [from, to] of [ends, [behind, client]] as const) {
        from.on('data', (bytes: Buffer) => isSilent || to.write(bytes));
        from.on('error', () => undefined);
        from.on('close', () => to.destroy());
      }
    });
    const path = join(folder, '.s.PGSQL.6432');
    await once(proxy.listen(path), 'listening');
    const own = new Pool({ host: folder, port: 6432, user: 'postgres', database: 'postgres', max: 2 });
    own.on('error', () => undefined);
    try {
      expect(await allStages(over(table, { pool: own }), 'harbour', 3)).toHaveLength(1);
      isSilent = true;
      // More than there are connections.
      const retriever = over(table, { pool: { connect: () => own.connect() }, timeoutMs: 20 });
      for (let time = 0; time < 2; time++) {
        const failure = {
          code: 'WARMPATH_RETRIEVAL_TIMEOUT',
          message: expect.stringContaining('within 20 ms') as string,
        };
        await expect(allStages(retriever, 'harbour', 3)).rejects.toMatchObject(failure);
        isSilent = false;
        (await own.connect()).release();
        isSilent = true;
      }
      isSilent = false;
      expect(await allStages(over(table, { pool: own }), 'harbour', 3)).toHaveLength(1);
      expect(own.waitingCount).toBe(0);
    } finally {
      await own.end();
      proxy.close();
    }
  });

  it('has the server end what takes too long, which is said as such', async () => {
    const table = await tableOf(DOCUMENTS.slice(0, 1));
    const quoted = `"${table.replaceAll('"', '""')}"`;
    const limit = `current_setting('statement_timeout')`;
    await pool.query(`CREATE VIEW limits AS SELECT id, ${limit} AS content, embedding FROM ${quoted}`);
    const [stage] = await allStages(over('limits', { fields: {}, timeoutMs: 1_500 }), 'harbour', 3);
    expect(stage!.candidates).toMatchObject([{ content: '1500ms' }]);
    await pool.query(`CREATE FUNCTION late() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
      RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014'; END $$`);
    await pool.query(`CREATE VIEW slow AS SELECT id, late() AS content, embedding FROM ${quoted}`);
    const failure = { code: 'WARMPATH_RETRIEVAL_TIMEOUT', path: 'slow' };
    await expect(allStages(over('slow', { fields: {} }), 'harbour', 3)).rejects.toMatchObject(failure);
  });

  it('says what the database says, with a code', async () => {
    await expect(allStages(over('no_such_table'), 'harbour', 3)).rejects.toMatchObject({
      code: 'WARMPATH_RETRIEVAL_ERROR',
      message: expect.stringContaining('relation "no_such_table" does not exist'),
    });
    const nowhere = new Pool({ host: join(folder, 'nowhere'), user: 'postgres' });
    await expect(allStages(over('t', { pool: nowhere }), 'harbour', 3)).rejects.toMatchObject({
      code: 'WARMPATH_RETRIEVAL_UNREACHABLE',
    });
    await nowhere.end();
  });
});

it('a collection that lives in a database is found in PostgreSQL with pgvector', async () => {
  const fake = await startFakeEmbeddings();
  const embedded = async (text: string) => {
    const response = await fetch(`${fake.url}/embeddings`, { method: 'POST', body: JSON.stringify({ input: [text] }) });
    return ((await response.json()) as { data: [{ embedding: number[] }] }).data[0].embedding;
  };
  await pool.query('CREATE TABLE handbook (id text, content text, embedding vector(64))');
  for (const [id, content] of [
    ['velka', 'The weight of Velka is 42 kg.'],
    ['orsin', 'The founder of Orsin is Mirela.'],
  ] as const) {
    await pool.query('INSERT INTO handbook VALUES ($1, $2, $3)', [id, content, `[${await embedded(content)}]`]);
  }
  const port = await freePort();
  const overTcp = new PGLiteSocketServer({ db: database, host: '127.0.0.1', port, maxConnections: 10 });
  await overTcp.start();
  const url = `postgres://postgres:secret@127.0.0.1:${port}/postgres?sslmode=disable`;
  const collections = new Collections(join(folder, 'collections'), {
    embeddings: { url: fake.url, model: 'fake' },
    stores: { handbook: { kind: 'pgvector', url, table: 'handbook' } },
  });
  try {
    const { retriever } = await collections.searchable('default', 'handbook');
    const [stage] = await allStages(retriever, 'the founder of Orsin', 2);
    expect(stage).toMatchObject({ final: true, candidates: [{ id: 'orsin' }, { id: 'velka' }] });
  } finally {
    await collections.close();
    await overTcp.stop();
    await fake.close();
  }
});

async function stagesFor(retriever: PgVectorRetriever, query: { text: string; vector: Float32Array }) {
  const stages = [];
  const { signal } = new AbortController();
  for await (const stage of retriever.search(query, { k: 10, signal })) stages.push(stage);
  return stages;
}
