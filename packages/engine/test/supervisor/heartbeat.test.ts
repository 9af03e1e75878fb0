import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { EngineExit } from '../../src/child-process.js';
import { hangLimitMs } from '../../src/loop/decode-step.js';
import { loadLimitMs, watchHeartbeat } from '../../src/supervisor/heartbeat.js';

const BEAT_MS = 1_000;
const LIMIT_MS = 10_000;

/** A worker's channel; what it answers is said by the test. */
class Channel extends EventEmitter {
  asked = 0;
  answer: 'idle' | 'none' | { step: number } | { loading: { limitMs: number | undefined } } = 'idle';

  send(): boolean {
    this.asked++;
    if (this.answer !== 'none') {
      const isDecoding = this.answer !== 'idle' && 'step' in this.answer;
      const decoding = isDecoding ? { ...(this.answer as object), expectedMs: 500, limitMs: LIMIT_MS } : undefined;
      const loading = this.answer !== 'idle' && 'loading' in this.answer ? this.answer.loading : undefined;
      this.emit('message', { type: 'pong', isEnding: false, decoding, loading });
    }
    return true;
  }
}

describe('the watch over a worker', () => {
  let channel: Channel;
  let hangs: string[];
  let end: (exit: EngineExit) => void;
  let stop: () => void;
  const beats = (count: number) => vi.advanceTimersByTimeAsync(count * BEAT_MS);
  beforeEach(() => {
    vi.useFakeTimers();
    channel = new Channel();
    hangs = [];
    const exited = new Promise<EngineExit>((resolve) => {
      end = resolve;
    });
    stop = watchHeartbeat({ process: channel as never, exited }, (reason) => hangs.push(reason));
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

  it('says once that one gives no sign of life, and asks no more', async () => {
    await beats(1);
    channel.answer = 'none';
    await beats(9);
    expect(hangs).toEqual(['It has given no sign of life for 8 s']);
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

  it('has patience with one that starts, and says that one has never answered', async () => {
    channel.answer = 'none';
    await beats(60);
    expect(hangs).toEqual([]);
    await beats(1);
    expect(hangs).toEqual(['It has given no sign of life for 60 s']);
  });

  it('says that one loads its model for too long, though it answers; a download may take any time', async () => {
    channel.answer = { loading: { limitMs: undefined } };
    await beats(1_000);
    channel.answer = { loading: { limitMs: LIMIT_MS } };
    await beats(10);
    expect(hangs).toEqual([]);
    await beats(1);
    expect(hangs).toEqual(['The model has been loading for 11 s']);
    expect(channel.listenerCount('message')).toBe(0);
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

  it('takes no answer to somebody else’s question for a beat', async () => {
    channel.answer = { step: 1 };
    await beats(1);
    const decoding = { step: 1, expectedMs: 500, limitMs: LIMIT_MS };
    for (let id = 0; id < 100; id++) {
      channel.emit('message', { type: 'pong', id, isEnding: false, decoding });
    }
    expect(hangs).toEqual([]);
  });

  it.each(['exit', 'stop'])('ends with the process, or when it is told to: %s', async (how) => {
    if (how === 'exit') {
      end({ code: 0, signal: null });
    } else {
      stop();
    }
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

it('loading a model counts as hanging by the size of its file, and later by what it took', () => {
  expect(loadLimitMs(4e9, undefined)).toBe(60_000 + 2_000_000);
  expect(loadLimitMs(4e9, 10_000)).toBe(60_000 + 200_000);
});
