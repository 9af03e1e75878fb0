import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { EngineExit } from '../../src/child-process.js';
import { watchHeartbeat } from '../../src/supervisor/heartbeat.js';

const LIMIT_MS = 4_000;
const BEAT_MS = LIMIT_MS / 4;

/** A worker's channel; what it answers is said by the test. */
class Channel extends EventEmitter {
  asked = 0;
  answer: { decodingMs: number } | undefined = { decodingMs: 0 };

  send(): boolean {
    this.asked++;
    if (this.answer !== undefined) {
      this.emit('message', { type: 'pong', isEnding: false, ...this.answer });
    }
    return true;
  }
}

describe('the watch over a worker', () => {
  let channel: Channel;
  let hangs: string[];
  let end: (exit: EngineExit) => void;
  let stop: () => void;
  beforeEach(() => {
    vi.useFakeTimers();
    channel = new Channel();
    hangs = [];
    const exited = new Promise<EngineExit>((resolve) => {
      end = resolve;
    });
    stop = watchHeartbeat({ process: channel as never, exited }, LIMIT_MS, (reason) => hangs.push(reason));
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it('is content with one that answers, however long, and with one that misses a few questions', async () => {
    await vi.advanceTimersByTimeAsync(100 * LIMIT_MS);
    channel.answer = undefined;
    await vi.advanceTimersByTimeAsync(3 * BEAT_MS);
    channel.answer = { decodingMs: LIMIT_MS };
    await vi.advanceTimersByTimeAsync(100 * LIMIT_MS);
    expect(hangs).toEqual([]);
    expect(channel.asked).toBe(803);
  });

  it('says once that one gives no sign of life, and asks no more', async () => {
    channel.answer = undefined;
    await vi.advanceTimersByTimeAsync(5 * BEAT_MS);
    expect(hangs).toEqual(['It has given no sign of life for 4000 ms']);
    await vi.advanceTimersByTimeAsync(10 * LIMIT_MS);
    expect(hangs.length).toBe(1);
    expect(channel.asked).toBe(4);
    expect(channel.listenerCount('message')).toBe(0);
  });

  it('says that a decode does not return, though the process answers', async () => {
    channel.answer = { decodingMs: LIMIT_MS + 1 };
    await vi.advanceTimersByTimeAsync(3 * BEAT_MS);
    expect(hangs).toEqual(['One step has been computed for 4001 ms']);
    expect(channel.asked).toBe(1);
  });

  it.each(['exit', 'stop'])('ends with the process, or when it is told to: %s', async (how) => {
    if (how === 'exit') {
      end({ code: 0, signal: null });
    } else {
      stop();
    }
    channel.answer = undefined;
    await vi.advanceTimersByTimeAsync(10 * LIMIT_MS);
    expect([channel.asked, hangs.length]).toEqual([0, 0]);
  });
});
