import { crc32 } from 'node:zlib';

/**
 * The file of a stored state:
 *
 *     0   8 bytes  WPKVSTA3
 *     8   u32      bytes of the head, little-endian
 *     12  u32      CRC-32 of the head
 *     16           the head: a StateHead in JSON
 *                  the state, as the engine's library wrote it
 *
 * The head has all tokens before the state too, so that the file itself says what the state depends on.
 */
const MAGIC = Buffer.from('WPKVSTA3');
/** Bytes before the head. */
export const PREFIX_BYTES = 16;

/** What computed a state: it means nothing to anything else. */
export interface StateIdentity {
  /** The model's fingerprint, which covers the weights of all its files. */
  readonly model: string;
  /** The library and its exact version. */
  readonly library: string;
  /** Types of the keys and values in the cells. */
  readonly cells: string;
}

/** A node's cells with everything that says what they are. */
export interface StateRecord {
  /** The `cache_salt` of the requests that may use it; empty for those without one. */
  readonly salt: string;
  /** All tokens from the start of the prompt to the end of the state. */
  readonly tokens: readonly number[];
  /** Position of the first token whose cells are in the state; the last is `tokens.length - 1`. */
  readonly from: number;
  readonly state: Uint8Array;
  /** CRC-32 of the state, taken when it left the cells. */
  readonly checksum: number;
  /** How often it was used when it was written, as a replacement policy counts. */
  readonly uses: number;
}

/** What a file says of itself before its state. */
export interface StateHead extends Omit<StateRecord, 'state'> {
  readonly identity: StateIdentity;
  readonly stateBytes: number;
}

/** Everything of a record's file that stands before the state. Cost: O(tokens). */
export function encodeHead({ state, ...record }: StateRecord, identity: StateIdentity): Uint8Array {
  const head = Buffer.from(JSON.stringify({ identity, ...record, stateBytes: state.length } satisfies StateHead));
  const prefix = Buffer.alloc(PREFIX_BYTES);
  MAGIC.copy(prefix);
  prefix.writeUInt32LE(head.length, 8);
  prefix.writeUInt32LE(crc32(head), 12);
  return Buffer.concat([prefix, head]);
}

/** Where the state begins, by a file's first {@link PREFIX_BYTES}; `undefined` when these begin no such file. */
export function stateOffset(prefix: Buffer): number | undefined {
  const isOurs = prefix.length === PREFIX_BYTES && prefix.subarray(0, MAGIC.length).equals(MAGIC);
  const headBytes = isOurs ? prefix.readUInt32LE(8) : 0;
  // Zeros have the checksum of an empty head.
  return headBytes > 0 ? PREFIX_BYTES + headBytes : undefined;
}

/** Reads a head; `undefined` when it is damaged. Cost: O(tokens). */
export function decodeHead(prefix: Buffer, head: Buffer): StateHead | undefined {
  // What has its checksum was written by this program.
  return crc32(head) === prefix.readUInt32LE(12) ? (JSON.parse(head.toString()) as StateHead) : undefined;
}
