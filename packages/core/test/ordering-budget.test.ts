import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../test/suite.js';
import {
  arrange,
  type Context,
  type Document,
  type PolicyName,
  type ResidencyView,
  ServedHistory,
} from '../src/index.js';
import { createPolicy, type HeldPrompt, PromptSlots, type TreeNode } from '../src/internal.js';
import type { SlotUse } from '../src/residency/prompt-slots.js';
import { bestPath, OPERATIONS_A_LOOK_UP } from '../src/tree/best-path.js';
import { KnowledgeTree } from '../src/tree/knowledge-tree.js';
import { constraints, order, servedOrders } from './arbitraries.js';
import { documentsOf, historyOf, serve } from './served.js';

const BUDGET = 10_000;
const DOCUMENTS = Array.from({ length: 20 }, (_, number) => `document-${number}`);
const SEARCHING = ['greedy', 'exact', 'foresight'] as const satisfies readonly PolicyName[];

/** Pseudo-random permutations of the 20 documents, each cut at 12: no path ever holds all, so no search ends early. */
function hostileOrders(count: number): string[][] {
  let state = 7;
  const next = (below: number) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fff_ffff;
    return (state >> 8) % below;
  };
  return Array.from({ length: count }, () => {
    const ids = [...DOCUMENTS];
    for (let last = ids.length - 1; last > 0; last--) {
      const other = next(last + 1);
      [ids[last], ids[other]] = [ids[other]!, ids[last]!];
    }
    return ids.slice(0, 12);
  });
}

/** A hostile history: some 30,000 nodes, all of documents of the context. */
function hostileHistory(): ServedHistory {
  const history = new ServedHistory();
  const known = new Map(documentsOf(DOCUMENTS).map((document) => [document.id, document]));
  for (const ids of hostileOrders(3_000)) {
    history.dispatched({ documents: ids.map((id) => known.get(id)!), preamble: undefined }, 0);
  }
  return history;
}

/** A node whose children count how often they are looked up. */
function countingNode(node: TreeNode, onLookUp: () => void): TreeNode {
  class CountingChildren extends Map<string, TreeNode> {
    override get(key: string): TreeNode | undefined {
      onLookUp();
      const child = super.get(key);
      return child && countingNode(child, onLookUp);
    }

    override *values(): MapIterator<TreeNode> {
      for (const child of super.values()) {
        onLookUp();
        yield countingNode(child, onLookUp);
      }
    }
  }
  return { ...node, children: new CountingChildren(node.children) };
}

/** The view, and what it was made to do: look-ups in the tree, and operations of best paths as they say themselves. */
function counting(history: ServedHistory): { view: ResidencyView; count: { lookUps: number; ofPaths: number } } {
  const count = { lookUps: 0, ofPaths: 0 };
  const { tree } = history;
  const view: ResidencyView = {
    state: history.state,
    tree: Object.create(tree, { root: { get: () => countingNode(tree.root, () => count.lookUps++) } }) as typeof tree,
    hotness: history.hotness,
    recent: history.recent,
    requests: history.requests,
    bestPath(...question) {
      const path = history.bestPath(...question);
      count.ofPaths += path.operations;
      return path;
    },
  };
  return { view, count };
}

const HOSTILE = hostileHistory();

function hostileContext(more: Partial<Context> = {}): Context {
  return { documents: documentsOf(DOCUMENTS), preamble: undefined, maxShift: undefined, pinned: [], ...more };
}

/** Each document behind another one first, so that each waiting request is a search of its own. */
function hostileWaiting(count: number): readonly (readonly Document[])[] {
  const documents = documentsOf(DOCUMENTS);
  return Array.from({ length: count }, (_, number) => [
    ...documents.slice(number % 20),
    ...documents.slice(0, number % 20),
  ]);
}

describe('a budget of 10,000 operations on a hostile tree', () => {
  const waitingCounts = [0, 1, 16, 64];
  const limits = [{}, { maxShift: 20 }, { maxShift: 3, pinned: [4] }, { shiftPrice: 3 }];
  const cases = SEARCHING.flatMap((name) =>
    waitingCounts.flatMap((waiting) => limits.map((limit) => ({ name, waiting, limit }))),
  );

  test.each(cases)('holds for `$name`, $waiting waiting, $limit', ({ name, waiting, limit }) => {
    const { view, count } = counting(HOSTILE);
    const context = hostileContext({ ...limit, waiting: hostileWaiting(waiting) });
    const policy = createPolicy(name, { maxOperations: BUDGET });
    const ordering = policy.arrange(context, view, 0);
    expect([...ordering.order].sort((a, b) => a - b)).toEqual([...context.documents.keys()]);
    const operations = OPERATIONS_A_LOOK_UP * count.lookUps + count.ofPaths;
    expect(operations).toBeLessThanOrEqual(BUDGET);
    expect(operations).toBeGreaterThan(0);
    expect(policy.arrange(context, view, 0)).toEqual(ordering);
  });

  test('the tree takes far more without one, and the trace says what the budget did', () => {
    const { view, count } = counting(HOSTILE);
    createPolicy('exact', { maxOperations: Number.POSITIVE_INFINITY }).arrange(hostileContext(), view, 0);
    expect(count.ofPaths).toBeGreaterThan(20 * BUDGET);
    const documents = documentsOf(DOCUMENTS);
    const traceOf = (policy: PolicyName, waiting: number) =>
      arrange({ documents, policy, waiting: hostileWaiting(waiting) }, HOSTILE, 0).trace;
    expect(traceOf('exact', 0)).toMatchObject({ policy: 'exact', cutShort: 'partial', fellBack: undefined });
    expect(traceOf('foresight', 16)).toMatchObject({ policy: 'foresight', cutShort: 'partial' });
    expect(arrange({ documents: documents.slice(0, 3), policy: 'exact' }, HOSTILE, 0).trace.cutShort).toBeUndefined();
  });

  test('what a search says it took is what it took: every look at a child, counted by the tree', () => {
    const tree = new KnowledgeTree();
    for (const ids of hostileOrders(500)) {
      const documents = documentsOf(ids);
      tree.insert(
        { keys: documents.map(({ key }) => key), tokens: documents.map(({ tokens }) => tokens) },
        'confirmed',
        0,
      );
    }
    let looks = 0;
    const root = countingNode(tree.root, () => looks++);
    for (const budget of [500, 2_000, BUDGET]) {
      looks = 0;
      const options = { preamble: undefined, rule: undefined, maxOperations: budget };
      const path = bestPath({ root }, documentsOf(DOCUMENTS), options);
      expect(path.operations).toBeLessThanOrEqual(budget);
      expect(OPERATIONS_A_LOOK_UP * looks).toBeLessThanOrEqual(path.operations);
      expect(path.isComplete).toBe(false);
    }
  });
});

describe('a search that is cut short', () => {
  test('never finds less with a larger budget, and with enough of it finds what it finds without any', () => {
    fc.assert(
      fc.property(
        servedOrders(12, 60),
        order(16, 1),
        fc.uniqueArray(fc.integer({ min: 0, max: 4_000 }), { minLength: 2, maxLength: 8 }),
        fc.boolean(),
        (served, ids, budgets, isConstrained) => {
          const history = historyOf(served);
          const documents = documentsOf(ids);
          const rule = isConstrained
            ? { allows: (prefix: readonly number[], rank: number) => rank <= prefix.length + 3 }
            : undefined;
          const find = (budget: number) => history.bestPath(documents, undefined, rule, budget);
          const whole = find(Number.POSITIVE_INFINITY);
          expect(whole.isComplete).toBe(true);
          let least = 0;
          for (const budget of budgets.sort((a, b) => a - b)) {
            const path = find(budget);
            expect(path.operations).toBeLessThanOrEqual(budget);
            expect(path.tokens).toBeGreaterThanOrEqual(least);
            least = path.tokens;
            expect(path.isComplete).toBe(whole.operations <= budget);
            if (path.isComplete) expect(path).toEqual(whole);
          }
        },
      ),
      { numRuns: runs(200) },
    );
  });

  test('is still no worse than the greedy walk when it gets as far as the walk does', () => {
    const exact = createPolicy('exact', { maxOperations: BUDGET }).arrange(hostileContext(), HOSTILE, 0);
    const greedy = createPolicy('greedy').arrange(hostileContext(), HOSTILE, 0);
    expect(exact.cachedTokens).toBeGreaterThanOrEqual(greedy.cachedTokens);
  });
});

/** Slots that count how often a span that they hold is read. */
class CountingSlots extends PromptSlots {
  reads = 0;

  override begin(prompt: HeldPrompt): SlotUse | undefined {
    const use = super.begin(prompt);
    const counted = (held: HeldPrompt) => held.map(({ key, tokens }) => this.#counted(key, tokens));
    return use && { ...use, hold: (held) => use.hold(counted(held)) };
  }

  #counted(key: string, tokens: number) {
    const count = () => {
      this.reads++;
      return key;
    };
    return Object.defineProperty({ tokens }, 'key', { get: count, enumerable: true }) as {
      key: string;
      tokens: number;
    };
  }
}

/** Tokens of a document that keeps the rest of a prompt below what llama-server takes for the same. */
const LONG = 100_000;

/**
 * Some 500 saved prompts: permutations, or all that begin as the retrieval order does, which is the dearest to compare;
 * their ends are so long that the engine does not take one for the other.
 */
function hostileSlots(shared: boolean): { history: ServedHistory; prompts: CountingSlots } {
  const prompts = new CountingSlots({ maxSaved: 512 });
  const history = new ServedHistory({ slots: { prompts, name: 't' } });
  for (const [number, ids] of hostileOrders(520).entries()) {
    const other = { ...documentsOf([`other-${number}`])[0]!, tokens: LONG };
    const documents = shared ? [...documentsOf(DOCUMENTS.slice(0, 19)), other] : documentsOf(ids);
    const arrangement = arrange({ documents, policy: 'retrieval' }, history, 0);
    history.dispatched(arrangement, 0);
    history.completed(arrangement, 0, {});
  }
  expect([...prompts.prompts()].length).toBeGreaterThan(shared ? 500 : 300);
  return { history, prompts };
}

describe.each([false, true])('a budget before an engine with slots, prompts that all begin alike: %s', (shared) => {
  const { history, prompts } = hostileSlots(shared);
  const limits = [{}, { maxShift: 20 }, { maxShift: 3, pinned: [4] }, { shiftPrice: 3 }];
  const cases = SEARCHING.flatMap((name) =>
    [8, 20].flatMap((count) => limits.map((limit) => ({ name, count, limit }))),
  );

  test.each(cases)('of 10,000 operations holds for `$name`, $count documents, $limit', ({ name, count, limit }) => {
    const context = hostileContext({ ...limit, documents: documentsOf(DOCUMENTS.slice(0, count)) });
    const policy = createPolicy(name, { maxOperations: BUDGET });
    prompts.reads = 0;
    const ordering = policy.arrange(context, history, 0);
    expect(prompts.reads).toBeGreaterThan(0);
    expect(prompts.reads).toBeLessThanOrEqual(BUDGET);
    expect([...ordering.order].sort((a, b) => a - b)).toEqual([...context.documents.keys()]);
    expect(policy.arrange(context, history, 0)).toEqual(ordering);
    if (count === 20 && name !== 'greedy') expect(ordering.cutShort).toBe('partial');
  });

  test('is kept to by best paths, and takes less of what it leaves out', () => {
    const find = (budget: number) => history.bestPath(documentsOf(DOCUMENTS), undefined, undefined, budget);
    const whole = find(Number.MAX_SAFE_INTEGER);
    expect(whole.isComplete).toBe(true);
    for (const budget of [0, 100, 2_000, BUDGET, 65_536]) {
      prompts.reads = 0;
      const path = find(budget);
      expect(prompts.reads).toBeLessThanOrEqual(path.operations);
      expect(path.operations).toBeLessThanOrEqual(budget);
      expect(path.tokens).toBeLessThanOrEqual(whole.tokens);
    }
  });
});

describe('orders before an engine with slots', () => {
  test('are those without a budget wherever it does not bind', () => {
    const drawn = fc.record({
      served: servedOrders(12, 80),
      ids: order(12, 1),
      budget: fc.integer({ min: 0, max: 9_000 }),
    });
    let bound = 0;
    fc.assert(
      fc.property(
        drawn.chain((each) => constraints(each.ids.length).map((limits) => ({ ...each, limits }))),
        ({ served, ids, budget, limits }) => {
          const history = new ServedHistory({ slots: { prompts: new PromptSlots(), name: 't' } });
          for (const each of served) serve(history, each);
          const context = hostileContext({ ...limits, documents: documentsOf(ids) });
          for (const name of SEARCHING) {
            const whole = createPolicy(name, { maxOperations: Number.MAX_SAFE_INTEGER }).arrange(context, history, 0);
            expect(whole.cutShort).toBeUndefined();
            expect(createPolicy(name).arrange(context, history, 0)).toEqual(whole);
            const bounded = createPolicy(name, { maxOperations: budget }).arrange(context, history, 0);
            if (bounded.cutShort === undefined) expect(bounded).toEqual(whole);
            else bound++;
          }
        },
      ),
      { numRuns: runs(150) },
    );
    expect(bound).toBeGreaterThan(0);
  });
});

describe('requests of up to 20 documents on the trees of real requests', () => {
  const unbounded = { maxOperations: Number.POSITIVE_INFINITY };

  test('get the very order that an unbounded search finds', () => {
    const situation = fc
      .record({ served: servedOrders(16, 60), ids: order(16, 1), waiting: servedOrders(12, 16) })
      .chain((drawn) => constraints(drawn.ids.length).map((limits) => ({ ...drawn, limits })));
    fc.assert(
      fc.property(situation, ({ served, ids, waiting, limits }) => {
        const history = historyOf(served);
        const context = hostileContext({ ...limits, documents: documentsOf(ids), waiting: waiting.map(documentsOf) });
        for (const name of SEARCHING) {
          const ordering = createPolicy(name).arrange(context, history, 0);
          expect(ordering).toEqual(createPolicy(name, unbounded).arrange(context, history, 0));
        }
      }),
      { numRuns: runs(150) },
    );
  });

  test('also 20 documents among thousands of requests about the same topics', () => {
    const ids = (request: number) =>
      [
        ...new Set(Array.from({ length: 20 }, (_, rank) => (request * 37 + rank * rank * (1 + (request % 7))) % 90)),
      ].map((number) => `topic-${request % 12}/passage-${number}`);
    const history = new ServedHistory();
    for (let request = 0; request < 3_000; request++) {
      const arrangement = arrange({ documents: documentsOf(ids(request * 5)), policy: 'greedy' }, history, request);
      history.dispatched(arrangement, request);
    }
    for (let request = 0; request < 200; request++) {
      const context = hostileContext({
        documents: documentsOf(ids(request * 3 + 1)),
        waiting: Array.from({ length: 8 }, (_, place) => documentsOf(ids(request * 3 + 2 + place))),
      });
      for (const name of SEARCHING) {
        const ordering = createPolicy(name).arrange(context, history, 0);
        expect(ordering.cutShort).toBeUndefined();
        expect(ordering).toEqual(createPolicy(name, unbounded).arrange(context, history, 0));
      }
    }
  });
});
