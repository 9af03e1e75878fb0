import { open, readFile, rename, rm } from 'node:fs/promises';
import { crc32 } from 'node:zlib';
import type { Postings } from './postings.js';

/** Names the analysis of the texts, too: postings of another one are built anew. */
const MAGIC = 'warmpath-postings-2';
/** Bytes that are summed or written at a time, so that nothing else waits long. */
const STEP = 1 << 22;

/** Postings of one version of a collection. */
interface SavedPostings {
  readonly version: number;
  readonly postings: Postings;
}

/**
 * Writes postings to a file that holds either all of them or what it held before: a line of JSON that says what stands
 * where, then the terms, then the arrays.
 */
export async function savePostings(file: string, { version, postings }: SavedPostings): Promise<void> {
  const parts = [
    Buffer.from([...postings.terms.keys()].join('\n'), 'utf8'),
    bytesOf(postings.starts),
    bytesOf(postings.documents),
    bytesOf(postings.frequencies),
    bytesOf(postings.ordinals),
    bytesOf(postings.lengths),
  ];
  let sum = 0;
  for (const part of parts) sum = await checksum(part, sum);
  const sizes = parts.map(({ length }) => length);
  const head = { magic: MAGIC, version, terms: postings.terms.size, languages: [...postings.languages], sizes, sum };
  const draft = `${file}.${process.pid}.part`;
  try {
    const handle = await open(draft, 'w', 0o600);
    try {
      await handle.write(`${JSON.stringify(head)}\n`);
      for (const part of parts) {
        for (let from = 0; from < part.length; from += STEP) await handle.write(part.subarray(from, from + STEP));
      }
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(draft, file);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}

/** The postings that a file holds; undefined where there is none, or one that is damaged: then they are built anew. */
export async function loadPostings(file: string): Promise<SavedPostings | undefined> {
  try {
    const bytes = await readFile(file);
    const end = bytes.indexOf(10);
    const head = JSON.parse(bytes.toString('utf8', 0, end)) as Record<string, unknown> & { sizes: number[] };
    if (head['magic'] !== MAGIC) return undefined;
    const parts: Buffer[] = [];
    let at = end + 1;
    let sum = 0;
    for (const size of head.sizes) {
      const part = bytes.subarray(at, at + size);
      if (part.length !== size) return undefined;
      sum = await checksum(part, sum);
      parts.push(part);
      at += size;
    }
    if (sum !== head['sum']) return undefined;
    const words = head['terms'] === 0 ? [] : parts[0]!.toString('utf8').split('\n');
    const terms = new Map<string, number>();
    for (const word of words) terms.set(word, terms.size);
    const postings = {
      terms,
      starts: new Uint32Array(aligned(parts[1]!)),
      documents: new Uint32Array(aligned(parts[2]!)),
      frequencies: new Uint16Array(aligned(parts[3]!)),
      ordinals: new Uint32Array(aligned(parts[4]!)),
      lengths: new Uint32Array(aligned(parts[5]!)),
      languages: new Set(head['languages'] as string[]),
    };
    return terms.size === head['terms'] ? { version: head['version'] as number, postings } : undefined;
  } catch {
    return undefined;
  }
}

function bytesOf({ buffer, byteOffset, byteLength }: Uint32Array | Uint16Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** A copy that begins where an array of numbers may. */
function aligned(part: Buffer): ArrayBuffer {
  return part.buffer.slice(part.byteOffset, part.byteOffset + part.byteLength) as ArrayBuffer;
}

async function checksum(bytes: Buffer, before: number): Promise<number> {
  let sum = before;
  for (let from = 0; from < bytes.length; from += STEP) {
    sum = crc32(bytes.subarray(from, from + STEP), sum);
    await new Promise(setImmediate);
  }
  return sum;
}
