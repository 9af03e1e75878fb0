import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HOSTILE } from '../../bench/hostile-prompts.js';
import { blockDocuments, type DocumentBlock, type PromptText, recognise, rewriteText } from '../../src/index.js';
import { PROMPTS } from './prompts/index.js';

const SEED = 20_261_121;

/** Signs that formats look for, and others. */
const FRAGMENTS = [
  '<document>',
  '</document>',
  '<document id="1">',
  '<doc ',
  '<documents>',
  '</documents>',
  '<source index="2">',
  '</source>',
  '<context>',
  '</context>',
  '<warmpath-documents>',
  '</warmpath-documents>',
  '<warmpath-documents format="separator">',
  '[1] ',
  '[2] ',
  '[3] ',
  '\n[1] ',
  '\n[2] ',
  '\n[0] ',
  '\n[9999] ',
  'Sources:\n',
  'Context:\n',
  '\n\n',
  '\n',
  ' ',
  '\nDocument 1:',
  '\nDocument 2:',
  '\n[CONTEXT 0]:',
  '\n[END CONTEXT 0]',
  '\n[CONTEXT 1]:',
  '\n[END CONTEXT 1]',
  '[{"text":"',
  '"},{"text":"',
  '"}]',
  '{"results":[',
  ']}',
  '\\',
  '"',
  '\\u12',
  '\n{',
  '[[[[',
  ']]',
  ',',
  ':',
  '{"content":"a"}',
  "Document(page_content='",
  "')",
  'metadata={',
  '})',
  '\nTitle: a',
  '\nURL: b',
  '\nContent: c',
  '\nSource: x',
  'Context information is below.\n---------------------\n',
  '\n---------------------\n',
  '\nfile_path: a.md\n\n',
  '\n## Source: a.md\n',
  '\n# b.md\n',
  '\n---\n',
  '\n```\n',
  '\nQuestion: why?',
  'some words that say little but are many enough to count as text ',
  'ж',
  '日本',
  '\ud83e\udd80',
  '\ud800',
  '\u0000',
  '\u2028',
  '>',
  '<',
  '/>',
]; // prettier-ignore

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
        for (const mode of ['marked', 'conservative'] as const) check(all, recognise(all, { mode }));
      }),
      { seed: SEED, numRuns: 2_000 },
    );
  });

  it('is written back without losing a byte or a document, in any order', () => {
    let moved = 0;
    fc.assert(
      fc.property(texts, (all) => {
        const blocks = recognise(all, { mode: 'conservative', relabel: false });
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
            if (block.labels === 'free') continue;
            for (const { content } of blockDocuments(text, block)) expect(reversed).toContain(content);
          }
        }
      }),
      { seed: SEED, numRuns: 2_000 },
    );
    // A property about nothing would hold as well.
    expect(moved).toBeGreaterThan(200);
  });

  it('is a function of its input', () => {
    fc.assert(
      fc.property(texts, (all) => {
        expect(recognise(all, { mode: 'conservative' })).toEqual(recognise(all, { mode: 'conservative' }));
      }),
      { seed: SEED, numRuns: 300 },
    );
  });
});

/** What grew with the square would take hours; `bench/recognise.js` times ten megabytes. */
describe('a megabyte', () => {
  it.each(HOSTILE)('of %s', { timeout: 120_000 }, (_, unit) => {
    const text = unit.repeat(Math.ceil(1_000_000 / unit.length));
    const all: PromptText[] = [{ role: 'user', text }];
    const blocks = recognise(all, { mode: 'conservative' });
    for (const block of blocks) expect(block.end).toBeLessThanOrEqual(text.length);
  });
});
