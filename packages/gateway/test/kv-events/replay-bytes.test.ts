import { expect, test } from 'vitest';
import { Router, XPublisher } from 'zeromq';
import { freePort } from '../../../../test/free-port.js';
import { ZmqSubscriber } from '../../src/engines/kv-events/zmq-subscriber.js';
import { closing } from '../harness.js';

const END = 0xffff_ffff_ffff_ffffn;

function numbered(sequence: bigint): Buffer {
  const number = Buffer.alloc(8);
  number.writeBigUInt64BE(sequence);
  return number;
}

test('a replay of many bytes comes in parts, and nothing of it is lost', async () => {
  const [port, replayPort] = [await freePort(), await freePort()];
  const live = new XPublisher({ linger: 0 });
  await live.bind(`tcp://127.0.0.1:${port}`);
  const replays = new Router({ linger: 0 });
  await replays.bind(`tcp://127.0.0.1:${replayPort}`);
  const payload = Buffer.alloc(2 * 1_048_576);
  const latest = 40;
  const asked: number[] = [];
  const answering = (async () => {
    for await (const [peer, , from] of replays) {
      const first = Number(from!.readBigUInt64BE());
      asked.push(first);
      for (let number = first; number <= latest; number++) {
        await replays.send([peer!, '', numbered(BigInt(number)), payload]);
      }
      await replays.send([peer!, '', numbered(END), '']);
    }
  })();
  closing({
    close: async () => {
      live.close();
      replays.close();
      await answering;
    },
  });
  let batches = 0;
  let lost = 0;
  let tellAll = () => {};
  const all = new Promise<void>((resolve) => {
    tellAll = resolve;
  });
  const subscriber = closing(
    await ZmqSubscriber.open({
      endpoint: `tcp://127.0.0.1:${port}`,
      replayEndpoint: `tcp://127.0.0.1:${replayPort}`,
      sink: {
        began: () => {},
        batch: () => {
          batches++;
          if (batches > latest) tellAll();
        },
        lost: () => lost++,
      },
      unreadable: () => {},
      connection: () => {},
    }),
  );
  await live.receive();
  await live.send(['', numbered(BigInt(latest)), payload]);
  await all;
  expect([batches, lost, subscriber.stream.counts.losses]).toEqual([latest + 1, 0, 0]);
  // Each part begins with the last batch of the one before, by which an engine that began anew would show.
  expect(asked.length).toBeGreaterThan(1);
  expect(asked).toEqual(asked.toSorted((one, other) => one - other));
});
