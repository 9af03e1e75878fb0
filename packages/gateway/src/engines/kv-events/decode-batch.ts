import { Decoder } from '@msgpack/msgpack';
import type { KvEvent, Tier } from '@warmpath/core/internal';
import { hasTrueLengths } from './true-lengths.js';

/** Unusable events since the start. */
export interface DecodeAnomalies {
  /** Batches that are not valid. */
  undecodable: number;
  /** Events of unknown kind. */
  unknown: number;
  /** Events with missing or invalid fields. */
  unreadable: number;
  /** Blocks of an adapter that has a number but no name. */
  unnamedAdapters: number;
  /** Blocks of sliding windows, recurrent states and other groups than full attention. Other rules hold for them. */
  otherGroups: number;
  /** Batches of another data-parallel rank. */
  otherRanks: number;
}

export function noDecodeAnomalies(): DecodeAnomalies {
  return { undecodable: 0, unknown: 0, unreadable: 0, unnamedAdapters: 0, otherGroups: 0, otherRanks: 0 };
}

/** The fields of one event, in either encoding. */
interface EventFields {
  readonly type?: unknown;
  readonly block_hashes?: unknown;
  readonly parent_block_hash?: unknown;
  readonly token_ids?: unknown;
  readonly block_size?: unknown;
  readonly lora_id?: unknown;
  readonly medium?: unknown;
  readonly lora_name?: unknown;
  readonly extra_keys?: unknown;
  readonly group_idx?: unknown;
  readonly kv_cache_spec_kind?: unknown;
  readonly cache_salt?: unknown;
  readonly remaining_copy_counts?: unknown;
}

/** Positions of fields in events that are arrays, behind their kind. */
const STORED_FIELDS = [
  'block_hashes',
  'parent_block_hash',
  'token_ids',
  'block_size',
  'lora_id',
  'medium',
  'lora_name',
  'extra_keys',
  'group_idx',
  'kv_cache_spec_kind',
] as const;
const REMOVED_FIELDS = ['block_hashes', 'medium', 'group_idx'] as const;

/** Engines' names of tiers. Unknown names count as the farthest tier. */
const TIERS: Readonly<Record<string, Tier>> = { GPU: 'device', CPU: 'host', CPU_PINNED: 'host' };

const KINDS: ReadonlySet<string> = new Set(['BlockStored', 'BlockRemoved', 'AllBlocksCleared']);

const decoder = new Decoder({ useBigInt64: true });

/**
 * Reads one batch of KV events of vLLM, SGLang, TensorRT-LLM or the embedded engine: arrays by position (vLLM up to
 * June 2026, SGLang up to 0.5.18) or maps with a `type` (vllm-project/vllm#42892). Skips invalid events. O(bytes).
 *
 * @param rank the data-parallel rank to follow; a batch of another rank gives no events
 */
export function decodeBatch(payload: Uint8Array, anomalies: DecodeAnomalies, rank?: number): KvEvent[] {
  const batch = decoded(payload);
  const { events, data_parallel_rank: from } = batchFields(batch);
  if (!Array.isArray(events)) {
    anomalies.undecodable++;
    return [];
  }
  if (rank !== undefined && from != null && count(from) !== rank) {
    anomalies.otherRanks++;
    return [];
  }
  const read: KvEvent[] = [];
  for (const event of events) {
    const fields = fieldsOf(event);
    if (fields === undefined || typeof fields.type !== 'string') anomalies.unreadable++;
    else if (!KINDS.has(fields.type)) anomalies.unknown++;
    else if (isOtherGroup(fields)) anomalies.otherGroups++;
    else {
      const known = readEvent(fields);
      if (known === undefined) anomalies.unreadable++;
      else read.push(known);
      if (known?.kind === 'stored' && known.adapter === undefined && isNumber(fields.lora_id))
        anomalies.unnamedAdapters++;
    }
  }
  return read;
}

/** `undefined` for invalid MessagePack. */
function decoded(payload: Uint8Array): unknown {
  if (!hasTrueLengths(payload)) return undefined;
  try {
    return decoder.decode(payload);
  } catch {
    return undefined;
  }
}

function fieldsOf(event: unknown): EventFields | undefined {
  if (!Array.isArray(event)) return typeof event === 'object' && event !== null ? event : undefined;
  const [type, ...values] = event as unknown[];
  const names = type === 'BlockStored' ? STORED_FIELDS : type === 'BlockRemoved' ? REMOVED_FIELDS : [];
  const fields: Record<string, unknown> = { type };
  for (const [place, name] of names.entries()) fields[name] = values[place];
  // SGLang 0.5.18 writes a map with the salt where vLLM writes the adapter's name (ai-dynamo/dynamo#14530).
  const seventh = fields['lora_name'];
  if (typeof seventh === 'object' && seventh !== null && !Array.isArray(seventh)) {
    fields['lora_name'] = undefined;
    Object.assign(fields, seventh);
  }
  return fields;
}

/** vLLM and SGLang write `[time, events, rank]`; one version of vLLM wrote a map. */
function batchFields(batch: unknown): { readonly events?: unknown; readonly data_parallel_rank?: unknown } {
  if (Array.isArray(batch)) return { events: batch[1], data_parallel_rank: batch[2] };
  return typeof batch === 'object' && batch !== null ? batch : {};
}

function isOtherGroup({ group_idx: group, kv_cache_spec_kind: kind }: EventFields): boolean {
  if (typeof group === 'number' && group !== 0) return true;
  return typeof kind === 'string' && kind !== 'full_attention' && !kind.startsWith('mla');
}

/** `undefined` if a required field has a type that no version writes. */
function readEvent(fields: EventFields): KvEvent | undefined {
  if (fields.type === 'AllBlocksCleared') return { kind: 'cleared' };
  const hashes = listOf(fields.block_hashes, hashOf);
  const { group_idx: group, kv_cache_spec_kind: spec, medium } = fields;
  if (hashes === undefined || !isTextOrAbsent(medium) || !isTextOrAbsent(spec)) return undefined;
  if (group != null && count(group) === undefined) return undefined;
  const tier = tierOf(medium);
  return fields.type === 'BlockRemoved' ? readRemoved(fields, hashes, tier) : readStored(fields, hashes, tier);
}

function readRemoved(
  { remaining_copy_counts: counts }: EventFields,
  hashes: string[],
  tier: Tier,
): KvEvent | undefined {
  if (counts == null) return { kind: 'removed', tier, hashes };
  const copiesLeft = listOf(counts, count);
  return copiesLeft?.length === hashes.length ? { kind: 'removed', tier, hashes, copiesLeft } : undefined;
}

function readStored(fields: EventFields, hashes: string[], tier: Tier): KvEvent | undefined {
  const tokens = listOf(fields.token_ids, token);
  const parent = fields.parent_block_hash == null ? undefined : hashOf(fields.parent_block_hash);
  const blockSize = count(fields.block_size);
  if (tokens === undefined || blockSize === undefined) return undefined;
  // Tokens are left out if blocks only move.
  if (tokens.length !== 0 && tokens.length !== hashes.length * blockSize) return undefined;
  if (fields.parent_block_hash != null && parent === undefined) return undefined;
  const { lora_name: name, cache_salt: namedSalt, extra_keys: keys } = fields;
  if (!isTextOrAbsent(name) || !isTextOrAbsent(namedSalt) || !isListOrAbsent(keys)) return undefined;
  const adapter = name ?? undefined;
  const salt = namedSalt ?? undefined;
  const extras = extrasOf(fields, { blocks: hashes.length, isFirst: parent === undefined, adapter, salt });
  return {
    kind: 'stored',
    tier,
    hashes,
    parent,
    tokens,
    blockSize,
    ...(extras !== undefined && { extras }),
    ...(adapter !== undefined && { adapter }),
    ...(salt !== undefined && { scope: salt }),
  };
}

/**
 * Distinguishes blocks of equal tokens. vLLM lists adapter, images and (in the first block) the salt by block. SGLang
 * names the salt with each event; earlier versions list only the adapter. The adapter counts with the first block of a
 * prompt, because blocks depend on all before them.
 */
function extrasOf(
  { extra_keys: keys, lora_id: id }: EventFields,
  { blocks, isFirst, adapter, salt }: StoredBlocks,
): (string | undefined)[] | undefined {
  if (Array.isArray(keys)) {
    return Array.from({ length: blocks }, (_, place) =>
      extraOf(keys[place], { adapter, isPromptStart: isFirst && place === 0 }),
    );
  }
  const named = adapter ?? (isNumber(id) ? `lora:${id}` : undefined);
  const first = [named, salt].filter((part) => part !== undefined);
  if (!isFirst || first.length === 0) return undefined;
  return [first.join('\n'), ...new Array<undefined>(blocks - 1).fill(undefined)];
}

interface StoredBlocks {
  readonly blocks: number;
  /** Whether these blocks begin a prompt. */
  readonly isFirst: boolean;
  readonly adapter: string | undefined;
  readonly salt: string | undefined;
}

function extraOf(
  keys: unknown,
  { adapter, isPromptStart }: { readonly adapter: string | undefined; readonly isPromptStart: boolean },
): string | undefined {
  if (!Array.isArray(keys)) return undefined;
  const own = keys[0] === adapter && !isPromptStart ? keys.slice(1) : keys;
  if (own.length === 0) return undefined;
  return own.map((key) => (typeof key === 'string' ? key : String(key))).join('\n');
}

/** Adapters are numbered from 1 on. */
function isNumber(id: unknown): boolean {
  return (typeof id === 'number' || typeof id === 'bigint') && id > 0;
}

function isTextOrAbsent(value: unknown): value is string | null | undefined {
  return value == null || typeof value === 'string';
}

function isListOrAbsent(value: unknown): boolean {
  return value == null || (Array.isArray(value) && value.every((item) => item == null || Array.isArray(item)));
}

/** Reads integers without loss, as 64 bits. */
function hashOf(value: unknown): string | undefined {
  if (typeof value === 'bigint') return BigInt.asUintN(64, value).toString(16);
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt.asUintN(64, BigInt(value)).toString(16);
  return value instanceof Uint8Array && value.length > 0 ? Buffer.from(value).toString('hex') : undefined;
}

/** SGLang's speculative decoding pairs each token with the next. */
function token(value: unknown): number | undefined {
  return count(Array.isArray(value) ? value[0] : value);
}

function count(value: unknown): number | undefined {
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : undefined;
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

function tierOf(medium: string | null | undefined): Tier {
  if (medium == null) return 'device';
  return TIERS[medium.toUpperCase()] ?? 'disk';
}

function listOf<T>(value: unknown, read: (item: unknown) => T | undefined): T[] | undefined {
  if (!Array.isArray(value)) return undefined;
  const list: T[] = [];
  for (const item of value) {
    const known = read(item);
    if (known === undefined) return undefined;
    list.push(known);
  }
  return list;
}
