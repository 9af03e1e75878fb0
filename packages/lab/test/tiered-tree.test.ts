import { REPLACEMENT_POLICY_NAMES, replacementPolicy } from '@warmpath/core/internal';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { RTX_4090, readCache, serveAtOnce, TieredTree, type TieredTreeOptions } from '../src/index.js';
import { itIsAPrefixCache, play } from './conformance/prefix-cache.cases.js';
import { NaiveTiers } from './naive-tiers.js';
import { type Action, LONGEST_RUN } from './prompts.js';

for (const name of REPLACEMENT_POLICY_NAMES) {
  const policy = replacementPolicy(name);
  const sizes = { deviceTokens: LONGEST_RUN + 30, hostTokens: 150 };
  itIsAPrefixCache(`tiered-tree, ${name}`, () => new TieredTree({ ...sizes, policy }), { isShared: false });
}
itIsAPrefixCache('tiered-tree, without host', () => new TieredTree({ deviceTokens: LONGEST_RUN, hostTokens: 0 }), {
  isShared: false,
});
itIsAPrefixCache('tiered-tree, short window', () => readCache('tiered:250/100:pgdsf')(), { isShared: false });

/** Lengths by document; four documents and their question have no more than 126 tokens. */
const DOCUMENTS = [10, 20, 25, 30, 30, 35];

const document = fc.nat({ max: DOCUMENTS.length - 1 }).map((index) => ({ key: `${index}`, tokens: DOCUMENTS[index]! }));

const step: fc.Arbitrary<readonly Action[]> = fc
  .record({
    documents: fc.uniqueArray(document, { minLength: 1, maxLength: 4, selector: ({ key }) => key }),
    entered: fc.constantFrom(40, 200, 200),
    released: fc.constantFrom(undefined, 0, 0, 1),
  })
  .map(({ documents, entered, released }) => [
    { kind: 'admit', prompt: { spans: [...documents, { key: 'question', tokens: 6 }] } },
    { kind: 'enter', pick: 0, tokens: entered },
    ...(released === undefined ? [] : [{ kind: 'release', pick: released } as const]),
  ]);

const actionsArbitrary = fc.array(step, { maxLength: 60, size: 'max' }).map((steps) => steps.flat());

describe('the tiered tree', () => {
  it.each(REPLACEMENT_POLICY_NAMES)('with %s does what the plain twin does, prompts under way side by side', (name) => {
    const policy = replacementPolicy(name);
    const sizes = fc.record({ spare: fc.nat({ max: 60 }), hostTokens: fc.nat({ max: 160 }) });
    fc.assert(
      fc.property(actionsArbitrary, sizes, (actions, { spare, hostTokens }) => {
        const options = { deviceTokens: 126 + spare, hostTokens, policy, cost: RTX_4090 };
        const tree = new TieredTree(options);
        const naive = new NaiveTiers(options);
        const seen: unknown[] = [];
        play(tree, actions, {
          admitted: (prompt, admission) => {
            seen.push([admission?.cachedTokens, admission?.hostTokens, tree.reuse(prompt)]);
          },
          after: () => seen.push([tree.usedTokens, tree.copiedToHost]),
        });
        const expected: unknown[] = [];
        play(naive, actions, {
          admitted: (prompt, admission) => {
            expected.push([admission?.cachedTokens, admission?.hostTokens, naive.reuse(prompt)]);
          },
          after: () => expected.push([naive.usedTokens(), naive.copiedToHost]),
        });
        expect(seen).toEqual(expected);
      }),
      { seed: 61, numRuns: runs(100) },
    );
  });

  const prompt = (...keys: string[]) => ({
    spans: [...keys.map((key) => ({ key, tokens: 10 })), { key: 'question', tokens: 2 }],
  });
  const create = (options: Partial<TieredTreeOptions> = {}) =>
    new TieredTree({ deviceTokens: 22, hostTokens: 40, policy: replacementPolicy('lru'), ...options });

  it('brings back what went to the host, and copies it there only once', () => {
    const tree = create();
    serveAtOnce(tree, prompt('a', 'b'));
    serveAtOnce(tree, prompt('c', 'd'));
    expect(tree.copiedToHost).toBe(20);
    expect(tree.reuse(prompt('a', 'b'))).toEqual({ cachedTokens: 20, hostTokens: 20 });
    serveAtOnce(tree, prompt('a', 'b'));
    expect(tree.reuse(prompt('a', 'b'))).toEqual({ cachedTokens: 20, hostTokens: 0 });
    expect(tree.copiedToHost).toBe(40);
    // All four have their copy in the host: from now on nothing is copied.
    for (let round = 0; round < 3; round++) {
      expect(serveAtOnce(tree, prompt('c', 'd'))).toBe(20);
      expect(serveAtOnce(tree, prompt('a', 'b'))).toBe(20);
    }
    expect(tree.copiedToHost).toBe(40);
  });

  it('copies again what the host has lost meanwhile', () => {
    const tree = create({ deviceTokens: 12, hostTokens: 10 });
    // Each pushes the one before to the host, and that the one before it out; so «a» is computed and copied twice.
    for (const key of ['a', 'b', 'c', 'a', 'b']) serveAtOnce(tree, prompt(key));
    expect(tree.copiedToHost).toBe(40);
  });

  it('keeps parents above their children: leaves go first, whatever their age', () => {
    const tree = create({ deviceTokens: 32, hostTokens: 0 });
    serveAtOnce(tree, prompt('a', 'b', 'c'));
    for (const key of ['x', 'y']) serveAtOnce(tree, prompt(key));
    // «c» and «b» are gone, though «a» was used no later than they.
    for (const held of [prompt('a', 'b', 'c'), prompt('x'), prompt('y')]) expect(tree.cachedTokens(held)).toBe(10);
  });

  it('loses what stands in the host behind a document that finds no room there', () => {
    const tree = create({ deviceTokens: 40, hostTokens: 12 });
    const long = { spans: [{ key: 'long', tokens: 20 }, ...prompt('a').spans] };
    serveAtOnce(tree, long);
    serveAtOnce(tree, { spans: [{ key: 'x', tokens: 18 }, ...prompt().spans] });
    expect(tree.reuse(long)).toEqual({ cachedTokens: 30, hostTokens: 10 });
    serveAtOnce(tree, { spans: [{ key: 'y', tokens: 38 }, ...prompt().spans] });
    expect(tree.reuse(long).cachedTokens).toBe(0);
    expect(tree.usedTokens).toBe(38);
  });

  it('remembers evicted documents no longer than its window', () => {
    const tree = create({ policy: replacementPolicy('pgdsf'), window: 5 });
    for (let number = 0; number < 200; number++) serveAtOnce(tree, prompt(`${number}`, `${number + 1}`));
    expect(tree.nodes).toBeLessThanOrEqual(5 * 2 + 6);
  });

  it('refuses for good what the device cannot hold, and sizes that make no sense', () => {
    expect(() => create().admit(prompt('a', 'b', 'c'))).toThrow(/room for 22/);
    expect(() => create({ deviceTokens: 0 })).toThrow(/deviceTokens/);
    expect(() => create({ hostTokens: -1 })).toThrow(/hostTokens/);
    expect(() => create({ window: 0 })).toThrow(/window/);
  });
});

describe('the name of a tiered cache', () => {
  it('gives its sizes and its policy', () => {
    const cache = readCache('tiered:100/200:lfu')();
    expect([cache.name, cache.capacityTokens]).toEqual(['tiered-lfu', 300]);
    expect(readCache('tiered:100/0')().name).toBe('tiered-pgdsf');
  });

  it.each(['tiered', 'tiered:100', 'tiered:0/5', 'tiered:100/200:best'])('is refused where it is %s', (wrong) => {
    expect(() => readCache(wrong)).toThrow(
      expect.objectContaining({ code: 'WARMPATH_INVALID_REQUEST', path: 'cache' }),
    );
  });
});
