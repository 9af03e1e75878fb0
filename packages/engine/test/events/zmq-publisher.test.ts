import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { Dealer, Subscriber } from 'zeromq';
import { isFull } from '../../../../test/suite.js';
import type { KvEvent } from '../../src/events/kv-event.js';
import { ZmqKvEventPublisher, type ZmqPublisherOptions } from '../../src/events/zmq-publisher.js';
import { KvSubscriber, replay } from './kv-subscriber.js';

const ANY = 'tcp://127.0.0.1:*';
const STORED: KvEvent = {
  type: 'stored',
  medium: 'GPU',
  blockHashes: ['00000000000000ab', 'ffffffffffffffff'],
  parentBlockHash: '8000000000000001',
  tokenIds: [1, 2, 3, 4],
  blockSize: 2,
};
const SALTED: KvEvent = { ...STORED, parentBlockHash: null, salt: 'tenant' };
const REMOVED: KvEvent = { type: 'removed', medium: 'CPU', blockHashes: ['00000000000000ab'] };
const EVENTS: readonly KvEvent[] = [STORED, SALTED, REMOVED, { type: 'cleared' }];

describe('the ZeroMQ publisher', () => {
  const closing: { close(): unknown }[] = [];
  afterEach(async () => {
    await Promise.all(closing.splice(0).map((each) => each.close()));
  });

  const open = async (options: Partial<ZmqPublisherOptions> = {}) => {
    const publisher = await ZmqKvEventPublisher.open({
      endpoint: ANY,
      replayEndpoint: ANY,
      ...options,
    });
    closing.push(publisher);
    return { publisher, replayAt: publisher.stats.replayEndpoint! };
  };
  const listen = (subscriber: KvSubscriber): KvSubscriber => {
    closing.push(subscriber);
    return subscriber;
  };
  /** Publishes until a subscriber has joined, which nobody tells a publisher. */
  const publishUntilHeard = async (publisher: ZmqKvEventPublisher, subscriber: KvSubscriber): Promise<void> => {
    while (subscriber.batches.length === 0) {
      publisher.publish({ timestamp: 1, events: EVENTS });
      await nextTurn();
    }
  };

  it('sends topic, number and batch, and answers what was missed', async () => {
    const { publisher, replayAt } = await open();
    const subscriber = listen(KvSubscriber.connect(publisher.stats.endpoint));
    await publishUntilHeard(publisher, subscriber);
    const [first] = subscriber.batches;
    expect(first).toMatchObject({ topic: '', timestamp: 1, rank: 0, events: EVENTS });
    publisher.publish({ timestamp: 2.5, events: [REMOVED] });
    const last = publisher.stats.nextSequence - 1;
    await subscriber.until((batches) => batches.at(-1)!.sequence >= last);
    const heard = subscriber.batches.map(({ sequence }) => sequence);
    expect(heard).toEqual(heard.map((_, index) => heard[0]! + index));
    const missed = await replay(replayAt, 0);
    expect(missed.slice(heard[0])).toEqual(subscriber.batches);
    expect(missed.map(({ sequence }) => sequence)).toEqual(missed.map((_, index) => index));
    expect(await replay(replayAt, last)).toEqual([subscriber.batches.at(-1)]);
    expect(await replay(replayAt, last + 1)).toEqual([]);
  });

  it("writes vLLM's maps, every hash as an unsigned integer and the time as a float", async () => {
    const { publisher, replayAt } = await open();
    publisher.publish({ timestamp: 7, events: EVENTS });
    const stored = {
      type: 'BlockStored',
      block_hashes: [0xabn, 2n ** 64n - 1n],
      parent_block_hash: 2n ** 63n + 1n,
      token_ids: [1, 2, 3, 4],
      block_size: 2,
      lora_id: null,
      medium: 'GPU',
      lora_name: null,
    };
    const [batch] = await replay(replayAt, 0);
    expect(batch!.wire).toEqual([
      stored,
      { ...stored, parent_block_hash: null, extra_keys: [['tenant'], null] },
      { type: 'BlockRemoved', block_hashes: [0xabn], medium: 'CPU' },
      { type: 'AllBlocksCleared' },
    ]);
    expect(batch!.topic).toBe('');
  });

  it.runIf(isFull)(
    'waits for nobody: one that never reads costs neither the publisher nor the others anything',
    async () => {
      const { publisher, replayAt } = await open();
      const deaf = { live: new Subscriber({ linger: 0 }), replay: new Dealer({ linger: 0 }) };
      closing.push(deaf.live, deaf.replay);
      deaf.live.subscribe();
      deaf.live.connect(publisher.stats.endpoint);
      const joined = deaf.live.receive().then(() => true);
      while (!(await Promise.race([joined, nextTurn(false)]))) {
        publisher.publish({ timestamp: 0, events: [REMOVED] });
      }
      const large: KvEvent = { ...STORED, tokenIds: Array.from({ length: 20_000 }, () => 70_000) };
      const first = publisher.stats.nextSequence;
      for (let step = 0; step < 700; step++) {
        publisher.publish({ timestamp: step, events: [large] });
      }
      const { nextSequence, bufferedSteps, bufferedBytes } = publisher.stats;
      expect(nextSequence).toBe(first + 700);
      expect(bufferedSteps).toBeLessThan(700);
      expect(bufferedBytes).toBeLessThanOrEqual(64 * 1024 * 1024);
      deaf.replay.connect(replayAt);
      for (let request = 0; request < 2; request++) {
        await deaf.replay.send(['', Buffer.alloc(8)]);
      }
      const kept = await replay(replayAt, 0);
      expect(kept.map(({ sequence }) => sequence)).toEqual(kept.map((_, index) => nextSequence - kept.length + index));
      expect(kept).toHaveLength(bufferedSteps);
    },
  );

  it.each([
    { name: 'without its empty frame', frames: (sequence: Buffer) => [sequence] },
    { name: 'with a number of the wrong length', frames: () => ['', 'abc'] },
    { name: 'with too much', frames: (sequence: Buffer) => ['', sequence, ''] },
  ])('ignores a request $name, and answers the next', async ({ frames }) => {
    const { publisher, replayAt } = await open();
    publisher.publish({ timestamp: 1, events: [REMOVED] });
    const unanswered = new Dealer({ linger: 0 });
    closing.push(unanswered);
    unanswered.connect(replayAt);
    await unanswered.send([...frames(Buffer.alloc(8))]);
    expect(await replay(replayAt, 0)).toHaveLength(1);
  });

  it('connects to an address that names one place', async () => {
    const { subscriber, endpoint } = await KvSubscriber.bind(ANY);
    listen(subscriber);
    const { publisher } = await open({ endpoint });
    await publishUntilHeard(publisher, subscriber);
    expect(subscriber.batches[0]).toMatchObject({ topic: '', events: EVENTS });
  });

  it('sends what is left when it is closed, and takes nothing more', async () => {
    const { publisher } = await open();
    const subscriber = listen(KvSubscriber.connect(publisher.stats.endpoint));
    await publishUntilHeard(publisher, subscriber);
    publisher.publish({ timestamp: 99, events: [REMOVED] });
    await publisher.close();
    publisher.publish({ timestamp: 100, events: [REMOVED] });
    await publisher.close();
    await subscriber.until((batches) => batches.at(-1)!.timestamp === 99);
  });

  it.each([
    [{ endpoint: 'tcp://*:port' }, 'kvEvents'],
    [{ endpoint: 'tcp://nowhere' }, 'kvEvents'],
    [{ replayEndpoint: 'tcp://127.0.0.1:port' }, 'kvEventsReplay'],
  ])('says which address cannot be used: %j', async (options, path) => {
    await expect(open(options)).rejects.toMatchObject({ code: 'WARMPATH_CONFIG_INVALID', path });
  });

  it('refuses an address that another has', async () => {
    const { replayAt } = await open();
    await expect(open({ replayEndpoint: replayAt })).rejects.toMatchObject({ path: 'kvEventsReplay' });
  });
});
