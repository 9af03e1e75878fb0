// Files: what the engine keeps on disk, the indexes of a collection. What stands behind a checksum of
// an index is fuzzed twice: as it is, and with its checksums put right, as if it had been written so.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { WarmpathError } from '@warmpath/core';
import {
  decodeHead,
  encodeHead,
  PREFIX_BYTES as STATE_PREFIX,
  stateOffset,
} from '../../../packages/engine/dist/store/stored-state.js';
import { loadPostings } from '../../../packages/retrieval/dist/lexical/postings-file.js';
import { readVectorIndex } from '../../../packages/retrieval/dist/vector/index-file.js';

let folder;

/** A file with these bytes; the next call overwrites it. */
function fileOf(bytes) {
  if (folder === undefined) {
    folder = mkdtempSync(join(tmpdir(), 'warmpath-fuzz-'));
    process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  }
  const file = join(folder, 'input');
  writeFileSync(file, bytes);
  return file;
}

/** What a reader answers; `undefined` where it refuses with this code. */
async function refusable(promise, code) {
  try {
    return await promise;
  } catch (error) {
    if (WarmpathError.isInstance(error) && error.code === code) return undefined;
    throw error;
  }
}

export function engineState() {
  const identity = { model: 'm', library: 'l', cells: 'f16' };
  const record = { salt: '', tokens: [1, 2, 3], from: 1, state: new Uint8Array(9), checksum: 7, uses: 2 };
  return {
    seeds: [encodeHead(record, identity), encodeHead({ ...record, salt: 's', tokens: [9, -1] }, identity)],
    run(bytes) {
      const prefix = bytes.subarray(0, STATE_PREFIX);
      const end = stateOffset(prefix);
      const head = end === undefined ? undefined : decodeHead(prefix, bytes.subarray(STATE_PREFIX, end));
      if (head === undefined) return;
      const { tokens, from, stateBytes } = head;
      assert(from >= 0 && from < tokens.length && stateBytes >= 0);
      assert([head.salt, ...Object.values(head.identity)].every((part) => typeof part === 'string'));
    },
  };
}

export function postings() {
  const parts = ['a\nb', ints(0, 1, 3), ints(0, 0, 1), Buffer.from([1, 0, 1, 0, 2, 0]), ints(1, 2), ints(3, 4)];
  const file = (terms, list) => {
    const sections = list.map((part) => Buffer.from(part));
    const sizes = sections.map(({ length }) => length);
    const sum = crc32(Buffer.concat(sections));
    return Buffer.concat([
      Buffer.from(`${JSON.stringify({ magic: 'warmpath-postings-1', version: 1, terms, sizes, sum })}\n`),
      ...sections,
    ]);
  };
  return {
    seeds: [file(2, parts), file(0, ['', ints(0), '', '', '', ''])],
    async run(bytes) {
      await checkPostings(bytes);
      const end = bytes.indexOf(10);
      const head = parsed(bytes.subarray(0, Math.max(0, end)));
      if (head === undefined) return;
      await checkPostings(
        Buffer.concat([
          Buffer.from(`${JSON.stringify({ ...head, sum: crc32(bytes.subarray(end + 1)) })}\n`),
          bytes.subarray(end + 1),
        ]),
      );
    },
  };
}

async function checkPostings(bytes) {
  // What is in a file with its checksum right was written by Warmpath, and is believed.
  const loaded = await loadPostings(fileOf(bytes));
  if (loaded !== undefined) assert(loaded.postings.terms instanceof Map);
}

export function vectorIndex() {
  const options = { dimension: 4, metric: 'dot', embedder: 'e' };
  const rows = Buffer.from(Float32Array.of(1, 0, 0, 0, 0, 1, 0, 0).buffer);
  const ids = '["a","b"]\n';
  const exact = indexFile(
    { options, kind: 'exact', count: 2, numbers: {} },
    { rows, deleted: Buffer.from([0, 1]), ids },
  );
  const graph = indexFile(
    { options, kind: 'hnsw', count: 2, numbers: { links: 2, buildBreadth: 4, seed: 1, count: 2, entry: 0 } },
    {
      ...{ rows, deleted: Buffer.from([0, 0]), ids, lowest: ints(1, 1, 0, 0, 0, 1, 0, 0, 0, 0) },
      ...{ levels: Buffer.from([0, 0]), upperAt: ints(0, 0), upper: Buffer.alloc(0), twins: ints(-1, -1) },
    },
  );
  const lists = indexFile(
    { options, kind: 'ivf', count: 2, numbers: {} },
    { rows, deleted: Buffer.from([0, 0]), ids, centroids: rows, listOf: ints(0, 1) },
  );
  return {
    seeds: [exact, graph, lists],
    async run(bytes) {
      for (const file of [bytes, sealedIndex(bytes)]) {
        const index = await refusable(readVectorIndex(fileOf(file)), 'WARMPATH_INDEX_FILE');
        if (index !== undefined) assert(index.size >= 0 && index.dimension >= 1);
      }
    },
  };
}

const PREFIX_BYTES = 16;

function indexFile(header, sections) {
  const parts = Object.entries(sections).map(([name, part]) => ({ name, bytes: Buffer.from(part) }));
  const listed = parts.map(({ name, bytes }) => ({ name, bytes: bytes.length }));
  const json = Buffer.from(JSON.stringify({ endianness: 'LE', ...header, sections: listed }));
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.write('WARMVEC1');
  prefix.writeUInt32LE(json.length, 8);
  return sealedIndex(Buffer.concat([prefix, json, ...parts.flatMap(({ bytes }) => [bytes, Buffer.alloc(4)])]));
}

/** The file with every checksum right: the header's length too, as far as the header can be found. */
function sealedIndex(bytes) {
  if (bytes.length < PREFIX_BYTES) return bytes;
  const file = Buffer.from(bytes);
  const length = file.readUInt32LE(8);
  const json = file.subarray(PREFIX_BYTES, PREFIX_BYTES + length);
  file.writeUInt32LE(crc32(json), 12);
  const header = parsed(json);
  let at = PREFIX_BYTES + length;
  for (const section of Array.isArray(header?.sections) ? header.sections : []) {
    const end = at + Number(section?.bytes);
    if (!(end >= at) || end + 4 > file.length) break;
    file.writeUInt32LE(crc32(file.subarray(at, end)), end);
    at = end + 4;
  }
  return file;
}

function ints(...values) {
  return Buffer.from(Int32Array.from(values).buffer);
}

function parsed(bytes) {
  try {
    const value = JSON.parse(bytes.toString());
    return typeof value === 'object' ? (value ?? undefined) : undefined;
  } catch {
    return undefined;
  }
}
