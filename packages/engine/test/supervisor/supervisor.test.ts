import { WarmpathError } from '@warmpath/core';
import { describe, expect, it } from 'vitest';
import { MAX_FAILED_STARTS, STABLE_MS, type SupervisedWorker, Supervisor } from '../../src/supervisor/supervisor.js';

const CRASH = new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: 'signal SIGSEGV' });

class FakeWorker implements SupervisedWorker {
  readonly exited: Promise<WarmpathError>;
  end!: (reason: WarmpathError) => void;
  readonly graces: number[] = [];

  constructor() {
    this.exited = new Promise((resolve) => {
      this.end = resolve;
    });
  }

  async stop(graceMs: number): Promise<void> {
    this.graces.push(graceMs);
    this.end(CRASH);
    await this.exited;
  }
}

/** A supervisor whose waits last until they are told to end. */
function setUp(starts: ('works' | 'fails' | 'hangs')[] = []) {
  const workers: FakeWorker[] = [];
  const crashes: string[] = [];
  const waits: { ms: number; over: () => void }[] = [];
  const time = { ms: 0 };
  const supervisor = new Supervisor<FakeWorker>({
    start: async (signal) => {
      const how = starts.shift() ?? 'works';
      if (how === 'fails') {
        throw new WarmpathError('WARMPATH_MODEL_FILE', { detail: 'the file is gone' });
      }
      if (how === 'hangs') {
        await new Promise((_, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason));
        });
      }
      const worker = new FakeWorker();
      workers.push(worker);
      return worker;
    },
    clock: () => time.ms,
    wait: (ms, signal) =>
      new Promise((resolve, reject) => {
        const end = () => reject(signal.reason);
        const over = () => {
          signal.removeEventListener('abort', end);
          resolve();
        };
        waits.push({ ms, over });
        signal.addEventListener('abort', end);
      }),
    onCrash: ({ message }) => crashes.push(message),
  });
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  return { supervisor, workers, crashes, waits, settle, time };
}

describe('the supervisor', () => {
  it('starts another worker when one crashes, and whoever waits gets that one', async () => {
    const { supervisor, workers, crashes, waits, settle } = setUp();
    const first = await supervisor.start(undefined);
    expect(await supervisor.ready()).toBe(first);
    expect(supervisor.worker).toBe(first);
    first.end(CRASH);
    await settle();
    expect(supervisor.worker).toBeUndefined();
    expect(crashes).toEqual(['signal SIGSEGV']);
    const waiting = supervisor.ready();
    waits[0]!.over();
    expect(await waiting).toBe(workers[1]);
    expect(supervisor.restarts).toBe(1);
    await supervisor.close(7);
    expect(workers[1]!.graces).toEqual([7]);
    await expect(supervisor.ready()).rejects.toMatchObject({ code: 'WARMPATH_SHUTTING_DOWN' });
  });

  it('throws what keeps the first worker from starting', async () => {
    const { supervisor } = setUp(['fails']);
    await expect(supervisor.start(undefined)).rejects.toMatchObject({ code: 'WARMPATH_MODEL_FILE' });
    await supervisor.close(0);
  });

  it('starts again for ever as long as starts succeed', async () => {
    const { supervisor, workers, waits, settle } = setUp(['works', 'fails', 'fails', 'fails', 'fails', 'works']);
    await supervisor.start(undefined);
    // The first crash takes five starts, of which four fail; each of the others takes one.
    for (let crash = 0; crash < 50; crash++) {
      workers.at(-1)!.end(CRASH);
      await settle();
      while (supervisor.worker === undefined) {
        waits.at(-1)!.over();
        await settle();
      }
    }
    expect(supervisor.restarts).toBe(50);
    expect(waits.length).toBe(54);
    expect(waits.slice(0, 8).map(({ ms }) => ms)).toEqual([0, 200, 400, 800, 1600, 3200, 5000, 5000]);
    expect(Math.max(...waits.map(({ ms }) => ms))).toBe(5_000);
    await supervisor.close(0);
  });

  it('starts again at once after a crash of a worker that has run for long', async () => {
    const { supervisor, workers, waits, settle, time } = setUp();
    await supervisor.start(undefined);
    for (const ranMs of [0, 0, STABLE_MS - 1, STABLE_MS, 0]) {
      time.ms += ranMs;
      workers.at(-1)!.end(CRASH);
      await settle();
      waits.at(-1)!.over();
      await settle();
    }
    expect(waits.map(({ ms }) => ms)).toEqual([0, 200, 400, 0, 200]);
    await supervisor.close(0);
  });

  it('gives up after starts that failed one after another, with the last reason', async () => {
    const fails = Array.from({ length: MAX_FAILED_STARTS }, () => 'fails' as const);
    const { supervisor, crashes, waits, settle } = setUp(['works', ...fails]);
    const first = await supervisor.start(undefined);
    first.end(CRASH);
    await settle();
    const waiting = supervisor.ready();
    waiting.catch(() => undefined);
    for (let start = 0; start < MAX_FAILED_STARTS; start++) {
      waits[start]!.over();
      await settle();
    }
    const error = await supervisor.failed;
    expect(error.message).toContain('could not be started again 5 times');
    expect(error.message).toContain('the file is gone');
    expect(crashes).toEqual(['signal SIGSEGV', ...fails.map(() => 'the file is gone')]);
    expect(waits.map(({ ms }) => ms)).toEqual([0, 200, 400, 800, 1600]);
    await expect(waiting).rejects.toBe(error);
    await expect(supervisor.ready()).rejects.toBe(error);
    await supervisor.close(0);
  });

  it('can be closed while it waits, and while a worker starts', async () => {
    for (const starts of [['works'], ['works', 'hangs']] as const) {
      const { supervisor, workers, waits, settle } = setUp([...starts]);
      const first = await supervisor.start(undefined);
      first.end(CRASH);
      await settle();
      if (starts.length > 1) {
        waits[0]!.over();
        await settle();
      }
      const waiting = supervisor.ready();
      waiting.catch(() => undefined);
      await supervisor.close(0);
      expect(workers).toHaveLength(1);
      await expect(waiting).rejects.toMatchObject({ code: 'WARMPATH_SHUTTING_DOWN' });
    }
  });

  it('ends a worker that has just come when it is closed', async () => {
    const { supervisor, workers, waits, settle } = setUp();
    const first = await supervisor.start(undefined);
    first.end(CRASH);
    await settle();
    waits[0]!.over();
    await supervisor.close(0);
    for (const worker of workers.slice(1)) {
      expect(worker.graces).not.toEqual([]);
    }
  });
});
