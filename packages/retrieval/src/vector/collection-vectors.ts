import { WarmpathError } from '@warmpath/core';
import { type CollectionStore, checkEmbedding } from '../collections/collection-store.js';
import type { Change, StoredEmbedding } from '../collections/records.js';
import type { EmbeddingEndpoint } from '../embeddings/embedding-endpoint.js';
import { HybridRetriever } from '../fusion/hybrid-retriever.js';
import type { Query, SearchOptions, Stage, StagedRetriever } from '../staged-retriever.js';
import { type VectorEntry, VectorIndex } from './vector-index.js';
import { VectorRetriever } from './vector-retriever.js';
import { mostRows } from './vector-table.js';

/** Deleted vectors that are kept in memory, where they are fewer than the others. */
const KEPT_DELETED = 1000;

/** The vectors of a collection in memory, at the version that the collection had when it was last searched. */
class FollowingVectors {
  readonly #store: CollectionStore;
  readonly #end = new AbortController();
  #current: { readonly index: VectorIndex; readonly version: number } | undefined;
  #refreshing: Promise<void> | undefined;
  /** Why the vectors of a version cannot be held in memory. */
  #unusable: { readonly error: WarmpathError; readonly version: number } | undefined;

  constructor(store: CollectionStore) {
    this.#store = store;
  }

  /** Why the vectors cannot be searched, as far as that is known without reading them. O(1). */
  get problem(): WarmpathError | undefined {
    const { vectorCount, embedding, position } = this.#store;
    if (this.#unusable?.version === position.version) return this.#unusable.error;
    const { dimension } = embedding!;
    const most = mostRows(dimension);
    if (vectorCount <= most) return undefined;
    const [has, fit] = [vectorCount, most].map((number) => number.toLocaleString('en'));
    const detail = `it has ${has} vectors of ${dimension} dimensions, and memory for ${fit} (4 GiB).`;
    return new WarmpathError('WARMPATH_COLLECTION_VECTORS', { detail });
  }

  /**
   * The index at the collection's version, or a later one.
   * Errors: WARMPATH_COLLECTION_VECTORS where what is stored cannot be held in memory.
   */
  async current(): Promise<VectorIndex> {
    while (this.#current?.version !== this.#store.position.version) {
      this.#refreshing ??= this.#refresh().finally(() => {
        this.#refreshing = undefined;
      });
      await this.#refreshing;
    }
    return this.#current.index;
  }

  async close(): Promise<void> {
    this.#end.abort(new WarmpathError('WARMPATH_COLLECTION_NOT_FOUND', { detail: 'it was just closed.' }));
    await this.#refreshing?.catch(() => undefined);
  }

  async #refresh(): Promise<void> {
    const { version } = this.#store.position;
    const begun = this.#current;
    const changes = begun && this.#store.changes(begun.version, version);
    const hasFollowed = begun && changes && (await this.#follow(begun.index, changes));
    this.#current = { index: hasFollowed ? begun.index : await this.#load(), version };
  }

  /** Every vector as it is stored; a change that comes meanwhile is followed again, which changes nothing. */
  async #load(): Promise<VectorIndex> {
    const problem = this.problem;
    if (problem !== undefined) throw problem;
    const store = this.#store;
    const { dimension, model: embedder } = store.embedding!;
    const { version, nextOrdinal } = store.position;
    const entries = function* (): Generator<VectorEntry> {
      for (const { ordinal, vector } of store.vectors(0, nextOrdinal)) yield { id: `${ordinal}`, vector };
    };
    try {
      const index = new VectorIndex({ dimension, embedder });
      await index.add(entries(), this.#end.signal);
      return index;
    } catch (cause) {
      this.#end.signal.throwIfAborted();
      // Neither what is stored nor memory that the machine does not have (`RangeError`) is the caller's to mend.
      const isInvalid = WarmpathError.isInstance(cause) && cause.code === 'WARMPATH_INVALID_VECTOR';
      if (!isInvalid && !(cause instanceof RangeError)) throw cause;
      const error = new WarmpathError('WARMPATH_COLLECTION_VECTORS', { detail: cause.message, cause });
      this.#unusable = { error, version };
      throw error;
    }
  }

  /** Whether the index has followed; false where all are to be loaded, as too many are deleted. */
  async #follow(index: VectorIndex, changes: readonly Change[]): Promise<boolean> {
    const store = this.#store;
    const added = new Set<number>();
    for (const { from, to, embedded = [] } of changes) {
      for (let ordinal = from; ordinal < to; ordinal++) added.add(ordinal);
      for (const ordinal of embedded) added.add(ordinal);
    }
    const { size, deletedCount } = index;
    const isFull = size + deletedCount + added.size > mostRows(index.options.dimension);
    if (isFull || deletedCount > Math.max(KEPT_DELETED, size)) return false;
    const entries = function* (): Generator<VectorEntry> {
      for (const ordinal of added) {
        const vector = index.has(`${ordinal}`) ? undefined : store.vector(ordinal);
        if (vector !== undefined) yield { id: `${ordinal}`, vector };
      }
    };
    await index.add(entries(), this.#end.signal);
    for (const { removed } of changes) index.delete(removed.map(String));
    return true;
  }
}

/** How a collection is searched whose passages have vectors: by words first, then by words and meaning together. */
export class CollectionSearch implements StagedRetriever {
  readonly #store: CollectionStore;
  readonly #endpoint: EmbeddingEndpoint;
  readonly #lexical: StagedRetriever;
  readonly #hybrid: StagedRetriever;
  readonly #vectors: FollowingVectors;

  constructor(store: CollectionStore, endpoint: EmbeddingEndpoint, lexical: StagedRetriever) {
    this.#store = store;
    this.#endpoint = endpoint;
    this.#lexical = lexical;
    this.#vectors = new FollowingVectors(store);
    const dense = new VectorRetriever({
      index: () => this.#vectors.current(),
      embedder: {
        name: endpoint.name,
        embed: async (...question) => checkedVectors(await endpoint.embed(...question), store.embedding!),
      },
      passages: (ids, where) => ids.map((id) => store.passage(Number(id), where)),
      filter: async (where) => {
        const mayBeFound = await store.matching(where);
        return (id) => mayBeFound(Number(id));
      },
    });
    this.#hybrid = new HybridRetriever({ lexical, dense });
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void> {
    const stored = this.#store.embedding;
    if (stored === undefined || stored.dimension === 0) {
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

  close(): Promise<void> {
    return this.#vectors.close();
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
}

/** A question's vector that cannot be compared with the stored ones is the endpoint's fault. */
function checkedVectors(vectors: Float32Array[], { dimension }: StoredEmbedding): Float32Array[] {
  const other = vectors.find(({ length }) => length > 0 && length !== dimension);
  if (other === undefined) return vectors;
  const detail = `the vector has ${other.length} dimensions, and those of the collection have ${dimension}.`;
  throw new WarmpathError('WARMPATH_EMBEDDING_INVALID', { path: 'embeddings', detail });
}
