import { Decoder } from '@msgpack/msgpack';
import type { KvEvent, KvTier } from '@warmpath/core';

/** What of the events could not be used. Counts since the start. */
export interface DecodeAnomalies {
  /** Batches that are no MessagePack, or no batch. */
  undecodable: number;
  /** Events of unknown kind, or without what their kind needs. */
  unknown: number;
  /** Blocks of sliding windows, recurrent states and other groups beside full attention: they follow other rules. */
  otherGroups: number;
  /** Batches of another data-parallel rank than the one whose port this is. */
  otherRanks: number;
}

export function noDecodeAnomalies(): DecodeAnomalies {
  return { undecodable: 0, unknown: 0, otherGroups: 0, otherRanks: 0 };
}

/** The fields of one event, whichever way it was written. */
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

/** Positions in events that are written as arrays, behind their kind. */
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

/** Engines' names of where blocks lie; what is not known counts as far away. */
const TIERS: Readonly<Record<string, KvTier>> = { GPU: 'device', CPU: 'host', CPU_PINNED: 'host' };

const decoder = new Decoder({ useBigInt64: true });

/**
 * Reads one batch of KV events as vLLM, SGLang, TensorRT-LLM and the embedded engine publish them: arrays by position
 * (vLLM up to June 2026, SGLang up to 0.5.18) or maps with a `type` (vllm-project/vllm#42892), optional fields left
 * out, hashes as integers or bytes. A bad event costs itself, never its batch. Cost: O(bytes).
 *
 * @param rank The data-parallel rank that is listened to; a batch that says it is another one's has no events here.
 */
export function decodeBatch(payload: Uint8Array, anomalies: DecodeAnomalies, rank?: number): KvEvent[] {
  let batch: unknown;
  try {
    batch = decoder.decode(payload);
  } catch {
    anomalies.undecodable++;
    return [];
  }
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
    if (fields !== undefined && isOtherGroup(fields)) {
      anomalies.otherGroups++;
      continue;
    }
    const known = fields && readEvent(fields);
    if (known === undefined) anomalies.unknown++;
    else read.push(known);
  }
  return read;
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

function readEvent(fields: EventFields): KvEvent | undefined {
  if (fields.type === 'AllBlocksCleared') return { kind: 'cleared' };
  const hashes = listOf(fields.block_hashes, hashOf);
  if (hashes === undefined) return undefined;
  const tier = tierOf(fields.medium);
  if (fields.type === 'BlockRemoved') {
    const copiesLeft = listOf(fields.remaining_copy_counts, count);
    return { kind: 'removed', tier, hashes, ...(copiesLeft?.length === hashes.length && { copiesLeft }) };
  }
  if (fields.type !== 'BlockStored') return undefined;
  const tokens = listOf(fields.token_ids, token);
  const parent = fields.parent_block_hash == null ? undefined : hashOf(fields.parent_block_hash);
  const blockSize = count(fields.block_size);
  if (tokens === undefined || blockSize === undefined) return undefined;
  if (fields.parent_block_hash != null && parent === undefined) return undefined;
  const salt = typeof fields.cache_salt === 'string' ? fields.cache_salt : undefined;
  const extras = extrasOf(fields, { blocks: hashes.length, isFirst: parent === undefined, salt });
  return {
    kind: 'stored',
    tier,
    hashes,
    parent,
    tokens,
    blockSize,
    ...(extras !== undefined && { extras }),
    ...(salt !== undefined && { scope: salt }),
  };
}

/**
 * What distinguishes blocks of equal tokens. vLLM lists it by block: adapter, images, and the salt with the first.
 * SGLang names the salt with each event, and versions before that list name the adapter alone.
 */
function extrasOf(
  { extra_keys: keys, lora_id: id, lora_name: name }: EventFields,
  { blocks, isFirst, salt }: { readonly blocks: number; readonly isFirst: boolean; readonly salt: string | undefined },
): (string | undefined)[] | undefined {
  if (Array.isArray(keys)) return Array.from({ length: blocks }, (_, place) => extraOf(keys[place]));
  const adapter = typeof name === 'string' ? name : typeof id === 'number' ? `lora:${id}` : undefined;
  const first = [adapter, salt].filter((part) => part !== undefined);
  if (!isFirst || first.length === 0) return undefined;
  return [first.join('\n'), ...new Array<undefined>(blocks - 1).fill(undefined)];
}

function extraOf(keys: unknown): string | undefined {
  if (!Array.isArray(keys) || keys.length === 0) return undefined;
  return keys.map((key) => (typeof key === 'string' ? key : String(key))).join('\n');
}

/** Integers lose nothing as 64 bits; bytes are what they are. */
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

function tierOf(medium: unknown): KvTier {
  if (medium == null) return 'device';
  return TIERS[String(medium).toUpperCase()] ?? 'disk';
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
