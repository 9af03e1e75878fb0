import { crc32 } from 'node:zlib';

/**
 * The file of a stored state, little-endian, no padding:
 *
 *     0   8 bytes  WPKVSTAT
 *     8   u32      version of this layout = 2
 *     12  u32      bytes of the description
 *     16  u32      tokens
 *     20  u64      bytes of the state
 *     28  u32      CRC-32 of the state
 *     32  u32      CRC-32 of the bytes before this field, of the description and of the tokens
 *     36  u32      uses that counted when the state was last used; written anew in place
 *     40           the description: JSON in UTF-8
 *                  the tokens: i32 each, all from the start of the prompt to the end of the state
 *                  the state, as the engine's library wrote it
 *
 * All tokens before the state stand in the file too, so that it says itself what it depends on: four bytes a token,
 * where a token's cells take a thousand and more.
 */
const MAGIC = new TextEncoder().encode('WPKVSTAT');
const LAYOUT_VERSION = 2;
/** Bytes before the description. */
export const FIXED_BYTES = 40;
const CHECKED_FIXED_BYTES = 32;
/** Where the uses stand. */
export const USES_AT = 36;
const TOKEN_BYTES = 4;
/** No description is this long; a length beyond it is damage, and must not be allocated. */
const MAX_DESCRIPTION_BYTES = 65_536;
const MAX_TOKENS = 16_777_216;

/** What computed a state: it means nothing to anything else. */
export interface StateIdentity {
  /**
   * The model's fingerprint, which covers the weights of all its files; for what does not outlive the engine, whatever
   * tells these files from any other on this machine.
   */
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
  /** How often it was used, as a replacement policy counts. */
  readonly uses: number;
}

/** What a file says of itself before its state. */
export interface StateHead {
  readonly identity: StateIdentity;
  readonly salt: string;
  readonly tokens: readonly number[];
  readonly from: number;
  readonly stateBytes: number;
  readonly checksum: number;
  readonly uses: number;
  /** Where the state begins in the file. */
  readonly stateAt: number;
}

/** Bytes of the two parts of a head that vary. */
export interface HeadSize {
  readonly descriptionBytes: number;
  readonly tokenCount: number;
}

/** What of a record decides how large its file is. */
export type RecordShape = Pick<StateRecord, 'salt' | 'tokens' | 'from' | 'state'>;

/** Bytes of a record's file. Cost: O(1). */
export function recordBytes(shape: RecordShape, identity: StateIdentity): number {
  return FIXED_BYTES + descriptionOf(shape, identity).length + TOKEN_BYTES * shape.tokens.length + shape.state.length;
}

/** Everything of a record's file that stands before the state. Cost: O(tokens). */
export function encodeHead(record: StateRecord, identity: StateIdentity): Uint8Array {
  const { tokens, state, checksum, uses } = record;
  const description = descriptionOf(record, identity);
  const head = new Uint8Array(FIXED_BYTES + description.length + TOKEN_BYTES * tokens.length);
  const view = new DataView(head.buffer);
  head.set(MAGIC);
  view.setUint32(8, LAYOUT_VERSION, true);
  view.setUint32(12, description.length, true);
  view.setUint32(16, tokens.length, true);
  view.setBigUint64(20, BigInt(state.length), true);
  view.setUint32(28, checksum, true);
  view.setUint32(USES_AT, uses, true);
  head.set(description, FIXED_BYTES);
  const tokensAt = FIXED_BYTES + description.length;
  for (const [index, token] of tokens.entries()) {
    view.setInt32(tokensAt + TOKEN_BYTES * index, token, true);
  }
  view.setUint32(CHECKED_FIXED_BYTES, headChecksum(head), true);
  return head;
}

/**
 * How long a head is, by its first {@link FIXED_BYTES} bytes.
 *
 * @returns `undefined` when these bytes begin no file of this layout.
 */
export function headSize(fixed: Uint8Array): HeadSize | undefined {
  if (fixed.length < FIXED_BYTES || !MAGIC.every((byte, index) => fixed[index] === byte)) {
    return undefined;
  }
  const view = viewOf(fixed);
  const descriptionBytes = view.getUint32(12, true);
  const tokenCount = view.getUint32(16, true);
  const isSane = descriptionBytes <= MAX_DESCRIPTION_BYTES && tokenCount <= MAX_TOKENS;
  return view.getUint32(8, true) === LAYOUT_VERSION && isSane ? { descriptionBytes, tokenCount } : undefined;
}

/** Bytes of a whole head. */
export function headBytes({ descriptionBytes, tokenCount }: HeadSize): number {
  return FIXED_BYTES + descriptionBytes + TOKEN_BYTES * tokenCount;
}

/**
 * Reads a head. Cost: O(tokens).
 *
 * @param head As many bytes as {@link headBytes} says, or more.
 * @returns `undefined` when they are damaged or no head of this layout.
 */
export function decodeHead(head: Uint8Array): StateHead | undefined {
  const size = headSize(head);
  if (size === undefined || head.length < headBytes(size)) {
    return undefined;
  }
  const bytes = head.subarray(0, headBytes(size));
  const view = viewOf(bytes);
  if (view.getUint32(CHECKED_FIXED_BYTES, true) !== headChecksum(bytes)) {
    return undefined;
  }
  const tokensAt = FIXED_BYTES + size.descriptionBytes;
  const description = parseDescription(bytes.subarray(FIXED_BYTES, tokensAt));
  if (description === undefined || description.to !== size.tokenCount) {
    return undefined;
  }
  const { model, library, cells, salt, from } = description;
  return {
    identity: { model, library, cells },
    salt,
    tokens: Array.from({ length: size.tokenCount }, (_, index) => view.getInt32(tokensAt + TOKEN_BYTES * index, true)),
    from,
    stateBytes: Number(view.getBigUint64(20, true)),
    checksum: view.getUint32(28, true),
    uses: view.getUint32(USES_AT, true),
    stateAt: bytes.length,
  };
}

function descriptionOf({ salt, from, tokens }: RecordShape, { model, library, cells }: StateIdentity): Uint8Array {
  return new TextEncoder().encode(JSON.stringify({ model, library, cells, salt, from, to: tokens.length }));
}

interface Description extends StateIdentity {
  readonly salt: string;
  readonly from: number;
  readonly to: number;
}

function parseDescription(bytes: Uint8Array): Description | undefined {
  let value: Partial<Record<keyof Description, unknown>>;
  try {
    value = JSON.parse(new TextDecoder().decode(bytes)) as typeof value;
  } catch {
    return undefined;
  }
  const { model, library, cells, salt, from, to } = value;
  const isText = [model, library, cells, salt].every((part) => typeof part === 'string');
  const isRange = Number.isInteger(from) && Number.isInteger(to) && Number(from) >= 0 && Number(from) < Number(to);
  return isText && isRange ? (value as Description) : undefined;
}

function headChecksum(head: Uint8Array): number {
  return crc32(head.subarray(FIXED_BYTES), crc32(head.subarray(0, CHECKED_FIXED_BYTES)));
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
