import { PromptKinds } from '@warmpath/core/internal';
import { describe, expect, it } from 'vitest';
import { chatApi } from '../src/apis/prompt-apis.js';
import type { Recognition } from '../src/config/schema.js';
import { PromptConsents } from '../src/memory/prompt-consents.js';
import { KnownPrompts } from '../src/prompt/known-prompts.js';

const PASSAGES = 'harbour lantern market bridge orchard quarry chapel tunnel meadow cannery'
  .split(' ')
  .map((word, i) => `The ${word} has stood since ${1_500 + ((i * 37) % 100)}, and its keeper lives beside it.`);

/** Random lists of three passages, by a linear congruential generator. */
function lists(count: number): string[][] {
  let state = 11;
  const random = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  return Array.from({ length: count }, () => {
    const rest = [...PASSAGES];
    return Array.from({ length: 3 }, () => rest.splice(random(rest.length), 1)[0]!);
  });
}

const NEUTRAL = 'Use the following pieces of context to answer the question.';
const ORDERED = 'The best document comes first.';
const promptOf = (documents: readonly string[], n: number, says = NEUTRAL) =>
  `${says}\n\n${documents.join('\n\n')}\n\nQuestion: What is ${n}?`;
const textsOf = (text: string) => [{ role: 'user' as const, text }];

/** What learns from these prompts, once it has learned from all. */
async function learned(prompts: readonly string[]) {
  const consents = new PromptConsents({ maxBytes: 100_000, store: undefined, failed: () => {} });
  const kinds = new PromptKinds({ salt: 's', maxBytes: 4_000_000 });
  const found: string[] = [];
  // Without a clock, nothing rests between two prompts.
  const known = new KnownPrompts({
    kinds,
    consents,
    maxBytes: 100_000,
    found: ({ id }, tenant) => found.push(`${tenant} ${id}`),
    now: () => 0,
  });
  for (const [n, content] of prompts.entries()) {
    const body = Buffer.from(JSON.stringify({ model: 'm', messages: [{ role: 'user', content }] }));
    known.learn({ tenant: 't', api: chatApi, body });
    // The queue is bounded, as the gateway's is.
    if (n % 32 === 31) await expect.poll(() => known.isLearning).toBe(false);
  }
  await expect.poll(() => known.isLearning).toBe(false);
  const [kind] = kinds.list('t');
  const program = kinds.programTexts('t')[0];
  const find = (text: string, recognition: Recognition, tenant = 't') =>
    known.find(tenant, textsOf(text), recognition).map(({ block }) => block.documents.length);
  return { known, consents, kind, program: program!, found, find };
}

const NEXT = promptOf(PASSAGES.slice(2, 5), 999);
const ALLOWED = { tenant: 't', state: 'allowed', labels: 'kept' } as const;

describe('a prompt kind', () => {
  it('is told once when it is found, and nothing of it may move until it is allowed', async () => {
    const { kind, found, find, consents, program } = await learned(lists(60).map((each, n) => promptOf(each, n)));
    expect(found).toEqual([`t ${kind!.id}`]);
    expect(find(NEXT, 'ask')).toEqual([]);
    await consents.set({ ...ALLOWED, program });
    expect(find(NEXT, 'ask')).toEqual([3]);
    expect(find(NEXT, 'ask', 'another tenant')).toEqual([]);
    expect(find(NEXT, 'off')).toEqual([]);
    await consents.forget('t', program.id);
    expect(find(NEXT, 'ask')).toEqual([]);
    await consents.set({ ...ALLOWED, program, state: 'refused' });
    expect(find(NEXT, 'ask')).toEqual([]);
    expect(find(NEXT, 'auto')).toEqual([]);
  });

  it('moves by itself with `auto` where its text is neutral, and not where it speaks of an order', async () => {
    const neutral = await learned(lists(60).map((each, n) => promptOf(each, n)));
    expect(neutral.find(NEXT, 'auto')).toEqual([3]);
    const ordered = await learned(lists(60).map((each, n) => promptOf(each, n, ORDERED)));
    expect(ordered.kind?.notices).toContain('program-text');
    expect(ordered.find(NEXT.replace(NEUTRAL, ORDERED), 'auto')).toEqual([]);
  });

  it('is learned from bodies that wait within the memory for them', async () => {
    const { known } = await learned([]);
    const empty = known.bytes;
    const body = Buffer.from(JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'x'.repeat(9_900) }] }));
    for (let i = 0; i < 20; i++) known.learn({ tenant: 't', api: chatApi, body });
    // Half of 100,000 bytes.
    expect(known.bytes - empty).toBe(5 * body.length);
    await expect.poll(() => known.isLearning).toBe(false);
    expect(known.bytes).toBe(empty);
  });

  it('is known again from its consent alone', async () => {
    const { program } = await learned(lists(60).map((each, n) => promptOf(each, n)));
    const again = await learned([]);
    await again.consents.set({ ...ALLOWED, program });
    const json = `${NEUTRAL}\n\n${JSON.stringify(PASSAGES.slice(0, 3).map((text) => ({ text })))}\n\nQuestion: What is 1?`;
    expect(again.find(json, 'ask')).toEqual([3]);
  });

  it('finds the same documents in the same text, whatever it learns afterwards', async () => {
    const { known, consents, program } = await learned(lists(30).map((each, n) => promptOf(each, n)));
    await consents.set({ ...ALLOWED, program });
    const fresh = promptOf([PASSAGES[0]!, 'A text that was never seen.', PASSAGES[1]!], 5);
    const before = known.find('t', textsOf(fresh), 'ask');
    for (const [n, each] of lists(40).entries()) {
      const content = promptOf([...each, 'A text that was never seen.'], n);
      const body = Buffer.from(JSON.stringify({ model: 'm', messages: [{ role: 'user', content }] }));
      known.learn({ tenant: 't', api: chatApi, body });
    }
    await expect.poll(() => known.isLearning).toBe(false);
    if (before.length > 0) expect(known.find('t', textsOf(fresh), 'ask')).toEqual(before);
    const again = promptOf([PASSAGES[3]!, 'A text that was never seen.', PASSAGES[4]!], 6);
    expect(known.find('t', textsOf(again), 'ask')[0]?.block.documents).toHaveLength(3);
  });

  it('says what it would gain: more than nothing, and no more than the prompts have', async () => {
    const { known, kind } = await learned(lists(120).map((each, n) => promptOf(each, n)));
    const estimate = known.gainOf('t', kind!.id)!;
    expect(estimate.prompts).toBeGreaterThan(40);
    expect(estimate.cachedIfAllowed).toBeGreaterThan(estimate.cachedTokens);
    expect(estimate.cachedIfAllowed).toBeLessThan(estimate.promptTokens);
    expect(known.gainOf('another tenant', kind!.id)).toBeUndefined();
  });
});
