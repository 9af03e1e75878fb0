import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/loop/random.js';
import { QueuedRequest, RequestLine } from '../../src/supervisor/request-line.js';

function request(name: string, method = 'POST', path = '/v1/completions'): QueuedRequest {
  return new QueuedRequest({ method, path, headers: {}, body: Buffer.from(name) });
}

/** All that may run on a worker do; then it crashes, or not. @returns Those that were refused. */
function crash(line: RequestLine, requests: readonly QueuedRequest[], worker = {}): QueuedRequest[] {
  const running = requests.filter((each) => line.enter(each, worker));
  const refused = running.filter((each) => line.crashed(each, worker));
  for (const each of running) {
    line.leave(each, worker);
  }
  for (const each of refused) {
    line.end(each);
  }
  return refused;
}

describe('who may go to a worker', () => {
  it('one that crashes it is refused, and nobody else, however they stand beside each other', () => {
    const drawn = fc.record({ innocent: fc.nat({ max: 6 }), poison: fc.nat({ max: 3 }), seed: fc.nat() });
    fc.assert(
      fc.property(drawn, ({ innocent, poison, seed }) => {
        const line = new RequestLine(() => 0);
        const random = seededRandom(seed);
        const poisons = new Set(Array.from({ length: poison }, (_, index) => request(`poison ${index}`)));
        const others = Array.from({ length: innocent }, (_, index) => request(`other ${index}`));
        const all = [...poisons, ...others].sort(() => random() - 0.5);
        let waiting = [...all];
        let crashes = 0;
        let worker = {};
        const refused: QueuedRequest[] = [];
        while (waiting.length > 0) {
          const running = waiting.filter((each) => line.enter(each, worker));
          // Somebody may always go on.
          expect(running.length).toBeGreaterThan(0);
          const isCrashed = running.some((each) => poisons.has(each));
          for (const each of running) {
            if (!isCrashed || line.crashed(each, worker)) {
              refused.push(...(isCrashed ? [each] : []));
              waiting = waiting.filter((other) => other !== each);
            }
          }
          for (const each of running) {
            line.leave(each, worker);
            if (!waiting.includes(each)) line.end(each);
          }
          if (isCrashed) {
            crashes++;
            worker = {};
          }
        }
        expect(new Set(refused)).toEqual(poisons);
        // Twice with all others, then each alone.
        expect(crashes).toBeLessThanOrEqual(poison === 0 ? 0 : 2 + poison);
      }),
      { seed: 3, numRuns: 300 },
    );
  });

  it('one that was there in two crashes runs when nobody else does, and what comes waits for it', async () => {
    const line = new RequestLine(() => 0);
    const [a, b] = [request('a'), request('b')];
    crash(line, [a, b]);
    crash(line, [a, b]);
    const worker = {};
    const late = request('late');
    expect(line.enter(late, worker)).toBe(false);
    expect(line.enter(b, worker)).toBe(false);
    expect(line.enter(a, worker)).toBe(true);
    expect([b, late].map((each) => line.enter(each, worker))).toEqual([false, false]);
    // What only asks goes by.
    expect(line.enter(request('', 'GET', '/health'), worker)).toBe(true);
    const woken = line.wait();
    line.leave(a, worker);
    line.end(a);
    await woken;
    expect(line.enter(late, worker)).toBe(false);
    expect(line.enter(b, worker)).toBe(true);
    line.leave(b, worker);
    line.end(b);
    expect(line.enter(late, worker)).toBe(true);
  });

  it('a suspect waits until what another worker had is known to have left it', () => {
    const line = new RequestLine(() => 0);
    const [a, late] = [request('a'), request('late')];
    crash(line, [a, request('b')]);
    const worker = {};
    expect([a, late].map((each) => line.enter(each, worker))).toEqual([true, true]);
    expect(line.crashed(a, worker)).toBe(false);
    line.leave(a, worker);
    expect(line.enter(a, {})).toBe(false);
    expect(line.crashed(late, worker)).toBe(false);
    line.leave(late, worker);
    expect(line.enter(a, {})).toBe(true);
  });

  it('one whose client has left in the line holds nobody up', () => {
    const line = new RequestLine(() => 0);
    const all = [request('a'), request('b')];
    crash(line, all);
    crash(line, all);
    line.end(all[0]!);
    expect(line.enter(all[1]!, {})).toBe(true);
  });

  it('a stream that gets further is given one crash more, and no more', () => {
    const line = new RequestLine(() => 0);
    const stream = request('stream');
    stream.sent.answer = { origin: '{}', tokens: [] };
    for (const refused of [[], [], [stream]]) {
      stream.sent.answer.tokens.push(1);
      expect(crash(line, [stream])).toEqual(refused);
    }
    const stuck = request('stuck');
    stuck.sent.answer = { origin: '{}', tokens: [] };
    stuck.sent.answer.tokens.push(1);
    expect([crash(line, [stuck]), crash(line, [stuck])]).toEqual([[], [stuck]]);
  });

  it('one that was refused is refused at once when it comes again, for ten minutes', () => {
    let now = 0;
    const line = new RequestLine(() => now);
    crash(line, [request('before')]);
    const poison = request('poison');
    crash(line, [poison]);
    crash(line, [poison]);
    expect(() => line.check(request('poison'))).toThrow(expect.objectContaining({ code: 'WARMPATH_ENGINE_FAILED' }));
    expect(() => line.check(request('poison', 'POST', '/v1/chat/completions'))).not.toThrow();
    expect(() => line.check(request('other'))).not.toThrow();
    now = 600_000;
    expect(() => line.check(request('poison'))).not.toThrow();
  });
});
