import { lstatSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { type Database, open, type RootDatabase } from 'lmdb';
import type { ChunkSettings } from '../parse/chunk.js';
import { matchesWhere, type Where } from '../where.js';
import { checkMetaPages, checkPages } from './check-database.js';
import { isAlive, requireRoom, thisProcess, unwritable, type WriterRecord } from './folder.js';
import {
  type Applied,
  type Change,
  type CollectionTotals,
  type DocumentRecord,
  type Edits,
  type FileRecord,
  hashOf,
  type NewDocument,
  type NewPassage,
  type PassagePlace,
  type PassageText,
  passageHash,
  placeOf,
  type StoredEmbedding,
  type StoredPassage,
  textOf,
} from './records.js';

interface State {
  readonly format: number;
  readonly version: number;
  readonly nextOrdinal: number;
  readonly nextDocument: number;
  readonly totals: CollectionTotals;
  /** Transactions that may have changed documents or their fields. */
  readonly edits?: number;
  readonly deleted?: true;
  readonly embedding?: StoredEmbedding;
  readonly chunks?: ChunkSettings;
}

interface PassageRecord {
  readonly hash: string;
  readonly title?: string;
  readonly content: string;
  readonly tokens: number;
}

const FORMAT = 1;
const EMPTY: State = {
  format: FORMAT,
  version: 0,
  nextOrdinal: 1,
  nextDocument: 1,
  totals: { documents: 0, passages: 0, duplicates: 0, tokens: 0, bytes: 0 },
};
/** Changes that are kept for indexes that follow; an index that is further behind is built anew. */
const KEPT_CHANGES = 100_000;
/** Passages that are looked at for vectors before others get their turn. */
const LOOKED_AT_ONCE = 1024;
/** Documents that a passage names as its sources, and of which one must be as a filter says. */
const MAX_SOURCES = 100;
/** Filters whose passages are remembered. */
const MAX_FILTERS = 8;
/** How often a writer says that it lives. */
const RENEWAL_MS = 5_000;

/**
 * One collection on disk: documents, their passages, and the files they came from, in an LMDB environment of its own.
 * Any number of processes may read while one writes; what a transaction wrote is there whole or not at all, whenever
 * the process is killed.
 */
export class CollectionStore {
  readonly folder: string;
  readonly #root: RootDatabase;
  readonly #state: Database<State | WriterRecord, string>;
  /** By number; numbers follow ids, so that a document that changes keeps its own. */
  readonly #documents: Database<DocumentRecord, number>;
  readonly #numbers: Database<number, string>;
  readonly #passages: Database<PassageRecord, number>;
  readonly #ordinals: Database<number, string>;
  /** Numbers of the documents that hold a passage, by its ordinal. */
  readonly #holders: Database<number, number>;
  readonly #files: Database<FileRecord, string>;
  /** Numbers of documents by their origin's hash. */
  readonly #origins: Database<number, string>;
  readonly #changes: Database<Change, number>;
  /** By ordinal; empty where an endpoint finds nothing in a passage. */
  readonly #vectors: Database<Buffer, number>;
  /** Vectors of passages that left since a write began, by hash: a passage that moved finds its own again. */
  readonly #leftVectors: Database<Buffer, string>;
  /** The file as it was when it was last looked at. It never becomes shorter. */
  #file: { readonly ino: number; readonly size: number };
  /** Ordinals by filter, the last ones. */
  readonly #matching = new Map<string, Promise<ReadonlySet<number>>>();
  #renewal: NodeJS.Timeout | undefined;
  #isClosed = false;
  #wasCut = false;

  /**
   * Opens a collection, which is made where `create` is set. All its pages are checked before.
   * Errors: WARMPATH_COLLECTION_UNREADABLE.
   */
  static async open(folder: string, { create = false } = {}): Promise<CollectionStore | undefined> {
    let root: RootDatabase | undefined;
    try {
      if (!create && fileOf(folder) === undefined) return undefined;
      checkMetaPages(folder);
      // Every write is a transaction of its own. Batches by turns of the event loop would leave a promise behind that
      // nobody can handle: a disk that is full would end the process.
      root = open({ path: folder, maxDbs: 12, encoding: 'msgpack', eventTurnBatching: false });
      const snapshot = root.useReadTransaction();
      await checkPages(folder).finally(() => snapshot.done());
      return new CollectionStore(folder, root);
    } catch (cause) {
      await root?.close();
      throw WarmpathError.isInstance(cause) ? cause : unreadable(folder, (cause as Error).message, cause);
    }
  }

  private constructor(folder: string, root: RootDatabase) {
    this.folder = folder;
    this.#root = root;
    this.#file = fileOf(folder)!;
    this.#state = this.#root.openDB({ name: 'state' });
    this.#documents = this.#root.openDB({ name: 'documents' });
    this.#numbers = this.#root.openDB({ name: 'numbers' });
    this.#passages = this.#root.openDB({ name: 'passages' });
    this.#ordinals = this.#root.openDB({ name: 'ordinals' });
    this.#holders = this.#root.openDB({ name: 'holders', dupSort: true, encoding: 'ordered-binary' });
    this.#files = this.#root.openDB({ name: 'files' });
    this.#origins = this.#root.openDB({ name: 'origins', dupSort: true, encoding: 'ordered-binary' });
    this.#changes = this.#root.openDB({ name: 'changes' });
    this.#vectors = this.#root.openDB({ name: 'vectors', encoding: 'binary' });
    this.#leftVectors = this.#root.openDB({ name: 'left-vectors', encoding: 'binary' });
    const { format, version, nextOrdinal, nextDocument, totals } = this.#read();
    const numbers = [
      version,
      nextOrdinal,
      nextDocument,
      ...Object.keys(EMPTY.totals).map((key) => totals?.[key as keyof CollectionTotals]),
    ];
    if (!numbers.every(Number.isSafeInteger)) throw unreadable(folder, 'its state is damaged');
    if (format !== FORMAT) {
      throw unreadable(folder, `it has format ${format}, and this version of Warmpath reads ${FORMAT}`);
    }
  }

  /**
   * How far the collection is. An index that was built at another version is out of date; all ordinals so far are below
   * `nextOrdinal`.
   */
  get position(): { readonly version: number; readonly nextOrdinal: number } {
    return this.#read();
  }

  get totals(): CollectionTotals {
    return this.#read().totals;
  }

  /** Whether the collection was deleted, replaced or cut off while it was open. */
  get isDeleted(): boolean {
    if (this.#isClosed || this.#wasCut) return true;
    const file = fileOf(this.folder);
    if (file?.ino !== this.#file.ino || file.size < this.#file.size) return true;
    return this.#read().deleted === true;
  }

  /**
   * A passage by its ordinal, under the first document that holds it and is as `where` says; undefined where there is
   * none. `sources` are all such documents, where there are several.
   */
  passage(ordinal: number, where: Where = {}): StoredPassage | undefined {
    if (this.#isClosed) return undefined;
    return this.#reading(() => {
      const record = this.#passageAt(ordinal);
      if (record === undefined) return undefined;
      const holders = [...this.#holders.getValues(ordinal, { limit: MAX_SOURCES })]
        .flatMap((number) => this.#documentAt(number) ?? [])
        .filter((holder) => matchesWhere(where, fieldsOf(holder)));
      const [document] = holders;
      if (document === undefined) return undefined;
      const { hash, title, content } = record;
      return {
        id: passageId(document.id, hash),
        ...(title !== undefined && { title }),
        content,
        metadata: {
          ...document.metadata,
          ...document.places?.[document.passages.indexOf(ordinal)],
          source: document.id,
          ...(holders.length > 1 && { sources: holders.map(({ id }) => id) }),
        },
      };
    });
  }

  /**
   * Which ordinals are in a document that is as `where` says. Remembers the answers for the last filters.
   * O(documents) after a change.
   */
  async matching(where: Where): Promise<(ordinal: number) => boolean> {
    const key = `${this.#read().edits} ${JSON.stringify(where)}`;
    let matching = this.#matching.get(key);
    if (matching === undefined) {
      if (this.#matching.size === MAX_FILTERS) this.#matching.delete(this.#matching.keys().next().value!);
      matching = this.#findMatching(where);
      matching.catch(() => this.#matching.delete(key));
      this.#matching.set(key, matching);
    }
    const ordinals = await matching;
    return (ordinal) => ordinals.has(ordinal);
  }

  async #findMatching(where: Where): Promise<ReadonlySet<number>> {
    const found = new Set<number>();
    let looked = 0;
    for (const document of this.documents()) {
      if (matchesWhere(where, fieldsOf(document))) for (const ordinal of document.passages) found.add(ordinal);
      // Others get their turn, and may delete the collection.
      if (++looked % LOOKED_AT_ONCE === 0) await new Promise(setImmediate);
    }
    return found;
  }

  /** The passages that stand before and behind one in its document. */
  neighbours(
    { title, content, metadata }: Omit<StoredPassage, 'metadata'> & Partial<StoredPassage>,
    count: number,
  ): { readonly before: StoredPassage[]; readonly after: StoredPassage[] } {
    const hash = passageHash({ ...(title !== undefined && { title }), content });
    const ordinal = this.#reading(() => this.#ordinals.get(hash));
    const source = String(metadata?.['source']);
    const passages = this.document(source)?.passages ?? [];
    const place = passages.indexOf(ordinal ?? Number.NaN);
    if (place < 0) return { before: [], after: [] };
    const at = (ordinals: readonly number[]) => ordinals.flatMap((each) => this.passage(each, { source }) ?? []);
    return {
      before: at(passages.slice(Math.max(0, place - count), place)),
      after: at(passages.slice(place + 1, place + 1 + count)),
    };
  }

  /** Ordinals and texts of passages as search reads them, title first. */
  *texts(from: number, to: number): Iterable<PassageText> {
    for (const { key, value } of this.#records(this.#passages.getRange({ start: from, end: to }))) {
      yield { ordinal: key, text: this.#reading(() => textOf(checked(value)!)) };
    }
  }

  document(id: string): DocumentRecord | undefined {
    return this.#reading(() => {
      const number = this.#numbers.get(hashOf(id));
      return number === undefined ? undefined : this.#documentAt(number);
    });
  }

  /** Documents in the order in which they first came in, from behind `after` on. */
  *documents(after?: string): Iterable<DocumentRecord> {
    const start = this.#reading(() => (after === undefined ? 0 : (this.#numbers.get(hashOf(after)) ?? 0) + 1));
    for (const { value } of this.#records(this.#documents.getRange({ start }))) {
      yield this.#reading(() => checkedDocument(value)!);
    }
  }

  /** The passages of a document, in the order of its text. */
  passagesOf(document: DocumentRecord): NewPassage[] {
    return this.#reading(() =>
      document.passages.flatMap((ordinal, position) => {
        const record = this.#passageAt(ordinal);
        if (record === undefined) return [];
        const { hash: _, ...passage } = record;
        return [{ ...passage, ...document.places?.[position] }];
      }),
    );
  }

  file(path: string): FileRecord | undefined {
    return this.#reading(() => this.#files.get(hashOf(path)));
  }

  *files(): Iterable<FileRecord> {
    for (const { value } of this.#records(this.#files.getRange())) yield value;
  }

  /** Ids of the documents that came from one origin. */
  *documentsFrom(origin: string): Iterable<string> {
    for (const number of this.#records(this.#origins.getValues(hashOf(origin)))) {
      const id = this.#documentAt(number)?.id;
      if (id !== undefined) yield id;
    }
  }

  /** What was changed from one version to another; undefined where that is no longer known. */
  changes(from: number, to: number): Change[] | undefined {
    const changes = [...this.#records(this.#changes.getRange({ start: from + 1, end: to + 1 }))].map(
      ({ value }) => value,
    );
    return changes.length === to - from ? changes : undefined;
  }

  /**
   * Writes edits in one transaction. Documents that are there already, word for word, are left alone; of others only
   * the passages that differ are written. Call only between `beginWriting` and `endWriting`.
   */
  async apply({ documents = [], removedDocuments = [], files = [], removedFiles = [] }: Edits): Promise<Applied> {
    const applied = { added: 0, changed: 0, unchanged: 0, removed: 0 };
    if (documents.length > 0) await requireRoom(this.folder);
    await this.#transaction(() => {
      const before = this.#read();
      if (before.deleted) throw new WarmpathError('WARMPATH_COLLECTION_NOT_FOUND', { detail: 'it was just deleted.' });
      const draft = { ...before, totals: { ...before.totals } };
      const removed: number[] = [];
      for (const id of removedDocuments) {
        const number = this.#numbers.get(hashOf(id));
        if (number === undefined) continue;
        applied.removed++;
        this.#removeDocument(number, draft, removed);
        this.#numbers.remove(hashOf(id));
      }
      for (const document of documents) applied[this.#putDocument(document, draft, removed)]++;
      for (const path of removedFiles) this.#files.remove(hashOf(path));
      for (const file of files) this.#files.put(hashOf(file.path), file);
      if (draft.nextOrdinal !== before.nextOrdinal || removed.length > 0) {
        draft.version++;
        this.#changes.put(draft.version, { from: before.nextOrdinal, to: draft.nextOrdinal, removed });
        this.#changes.remove(draft.version - KEPT_CHANGES);
      }
      this.#state.put('state', { ...draft, edits: (before.edits ?? 0) + 1 });
    });
    return applied;
  }

  /** How documents were cut at last; undefined where nobody said. */
  get chunks(): ChunkSettings | undefined {
    return this.#read().chunks;
  }

  /** Cuts documents this way from now on. Call only between `beginWriting` and `endWriting`. */
  async keepChunks(chunks: ChunkSettings): Promise<void> {
    const { tokens, overlap } = chunks;
    if (this.chunks?.tokens === tokens && this.chunks.overlap === overlap) return;
    await this.#transaction(() => {
      const before = this.#read();
      this.#state.put('state', { ...before, chunks: { tokens, overlap } });
    });
  }

  /** Whose vectors there are; undefined as long as there are none. */
  get embedding(): StoredEmbedding | undefined {
    return this.#read().embedding;
  }

  /** The vector of a passage; undefined where it has none, or has left. */
  vector(ordinal: number): Float32Array | undefined {
    const bytes = this.#isClosed ? undefined : this.#reading(() => this.#vectors.get(ordinal));
    return bytes === undefined || bytes.length === 0 ? undefined : vectorOf(bytes);
  }

  /** Vectors of the passages from one ordinal to below another. */
  *vectors(from: number, to: number): Iterable<{ readonly ordinal: number; readonly vector: Float32Array }> {
    for (const { key, value } of this.#records(this.#vectors.getRange({ start: from, end: to }))) {
      if (value.length > 0) yield { ordinal: key, vector: vectorOf(value) };
    }
  }

  /** Passages that have a vector, empty ones included. */
  get vectorCount(): number {
    this.#requireOpen();
    return (this.#vectors.getStats() as { readonly entryCount: number }).entryCount;
  }

  /** The first so many passages from an ordinal on that have no vector, as `texts` gives them. */
  async withoutVector(from: number, count: number): Promise<PassageText[]> {
    const found: PassageText[] = [];
    let looked = 0;
    for (const ordinal of this.#passages.getKeys({ start: from, end: this.#read().nextOrdinal })) {
      const record = this.#reading(() => (this.#vectors.doesExist(ordinal) ? undefined : this.#passageAt(ordinal)));
      if (record !== undefined) found.push({ ordinal, text: textOf(record) });
      if (found.length === count) break;
      // Many may have theirs: others get their turn, and may delete the collection.
      if (++looked % LOOKED_AT_ONCE !== 0) continue;
      await new Promise(setImmediate);
      void this.#read();
    }
    return found;
  }

  /**
   * Writes vectors of passages in one transaction; those of passages that have left meanwhile are dropped. Call only
   * between `beginWriting` and `endWriting`. Error: WARMPATH_COLLECTION_EMBEDDINGS.
   */
  async putVectors(vectors: ReadonlyMap<number, Float32Array>, embedding: StoredEmbedding): Promise<void> {
    await requireRoom(this.folder);
    await this.#transaction(() => {
      const before = this.#read();
      if (before.deleted) throw new WarmpathError('WARMPATH_COLLECTION_NOT_FOUND', { detail: 'it was just deleted.' });
      if (before.embedding !== undefined) checkEmbedding(before.embedding, embedding);
      const embedded: number[] = [];
      for (const [ordinal, { buffer, byteOffset, byteLength }] of vectors) {
        if (!this.#passages.doesExist(ordinal)) continue;
        this.#vectors.put(ordinal, Buffer.from(buffer, byteOffset, byteLength));
        embedded.push(ordinal);
      }
      const version = before.version + (embedded.length > 0 ? 1 : 0);
      if (version !== before.version) {
        this.#changes.put(version, { from: before.nextOrdinal, to: before.nextOrdinal, removed: [], embedded });
        this.#changes.remove(version - KEPT_CHANGES);
      }
      this.#state.put('state', { ...before, version, embedding });
    });
  }

  /** Drops vectors of passages that left and did not come back. Call at the end of a write. */
  async dropLeftVectors(): Promise<void> {
    if (this.#leftVectors.getKeysCount({ limit: 1 }) === 0) return;
    await this.#transaction(() => {
      for (const hash of [...this.#leftVectors.getKeys()]) this.#leftVectors.remove(hash);
    });
  }

  /** Waits until what was written would survive a loss of power, too. */
  async flushed(): Promise<void> {
    await this.#root.flushed;
  }

  /** Error: WARMPATH_COLLECTION_BUSY while another process, or another part of this one, writes. */
  async beginWriting(nowMs: number): Promise<void> {
    const holder = await this.#transaction(() => {
      const other = this.#state.get('writer') as WriterRecord | undefined;
      if (other !== undefined && isAlive(other, nowMs)) return other;
      this.#state.put('writer', thisProcess(nowMs));
      return undefined;
    });
    if (holder !== undefined) {
      const who = holder.host === hostname() ? `process ${holder.process}` : `a process on ${holder.host}`;
      throw new WarmpathError('WARMPATH_COLLECTION_BUSY', { detail: `${who} is writing to this collection.` });
    }
    // A renewal that fails is nothing against the write that fails with it.
    const renew = () =>
      this.#transaction(() => void this.#state.put('writer', thisProcess(Date.now()))).catch(() => {});
    this.#renewal = setInterval(renew, RENEWAL_MS).unref();
  }

  async endWriting(): Promise<void> {
    clearInterval(this.#renewal);
    this.#renewal = undefined;
    if (!this.#isClosed) await this.#transaction(() => void this.#state.remove('writer'));
  }

  /** Deletes the collection; whoever has it open finds it deleted. Begin to write before. */
  async delete(): Promise<void> {
    clearInterval(this.#renewal);
    await this.#transaction(() => {
      this.#state.put('state', { ...this.#read(), deleted: true });
    });
    await this.close();
    const gone = `${this.folder}.deleted-${process.pid}`;
    await rename(this.folder, gone);
    await rm(gone, { recursive: true, force: true });
  }

  /** Nobody writes any more. Searches under way end with WARMPATH_COLLECTION_NOT_FOUND. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    const isWhole = this.#isWhole();
    this.#isClosed = true;
    clearInterval(this.#renewal);
    // To close a map of a file that was cut off would end the process. It stays until the process ends.
    if (isWhole) await this.#root.close();
  }

  /**
   * Whether the file is as long as it was. A page that was cut off ends the process that reads it, so each operation
   * asks first. A file that is replaced keeps its pages as long as it is open.
   */
  #isWhole(): boolean {
    if (this.#wasCut) return false;
    const file = fileOf(this.folder);
    if (file?.ino !== this.#file.ino) return true;
    this.#wasCut = file.size < this.#file.size;
    this.#file = file;
    return !this.#wasCut;
  }

  #passageAt(ordinal: number): PassageRecord | undefined {
    return this.#reading(() => checked(this.#passages.get(ordinal)));
  }

  #documentAt(number: number): DocumentRecord | undefined {
    return this.#reading(() => checkedDocument(this.#documents.get(number)));
  }

  /** Reads records; one that makes no sense is an error of the collection. Errors: those of `#requireOpen`. */
  #reading<Result>(read: () => Result): Result {
    this.#requireOpen();
    try {
      return read();
    } catch (cause) {
      if (WarmpathError.isInstance(cause)) throw cause;
      throw unreadable(this.folder, `a record is damaged (${(cause as Error).message.slice(0, 100)})`, cause);
    }
  }

  /** What `#reading` does, for each record of a range. */
  *#records<Value>(range: Iterable<Value>): Iterable<Value> {
    const records = this.#reading(() => range[Symbol.iterator]());
    try {
      for (;;) {
        const next = this.#reading(() => records.next());
        if (next.done) return;
        yield next.value;
      }
    } finally {
      records.return?.();
    }
  }

  /** Call before anything is read. Errors: WARMPATH_COLLECTION_NOT_FOUND, _UNREADABLE. */
  #requireOpen(): void {
    if (this.#isClosed) throw new WarmpathError('WARMPATH_COLLECTION_NOT_FOUND', { detail: 'it was just deleted.' });
    if (!this.#isWhole()) throw unreadable(this.folder, 'data.mdb was cut off');
  }

  /** Done whole, or not at all. Error: WARMPATH_COLLECTION_UNWRITABLE where the disk does not take it. */
  async #transaction<Result>(change: () => Result): Promise<Result> {
    this.#requireOpen();
    try {
      return (await this.#root.childTransaction(change)) as Result;
    } catch (cause) {
      if (WarmpathError.isInstance(cause)) throw cause;
      // The database rejects this, too, and names no more than a number.
      (cause as { readonly commitError?: Promise<never> }).commitError?.catch(() => {});
      throw await unwritable(this.folder, cause);
    }
  }

  #read(): State {
    return this.#reading(() => this.#state.get('state') as State | undefined) ?? EMPTY;
  }

  #putDocument(document: NewDocument, draft: Draft, removed: number[]): 'added' | 'changed' | 'unchanged' {
    const { passages, ...fields } = document;
    const hashes = passages.map(passageHash);
    const hasPlaces = passages.some(({ pages, lines }) => pages !== undefined || lines !== undefined);
    const hash = hashOf(JSON.stringify([fields, hashes, ...(hasPlaces ? [passages.map(placeOf)] : [])]));
    const known = this.#numbers.get(hashOf(document.id));
    const before = known === undefined ? undefined : this.#documentAt(known);
    if (before?.hash === hash) return 'unchanged';
    const number = known ?? draft.nextDocument++;
    // The same passage twice in one document is one passage of it.
    const places = new Map<number, PassagePlace>();
    const held = new Set(before?.passages);
    for (const [position, passage] of passages.entries()) {
      const ordinal = this.#putPassage(hashes[position]!, passage, draft);
      if (places.has(ordinal)) continue;
      if (!held.has(ordinal)) this.#holders.put(ordinal, number);
      places.set(ordinal, placeOf(passage));
    }
    if (before === undefined) {
      this.#numbers.put(hashOf(document.id), number);
      draft.totals.documents++;
    } else {
      for (const ordinal of before.passages) {
        if (!places.has(ordinal)) this.#releasePassage(ordinal, number, draft, removed);
      }
      draft.totals.bytes -= before.bytes;
      draft.totals.duplicates -= before.passages.length;
    }
    if (before?.origin !== document.origin) {
      if (before !== undefined) this.#origins.remove(hashOf(before.origin), number);
      this.#origins.put(hashOf(document.origin), number);
    }
    draft.totals.bytes += document.bytes;
    draft.totals.duplicates += places.size;
    this.#documents.put(number, {
      ...fields,
      hash,
      passages: [...places.keys()],
      ...(hasPlaces && { places: [...places.values()] }),
    });
    return before === undefined ? 'added' : 'changed';
  }

  #removeDocument(number: number, draft: Draft, removed: number[]): void {
    const record = this.#documentAt(number);
    if (record === undefined) return;
    for (const ordinal of record.passages) this.#releasePassage(ordinal, number, draft, removed);
    this.#documents.remove(number);
    this.#origins.remove(hashOf(record.origin), number);
    draft.totals.documents--;
    draft.totals.bytes -= record.bytes;
    draft.totals.duplicates -= record.passages.length;
  }

  #putPassage(hash: string, { title, content, tokens }: NewPassage, draft: Draft): number {
    const known = this.#ordinals.get(hash);
    if (known !== undefined) return known;
    const ordinal = draft.nextOrdinal++;
    this.#ordinals.put(hash, ordinal);
    this.#passages.put(ordinal, { hash, ...(title !== undefined && { title }), content, tokens });
    const vector = this.#leftVectors.get(hash);
    if (vector !== undefined) {
      this.#vectors.put(ordinal, vector);
      this.#leftVectors.remove(hash);
    }
    draft.totals.passages++;
    draft.totals.duplicates--;
    draft.totals.tokens += tokens;
    return ordinal;
  }

  /** A document no longer holds a passage, which leaves with the last one. */
  #releasePassage(ordinal: number, number: number, draft: Draft, removed: number[]): void {
    this.#holders.remove(ordinal, number);
    if (this.#holders.getValuesCount(ordinal) > 0) return;
    const record = this.#passageAt(ordinal);
    if (record === undefined) return;
    this.#passages.remove(ordinal);
    this.#ordinals.remove(record.hash);
    const vector = this.#vectors.get(ordinal);
    if (vector !== undefined) {
      this.#leftVectors.put(record.hash, vector);
      this.#vectors.remove(ordinal);
    }
    draft.totals.passages--;
    draft.totals.duplicates++;
    draft.totals.tokens -= record.tokens;
    removed.push(ordinal);
  }
}

/** A passage whose hash is that of its words. @throws Error for any other. */
function checked(record: PassageRecord | undefined): PassageRecord | undefined {
  if (record === undefined || record.hash === passageHash(record)) return record;
  throw new Error('the words of a passage are not those that were stored');
}

function checkedDocument(record: DocumentRecord | undefined): DocumentRecord | undefined {
  if (record === undefined || (typeof record.id === 'string' && Array.isArray(record.passages))) return record;
  throw new Error('a document has no id or passages');
}

/** What a filter sees of a document. */
function fieldsOf({ id, metadata }: DocumentRecord): Readonly<Record<string, unknown>> {
  return { ...metadata, source: id };
}

/** The collection's file; undefined where there is none. */
function fileOf(folder: string): { readonly ino: number; readonly size: number } | undefined {
  return lstatSync(join(folder, 'data.mdb'), { throwIfNoEntry: false });
}

/** Names the collection as its tenant does, and its folder. */
function unreadable(folder: string, reason: string, cause?: unknown): WarmpathError {
  const name = basename(folder);
  const detail = `the collection in ${basename(dirname(folder))}/${name} cannot be read: ${reason}`;
  return new WarmpathError('WARMPATH_COLLECTION_UNREADABLE', { path: `collection ${name}`, detail, cause });
}

type Draft = { -readonly [Key in keyof Omit<State, 'totals'>]: State[Key] } & {
  totals: { -readonly [Key in keyof CollectionTotals]: number };
};

/** `document#hash`: the same as long as the document has the passage, wherever it stands in it. */
function passageId(document: string, hash: string): string {
  return `${document}#${hash.slice(0, 10)}`;
}

/**
 * Refuses vectors that cannot be compared with those that are stored.
 * @throws WARMPATH_COLLECTION_EMBEDDINGS
 */
export function checkEmbedding(
  stored: StoredEmbedding,
  { model, dimension = stored.dimension }: { readonly model: string; readonly dimension?: number | undefined },
): void {
  if (model === stored.model && (dimension === stored.dimension || stored.dimension === 0)) return;
  const detail = `it has vectors of ${stored.dimension} dimensions by ${stored.model}, and not of ${dimension} by ${model}.`;
  throw new WarmpathError('WARMPATH_COLLECTION_EMBEDDINGS', { detail });
}

/** A copy: what the database lends may be overwritten, and need not lie at a multiple of four. */
function vectorOf(bytes: Buffer): Float32Array {
  const { buffer, byteOffset, byteLength } = bytes;
  return new Float32Array(buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer);
}
