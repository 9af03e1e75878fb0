// Files: what the engine keeps on disk, the indexes of a collection. What stands behind a checksum of
// an index is fuzzed twice: as it is, and with its checksums put right, as if it had been written so.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import {
  decodeHead,
  encodeHead,
  PREFIX_BYTES as STATE_PREFIX,
  stateOffset,
} from '../../../packages/engine/dist/store/stored-state.js';
import { loadPostings } from '../../../packages/retrieval/dist/lexical/postings-file.js';

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
      Buffer.from(
        `${JSON.stringify({ magic: 'warmpath-postings-2', version: 1, terms, languages: ['english'], sizes, sum })}\n`,
      ),
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
