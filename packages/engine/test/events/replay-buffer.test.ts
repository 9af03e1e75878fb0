import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ReplayBuffer } from '../../src/events/zmq-publisher.js';

describe('the replay buffer', () => {
  it('holds the newest batches within its limits, as a plain list would', () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat({ max: 20 }), { maxLength: 60, size: 'max' }),
        fc.integer({ min: 1, max: 8 }),
        fc.integer({ min: 1, max: 60 }),
        (lengths, steps, bytes) => {
          const buffer = new ReplayBuffer({ steps, bytes });
          let kept: { sequence: number; payload: Uint8Array }[] = [];
          for (const [sequence, length] of lengths.entries()) {
            const payload = new Uint8Array(length);
            expect(buffer.next).toBe(sequence);
            buffer.push(payload);
            kept.push({ sequence, payload });
            const size = (): number => kept.reduce((sum, each) => sum + each.payload.length, 0);
            while (kept.length > 1 && (kept.length > steps || size() > bytes)) {
              kept = kept.slice(1);
            }
            expect(buffer.oldest).toBe(kept[0]!.sequence);
            expect(buffer.bytes).toBe(size());
            expect(kept.every((each) => buffer.get(each.sequence) === each.payload)).toBe(true);
            expect(buffer.get(buffer.oldest - 1)).toBeUndefined();
            expect(buffer.get(buffer.next)).toBeUndefined();
          }
        },
      ),
      { seed: 21 },
    );
  });
});
