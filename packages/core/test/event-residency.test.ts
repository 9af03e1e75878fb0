import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { heldBytes } from '../../../test/held-bytes.js';
import { ServedHistory } from '../src/index.js';
import { EventResidency, type KvEvent, type ServedRequest } from '../src/internal.js';
import { documentsOf } from './served.js';
import './seed.js';
import { isFull, runs } from '../../../test/suite.js';

const BLOCK = 4;
const PREAMBLE = { key: 'preamble', tokens: 6 };
const POOL = [...'abcdef'];

/** A document is as many tokens as its letter says, all of its letter; the preamble is six zeros. */
function tokensOf(key: string): number[] {
  if (key === PREAMBLE.key) return new Array<number>(PREAMBLE.tokens).fill(0);
  return new Array<number>(3 + 2 * POOL.indexOf(key)).fill(key.charCodeAt(0));
}

/** An engine with a prefix cache of blocks that evicts the end of what is least recent, and tells of both. */
class EngineTwin {
  readonly events: KvEvent[] = [];
  /** By all tokens from the start, in order of last use. */
  readonly #blocks = new Map<string, true>();
  readonly #capacity: number;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** Tokens that were there. */
  serve(tokens: readonly number[]): number {
    const names = blockNames(tokens);
    const cached = this.held(tokens);
    // The end is renewed first, so that the beginning outlives it.
    for (const name of names.toReversed()) {
      this.#blocks.delete(name);
      this.#blocks.set(name, true);
    }
    const fresh = names.slice(cached / BLOCK);
    if (fresh.length > 0) {
      this.events.push({
        kind: 'stored',
        tier: 'device',
        hashes: fresh,
        parent: names[cached / BLOCK - 1],
        tokens: tokens.slice(cached, names.length * BLOCK),
        blockSize: BLOCK,
      });
    }
    const gone = [...this.#blocks.keys()].slice(0, Math.max(0, this.#blocks.size - this.#capacity));
    for (const name of gone) this.#blocks.delete(name);
    if (gone.length > 0) this.events.push({ kind: 'removed', tier: 'device', hashes: gone });
    return cached;
  }

  held(tokens: readonly number[]): number {
    const names = blockNames(tokens);
    let count = 0;
    while (count < names.length && this.#blocks.has(names[count]!)) count++;
    return count * BLOCK;
  }
}

function blockNames(tokens: readonly number[]): string[] {
  return Array.from({ length: Math.floor(tokens.length / BLOCK) }, (_, place) =>
    tokens.slice(0, (place + 1) * BLOCK).join('.'),
  );
}

/** One gateway before the engine; it learns tokens, and hears events late by as many as `lag`. */
class GatewayTwin {
  readonly engine: EngineTwin;
  readonly residency = new EventResidency();
  readonly history: ServedHistory;
  #heard = 0;

  constructor(capacity: number) {
    this.engine = new EngineTwin(capacity);
    this.residency.begin(0);
    this.history = new ServedHistory({ events: this.residency });
  }

  keysOf(ids: readonly string[]): string[] {
    return [PREAMBLE.key, ...documentsOf(ids).map(({ key }) => key)];
  }

  tokensOf(ids: readonly string[]): number[] {
    return [PREAMBLE.key, ...ids].flatMap(tokensOf);
  }

  requestOf(ids: readonly string[]): ServedRequest {
    return { documents: documentsOf(ids), preamble: PREAMBLE };
  }

  /** Tokens that the engine is said to hold. */
  cached(ids: readonly string[]): number | undefined {
    return this.residency.cachedTokens(this.history, this.requestOf(ids));
  }

  serve(ids: readonly string[], question: readonly number[] = [], events: 'later' | 'hear' | 'miss' = 'later'): void {
    const request = this.requestOf(ids);
    this.history.dispatched(request, 0);
    const prompt = [...this.tokensOf(ids), ...question];
    this.engine.serve(prompt);
    if (events !== 'later') this[events]();
    this.history.completed(request, 0, {});
    let end = 0;
    const ends = [PREAMBLE.key, ...ids].map((key) => (end += tokensOf(key).length));
    if (!this.residency.knowsTokens(this.history, request)) {
      const [preambleEnd, ...documentEnds] = ends as [number, ...number[]];
      this.residency.learn(this.history, request, { tokens: prompt, preambleEnd, documentEnds });
    }
    this.residency.reconcile(this.history, request);
  }

  /** What nobody of this gateway asked for. */
  serveAnother(tokens: readonly number[]): void {
    this.engine.serve(tokens);
  }

  /** The events since the last ones are lost. */
  miss(): void {
    this.#heard = this.engine.events.length;
    this.residency.eventsLost();
  }

  hear(): void {
    for (const event of this.engine.events.slice(this.#heard)) this.residency.apply(event, 0);
    this.#heard = this.engine.events.length;
  }
}

const ids = fc.shuffledSubarray(POOL, { minLength: 1 });

describe('residency by events', () => {
  test('is what the engine holds: whole documents in the tree, tokens by the block', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 60 }),
        fc.array(fc.record({ ids, isOther: fc.boolean(), isHeard: fc.boolean() }), { maxLength: 40 }),
        (capacity, steps) => {
          const gateway = new GatewayTwin(capacity);
          // The block size is known with the first event.
          gateway.serveAnother([9, 9, 9, 9]);
          gateway.hear();
          const served: string[][] = [];
          for (const step of steps) {
            if (step.isOther) gateway.serveAnother(gateway.tokensOf(step.ids));
            else {
              gateway.serve(step.ids);
              served.push(step.ids);
            }
            if (step.isHeard) gateway.hear();
          }
          gateway.hear();
          for (const order of served) {
            const held = gateway.engine.held(gateway.tokensOf(order));
            const keys = gateway.keysOf(order);
            expect(gateway.cached(order)).toBe(held);
            let end = 0;
            const whole = keys.filter((_, place) => {
              end += tokensOf([PREAMBLE.key, ...order][place]!).length;
              return Math.floor(end / BLOCK) * BLOCK <= held;
            });
            expect(gateway.history.tree.longestPrefix(keys)).toBe(whole.length);
          }
        },
      ),
      { numRuns: runs(500) },
    );
  });

  test('brings a path back that another client had computed again', () => {
    const gateway = new GatewayTwin(12);
    gateway.serveAnother([9, 9, 9, 9]);
    gateway.hear();
    gateway.serve(['a', 'b']);
    gateway.serveAnother(new Array<number>(48).fill(7));
    gateway.hear();
    expect(gateway.history.tree.longestPrefix(gateway.keysOf(['a', 'b']))).toBe(0);
    gateway.serveAnother(gateway.tokensOf(['a', 'b']));
    gateway.hear();
    expect(gateway.history.tree.longestPrefix(gateway.keysOf(['a', 'b']))).toBe(3);
    expect(gateway.history.state).toBe('exact');
  });

  test('what stands behind a block that went and came back is there again', () => {
    const gateway = new GatewayTwin(100);
    gateway.serveAnother([9, 9, 9, 9]);
    gateway.hear();
    gateway.serve(['b', 'c', 'd']);
    gateway.hear();
    const tokens = gateway.tokensOf(['b', 'c', 'd']);
    const [first, second] = blockNames(tokens) as [string, string];
    const device = 'device' as const;
    gateway.residency.apply({ kind: 'removed', tier: device, hashes: [second] }, 0);
    expect(gateway.history.tree.longestPrefix(gateway.keysOf(['b', 'c', 'd']))).toBe(1);
    const block = { hashes: [second], parent: first, tokens: tokens.slice(BLOCK, 2 * BLOCK), blockSize: BLOCK };
    gateway.residency.apply({ kind: 'stored', tier: device, ...block }, 0);
    expect(gateway.history.tree.longestPrefix(gateway.keysOf(['b', 'c', 'd']))).toBe(4);
  });

  test('believes by itself again when events were lost, until the engine begins anew', () => {
    const gateway = new GatewayTwin(100);
    gateway.serveAnother([9, 9, 9, 9]);
    gateway.hear();
    gateway.serve(['a', 'b']);
    gateway.hear();
    gateway.residency.eventsLost();
    expect(gateway.history.state).toBe('history');
    expect(gateway.cached(['a'])).toBeUndefined();
    gateway.serve(['c']);
    expect(gateway.history.tree.longestPrefix(gateway.keysOf(['c']))).toBe(2);
    gateway.residency.begin(0);
    expect(gateway.history.state).toBe('exact');
    expect(gateway.history.tree.longestPrefix(gateway.keysOf(['a', 'b']))).toBe(0);
  });

  test.each([
    ['a gateway that starts late', true],
    ['a gateway that misses events', false],
  ])('%s is exact again when the known blocks fill the cache, and not before', (_, isLate) => {
    const capacity = 24;
    const lossOf = fc.record({ at: fc.nat(20), count: fc.nat(15) });
    let recoveries = 0;
    fc.assert(
      fc.property(fc.array(ids, { minLength: 40, maxLength: 60 }), lossOf, (requests, loss) => {
        const gateway = new GatewayTwin(capacity);
        // The null block of vLLM, and one that is not full: all others are known.
        gateway.residency.setEngineBlocks(capacity + 2);
        const first = isLate ? 0 : loss.at;
        for (const [place, request] of requests.entries()) {
          // No two prompts end alike.
          const question = [1_000 + place, 1_000 + place, 1_000 + place, 1_000 + place, 1_000 + place];
          const isLost = place >= first && place <= first + loss.count;
          gateway.serve(request, question, isLost ? 'miss' : 'hear');
          const { isExact } = gateway.residency;
          if (!isExact) continue;
          if (place > first + loss.count) recoveries++;
          for (const each of requests.slice(-8)) {
            const path = gateway.tokensOf(each);
            const cached = gateway.cached(each);
            const isLearned = gateway.residency.knowsTokens(gateway.history, gateway.requestOf(each));
            if (cached !== undefined && isLearned) expect(cached).toBe(gateway.engine.held(path));
          }
        }
      }),
      { numRuns: runs(300) },
    );
    expect(recoveries).toBeGreaterThan(100);
  });

  test('learns anew where the same documents became other tokens', () => {
    const gateway = new GatewayTwin(100);
    gateway.serveAnother([9, 9, 9, 9]);
    gateway.serve(['a', 'b']);
    gateway.hear();
    const tokens = new Array<number>(30).fill(5);
    const request = gateway.requestOf(['a', 'b']);
    gateway.residency.learn(gateway.history, request, { tokens, preambleEnd: 6, documentEnds: [12, 20] });
    expect(gateway.cached(['a', 'b'])).toBe(0);
    gateway.serveAnother(tokens);
    gateway.hear();
    expect(gateway.cached(['a', 'b'])).toBe(20);
  });

  describe('where the tokens of a prompt cannot be had', () => {
    /** Served, and its tokens asked for in vain; `share` of the prompt was cached, if the engine says so. */
    const serveUnread = (gateway: GatewayTwin, ids: readonly string[], share?: number) => {
      const request = gateway.requestOf(ids);
      const promptTokens = gateway.tokensOf(ids).length;
      gateway.history.dispatched(request, 0);
      gateway.engine.serve(gateway.tokensOf(ids));
      const report = share === undefined ? {} : { promptTokens, cachedTokens: share * promptTokens };
      gateway.history.completed(request, 0, report);
      gateway.hear();
      gateway.residency.reconcile(gateway.history, request);
      gateway.residency.tokensUnavailable(gateway.history);
    };
    /** Documents of hundreds of tokens: a miss of fewer proves nothing. */
    const LONG = 200;
    const long = (gateway: GatewayTwin, ids: readonly string[]): ServedRequest => ({
      documents: gateway.requestOf(ids).documents.map((document) => ({ ...document, tokens: LONG })),
      preamble: PREAMBLE,
    });
    const heldSteps = (gateway: GatewayTwin, ids: readonly string[]) =>
      gateway.history.tree.longestPrefix(gateway.keysOf(ids));

    const hearing = () => {
      const gateway = new GatewayTwin(1_000);
      gateway.serveAnother([9, 9, 9, 9]);
      gateway.hear();
      return gateway;
    };

    test('a history believes by itself, and what the engine reports corrects it', () => {
      const gateway = hearing();
      serveUnread(gateway, ['e', 'f']);
      expect(gateway.residency.isExact).toBe(true);
      expect(gateway.history.state).toBe('history');
      expect(heldSteps(gateway, ['e', 'f'])).toBe(3);
      const request = long(gateway, ['a', 'b']);
      for (const cachedTokens of [0, 0]) {
        gateway.history.dispatched(request, 0);
        gateway.history.completed(request, 0, { promptTokens: 2 * LONG + 6, cachedTokens });
        gateway.residency.tokensUnavailable(gateway.history);
      }
      // A miss of what was used last shows that all before it is gone.
      expect(heldSteps(gateway, ['e', 'f'])).toBeLessThan(3);
    });

    test('it is exact again when tokens are learned', () => {
      const gateway = hearing();
      serveUnread(gateway, ['a']);
      gateway.serve(['b']);
      gateway.hear();
      expect(gateway.history.state).toBe('exact');
      expect(gateway.cached(['b'])).toBe(8);
      expect(heldSteps(gateway, ['a'])).toBe(2);
    });

    test('one path among others that are followed stays, until the engine reports that it is not there', () => {
      const gateway = hearing();
      gateway.serve(['a']);
      gateway.hear();
      const completed = (ids: readonly string[], cachedTokens: number) => {
        const request = long(gateway, ids);
        gateway.history.dispatched(request, 0);
        gateway.history.completed(request, 0, { promptTokens: 3 * LONG + 6, cachedTokens });
        gateway.residency.reconcile(gateway.history, request);
        gateway.residency.tokensUnavailable(gateway.history);
      };
      completed(['a', 'b', 'c'], 0);
      expect(gateway.history.state).toBe('exact');
      expect(heldSteps(gateway, ['a', 'b', 'c'])).toBe(4);
      completed(['a', 'b', 'd'], 2 * LONG + 6);
      expect(heldSteps(gateway, ['a', 'b', 'c'])).toBe(4);
      completed(['a', 'b', 'e'], LONG);
      // What stood behind is gone with it; it was computed again, and is there now.
      expect(heldSteps(gateway, ['a', 'b', 'c'])).toBe(3);
      expect(heldSteps(gateway, ['a', 'b', 'e'])).toBe(4);
      expect(gateway.cached(['a'])).toBe(8);
    });
  });

  describe('of models that are adapters', () => {
    const TOKENS = Array.from({ length: 16 }, (_, place) => place);
    const request: ServedRequest = { documents: documentsOf(['a', 'b']), preamble: PREAMBLE };
    /** As vLLM tells of a prompt of 16 tokens: its adapter stands beside the first block. */
    const stored = (extra?: string, adapter?: string): KvEvent => ({
      kind: 'stored',
      tier: 'device',
      hashes: [0, 1, 2, 3].map((place) => `${extra}-${place}`),
      parent: undefined,
      tokens: TOKENS,
      blockSize: BLOCK,
      ...(extra !== undefined && { extras: [extra, undefined, undefined, undefined] }),
      ...(adapter !== undefined && { adapter }),
    });

    /** One history of each model, of one engine. */
    const served = (residency: EventResidency, model: string, salt?: string) => {
      const history = new ServedHistory({ events: residency });
      const serve = (cachedTokens?: number) => {
        history.dispatched(request, 0);
        history.completed(request, 0, { promptTokens: 20, cachedTokens });
        if (!residency.knowsTokens(history, request)) {
          const learned = { tokens: TOKENS, preambleEnd: 6, documentEnds: [11, 16], model, salt };
          residency.learn(history, request, learned);
        }
        residency.reconcile(history, request, cachedTokens);
      };
      return { history, serve, cached: () => residency.cachedTokens(history, request) };
    };

    test.each([
      ['heard of before its prompt is read', true, undefined],
      ['heard of after its prompt was read', false, undefined],
      ['with a salt', true, 'salt'],
    ])('finds the blocks of an adapter, %s, and of no other model', (_, isEarly, salt) => {
      const residency = new EventResidency();
      residency.begin(0);
      residency.apply(stored('other', 'other'), 0);
      const adapter = served(residency, 'sql', salt);
      const base = served(residency, 'base', salt);
      const event = stored(salt === undefined ? 'sql' : `sql\n${salt}`, 'sql');
      if (isEarly) residency.apply(event, 0);
      adapter.serve();
      base.serve();
      if (!isEarly) {
        residency.apply(event, 0);
        adapter.serve();
      }
      expect(adapter.cached()).toBe(16);
      expect(base.cached()).toBe(0);
      residency.apply(stored(salt), 0);
      expect(base.cached()).toBe(16);
      residency.apply(
        { kind: 'removed', tier: 'device', hashes: [`${salt === undefined ? 'sql' : `sql\n${salt}`}-0`] },
        0,
      );
      expect(adapter.cached()).toBe(0);
      expect(base.cached()).toBe(16);
    });

    test('a history is believed by itself where the engine reuses what its events do not name', () => {
      const residency = new EventResidency();
      residency.begin(0);
      // An engine whose events leave the salt out.
      residency.apply(stored(), 0);
      const salted = served(residency, 'base', 'salt');
      for (const cachedTokens of [0, 16, 16]) salted.serve(cachedTokens);
      expect(salted.history.state).toBe('exact');
      salted.serve(16);
      expect(salted.history.state).toBe('history');
      expect(salted.cached()).toBeUndefined();
      expect(salted.history.tree.longestPrefix([PREAMBLE.key, ...request.documents.map(({ key }) => key)])).toBe(3);
      // It names them now.
      residency.apply(stored('salt'), 0);
      salted.serve(16);
      expect(salted.history.state).toBe('exact');
      expect(salted.cached()).toBe(16);
    });
  });

  const begun = (maxBytes: number): { readonly residency: EventResidency; readonly history: ServedHistory } => {
    const residency = new EventResidency({ maxBytes });
    residency.begin(0);
    residency.apply(
      { kind: 'stored', tier: 'device', hashes: ['x'], parent: undefined, tokens: [9, 9, 9, 9], blockSize: BLOCK },
      0,
    );
    return { residency, history: new ServedHistory({ events: residency }) };
  };
  const requestFor = (...ids: string[]) => ({ documents: documentsOf(ids), preamble: undefined });

  test('remembers as many documents as it may, the least recently used go first', () => {
    const prompt = { tokens: [1, 2, 3, 4, 5, 6, 7, 8], preambleEnd: 0, documentEnds: [4, 8] };
    const { residency: two, history: other } = begun(1e6);
    two.learn(other, requestFor('a', 'b'), prompt);
    const { residency, history } = begun(2 * two.bytes);
    for (const ids of ['ab', 'cd', 'ae']) residency.learn(history, requestFor(...ids), prompt);
    expect(residency.documents).toBe(4);
    expect(residency.knowsTokens(history, requestFor('a', 'e'))).toBe(true);
    expect(residency.knowsTokens(history, requestFor('a', 'b'))).toBe(false);
    expect(residency.knowsTokens(history, requestFor('c', 'd'))).toBe(true);
  });

  test.runIf(isFull)('takes what it says, and no more than it may, however long documents are', async () => {
    const maxBytes = 4_000_000;
    const { residency, history } = begun(maxBytes);
    const learn = (number: number, length: number): void => {
      const tokens = Array.from({ length }, (_, place) => (number * 7_919 + place) % 50_000);
      residency.learn(history, requestFor(`${number}`), { tokens, preambleEnd: 0, documentEnds: [length] });
    };
    const before = await heldBytes();
    for (let number = 0; number < 400; number++) learn(number, 1_000);
    expect(residency.documents).toBeLessThan(200);
    expect(residency.bytes).toBeLessThanOrEqual(maxBytes);
    expect(residency.bytes).toBeGreaterThan(maxBytes / 2);
    expect((await heldBytes()) - before).toBeLessThan(1.75 * maxBytes);
    // Short ones come in their place, and one that is too long for all of it leaves nothing counted behind.
    for (let number = 400; number < 8_400; number++) learn(number, 4);
    expect(residency.documents).toBeGreaterThan(4_000);
    expect((await heldBytes()) - before).toBeLessThan(1.75 * maxBytes);
    learn(8_400, 200_000);
    expect([residency.documents, residency.bytes]).toEqual([0, 0]);
  });
});
