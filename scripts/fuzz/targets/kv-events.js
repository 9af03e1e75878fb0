// KV events of engines, and the mirror of an engine's cache that is made of them.
import assert from 'node:assert/strict';
import { Encoder } from '@msgpack/msgpack';
import { EventResidency } from '@warmpath/core';
import { decodeBatch, noDecodeAnomalies } from '../../../packages/gateway/dist/engines/kv-events/decode-batch.js';

const encoder = new Encoder({ useBigInt64: true });
const KINDS = new Set(['stored', 'removed', 'cleared']);

export function kvEvents() {
  const batches = [
    [1.5, [['BlockStored', [1n, 2n], null, [1, 2, 3, 4], 2, null, 'GPU']], 0],
    [1.5, [['BlockStored', [3n], 2n, [5, 6], 2, 7, 'CPU', 'name', [['salt', 1]], 0, 'full_attention']]],
    [1.5, [['BlockRemoved', [1n, -1n], 'GPU', 1], ['AllBlocksCleared']]],
    { events: [{ type: 'BlockStored', block_hashes: [Uint8Array.of(1, 2)], token_ids: [[1, 2]], block_size: 1 }] },
    { events: [{ type: 'BlockRemoved', block_hashes: [1], medium: 'disk', remaining_copy_counts: [1] }] },
    [1.5, [['BlockStored', [9n], null, [1, 2], 2, null, 'GPU', { cache_salt: 's' }]]],
  ];
  return {
    seeds: batches.map((batch) => encoder.encode(batch)),
    run(bytes) {
      const anomalies = noDecodeAnomalies();
      const events = decodeBatch(bytes, anomalies);
      const mirror = new EventResidency({ maxBlocks: 64 });
      mirror.begin(0);
      for (const event of events) {
        assert(KINDS.has(event.kind));
        mirror.apply(event, 1);
        assert(mirror.blocks <= 64, 'more blocks are kept than may be');
      }
      assert(Object.values(anomalies).every((count) => Number.isSafeInteger(count) && count >= 0));
    },
  };
}
