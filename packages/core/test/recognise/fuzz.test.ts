import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { HOSTILE, hostilePrompt } from '../../bench/hostile-prompts.js';
import { blockDocuments, type DocumentBlock, type PromptText, recognise, rewriteText } from '../../src/index.js';
import { FRAGMENTS } from './fragments.js';
import { PROMPTS } from './prompts/index.js';

const SEED = 20_261_121;

const texts = fc.array(
  fc.record({
    role: fc.constantFrom('system' as const, 'user' as const, 'tool' as const, 'assistant' as const),
    text: fc.oneof(
      fc.array(fc.constantFrom(...FRAGMENTS), { maxLength: 60 }).map((parts) => parts.join('')),
      fc.string({ maxLength: 200, unit: 'binary' }),
      fc.tuple(fc.constantFrom(...PROMPTS), fc.nat(), fc.constantFrom(...FRAGMENTS), fc.nat(200)).map(mutated),
    ),
  }),
  { minLength: 1, maxLength: 4 },
);

/** A real prompt with something cut out and something put in. */
function mutated([prompt, at, fragment, cut]: readonly [(typeof PROMPTS)[number], number, string, number]): string {
  const [, text] = prompt.texts.at(-1)!;
  const from = at % (text.length + 1);
  return text.slice(0, from) + fragment + text.slice(from + cut);
}

function check(all: readonly PromptText[], blocks: readonly DocumentBlock[]): void {
  let previous = { text: -1, end: 0 };
  for (const block of blocks) {
    const { text } = all[block.text]!;
    expect(block.text).toBeGreaterThanOrEqual(previous.text);
    if (block.text === previous.text) expect(block.start).toBeGreaterThanOrEqual(previous.end);
    previous = { text: block.text, end: block.end };
    expect(block.documents.length).toBeGreaterThanOrEqual(2);
    expect(block.start).toBe(block.documents[0]!.start);
    expect(block.end).toBe(block.documents.at(-1)!.end);
    let from = 0;
    for (const { start, end, contentStart, contentEnd, labels } of block.documents) {
      expect(start).toBeGreaterThanOrEqual(from);
      expect(end).toBeGreaterThan(start);
      expect(end).toBeLessThanOrEqual(text.length);
      expect(contentStart).toBeGreaterThanOrEqual(start);
      expect(contentEnd).toBeGreaterThanOrEqual(contentStart);
      expect(contentEnd).toBeLessThanOrEqual(end);
      let at = start;
      for (const label of labels) {
        expect(label.start).toBeGreaterThanOrEqual(at);
        expect(text.slice(label.start, label.end)).toMatch(/^\d+$/);
        at = label.end;
      }
      expect(at).toBeLessThanOrEqual(end);
      from = end;
    }
  }
}

describe('the recogniser on anything', () => {
  it('throws for nothing, and answers spans that lie side by side', () => {
    fc.assert(
      fc.property(texts, (all) => {
        for (const mode of ['marked', 'form'] as const) check(all, recognise(all, { mode }));
      }),
      { seed: SEED, numRuns: runs(2_000) },
    );
  });

  it('is written back without losing a byte or a document, in any order', () => {
    let moved = 0;
    fc.assert(
      fc.property(texts, (all) => {
        const blocks = recognise(all, { mode: 'form' });
        for (const [index, { text }] of all.entries()) {
          const own = blocks.filter((block) => block.text === index);
          const same = own.map((block) => ({ block, order: block.documents.map((_, rank) => rank) }));
          expect(rewriteText(text, same)).toBe(text);
          const reversed = rewriteText(
            text,
            same.map(({ block, order }) => ({ block, order: order.toReversed() })),
          );
          expect([...reversed].sort().join('')).toBe([...text].sort().join(''));
          for (const block of own) {
            moved++;
            for (const { content } of blockDocuments(text, block)) expect(reversed).toContain(content);
          }
        }
      }),
      { seed: SEED, numRuns: runs(2_000) },
    );
    // A property about nothing would hold as well.
    expect(moved).toBeGreaterThan(runs(200));
  });

  it('is a function of its input', () => {
    fc.assert(
      fc.property(texts, (all) => {
        expect(recognise(all, { mode: 'form' })).toEqual(recognise(all, { mode: 'form' }));
      }),
      { seed: SEED, numRuns: runs(300) },
    );
  });
});

const NAMED = HOSTILE.map((hostile) => [hostile[0], hostile] as const);

/** What grew with the square would take hours; `bench/recognise.js` times ten megabytes. */
describe('a megabyte', () => {
  it.each(NAMED)('of %s', (_, hostile) => {
    const [texts, options] = hostilePrompt(hostile, 1_000_000);
    for (const block of recognise(texts, options)) expect(block.end).toBeLessThanOrEqual(texts[0]!.text.length);
  });
});

const NATIVE = { indexOf: String.prototype.indexOf, exec: RegExp.prototype.exec };

describe('twice the text', () => {
  it.each(NAMED)('is looked at twice as much: %s', (_, hostile) => {
    const [one, two] = [20_000, 40_000].map((length) => {
      const prompt = hostilePrompt(hostile, length);
      return charactersSearched(() => recognise(...prompt));
    });
    expect(two).toBeLessThanOrEqual(2.3 * one! + 10_000);
  });
});

/**
 * Characters that searches of strings and patterns pass while a function runs: those up to what they find, or to the
 * end.
 */
function charactersSearched(run: () => unknown): number {
  let characters = 0;
  const spies = [
    vi.spyOn(String.prototype, 'indexOf'),
    vi.spyOn(String.prototype, 'includes'),
    vi.spyOn(RegExp.prototype, 'exec'),
  ] as const;
  const [indexOf, includes, exec] = spies;
  const [nativeIndexOf, nativeExec] = [NATIVE.indexOf, NATIVE.exec];
  indexOf.mockImplementation(function (this: string, sign: string, from = 0) {
    const at: number = nativeIndexOf.call(this, sign, from);
    characters += (at < 0 ? this.length : at) - from;
    return at;
  });
  includes.mockImplementation(function (this: string, sign: string) {
    return this.indexOf(sign) >= 0;
  });
  exec.mockImplementation(function (this: RegExp, text: string) {
    const from = this.global || this.sticky ? this.lastIndex : 0;
    const match = nativeExec.call(this, text);
    if (match !== null) characters += match.index + match[0].length - from;
    else if (!this.sticky) characters += text.length - from;
    return match;
  });
  try {
    run();
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
  return characters;
}
