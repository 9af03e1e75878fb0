// KV events of engines, and the mirror of an engine's cache that is made of them. Batches to begin with are in the
// corpus: events of every kind, in arrays as vLLM and SGLang write them and in maps.
import assert from 'node:assert/strict';
import { EventResidency } from '@warmpath/core/internal';
import { decodeBatch, noDecodeAnomalies } from '../../../packages/gateway/dist/engines/kv-events/decode-batch.js';

const KINDS = new Set(['stored', 'removed', 'cleared']);

export function kvEvents() {
  return {
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
