import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { arrange, type Document, observe, ServedHistory } from '../src/index.js';
import { type HeldPrompt, hintTokens, PromptSlots, type PromptSlotsOptions } from '../src/internal.js';
import { order, servedOrders } from './arbitraries.js';
import { documentsOf, idsOf } from './served.js';

/** What a real llama-server (b9 of the build that node-llama-cpp 3.22.1 carries) reused, request by request. */
interface RecordedRun {
  readonly mode: string;
  readonly options: PromptSlotsOptions;
  /** Spans as `key:tokens`, and the tokens that were reused. */
  readonly requests: readonly (readonly [spans: string, cachedTokens: number])[];
}

const RUNS = JSON.parse(
  readFileSync(new URL('llama-server-trace.json', import.meta.url), 'utf8'),
) as readonly RecordedRun[];

function promptOf(spans: string): HeldPrompt {
  return spans.split(' ').map((span) => {
    const [key, tokens] = span.split(':');
    return { key: key!, tokens: Number(tokens) };
  });
}

function serve(slots: PromptSlots, prompt: HeldPrompt): number {
  const use = slots.begin(prompt)!;
  use.hold(prompt);
  use.release();
  return use.cachedTokens;
}

describe('slots', () => {
  it.each(RUNS)('reuse what a real llama-server did: $mode', ({ options, requests }) => {
    const slots = new PromptSlots(options);
    for (const [spans, cachedTokens] of requests) {
      const prompt = promptOf(spans);
      expect(slots.predict(prompt).cachedTokens, spans).toBe(cachedTokens);
      expect(serve(slots, prompt), spans).toBe(cachedTokens);
    }
  });

  it('save no more prompts than they may, the oldest out first', () => {
    const slots = new PromptSlots({ slots: 1, maxSaved: 3 });
    for (const key of 'abcdefgh') serve(slots, [{ key, tokens: 50 }]);
    expect([...slots.prompts()].map(([span]) => span!.key)).toEqual(['h', 'e', 'f', 'g']);
    expect(slots.tokens).toBe(200);
  });

  it('save no more spans than they may, the oldest prompts out first', () => {
    const slots = new PromptSlots({ slots: 1, maxSavedSpans: 6 });
    const prompt = (name: string) => [...'123'].map((part) => ({ key: name + part, tokens: 50 }));
    for (const name of 'abcd') serve(slots, prompt(name));
    expect([...slots.prompts()].map(([span]) => span!.key)).toEqual(['d1', 'b1', 'c1']);
    // One that has too many by itself leaves nothing saved.
    serve(slots, [...prompt('e'), ...prompt('f'), ...prompt('g')]);
    expect([...slots.prompts()].slice(1).map(([span]) => span!.key)).toEqual(['c1', 'd1']);
    serve(slots, prompt('h'));
    expect([...slots.prompts()].map(([span]) => span!.key)).toEqual(['h1']);
  });

  it('give up on the request that is under way longest, and hear no more of it', () => {
    const slots = new PromptSlots({ slots: 1 });
    const prompt = (key: string) => [{ key, tokens: 50 }];
    const lost = slots.begin(prompt('a'))!;
    lost.hold(prompt('a'));
    expect(slots.begin(prompt('b'))).toBeUndefined();
    slots.releaseLongestRunning();
    const next = slots.begin(prompt('b'))!;
    lost.hold([]);
    lost.release();
    expect(slots.begin(prompt('c'))).toBeUndefined();
    next.release();
    expect(serve(slots, prompt('a'))).toBe(49);
  });
});

/** An engine with slots, and what Warmpath believes of it. */
class Engine {
  readonly slots = new PromptSlots();
  readonly history = new ServedHistory({ slots: { prompts: new PromptSlots(), name: 't' } });
  #number = 0;

  promptOf(documents: readonly Document[], question = 'question'): HeldPrompt {
    return [...documents, { key: question, tokens: 32 }];
  }

  /** Sends documents in this order; returns what was reused. */
  send(documents: readonly Document[]): number {
    const prompt = this.promptOf(documents, `question ${++this.#number}`);
    const arrangement = arrange({ documents, policy: 'retrieval' }, this.history, 0);
    observe({ kind: 'dispatched', arrangement, now: 0 }, this.history);
    const cachedTokens = serve(this.slots, prompt);
    const promptTokens = prompt.reduce((sum, { tokens }) => sum + tokens, 0);
    observe({ kind: 'completed', arrangement, now: 0, cachedTokens, promptTokens, answerTokens: 1 }, this.history);
    return cachedTokens;
  }
}

const situation = fc.record({ served: servedOrders(6, 30, 6), ids: order(6, 1, 6) });

describe('orders for slots', () => {
  it('are believed to find what the engine then reuses', () => {
    fc.assert(
      fc.property(
        situation,
        fc.constantFrom('retrieval', 'greedy', 'exact', 'foresight'),
        ({ served, ids }, policy) => {
          const engine = new Engine();
          for (const each of served) engine.send(documentsOf(each));
          const arrangement = arrange({ documents: documentsOf(ids), policy, hints: false }, engine.history, 0);
          expect(arrangement.trace.residency).toBe('modelled');
          expect(engine.send(arrangement.documents)).toBe(arrangement.predictedCachedTokens);
        },
      ),
      { numRuns: 150 },
    );
  });

  it('of `exact` reuse as much as any order does', () => {
    fc.assert(
      fc.property(fc.record({ served: servedOrders(5, 20, 5), ids: order(5, 1, 4) }), ({ served, ids }) => {
        const engine = new Engine();
        for (const each of served) engine.send(documentsOf(each));
        const documents = documentsOf(ids);
        const best = arrange({ documents, policy: 'exact', hints: false }, engine.history, 0);
        for (const each of permutations(documents)) {
          expect(engine.slots.predict(engine.promptOf(each)).cachedTokens).toBeLessThanOrEqual(
            best.predictedCachedTokens,
          );
        }
      }),
      { numRuns: 80 },
    );
  });

  it('put a long document first, which later requests can reuse alone', () => {
    const engine = new Engine();
    const [short, long] = [20, 600].map((tokens, i) => ({ ...documentsOf([`d${i}`])[0]!, tokens }));
    const other = { ...documentsOf(['other'])[0]!, tokens: 200 };
    for (let round = 0; round < 3; round++) {
      engine.send([long!, other]);
      engine.send(documentsOf(['x', 'y', 'z']));
    }
    const { documents } = arrange({ documents: [short!, long!], policy: 'foresight' }, engine.history, 0);
    expect(documents).toEqual([long, short]);
  });

  it('stay within the constraints', () => {
    const engine = new Engine();
    engine.send(documentsOf(['c', 'b', 'a']));
    const documents = documentsOf(['a', 'b', 'c']);
    for (const policy of ['exact', 'foresight'] as const) {
      expect(idsOf(arrange({ documents, policy, maxShift: 0 }, engine.history, 0))).toEqual(['a', 'b', 'c']);
      expect(arrange({ documents, policy, pin: ['b'] }, engine.history, 0).order[1]).toBe(1);
    }
  });

  it('forget nothing of what other tenants hold, and share nothing with them', () => {
    const prompts = new PromptSlots();
    const [one, two] = ['one', 'two'].map((name) => new ServedHistory({ slots: { prompts, name } }));
    const documents = documentsOf(['a', 'b', 'c', 'd']);
    const arrangement = arrange({ documents, policy: 'retrieval' }, one!, 0);
    observe({ kind: 'dispatched', arrangement, now: 0 }, one!);
    observe({ kind: 'completed', arrangement, now: 0 }, one!);
    expect(arrange({ documents }, two!, 0).predictedCachedTokens).toBe(0);
    expect(arrange({ documents }, one!, 0).predictedCachedTokens).toBeGreaterThan(0);
  });
});

describe('the price of a hint', () => {
  it('is never more than an order saves: prompts have no more to compute than in retrieval order', () => {
    fc.assert(
      fc.property(situation, fc.boolean(), fc.constantFrom('greedy', 'exact'), ({ served, ids }, hasSlots, policy) => {
        const engine = new Engine();
        const tree = new ServedHistory();
        for (const each of served) {
          engine.send(documentsOf(each));
          const arrangement = arrange({ documents: documentsOf(each), policy: 'retrieval' }, tree, 0);
          observe({ kind: 'completed', arrangement, now: 0 }, tree);
        }
        const history = hasSlots ? engine.history : tree;
        const documents = documentsOf(ids);
        const unmoved = arrange({ documents, policy: 'retrieval' }, history, 0);
        const arranged = arrange({ documents, policy }, history, 0);
        expect(unmoved.hint).toBeUndefined();
        expect(arranged.predictedCachedTokens - hintTokens(documents, arranged.order)).toBeGreaterThanOrEqual(
          unmoved.predictedCachedTokens,
        );
      }),
      { numRuns: 200 },
    );
  });

  it('keeps documents where they are when a change saves less; without hints there is nothing to pay', () => {
    const history = new ServedHistory();
    const short = documentsOf(['a', 'b']).map((document) => ({ ...document, tokens: 5 }));
    const served = arrange({ documents: [short[1]!, short[0]!], policy: 'retrieval' }, history, 0);
    observe({ kind: 'completed', arrangement: served, now: 0 }, history);
    expect(idsOf(arrange({ documents: short, policy: 'exact' }, history, 0))).toEqual(['a', 'b']);
    expect(idsOf(arrange({ documents: short, policy: 'exact', hints: false }, history, 0))).toEqual(['b', 'a']);
  });
});

function* permutations<Item>(items: readonly Item[]): Generator<Item[]> {
  if (items.length === 0) yield [];
  for (const [place, item] of items.entries()) {
    for (const rest of permutations(items.toSpliced(place, 1))) yield [item, ...rest];
  }
}
