import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { HashedTfIdf } from '../../src/index.js';
import type { LanceDbTable } from '../../src/stores/lancedb.js';
import { type CaseDocument, DOCUMENTS } from '../staged-retriever.cases.js';

/** What a LanceDB answered: `fixtures/lancedb-0.37.json`, written by `record.js`. */
export interface Recording {
  readonly version: string;
  /** Whole rows, vectors included. */
  readonly rows: Readonly<Record<'passages' | 'types', readonly RecordedRow[]>>;
  readonly exchanges: readonly Exchange[];
}

/** `ivf` and `hnsw` are the passages with an index. */
export type TableName = 'passages' | 'types' | 'ivf' | 'hnsw';
export type RecordedRow = Readonly<Record<string, RecordedValue>>;

/** A value as JSON has it, or the name of its type with what is in it. */
export type RecordedValue =
  | string
  | number
  | boolean
  | null
  | { readonly type: 'bigint'; readonly value: string }
  | { readonly type: 'number'; readonly value: string }
  | { readonly type: 'Uint8Array'; readonly values: readonly number[] }
  | { readonly type: 'Uint32Array'; readonly values: readonly number[] }
  | { readonly type: 'Vector'; readonly values: readonly RecordedValue[] }
  | { readonly type: 'StructRow'; readonly members: RecordedRow };

/** A query as calls of LanceDB's builder, and what came of it. */
export interface Exchange extends RecordedQuery {
  readonly rows?: readonly RecordedRow[];
  readonly error?: string;
}

export interface RecordedQuery {
  readonly name: string;
  readonly table: TableName;
  readonly vector: readonly number[];
  readonly calls: readonly (readonly [method: string, ...parameters: unknown[]])[];
  readonly timeoutMs: number;
}

export const EMBEDDER = HashedTfIdf.learn(
  DOCUMENTS.map(({ title, content }) => `${title ?? ''}\n${content}`),
  64,
);

const HARBOUR = [...EMBEDDER.vector('Who is the harbour master of Bodø?')];
const SHORT = ['id', '_distance'];

function query(name: string, calls: RecordedQuery['calls'], other: Partial<RecordedQuery> = {}): RecordedQuery {
  return { name, table: 'passages', vector: HARBOUR, timeoutMs: 30_000, ...other, calls };
}

function byMetric(metric: string): RecordedQuery {
  const calls = [
    ['column', 'embedding'],
    ['distanceType', metric],
    ['select', SHORT],
    ['limit', 20],
  ] as const;
  return query(`all rows by ${metric}`, calls);
}

const QUERIES: readonly RecordedQuery[] = [
  byMetric('cosine'),
  byMetric('dot'),
  byMetric('l2'),
  query('two passages', [
    ['distanceType', 'cosine'],
    ['select', ['id', 'content', 'heading', 'meta', '_distance']],
    ['limit', 2],
    ['bypassVectorIndex'],
  ]),
  query(
    'values of every type',
    [
      ['distanceType', 'cosine'],
      ['select', ['id', 'meta', '_distance']],
      ['limit', 3],
    ],
    { table: 'types' },
  ),
  query(
    'no partition',
    [
      ['distanceType', 'cosine'],
      ['select', SHORT],
      ['nprobes', 0],
    ],
    { table: 'ivf' },
  ),
  query(
    'every partition',
    [
      ['distanceType', 'cosine'],
      ['select', SHORT],
      ['limit', 20],
      ['refineFactor', 4],
      ['nprobes', 64],
    ],
    { table: 'ivf' },
  ),
  query(
    'a graph',
    [
      ['distanceType', 'cosine'],
      ['select', SHORT],
      ['limit', 20],
      ['refineFactor', 4],
      ['ef', 80],
    ],
    { table: 'hnsw' },
  ),
  query(
    'too few candidates',
    [
      ['distanceType', 'cosine'],
      ['limit', 3],
      ['refineFactor', 4],
      ['ef', 11],
    ],
    {
      table: 'hnsw',
    },
  ),
  query(
    'a vector of another length',
    [
      ['column', 'embedding'],
      ['limit', 3],
    ],
    { vector: [1, 0] },
  ),
  query('no such vector column', [
    ['column', 'nowhere'],
    ['limit', 3],
  ]),
  query('no such column', [
    ['select', ['nowhere', '_distance']],
    ['limit', 3],
  ]),
  query('no time', [['limit', 3]], { timeoutMs: 0 }),
];

/** What is used of LanceDB to make tables. */
interface LanceDb {
  connect(folder: string): Promise<Database>;
  readonly Index: Readonly<Record<'ivfFlat' | 'ivfPq' | 'hnswSq', (options: object) => unknown>>;
}

interface Database {
  createTable(name: string, rows: readonly object[], options: { schema: unknown }): Promise<RealTable>;
}

interface RealTable extends LanceDbTable {
  createIndex(column: string, options: { config: unknown }): Promise<void>;
  query(): { limit(rows: number): { toArray(): Promise<object[]> } };
}

/** Types of Apache Arrow, by name. */
type Arrow = Readonly<Record<string, new (...parameters: unknown[]) => unknown>>;

/** Tables in a real LanceDB, of the package that is installed in a folder. */
export class RealLanceDb {
  readonly version: string;
  readonly #lancedb: LanceDb;
  readonly #arrow: Arrow;
  readonly #folder: string;
  #tables = 0;

  /**
   * @param installed Where `npm install --prefix` put `@lancedb/lancedb`.
   * @param folder Where tables are written.
   */
  constructor(installed: string, folder: string) {
    const load = createRequire(join(installed, 'package.json'));
    const manifest = readFileSync(join(installed, 'node_modules/@lancedb/lancedb/package.json'), 'utf8');
    this.version = (JSON.parse(manifest) as { version: string }).version;
    this.#lancedb = load('@lancedb/lancedb') as LanceDb;
    this.#arrow = load('apache-arrow') as Arrow;
    this.#folder = folder;
  }

  /** Passages with the vectors of `EMBEDDER`. */
  async passages(documents: readonly CaseDocument[], index: 'ivf' | 'hnsw' | 'none'): Promise<LanceDbTable> {
    const rows = documents.map(({ id, content, title, metadata }) => ({
      id,
      content,
      ...(title !== undefined && { heading: title }),
      ...(metadata !== undefined && { meta: metadata }),
      embedding: [...EMBEDDER.vector(`${title ?? ''}\n${content}`)],
    }));
    return this.#table(rows, EMBEDDER.dimension, rows.length === 0 ? 'none' : index, 'cosine', 2);
  }

  /** A passage with a value of every type that metadata may have, and one whose metadata are null throughout. */
  async types(): Promise<LanceDbTable> {
    const at = new Date('2026-06-01T12:00:00.250Z');
    const meta = {
      line: 12n,
      tags: ['a', 'ü'],
      beyond: 9_007_199_254_740_993n,
      unsigned: 5n,
      double: 0.5,
      infinite: Number.POSITIVE_INFINITY,
      flag: false,
      at,
      day: new Date('2026-06-01'),
      bytes: Uint8Array.of(0, 255, 1),
      holes: [true, null],
      integers: [1n, 2n],
      decimal: Uint32Array.of(1234, 0, 0, 0),
      nested: { x: 3, list: [{ y: 4n }, { y: null }] },
    };
    const embedding = HARBOUR;
    const rows = [
      { id: 'typed', content: 'Everything.', meta, embedding },
      { id: 'bare', content: 'Nothing.', embedding: embedding.map((value) => value / 2) },
      { content: 'No id.', embedding: embedding.map((value) => value / 4) },
    ];
    return this.#table(rows, EMBEDDER.dimension, 'none', 'cosine', 1);
  }

  /** Numbered points in an index of 20 lists that compresses them. */
  async points(vectors: readonly Float32Array[]): Promise<LanceDbTable> {
    const rows = vectors.map((vector, i) => ({ id: `${i}`, content: `c${i}`, embedding: [...vector] }));
    return this.#table(rows, vectors[0]!.length, 'ivf', 'l2', 20);
  }

  /** Asks a LanceDB everything that the fake must answer alike. */
  async record(): Promise<Recording> {
    const tables: Record<TableName, LanceDbTable> = {
      passages: await this.passages(DOCUMENTS, 'none'),
      types: await this.types(),
      ivf: await this.passages(DOCUMENTS, 'ivf'),
      hnsw: await this.passages(DOCUMENTS, 'hnsw'),
    };
    const rowsOf = async (table: LanceDbTable) =>
      (await (table as RealTable).query().limit(100).toArray()).map(recordedRow);
    const rows = { passages: await rowsOf(tables.passages), types: await rowsOf(tables.types) };
    const exchanges: Exchange[] = [];
    for (const asked of QUERIES) exchanges.push({ ...asked, ...(await ask(tables[asked.table], asked)) });
    return { version: this.version, rows, exchanges };
  }

  async #table(
    rows: readonly object[],
    dimension: number,
    index: 'ivf' | 'hnsw' | 'none',
    distanceType: string,
    numPartitions: number,
  ): Promise<RealTable> {
    const database = await this.#lancedb.connect(this.#folder);
    const table = await database.createTable(`table-${this.#tables++}`, rows, { schema: this.#schema(dimension) });
    const { Index } = this.#lancedb;
    if (index === 'hnsw') await table.createIndex('embedding', { config: Index.hnswSq({ distanceType }) });
    // Product quantisation learns from 256 rows or more.
    const ivf = rows.length < 256 ? Index.ivfFlat : Index.ivfPq;
    const options = { distanceType, numPartitions, ...(rows.length >= 256 && { numSubVectors: 4 }) };
    if (index === 'ivf') await table.createIndex('embedding', { config: ivf(options) });
    return table;
  }

  #schema(dimension: number): unknown {
    const type = (name: string, ...parameters: unknown[]) => new this.#arrow[name]!(...parameters);
    const field = (name: string, of: unknown) => type('Field', name, of, true);
    const list = (of: unknown) => type('List', field('item', of));
    const struct = (members: Record<string, unknown>) =>
      type(
        'Struct',
        Object.entries(members).map(([name, of]) => field(name, of)),
      );
    const columns = {
      id: type('Utf8'),
      content: type('Utf8'),
      heading: type('Utf8'),
      meta: struct({
        line: type('Int64'),
        tags: list(type('Utf8')),
        beyond: type('Int64'),
        unsigned: type('Uint64'),
        double: type('Float64'),
        infinite: type('Float64'),
        flag: type('Bool'),
        at: type('TimestampMillisecond'),
        day: type('DateDay'),
        bytes: type('Binary'),
        holes: list(type('Bool')),
        integers: list(type('Int64')),
        decimal: type('Decimal', 2, 10, 128),
        nested: struct({ x: type('Int32'), list: list(struct({ y: type('Int64') })) }),
        absent: type('Utf8'),
      }),
      embedding: type('FixedSizeList', dimension, field('item', type('Float32'))),
    };
    return type(
      'Schema',
      Object.entries(columns).map(([name, of]) => field(name, of)),
    );
  }
}

/** What a table, real or fake, answers to a recorded query. */
export async function ask(table: LanceDbTable, { vector, calls, timeoutMs }: RecordedQuery) {
  let builder = table.vectorSearch(Float32Array.from(vector)) as unknown as Record<string, (...p: unknown[]) => never>;
  try {
    for (const [method, ...parameters] of calls) builder = builder[method]!(...parameters);
    const rows = (await builder['toArray']!({ timeoutMs })) as object[];
    return { rows: rows.map(recordedRow) };
  } catch (error) {
    return { error: (error as Error).message };
  }
}

function recordedRow(row: object): RecordedRow {
  return Object.fromEntries(Object.keys(row).map((name) => [name, recorded(row[name as never])]));
}

function recorded(value: unknown): RecordedValue {
  if (typeof value === 'bigint') return { type: 'bigint', value: String(value) };
  if (typeof value === 'number' && !Number.isFinite(value)) return { type: 'number', value: String(value) };
  if (value === undefined) throw new Error('a value is undefined');
  if (typeof value !== 'object' || value === null) return value as RecordedValue;
  const { name } = value.constructor;
  if (value instanceof Uint8Array) return { type: 'Uint8Array', values: [...value] };
  if (value instanceof Uint32Array) return { type: 'Uint32Array', values: [...value] };
  if (name === 'Vector') return { type: 'Vector', values: [...(value as Iterable<unknown>)].map(recorded) };
  if (name === 'StructRow') return { type: 'StructRow', members: recordedRow(value) };
  throw new Error(`a value of the type ${name} is not recorded`);
}
