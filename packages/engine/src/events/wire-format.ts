import { Encoder } from '@msgpack/msgpack';
import type { BlockHash, BlocksStored, KvEvent, KvEventBatch } from './kv-event.js';

/** An array of three, which a batch is: time, events, rank. */
const BATCH_HEADER = Buffer.of(0x93);
/** The rank of an engine without data parallelism. */
const RANK = Buffer.of(0);

const valueEncoder = new Encoder({ useBigInt64: true });
/** For what readers expect as a float, also when it happens to be a whole number. */
const floatEncoder = new Encoder({ forceIntegerToFloat: true });

/**
 * A batch as vLLM's publisher writes it: the MessagePack of `[ts, events, data_parallel_rank]`, events as maps with a
 * `type` (vllm-project/vllm#42892). Cost: O(tokens).
 */
export function encodeBatch({ timestamp, events }: KvEventBatch): Buffer {
  const wireEvents = events.map(wireEvent);
  return Buffer.concat([BATCH_HEADER, floatEncoder.encode(timestamp), valueEncoder.encode(wireEvents), RANK]);
}

/** In msgspec's order; fields that vLLM leaves out at their default are left out. */
function wireEvent(event: KvEvent): object {
  switch (event.type) {
    case 'stored':
      return {
        type: 'BlockStored',
        block_hashes: event.blockHashes.map(wireHash),
        parent_block_hash: parentHash(event),
        token_ids: event.tokenIds,
        block_size: event.blockSize,
        lora_id: null,
        medium: event.medium,
        lora_name: null,
        ...(event.salt !== undefined && { extra_keys: extraKeys(event, event.salt) }),
      };
    case 'removed':
      return { type: 'BlockRemoved', block_hashes: event.blockHashes.map(wireHash), medium: event.medium };
    case 'cleared':
      return { type: 'AllBlocksCleared' };
  }
}

function wireHash(blockHash: BlockHash): bigint {
  return BigInt(`0x${blockHash}`);
}

function parentHash({ parentBlockHash }: BlocksStored): bigint | null {
  return parentBlockHash === null ? null : wireHash(parentBlockHash);
}

/** What went into a block's hash beside its tokens, block by block: the salt, into the first. */
function extraKeys({ blockHashes }: BlocksStored, salt: string): readonly (readonly string[] | null)[] {
  return blockHashes.map((_, index) => (index === 0 ? [salt] : null));
}
