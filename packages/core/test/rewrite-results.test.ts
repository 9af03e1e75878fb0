import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { type CacheTerms, rewriteResults, type ToolResult } from '../src/internal.js';

/** A character is a token. */
const count = (text: string): number => text.length;
const FREE_BLOCKS = { blockTokens: 1, minTokens: 0 };
const TERMS: CacheTerms = { ...FREE_BLOCKS, computed: 10, cached: 1 };
const LONG = 'x'.repeat(2_000);

function result(call: string, text: string, more: Partial<ToolResult> = {}): ToolResult {
  return { call, text, source: undefined, failed: false, tokensBefore: 10_000, sent: undefined, ...more };
}

const SAME = '[The same as the result of call a above.]';
const OLD = '[Left out: call c read this again later. Call the tool again for the present content.]';

describe('rewriting of tool results', () => {
  const other = `${LONG}y`;
  const read = { source: 'file' };

  it.each<[string, readonly ToolResult[], readonly string[], Partial<CacheTerms>?]>([
    ['a repeat becomes a note', [result('a', LONG), result('b', LONG)], [LONG, SAME]],
    [
      'a read that was repeated with another text is left out',
      [result('a', LONG, read), result('c', other, read)],
      [OLD, other],
    ],
    [
      'what was sent in full stays',
      [result('a', LONG, { ...read, sent: LONG }), result('c', other, read)],
      [LONG, other],
    ],
    ['what was sent as a note stays one', [result('a', LONG), result('b', LONG, { sent: 'note' })], [LONG, 'note']],
    ['a note refers to what is shown', [result('a', LONG, { sent: 'note' }), result('b', LONG)], ['note', LONG]],
    [
      'a failed read replaces nothing',
      [result('a', LONG, read), result('c', other, { ...read, failed: true })],
      [LONG, other],
    ],
    ['other calls replace nothing', [result('a', LONG), result('c', other)], [LONG, other]],
    ['a short result stays', [result('a', 'short'), result('b', 'short')], ['short', 'short']],
    [
      'a result stays where cached tokens are free',
      [result('a', LONG), result('b', LONG)],
      [LONG, LONG],
      { cached: 0 },
    ],
    [
      'a result stays where blocks are long',
      [result('a', LONG), result('b', LONG)],
      [LONG, LONG],
      { blockTokens: 512 },
    ],
    [
      'a result stays where nothing is cached yet',
      [result('a', LONG), result('b', LONG)],
      [LONG, LONG],
      { minTokens: 10_001 },
    ],
    [
      'the latest text stays, even if it was read before',
      [result('a', LONG, read), result('b', other, read), result('c', LONG, read)],
      [LONG, OLD, SAME],
    ],
  ])('%s', (_, results, texts, terms = {}) => {
    expect(rewriteResults(results, { ...TERMS, ...terms }, count).texts).toEqual(texts);
  });

  it('tells what is spared now and later', () => {
    const removed = LONG.length - SAME.length;
    const before = [result('a', LONG), result('b', LONG)];
    const price = { savedTokens: removed, savedCost: 10 * removed, savedCostAgain: removed };
    expect(rewriteResults(before, TERMS, count)).toMatchObject(price);
    const after = before.map((each, i) => ({ ...each, sent: [LONG, SAME][i] }));
    expect(rewriteResults(after, TERMS, count)).toMatchObject({ ...price, savedCost: removed });
  });
});

/** A message of a session: a text, or the result of a read of one of a few files in one of a few versions. */
interface Message {
  readonly text: string;
  readonly file: number | undefined;
}

const TEXTS = [0, 1, 2].flatMap((file) =>
  [600, 900, 2_000].map((length, version) => ({
    file,
    // Versions of a file share their beginning, and some nearly all.
    text: `${'abc'[file]!.repeat(length - 5)}${version}end.`,
  })),
);

const message = fc.oneof(
  fc.constantFrom<Message>(...TEXTS),
  fc.record({ text: fc.string({ minLength: 1, maxLength: 300 }), file: fc.constant(undefined) }),
);

const place = fc.nat({ max: 12 });
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('append' as const),
      messages: fc.array(message, { minLength: 1, maxLength: 4 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('edit' as const), place, message }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('cut' as const), place, count: fc.integer({ min: 1, max: 5 }) }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('return' as const), place }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('expire' as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('evict' as const), place }) },
);

type Step = typeof step extends fc.Arbitrary<infer Value> ? Value : never;

const terms = fc
  .record({
    blockTokens: fc.constantFrom(1, 16, 128),
    minTokens: fc.constantFrom(0, 512, 1_024),
    computed: fc.integer({ min: 1, max: 125 }),
    share: fc.constantFrom(0, 0.1, 0.25, 0.5, 1),
  })
  .map(({ share, computed, ...cache }): CacheTerms => ({ ...cache, computed, cached: share * computed }));

/** An engine's cache: prompts as lists of messages, whose texts are compared character by character. */
class Cache {
  #prompts: (readonly string[])[] = [];

  /** What the prompt costs. */
  serve(prompt: readonly string[], { blockTokens, minTokens, computed, cached }: CacheTerms): number {
    const text = prompt.join('');
    const shared = Math.max(0, ...this.#prompts.map((earlier) => sharedLength(earlier.join(''), text)));
    const whole = Math.floor(shared / blockTokens) * blockTokens;
    const hit = whole < minTokens ? 0 : whole;
    this.#prompts.push(prompt);
    return hit * cached + (text.length - hit) * computed;
  }

  /** Loses every message from `place` on. */
  evict(place: number): void {
    this.#prompts = this.#prompts.map((prompt) => prompt.slice(0, place));
  }
}

function sharedLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && length < other.length && one[length] === other[length]) length++;
  return length;
}

/** Runs a session against two caches. The texts that were sent are remembered by all messages up to theirs. */
function costs(
  steps: readonly Step[],
  terms: CacheTerms,
): { readonly untouched: number; readonly rewritten: number }[] {
  const own = new Cache();
  const other = new Cache();
  const sent = new Map<string, string>();
  const history: (readonly Message[])[] = [];
  let messages: readonly Message[] = [];
  const totals: { untouched: number; rewritten: number }[] = [];
  let untouched = 0;
  let rewritten = 0;
  for (const each of steps) {
    if (each.kind === 'expire' || each.kind === 'evict') {
      for (const cache of [own, other]) cache.evict(each.kind === 'evict' ? each.place : 0);
      continue;
    }
    messages = changed(messages, each, history);
    if (messages.length === 0) continue;
    history.push(messages);
    const texts = rewrite(messages, sent, terms);
    untouched += own.serve(
      messages.map(({ text }) => text),
      terms,
    );
    rewritten += other.serve(texts, terms);
    totals.push({ untouched, rewritten });
  }
  return totals;
}

function changed(
  messages: readonly Message[],
  step: Step,
  history: readonly (readonly Message[])[],
): readonly Message[] {
  switch (step.kind) {
    case 'append':
      return [...messages, ...step.messages];
    case 'edit':
      return messages.map((message, place) => (place === step.place % messages.length ? step.message : message));
    case 'cut':
      return messages.filter((_, place) => place < step.place || place >= step.place + step.count);
    case 'return':
      return history[step.place % Math.max(1, history.length)] ?? messages;
    default:
      return messages;
  }
}

function rewrite(messages: readonly Message[], sent: Map<string, string>, terms: CacheTerms): readonly string[] {
  const links = messages.map((_, place) => JSON.stringify(messages.slice(0, place + 1)));
  let tokensBefore = 0;
  const results = messages.map(({ text, file }, place): ToolResult => {
    const source = file === undefined ? undefined : String(file);
    const before = tokensBefore;
    tokensBefore += text.length;
    return { text, call: `${place}`, source, failed: false, tokensBefore: before, sent: sent.get(links[place]!) };
  });
  const { texts } = rewriteResults(results, terms, count);
  for (const [place, link] of links.entries()) sent.set(link, texts[place]!);
  return texts;
}

describe('a session with rewritten results', () => {
  it('never costs more than untouched, at any price, whatever happens to history and cache', () => {
    let saved = 0;
    fc.assert(
      fc.property(fc.array(step, { minLength: 2, maxLength: 14 }), terms, (steps, given) => {
        for (const { untouched, rewritten } of costs(steps, given)) {
          expect(rewritten).toBeLessThanOrEqual(untouched + 1e-6);
          if (rewritten < untouched) saved++;
        }
      }),
      { numRuns: runs(1_500) },
    );
    expect(saved).toBeGreaterThan(0);
  });
});
