import fc from 'fast-check';
import './seed.js';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../test/suite.js';
import {
  type Arrangement,
  arrange,
  observe,
  type Preamble,
  ServedHistory,
  type ServedHistoryOptions,
} from '../src/index.js';
import { order } from './arbitraries.js';
import { documentsOf, idsOf, serve } from './served.js';

const preamble: Preamble = { key: 'preamble#1', tokens: 40 };

function ask(history: ServedHistory, ids: readonly string[]): Arrangement {
  return arrange({ documents: documentsOf(ids), preamble }, history, 0);
}

function dispatch(history: ServedHistory, ids: readonly string[], now = 0): Arrangement {
  const arrangement = ask(history, ids);
  observe({ kind: 'dispatched', arrangement, now }, history);
  return arrangement;
}

function complete(
  history: ServedHistory,
  arrangement: Arrangement,
  cachedTokens?: number,
  promptTokens?: number,
): void {
  observe(
    {
      kind: 'completed',
      arrangement,
      now: 0,
      ...(cachedTokens !== undefined && { cachedTokens }),
      ...(promptTokens !== undefined && { promptTokens }),
    },
    history,
  );
}

describe('what another gateway sent', () => {
  const heard = (history: ServedHistory, ids: readonly string[]) =>
    observe({ kind: 'received', arrangement: { documents: documentsOf(ids), preamble }, now: 0 }, history);

  test('is there for the next request, and counts as an access', () => {
    const history = new ServedHistory();
    heard(history, ['a', 'b', 'c']);
    expect(idsOf(ask(history, ['c', 'd', 'b', 'a']))).toEqual(['a', 'b', 'c', 'd']);
    expect([history.requests, history.hotness.total(documentsOf(['a'])[0]!.key)]).toEqual([1, 1]);
  });

  test('is no promise: that it is not there says nothing about what was served before', () => {
    const history = new ServedHistory();
    complete(history, dispatch(history, ['x', 'y']), 0);
    heard(history, ['a', 'b']);
    complete(history, dispatch(history, ['b', 'a']), 0);
    expect(history.state).toBe('history');
    expect(ask(history, ['x', 'y']).predictedCachedTokens).toBeGreaterThan(0);
  });

  test("leaves it to the engine's own events what is resident, where they are followed", () => {
    const history = new ServedHistory({ events: { isExactFor: () => true, followedSteps: () => 0 } });
    heard(history, ['a', 'b']);
    expect(ask(history, ['a', 'b']).predictedCachedTokens).toBe(0);
    expect(history.requests).toBe(1);
  });
});

describe('in flight', () => {
  test('a dispatched order is there for the next request at once', () => {
    const history = new ServedHistory();
    dispatch(history, ['a', 'b', 'c']);
    expect(idsOf(ask(history, ['c', 'd', 'b', 'a']))).toEqual(['a', 'b', 'c', 'd']);
    expect(history.requests).toBe(1);
  });

  test('arranging alone changes nothing', () => {
    const history = new ServedHistory();
    ask(history, ['a', 'b']);
    expect([history.tree.nodes, history.requests]).toEqual([0, 0]);
  });

  test('a failed request takes its own order back, and nothing that others brought or use', () => {
    const history = new ServedHistory();
    complete(history, dispatch(history, ['a', 'b']));
    const failing = dispatch(history, ['a', 'b', 'c', 'd']);
    const follower = dispatch(history, ['a', 'b', 'c', 'e']);
    observe({ kind: 'failed', arrangement: failing, now: 0 }, history);
    expect(idsOf(ask(history, ['d', 'c', 'b', 'a']))).toEqual(['a', 'b', 'c', 'd']);
    expect(ask(history, ['d', 'c', 'b', 'a']).trace.cachedDocuments).toBe(3);
    observe({ kind: 'failed', arrangement: follower, now: 0 }, history);
    expect(ask(history, ['d', 'c', 'b', 'a']).trace.cachedDocuments).toBe(2);
    expect(history.tree.nodes).toBe(3);
  });

  test('what was completed stays when a later request along it fails', () => {
    const history = new ServedHistory();
    complete(history, dispatch(history, ['a', 'b']));
    observe({ kind: 'failed', arrangement: dispatch(history, ['a', 'b']), now: 0 }, history);
    expect(history.tree.nodes).toBe(3);
  });

  test('each request is counted once, and outcomes may come twice or without a dispatch', () => {
    const history = new ServedHistory();
    const arrangement = dispatch(history, ['a']);
    complete(history, arrangement);
    observe({ kind: 'failed', arrangement, now: 0 }, history);
    expect(history.requests).toBe(1);
    expect(history.tree.nodes).toBe(2);
    complete(history, ask(history, ['b']));
    expect(history.requests).toBe(2);
    const { key } = documentsOf(['b'])[0]!;
    expect([history.hotness.frequency(key), history.hotness.total(key), history.hotness.lastSeen(key)]).toEqual([
      1, 1, 2,
    ]);
  });
});

describe("what the engine's cached tokens teach", () => {
  /** Serves three topics, then returns what the history predicts for the first once the engine says it was gone. */
  function afterMiss(options: ServedHistoryOptions, cachedTokens: number, promptTokens?: number) {
    const history = new ServedHistory(options);
    for (const ids of ['abcd', 'efgh', 'ijkl']) complete(history, dispatch(history, [...ids]));
    const again = dispatch(history, [...'efgh']);
    expect(again.trace.cachedDocuments).toBe(4);
    complete(history, again, cachedTokens, promptTokens);
    const cached = (ids: string) => ask(history, [...ids]).trace.cachedDocuments;
    return { oldest: cached('abcd'), itself: cached('efgh'), newest: cached('ijkl') };
  }

  test('a document found missing takes all with it that was used longer ago; the request itself is resident now', () => {
    expect(afterMiss({}, 0)).toEqual({ oldest: 0, itself: 4, newest: 4 });
  });

  test('a full hit, less a block and the last token, takes nothing', () => {
    const total = documentsOf([...'efgh']).reduce((sum, document) => sum + document.tokens, preamble.tokens);
    expect(afterMiss({}, total - 64)).toEqual({ oldest: 4, itself: 4, newest: 4 });
  });

  test('an engine that counts fewer tokens a document than we do is not taken for a miss', () => {
    const total = documentsOf([...'efgh']).reduce((sum, document) => sum + document.tokens, preamble.tokens);
    expect(afterMiss({}, total / 3 - 16, total / 3)).toEqual({ oldest: 4, itself: 4, newest: 4 });
  });

  test('a document of which only the start was left is missing too', () => {
    const [e, f] = documentsOf([...'ef']);
    const reach = preamble.tokens + e!.tokens;
    expect(f!.tokens).toBeGreaterThan(reach * 0.25 + 64);
    expect(afterMiss({}, reach + 16).oldest).toBe(0);
  });

  test('nothing is concluded for engines that do not evict what is least recent', () => {
    expect(afterMiss({ evictsLeastRecent: false }, 0)).toEqual({ oldest: 4, itself: 4, newest: 4 });
  });

  /** Pairs of documents that share nothing. */
  const pairs = Array.from({ length: 16 }, (_, i) => [`first-${i}`, `second-${i}`]);
  const tokensOfPair = (pair: readonly string[]) => documentsOf(pair).reduce((sum, { tokens }) => sum + tokens, 0);

  /**
   * Serves pairs by an engine with room for so many tokens that evicts what is least recent, and says what came of it.
   */
  function withEngine(history: ServedHistory, room: () => number) {
    const held: (readonly string[])[] = [];
    return (pair: readonly string[]): 'hit' | 'miss' | 'wrongly expected' | 'not expected' => {
      const request = dispatch(history, pair);
      const place = held.indexOf(pair);
      const cached = preamble.tokens + (place < 0 ? 0 : tokensOfPair(pair));
      if (place >= 0) held.splice(place, 1);
      held.push(pair);
      while (held.reduce((sum, each) => sum + tokensOfPair(each), 0) > room()) held.shift();
      complete(history, request, cached);
      if (request.predictedCachedTokens > preamble.tokens) return place < 0 ? 'wrongly expected' : 'hit';
      return place < 0 ? 'miss' : 'not expected';
    };
  }

  test('what the engine evicts is forgotten before anyone misses it, as far as its room can be learned', () => {
    const history = new ServedHistory();
    const serveOne = withEngine(history, () => pairs.slice(0, 8).reduce((sum, pair) => sum + tokensOfPair(pair), 0));
    let state = 1;
    const outcomes = Array.from({ length: 1_000 }, () => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return serveOne(pairs[state >>> 28]!);
    });
    const count = (outcome: string) => outcomes.slice(100).filter((each) => each === outcome).length;
    expect(count('hit')).toBeGreaterThan(8 * count('not expected'));
    expect(count('miss')).toBeGreaterThan(5 * count('wrongly expected'));
  });

  test('an engine that forgot everything once is not believed to be small for long', () => {
    const history = new ServedHistory();
    let room = 1e9;
    const serveOne = withEngine(history, () => room);
    const resident = () => history.tree.nodes - 1;
    for (const pair of pairs) serveOne(pair);
    expect(resident()).toBe(2 * pairs.length);
    room = 0;
    serveOne(pairs[0]!);
    serveOne(pairs[0]!);
    expect(resident()).toBeLessThan(2 * pairs.length);
    room = 1e9;
    for (let i = 0; i < 10; i++) for (const pair of pairs) serveOne(pair);
    expect(resident()).toBe(2 * pairs.length);
  });

  test('a path that was only in flight proves nothing', () => {
    const history = new ServedHistory();
    complete(history, dispatch(history, [...'abcd']));
    dispatch(history, [...'efgh']);
    complete(history, dispatch(history, [...'efgh']), 0);
    expect(ask(history, [...'abcd']).trace.cachedDocuments).toBe(4);
    for (const ids of ['ij', 'kl', 'mn', 'op', 'qr', 'st']) {
      dispatch(history, [...ids]);
      complete(history, dispatch(history, [...ids]), 40);
    }
    expect(history.state).toBe('history');
  });

  test('degraded while most of the recent predictions are missed, and back again', () => {
    const history = new ServedHistory();
    const round = (cachedTokens: number) => complete(history, dispatch(history, [...'abcd']), cachedTokens);
    round(0);
    expect(history.state).toBe('history');
    for (let i = 0; i < 4; i++) round(0);
    expect(history.state).toBe('degraded');
    expect(ask(history, ['a']).trace.residency).toBe('degraded');
    for (let i = 0; i < 16; i++) round(10_000);
    expect(history.state).toBe('history');
  });
});

describe('an engine that counts nothing and evicts nothing', () => {
  interface TimedRequest {
    readonly ids: readonly string[];
    readonly promptTokens: number;
    readonly ttftMs: number;
  }

  /** Completes requests as a caller does that measures times; says whether each is believed to be cached whole then. */
  const believesAll = (requests: readonly TimedRequest[]): boolean => {
    const history = new ServedHistory();
    const asked = (ids: readonly string[]) =>
      arrange({ documents: documentsOf(ids), preamble, policy: 'retrieval' }, history, 0);
    for (const { ids, ...times } of requests) {
      const arrangement = asked(ids);
      observe({ kind: 'dispatched', arrangement, now: 0 }, history);
      observe({ kind: 'completed', arrangement, now: 0, ...times }, history);
    }
    const isWhole = ({ documents, predictedCachedTokens }: Arrangement) =>
      predictedCachedTokens === documents.reduce((sum, { tokens }) => sum + tokens, preamble.tokens);
    return history.state === 'history' && requests.every(({ ids }) => isWhole(asked(ids)));
  };

  test('no sequence of lengths and times changes what is believed of it', () => {
    const request = fc.record({
      ids: order(5, 1, 12),
      promptTokens: fc.integer({ min: 1, max: 5_000 }),
      ttftMs: fc.double({ min: 0, max: 5_000, noNaN: true }),
    });
    fc.assert(
      fc.property(fc.array(request, { maxLength: 60, size: 'max' }), (requests) => {
        expect(believesAll([...requests, ...requests])).toBe(true);
      }),
      { numRuns: runs(60), endOnFailure: true },
    );
  });

  test('a short prompt that is cached whole takes as long a token as a cold one, and is no miss', () => {
    const cold = Array.from({ length: 8 }, (_, at) => ({
      ids: [`x${at}`, `y${at}`],
      promptTokens: 1_000,
      ttftMs: 110,
    }));
    const short = { ids: ['a'], promptTokens: 100, ttftMs: 11 };
    expect(believesAll([...cold, short, short, short, short])).toBe(true);
  });
});

test('orders older than maxAgeMs are forgotten', () => {
  const history = new ServedHistory({ maxAgeMs: 1_000 });
  dispatch(history, ['a', 'b'], 0);
  dispatch(history, ['c', 'd'], 900);
  dispatch(history, ['e'], 1_100);
  expect(ask(history, ['b', 'a']).trace.cachedDocuments).toBe(0);
  expect(ask(history, ['d', 'c']).trace.cachedDocuments).toBe(2);
});

test('the statistics are bounded too', () => {
  const history = new ServedHistory({ hotness: { window: 2, maxDocuments: 3 } });
  for (const ids of ['ab', 'cd', 'e']) serve(history, [...ids]);
  const total = (id: string) => history.hotness.total(documentsOf([id])[0]!.key);
  expect([...'abcde'].map(total)).toEqual([0, 0, 1, 1, 1]);
});

test('5,000 disjoint requests are served; clearing gives the memory back', () => {
  const history = new ServedHistory();
  const empty = history.tree.bytes;
  for (let i = 0; i < 5_000; i++) serve(history, [`x${i}`, `y${i}`, `z${i}`]);
  expect(idsOf(arrange({ documents: documentsOf(['z77', 'y77', 'x77']) }, history, 0))).toEqual(['x77', 'y77', 'z77']);
  expect(history.tree.nodes).toBe(15_000);
  history.clear();
  expect([history.tree.nodes, history.tree.bytes, history.requests]).toEqual([0, empty, 0]);
  expect(ask(history, ['x77']).predictedCachedTokens).toBe(0);
});
