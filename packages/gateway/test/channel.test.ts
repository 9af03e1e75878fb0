import { once } from 'node:events';
import { Duplex } from 'node:stream';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Channel, type Frame } from '../src/workers/channel.js';
import { FRAME } from '../src/workers/messages.js';
import '../../core/test/seed.js';

/** A stream that keeps what is written, for a test to cut as it likes. */
class Wire extends Duplex {
  readonly written: Buffer[] = [];

  override _read(): void {}

  override _write(chunk: Buffer, _: BufferEncoding, callback: () => void): void {
    this.written.push(chunk);
    callback();
  }
}

const NOBODY = { frame: () => {}, closed: () => {} };
const frames = fc.array(
  fc.record({
    kind: fc.constantFrom(...Object.values(FRAME)),
    exchange: fc.nat(2 ** 31),
    head: fc.option(fc.dictionary(fc.string(), fc.oneof(fc.string({ unit: 'binary' }), fc.integer())), {
      nil: undefined,
    }),
    bytes: fc.oneof(fc.uint8Array({ maxLength: 40 }), fc.constant(new Uint8Array(70_000))),
  }),
  { maxLength: 8 },
);

it('brings every frame whole and in order, however the bytes are cut', async () => {
  await fc.assert(
    fc.asyncProperty(frames, fc.array(fc.integer({ min: 1, max: 90 }), { minLength: 1 }), async (sent, cuts) => {
      const out = new Wire();
      const sender = new Channel(out, NOBODY);
      for (const { kind, exchange, head, bytes } of sent) sender.send(kind, exchange, head, Buffer.from(bytes));
      sender.flush();
      const wire = Buffer.concat(out.written);
      const received: Frame[] = [];
      const into = new Wire();
      new Channel(into, { ...NOBODY, frame: (frame) => received.push(frame) });
      const unit = wire.length > 50_000 ? 1_000 : 1;
      for (let from = 0, i = 0; from < wire.length; i++) {
        const to = from + cuts[i % cuts.length]! * unit;
        into.emit('data', wire.subarray(from, to));
        from = to;
      }
      const plain = ({ bytes, ...frame }: Frame) => ({ ...frame, bytes: bytes.toString('latin1') });
      expect(received.map(plain)).toEqual(sent.map((frame) => plain({ ...frame, bytes: Buffer.from(frame.bytes) })));
    }),
    { numRuns: 60 },
  );
});

it('says once that the other side is gone, and sends nothing more', async () => {
  const wire = new Wire();
  let gone = 0;
  const channel = new Channel(wire, { ...NOBODY, closed: () => gone++ });
  wire.push(null);
  wire.resume();
  await once(wire, 'close');
  channel.send(FRAME.data, 1, undefined, Buffer.from('x'));
  channel.flush();
  expect([gone, wire.written]).toEqual([1, []]);
});
