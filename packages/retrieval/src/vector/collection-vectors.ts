import { join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { type CollectionStore, checkEmbedding } from '../collections/collection-store.js';
import type { Change, StoredEmbedding } from '../collections/records.js';
import type { Embedder } from '../embeddings/embedder.js';
import type { EmbeddingEndpoint } from '../embeddings/embedding-endpoint.js';
import { HybridRetriever } from '../fusion/hybrid-retriever.js';
import type { Query, SearchOptions, Stage, StagedRetriever } from '../staged-retriever.js';
import { buildVectorIndex } from './build-index.js';
import { readNamedIndex, writeVectorIndex } from './index-file.js';
import type { VectorEntry } from './stored-rows.js';
import type { VectorIndex } from './vector-index.js';
import { VectorRetriever } from './vector-retriever.js';
import { mostRows } from './vector-table.js';

/** Vectors above which a graph is built: up to here a scan of all takes no longer than the question's embedding. */
const SCANNED = 20_000;
/** Vectors that are added to a graph while a search waits; where more have come, they are scanned until it is built. */
const ADDED_IN_PLACE = 1000;
/** Vectors that a graph on disk may lack when a collection is closed; the next start adds them. */
const UNSAVED = 100;
/** The graph beside the collection. */
const FILE = 'vectors.index';
/** Deleted vectors that are kept in memory, where they are fewer than the others. */
const KEPT_DELETED = 1000;

interface FollowingIndex {
  readonly index: VectorIndex;
  /** Of the collection. */
  readonly version: number;
}

/**
 * The vectors of a collection in memory, at the version that it had when it was last searched: scanned while they are
 * few, in a graph when they are many. A thread builds the graph while searches go on by scanning; it is kept in a file,
 * which the first search after a start reads. A file that is damaged, or of another model, is as none.
 */
class FollowingVectors {
  readonly #store: CollectionStore;
  readonly #graphAbove: number;
  readonly #end = new AbortController();
  #current: FollowingIndex | undefined;
  #refreshing: Promise<void> | undefined;
  #building: Promise<void> | undefined;
  /** What was built, until a search takes it. */
  #built: FollowingIndex | undefined;
  #hasFailed = false;
  /** Why the vectors of a version cannot be held in memory. */
  #unusable: { readonly error: WarmpathError; readonly version: number } | undefined;
  #isLoaded = false;
  /** Vectors that came and left since the file was written. */
  #unsaved = 0;

  constructor(store: CollectionStore, graphAbove: number) {
    this.#store = store;
    this.#graphAbove = graphAbove;
  }

  /** Why the vectors cannot be searched, as far as that is known without reading them. O(1). */
  get problem(): WarmpathError | undefined {
    const { totals, vectorless, embedding, position } = this.#store;
    if (this.#unusable?.version === position.version) return this.#unusable.error;
    const { dimension } = embedding!;
    const [count, most] = [totals.passages - vectorless, mostRows(dimension)];
    if (count <= most) return undefined;
    const [has, fit] = [count, most].map((number) => number.toLocaleString('en'));
    const detail = `it has ${has} vectors of ${dimension} dimensions, and memory for ${fit} (4 GiB).`;
    return new WarmpathError('WARMPATH_COLLECTION_VECTORS', { detail });
  }

  /**
   * The index at the collection's version, or a later one.
   * Errors: WARMPATH_COLLECTION_VECTORS where what is stored cannot be held in memory.
   */
  async current(): Promise<VectorIndex> {
    while (this.#current?.version !== this.#store.position.version || this.#built !== undefined) {
      this.#refreshing ??= this.#refresh().finally(() => {
        this.#refreshing = undefined;
      });
      await this.#refreshing;
    }
    return this.#current.index;
  }

  /** @param saves Whether a graph that is not on the disk yet is written. */
  async close(saves: boolean): Promise<void> {
    this.#end.abort(new WarmpathError('WARMPATH_COLLECTION_NOT_FOUND', { detail: 'it was just closed.' }));
    await this.#building;
    await this.#refreshing?.catch(() => undefined);
    if (saves && this.#current?.index.kind === 'hnsw' && this.#unsaved > UNSAVED && !this.#store.isDeleted) {
      await this.#save(this.#current);
    }
  }

  async #refresh(): Promise<void> {
    const begun = this.#built ?? this.#current ?? (await this.#saved());
    this.#built = undefined;
    const { version } = this.#store.position;
    const changes = begun && this.#store.changes(begun.version, version);
    const index = begun && changes && (await this.#follow(begun.index, changes)) ? begun.index : await this.#load();
    this.#current = { index, version };
    const { size, deletedCount, kind } = index;
    const isSlow = kind === 'exact' && size > this.#graphAbove;
    if (isSlow || deletedCount > Math.max(KEPT_DELETED, size)) this.#build(this.#current);
  }

  /** Every vector as it is stored; a change that comes meanwhile is followed again, which changes nothing. */
  async #load(): Promise<VectorIndex> {
    const problem = this.problem;
    if (problem !== undefined) throw problem;
    const { embedding, position } = { embedding: this.#store.embedding!, position: this.#store.position };
    const entries = entriesOf(this.#store.vectors(0, position.nextOrdinal));
    const { dimension, model } = embedding;
    try {
      return await buildVectorIndex(entries, { dimension, embedder: model, kind: 'exact', signal: this.#end.signal });
    } catch (cause) {
      this.#end.signal.throwIfAborted();
      // Neither what is stored nor memory that the machine does not have (`RangeError`) is the caller's to mend.
      const isInvalid = WarmpathError.isInstance(cause) && cause.code === 'WARMPATH_INVALID_VECTOR';
      if (!isInvalid && !(cause instanceof RangeError)) throw cause;
      const error = new WarmpathError('WARMPATH_COLLECTION_VECTORS', { detail: cause.message, cause });
      this.#unusable = { error, version: position.version };
      throw error;
    }
  }

  /** Whether the index has followed; false where it is quicker to load all. */
  async #follow(index: VectorIndex, changes: readonly Change[]): Promise<boolean> {
    const added = new Set<number>();
    for (const { from, to, embedded = [] } of changes) {
      for (let ordinal = from; ordinal < to; ordinal++) added.add(ordinal);
      for (const ordinal of embedded) added.add(ordinal);
      if (index.kind !== 'exact' && added.size > ADDED_IN_PLACE) return false;
    }
    // What was deleted takes room until all are loaded again.
    if (index.size + index.deletedCount + added.size > mostRows(index.dimension)) return false;
    const store = this.#store;
    const entries = function* (): Generator<VectorEntry> {
      for (const ordinal of added) {
        const vector = index.has(`${ordinal}`) ? undefined : store.vector(ordinal);
        if (vector !== undefined) yield { id: `${ordinal}`, vector };
      }
    };
    const before = index.size;
    await index.add(entries(), this.#end.signal);
    this.#unsaved += index.size - before;
    for (const { removed } of changes) this.#unsaved += index.delete(removed.map(String));
    return true;
  }

  /** The graph of the file, where it is one of this collection. */
  async #saved(): Promise<FollowingIndex | undefined> {
    if (this.#isLoaded) return undefined;
    this.#isLoaded = true;
    try {
      const { index, name = '' } = await readNamedIndex(this.#path, this.#end.signal);
      const { embedding, position } = { embedding: this.#store.embedding!, position: this.#store.position };
      const isOurs = index.options.embedder === embedding.model && index.dimension === embedding.dimension;
      const version = Number(name.slice(name.lastIndexOf(':') + 1));
      if (!isOurs || version > position.version || name !== this.#store.nameOf(version)) return undefined;
      return index.size > this.#graphAbove ? { index, version } : undefined;
    } catch (error) {
      this.#end.signal.throwIfAborted();
      // What is damaged or not there is built.
      if (WarmpathError.isInstance(error)) return undefined;
      throw error;
    }
  }

  /** Nothing changes the index meanwhile. Searches do not need the file: where it cannot be written, there is none. */
  async #save({ index, version }: FollowingIndex): Promise<void> {
    try {
      await writeVectorIndex(index, this.#path, this.#store.nameOf(version));
      this.#unsaved = 0;
    } catch (error) {
      if (!WarmpathError.isInstance(error)) throw error;
    }
  }

  get #path(): string {
    return join(this.#store.folder, FILE);
  }

  #build({ index, version }: FollowingIndex): void {
    if (this.#building !== undefined || this.#hasFailed) return;
    const { dimension, options, size } = index;
    const kind = size > this.#graphAbove ? 'hnsw' : 'exact';
    const { signal } = this.#end;
    this.#building = buildVectorIndex(index.entries(), { ...options, dimension, kind, signal }).then(
      async (index) => {
        const built = { index, version };
        if (kind === 'hnsw') await this.#save(built);
        this.#building = undefined;
        this.#built = built;
      },
      () => {
        // Searches go on as they are; a thread that failed once is not started again and again.
        this.#building = undefined;
        this.#hasFailed = true;
      },
    );
  }
}

/** How a collection is searched whose passages have vectors: by words first, then by words and meaning together. */
export class CollectionSearch implements StagedRetriever {
  readonly #store: CollectionStore;
  readonly #endpoint: EmbeddingEndpoint;
  readonly #lexical: StagedRetriever;
  readonly #hybrid: StagedRetriever;
  readonly #vectors: FollowingVectors;

  /** @param graphAbove Vectors above which a graph is built; for tests. */
  constructor(
    store: CollectionStore,
    endpoint: EmbeddingEndpoint,
    { lexical, graphAbove = SCANNED }: { readonly lexical: StagedRetriever; readonly graphAbove?: number | undefined },
  ) {
    this.#store = store;
    this.#endpoint = endpoint;
    this.#lexical = lexical;
    this.#vectors = new FollowingVectors(store, graphAbove);
    const dense = {
      search: (query: Query, options: SearchOptions) => {
        const retriever = new VectorRetriever({
          index: () => this.#vectors.current(),
          embedder: this.#questions(store.embedding!),
          passages: (ids) => ids.map((id) => store.passage(Number(id))),
        });
        return retriever.search(query, options);
      },
    };
    this.#hybrid = new HybridRetriever({ lexical, dense });
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void> {
    const stored = this.#store.embedding;
    if (stored === undefined) {
      yield* this.#lexical.search(query, options);
      return;
    }
    const problem = this.#problem(stored);
    if (problem === undefined) {
      yield* this.#hybrid.search(query, options);
      return;
    }
    // Whoever asks cannot mend it, and gets an answer.
    const { code, message } = problem;
    for await (const stage of this.#lexical.search(query, options)) {
      yield stage.final ? { ...stage, warnings: [{ code, path: 'embeddings', message }] } : stage;
    }
  }

  close({ saves }: { readonly saves: boolean }): Promise<void> {
    return this.#vectors.close(saves);
  }

  /** Why the stored vectors are not searched. */
  #problem(stored: StoredEmbedding): WarmpathError | undefined {
    try {
      checkEmbedding(stored, { model: this.#endpoint.name, dimension: this.#endpoint.dimension });
    } catch (error) {
      return error as WarmpathError;
    }
    return this.#vectors.problem;
  }

  /** Embeds questions. A vector that cannot be compared with the stored ones is the endpoint's fault. */
  #questions({ dimension }: StoredEmbedding): Embedder {
    const { name } = this.#endpoint;
    return {
      name,
      embed: async (texts, purpose, signal) => {
        const vectors = await this.#endpoint.embed(texts, purpose, signal);
        const other = vectors.find(({ length }) => length > 0 && length !== dimension);
        if (other === undefined) return vectors;
        const detail = `the vector has ${other.length} dimensions, and those of the collection have ${dimension}.`;
        throw new WarmpathError('WARMPATH_EMBEDDING_INVALID', { path: 'embeddings', detail });
      },
    };
  }
}

function* entriesOf(vectors: ReturnType<CollectionStore['vectors']>): Generator<VectorEntry> {
  for (const { ordinal, vector } of vectors) yield { id: `${ordinal}`, vector };
}
