import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { hangLimitMs } from '../../src/loop/decode-step.js';
import { watchHeartbeat } from '../../src/supervisor/heartbeat.js';

const BEAT_MS = 1_000;
const LIMIT_MS = 10_000;

/** A worker's channel; what it answers is said by the test. */
class Channel extends EventEmitter {
  asked = 0;
  answer: 'idle' | 'none' | { step: number } = 'idle';

  send(): boolean {
    this.asked++;
    if (this.answer !== 'none') {
      const decoding = this.answer === 'idle' ? undefined : { ...this.answer, expectedMs: 500, limitMs: LIMIT_MS };
      this.emit('message', { type: 'pong', decoding });
    }
    return true;
  }
}

describe('the watch over a worker', () => {
  let channel: Channel;
  let hangs: string[];
  let stop: () => void;
  const beats = (count: number) => vi.advanceTimersByTimeAsync(count * BEAT_MS);
  beforeEach(() => {
    vi.useFakeTimers();
    channel = new Channel();
    hangs = [];
    stop = watchHeartbeat(channel as never, (reason) => hangs.push(reason));
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it('is content with one that answers, however long, and with one that misses a few questions', async () => {
    await beats(1_000);
    channel.answer = 'none';
    await beats(7);
    channel.answer = 'idle';
    await beats(1);
    channel.answer = 'none';
    await beats(7);
    channel.answer = 'idle';
    await beats(1);
    expect(hangs).toEqual([]);
  });

  it('says once that one does not answer, and asks no more', async () => {
    await beats(1);
    channel.answer = 'none';
    await beats(9);
    expect(hangs).toEqual(['The engine process has not answered for 8 s']);
    await beats(100);
    expect(hangs.length).toBe(1);
    expect(channel.asked).toBe(9);
    expect(channel.listenerCount('message')).toBe(0);
  });

  it('says that a decode does not return, though the process answers', async () => {
    channel.answer = { step: 3 };
    await beats(11);
    expect(hangs).toEqual([]);
    await beats(1);
    expect(hangs).toEqual(['One step has been computed for 11 s, and 500 ms were expected']);
    await beats(100);
    expect(channel.asked).toBe(12);
  });

  it('is content with decodes of which each returns in time, and with a machine that slept in one', async () => {
    for (let step = 0; step < 10; step++) {
      channel.answer = { step };
      await beats(10);
    }
    // The clock jumps and no beat was counted: it goes on as if nothing had been.
    vi.setSystemTime(Date.now() + 3_600_000);
    await beats(1);
    expect(hangs).toEqual([]);
  });

  it('ends when it is told to', async () => {
    stop();
    channel.answer = 'none';
    await beats(100);
    expect([channel.asked, hangs.length]).toEqual([0, 0]);
  });
});

it('a decode counts as hanging by what was expected of it, and later on a machine that is busy', () => {
  expect(hangLimitMs(3, 0.5)).toBe(8_000);
  expect(hangLimitMs(3, 40)).toBe(8_000);
  expect(hangLimitMs(1_000, 1)).toBe(20_000);
  expect(hangLimitMs(1_000, 4)).toBe(80_000);
});
