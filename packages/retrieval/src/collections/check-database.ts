import { closeSync, fstatSync, lstatSync, openSync, readSync, type Stats } from 'node:fs';
import { join } from 'node:path';
import { Turn } from '../event-loop-turn.js';

// LMDB maps its file into memory and trusts what it finds there: a damaged page ends the process. These checks read the
// file instead. Layout: `MDB_page`, `MDB_node`, `MDB_db` and `MDB_meta` in mdb.c of the `lmdb` package, 64 bits.

const MAGIC = 0xbeefc0de;
const FORMAT = 2;
const HEADER_BYTES = 24;
const NODE_BYTES = 8;
const TREE_BYTES = 48;
const META_BYTES = 144;
/** Where the records of the two trees begin in a meta page: that of free pages, and that of the databases. */
const FREE_TREE_AT = HEADER_BYTES + 24;
const MAIN_TREE_AT = FREE_TREE_AT + TREE_BYTES;
/** No root: an empty tree. */
const NO_PAGE = 2 ** 64;
const MAX_DEPTH = 32;
/** Largest map that is asked of the kernel. */
const MAX_MAP_BYTES = 2 ** 46;

const BRANCH = 0x01;
const LEAF = 0x02;
const OVERFLOW = 0x04;
const META = 0x08;
const SUB_PAGE = 0x40;

const BIG_DATA = 0x01;
const SUB_DATA = 0x02;
const DUPLICATES = 0x04;

/** Flags of a tree: it sorts duplicates; keys are integers. */
const DUPSORT = 0x04;
const INTEGER_KEYS = 0x08;
/** Flags of the tree of free pages that name the environment's mode; `lmdb` sets one of them itself. */
const OVERLAPPING_SYNC = 0x1000;
/** `lmdb` sets this on databases that it made. */
const LMDB_JS = 0x100;

interface Meta {
  readonly pageSize: number;
  readonly lastPage: number;
  readonly transaction: number;
  readonly free: Tree;
  readonly main: Tree;
}

interface Tree {
  readonly flags: number;
  readonly depth: number;
  readonly root: number;
}

/**
 * Checks what LMDB reads when it opens a database: that the files are files, and the two meta pages.
 *
 * @throws Error with the reason.
 */
export function checkMetaPages(folder: string): void {
  const lock = statOf(join(folder, 'lock.mdb'));
  if (lock !== undefined && !lock.isFile()) throw new Error('lock.mdb is not a file');
  const data = statOf(join(folder, 'data.mdb'));
  if (data === undefined) return;
  if (!data.isFile()) throw new Error('data.mdb is not a file');
  const file = openSync(join(folder, 'data.mdb'), 'r');
  try {
    readMeta(file);
  } finally {
    closeSync(file);
  }
}

function statOf(path: string): Stats | undefined {
  return lstatSync(path, { throwIfNoEntry: false });
}

/**
 * Checks every page that the latest transaction can reach, and the list of free pages. Hold a read transaction
 * meanwhile: then other processes overwrite none of these pages. Costs one read of the file.
 *
 * @throws Error with the reason.
 */
export async function checkPages(folder: string): Promise<void> {
  const file = openSync(join(folder, 'data.mdb'), 'r');
  try {
    await new PageCheck(file).run();
  } finally {
    closeSync(file);
  }
}

/** The newer one of the two meta pages. */
function readMeta(file: number): Meta {
  const { size } = fstatSync(file);
  if (size === 0) throw new Error('data.mdb is empty');
  const first = metaAt(file, 0);
  const second = metaAt(file, first.pageSize);
  if (second.pageSize !== first.pageSize) throw damaged('its meta pages differ in page size');
  return first.transaction >= second.transaction ? first : second;
}

function metaAt(file: number, at: number): Meta {
  const page = Buffer.alloc(HEADER_BYTES + META_BYTES);
  const length = readSync(file, page, 0, page.length, at);
  if (at === 0 && page.readUInt32LE(HEADER_BYTES) !== MAGIC) throw new Error('data.mdb is no database');
  if (length < page.length) throw damaged('it was cut off within its meta pages');
  const pageSize = page.readUInt32LE(FREE_TREE_AT);
  const lastPage = unsigned(page, MAIN_TREE_AT + TREE_BYTES);
  const free = treeAt(page, FREE_TREE_AT);
  const main = treeAt(page, MAIN_TREE_AT);
  const isPageSize = pageSize >= 512 && pageSize <= 65_536 && (pageSize & (pageSize - 1)) === 0;
  const isSound =
    page.readUInt32LE(HEADER_BYTES) === MAGIC &&
    page.readUInt16LE(18) === META &&
    (page.readUInt32LE(HEADER_BYTES + 4) & 0xffff) === FORMAT &&
    unsigned(page, HEADER_BYTES + 8) === 0 &&
    unsigned(page, HEADER_BYTES + 16) <= MAX_MAP_BYTES &&
    isPageSize &&
    lastPage >= 1 &&
    lastPage * pageSize <= MAX_MAP_BYTES &&
    (free.flags & ~OVERLAPPING_SYNC) === INTEGER_KEYS &&
    (main.flags & ~LMDB_JS) === 0;
  if (!isSound) throw damaged(`its meta page ${at === 0 ? 0 : 1} makes no sense`);
  return { pageSize, lastPage, transaction: unsigned(page, MAIN_TREE_AT + TREE_BYTES + 8), free, main };
}

function treeAt(bytes: Buffer, at: number): Tree {
  return { flags: bytes.readUInt16LE(at + 4), depth: bytes.readUInt16LE(at + 6), root: unsigned(bytes, at + 40) };
}

/** A number of 64 bits; exact up to 2^53, which no page number of a file reaches. */
function unsigned(bytes: Buffer, at: number): number {
  return bytes.readUInt32LE(at) + bytes.readUInt32LE(at + 4) * 2 ** 32;
}

function damaged(reason: string): Error {
  return new Error(`data.mdb is damaged: ${reason}`);
}

class PageCheck {
  readonly #file: number;
  readonly #meta: Meta;
  readonly #size: number;
  readonly #page: Buffer;
  readonly #header = Buffer.alloc(HEADER_BYTES);
  /** A bit a page: whether it was reached. */
  readonly #reached: Uint8Array;
  readonly #turn = new Turn();

  constructor(file: number) {
    this.#file = file;
    this.#meta = readMeta(file);
    this.#size = fstatSync(file).size;
    this.#page = Buffer.alloc(this.#meta.pageSize);
    this.#reached = new Uint8Array(Math.ceil(Math.min(this.#meta.lastPage + 1, this.#size / this.#meta.pageSize) / 8));
  }

  async run(): Promise<void> {
    const { free, main } = this.#meta;
    const lists: Buffer[] = [];
    const databases: Tree[] = [];
    await this.#walk(free, (key, list) => {
      if (key.length !== 8 || unsigned(key, 0) === 0) throw damaged('a list of free pages has no number');
      lists.push(list());
    });
    await this.#walk(main, (_, data, flags) => {
      if (flags === SUB_DATA) databases.push(subTree(data()));
    });
    for (const tree of databases) {
      if ((tree.flags & ~(DUPSORT | LMDB_JS)) !== 0) throw damaged('a database in it has unknown flags');
      await this.#walk(tree, () => {});
    }
    for (const list of lists) this.#checkFreePages(list);
  }

  /** Visits the leaves of a tree. `data` gives a copy of what stands at the key. */
  async #walk({ flags, depth, root }: Tree, visit: (key: Buffer, data: () => Buffer, flags: number) => void) {
    if (root === NO_PAGE && depth === 0) return;
    if (depth < 1 || depth > MAX_DEPTH) throw damaged('a tree in it has an impossible depth');
    const isFreeTree = (flags & INTEGER_KEYS) !== 0;
    const duplicates: Tree[] = [];
    const open = [{ page: root, depth }];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      if (this.#turn.isOver) await this.#turn.next();
      const isLeaf = next.depth === 1;
      const page = this.#read(next.page, isLeaf ? LEAF : BRANCH);
      const nodes = nodesOf(page, next.page);
      // A branch of one leads to an assertion of LMDB, but in the tree of free pages.
      if (!isLeaf && nodes.length < (isFreeTree ? 1 : 2)) throw damaged(`page ${next.page} has too few branches`);
      for (const at of nodes) {
        const [low, high] = [page.readUInt16LE(at), page.readUInt16LE(at + 2)];
        const nodeFlags = page.readUInt16LE(at + 4);
        const dataAt = at + NODE_BYTES + page.readUInt16LE(at + 6);
        if (dataAt > page.length) throw damaged(`page ${next.page} has a key that does not end`);
        if (!isLeaf) {
          open.push({ page: low + high * 2 ** 16 + nodeFlags * 2 ** 32, depth: next.depth - 1 });
          continue;
        }
        const size = low + high * 2 ** 16;
        const length = nodeFlags === BIG_DATA ? HEADER_BYTES : size;
        if (dataAt === at + NODE_BYTES) throw damaged(`page ${next.page} has an empty key`);
        if (dataAt + length > page.length) throw damaged(`page ${next.page} has a value that does not end`);
        const stored = page.subarray(dataAt, dataAt + length);
        const isSorted = (flags & DUPSORT) !== 0;
        if (nodeFlags === BIG_DATA && !isSorted) this.#reachOverflow(stored, size);
        else if (nodeFlags === (SUB_DATA | DUPLICATES) && isSorted) duplicates.push(subTree(stored));
        else if (nodeFlags === DUPLICATES && isSorted) checkSubPage(stored, next.page);
        else if (nodeFlags !== 0 && nodeFlags !== SUB_DATA) throw damaged(`page ${next.page} has a value of no kind`);
        const key = page.subarray(at + NODE_BYTES, dataAt);
        visit(key, () => (nodeFlags === BIG_DATA ? this.#overflow(stored, size) : Buffer.from(stored)), nodeFlags);
      }
    }
    // Values of one key that are too many for its page are keys of a tree of their own.
    for (const tree of duplicates) await this.#walk({ ...tree, flags: 0 }, () => {});
  }

  #read(number: number, kind: number): Buffer {
    this.#reach(number, 1);
    const { pageSize, transaction } = this.#meta;
    const page = this.#page;
    if (readSync(this.#file, page, 0, pageSize, number * pageSize) < pageSize) throw cutAt(number);
    // A page of a later transaction counts as one that may be written to in place.
    if (unsigned(page, 0) !== number || unsigned(page, 8) > transaction || page.readUInt16LE(18) !== kind) {
      throw damaged(`page ${number} is not what it should be`);
    }
    return page;
  }

  #reach(number: number, count: number): void {
    const { pageSize, lastPage } = this.#meta;
    if (number < 2 || count < 1 || number + count - 1 > lastPage) throw damaged(`page ${number} is out of range`);
    if ((number + count) * pageSize > this.#size) throw cutAt(number);
    for (let page = number; page < number + count; page++) {
      if (this.#isReached(page)) throw damaged(`page ${page} is in two places`);
      this.#reached[page >> 3]! |= 1 << (page & 7);
    }
  }

  #isReached(page: number): boolean {
    return ((this.#reached[page >> 3] ?? 0) & (1 << (page & 7))) !== 0;
  }

  #reachOverflow(reference: Buffer, size: number): void {
    const { pageSize, transaction } = this.#meta;
    const [number, count] = [unsigned(reference, 0), unsigned(reference, 16)];
    if (count !== Math.floor((HEADER_BYTES - 1 + size) / pageSize) + 1) {
      throw damaged(`page ${number} does not hold the value that it should`);
    }
    this.#reach(number, count);
    const header = this.#header;
    if (readSync(this.#file, header, 0, HEADER_BYTES, number * pageSize) < HEADER_BYTES) throw cutAt(number);
    const isSound =
      unsigned(header, 0) === number &&
      unsigned(header, 8) <= transaction &&
      header.readUInt16LE(18) === OVERFLOW &&
      header.readUInt32LE(20) === count;
    if (!isSound) throw damaged(`page ${number} is not what it should be`);
  }

  #overflow(reference: Buffer, size: number): Buffer {
    const bytes = Buffer.alloc(size);
    const number = unsigned(reference, 0);
    if (readSync(this.#file, bytes, 0, size, number * this.#meta.pageSize + HEADER_BYTES) < size) throw cutAt(number);
    return bytes;
  }

  /** Pages that writes may take: none of them is in use. A number below zero is the length of the run that follows. */
  #checkFreePages(list: Buffer): void {
    const count = list.length < 8 ? -1 : unsigned(list, 0);
    if (count < 0 || (count + 1) * 8 > list.length) throw damaged('a list of free pages does not end');
    for (let at = 8; at <= count * 8; at += 8) {
      const entry = list.readBigInt64LE(at);
      if (entry === 0n) continue;
      const run = entry < 0n ? Number(-entry) : 1;
      if (entry < 0n) at += 8;
      const number = entry > 0n ? Number(entry) : at <= count * 8 ? unsigned(list, at) : 0;
      if (number < 2 || number + run - 1 > this.#meta.lastPage) throw damaged('a free page is out of range');
      for (let page = number; page < number + run; page++) {
        if (this.#isReached(page)) throw damaged(`page ${page} is free and in use`);
      }
    }
  }
}

function subTree(record: Buffer): Tree {
  if (record.length !== TREE_BYTES) throw damaged('a tree in it has no record');
  return treeAt(record, 0);
}

/** Where the nodes of a page begin. */
function nodesOf(page: Buffer, number: number): number[] {
  const [lower, upper] = [page.readUInt16LE(20), page.readUInt16LE(22)];
  const room = page.length - HEADER_BYTES;
  if (lower % 2 !== 0 || lower > upper || upper > room) throw damaged(`page ${number} has no bounds`);
  return Array.from({ length: lower / 2 }, (_, i) => {
    const at = page.readUInt16LE(HEADER_BYTES + 2 * i);
    if (at < upper || at % 2 !== 0 || at + NODE_BYTES > room) throw damaged(`page ${number} has a node out of range`);
    return HEADER_BYTES + at;
  });
}

/** The values of one key, in a page within the page of the key. */
function checkSubPage(page: Buffer, number: number): void {
  if (page.length < HEADER_BYTES || page.readUInt16LE(18) !== (LEAF | SUB_PAGE)) {
    throw damaged(`page ${number} has values of no kind`);
  }
  for (const at of nodesOf(page, number)) {
    const isSound = page.readUInt32LE(at) === 0 && page.readUInt16LE(at + 4) === 0;
    if (!isSound || at + NODE_BYTES + page.readUInt16LE(at + 6) > page.length) {
      throw damaged(`page ${number} has a value that does not end`);
    }
  }
}

function cutAt(page: number): Error {
  return damaged(`it was cut off: page ${page} is missing`);
}
