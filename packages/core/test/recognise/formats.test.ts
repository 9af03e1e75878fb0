import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { blockDocuments, type DocumentBlock, recognise, rewriteText } from '../../src/index.js';
import { isCounted } from '../../src/internal.js';
import { FORMAT_CASES, type FormatCase } from './format.cases.js';

const SEED = 20_261_121;
const words = fc.array(fc.stringMatching(/^[a-zäß日0-9]{2,9}$/), { minLength: 8, maxLength: 20 });
const sentences = words.map((list) => `${list.join(' ')}.`);
/** Passages of one or two lines; each names itself, so that none is part of another. */
const passages = fc
  .array(fc.tuple(sentences, fc.option(sentences)), { minLength: 2, maxLength: 12 })
  .map((all) => all.map(([one, two], i) => `P${i}Q ${one}${two === null ? '' : `\n${two}`}`));

const permutation = (length: number, seed: number) =>
  Array.from({ length }, (_, i) => i).sort((a, b) => ((a * 7919 + seed) % 101) - ((b * 7919 + seed) % 101) || a - b);

function blockIn(text: string, { format }: FormatCase): DocumentBlock {
  const blocks = recognise([{ role: 'tool', text }], { mode: 'form' });
  expect(blocks.map((block) => block.format)).toEqual([format]);
  return blocks[0]!;
}

const nameOf = (text: string) => /P\d+Q/.exec(text)![0];

describe.each(FORMAT_CASES.map((each) => [`${each.format}: ${each.name}`, each] as const))('%s', (_, each) => {
  /** Rules are no documents unless the prompt says so, and what it says so of must hold for every format. */
  const marked = (contents: readonly string[]) =>
    `<warmpath-documents format="${each.format}">\n${each.write(contents)}\n</warmpath-documents>`;
  const around = (contents: readonly string[]) => `The search found this.\n\n${marked(contents)}\n\nDone.`;

  it('finds every document, and what it says', () => {
    fc.assert(
      fc.property(passages, (contents) => {
        const text = around(contents);
        const block = blockIn(text, each);
        expect(block.marked).toBe(true);
        expect(block.documents.map(({ start, end }) => nameOf(text.slice(start, end)))).toEqual(contents.map(nameOf));
        expect(isCounted(block)).toBe(each.counts);
      }),
      { seed: SEED, numRuns: runs(40) },
    );
  });

  it('moves documents and nothing else, there and back', () => {
    fc.assert(
      fc.property(passages, fc.nat(1_000), (contents, seed) => {
        const text = around(contents);
        const block = blockIn(text, each);
        const order = permutation(contents.length, seed);
        const moved = rewriteText(text, [{ block, order }]);
        const names = [...moved.matchAll(/P\d+Q/g)].map(([name]) => name);
        expect(names).toEqual(order.map((rank) => nameOf(contents[rank]!)));
        for (const { start, end } of block.documents) expect(moved).toContain(text.slice(start, end));
        // Labels that are out of order are no longer recognised.
        if (!each.counts) {
          const back = order.map((_rank, place) => order.indexOf(place));
          expect(rewriteText(moved, [{ block: blockIn(moved, each), order: back }])).toBe(text);
        }
        expect(moved.slice(0, block.start)).toBe(text.slice(0, block.start));
        expect(moved.endsWith(text.slice(block.end))).toBe(true);
      }),
      { seed: SEED, numRuns: runs(40) },
    );
  });

  it('knows a document that has no label again in another order and company', () => {
    if (each.counts) return expect(each.counts).toBe(true);
    fc.assert(
      fc.property(passages, fc.nat(1_000), (contents, seed) => {
        const whole = marked(contents);
        const block = blockIn(whole, each);
        const order = permutation(contents.length, seed);
        const keys = blockDocuments(whole, block).map(({ key }) => key);
        const moved = rewriteText(whole, [{ block, order }]);
        const movedKeys = blockDocuments(moved, blockIn(moved, each)).map(({ key }) => key);
        expect(movedKeys).toEqual(order.map((rank) => keys[rank]!));
        expect(new Set(keys).size).toBe(contents.length);
      }),
      { seed: SEED, numRuns: runs(20) },
    );
  });

  it('moves labels with their documents', () => {
    if (!each.counts) return expect(each.counts).toBe(false);
    const contents = ['P0Q one two three four five six seven eight', 'P1Q nine ten eleven twelve thirteen fourteen'];
    const text = marked(contents);
    const labels = (written: string) => [...written.matchAll(/\b[0-2]\b/g)].map(([digit]) => digit);
    const block = blockIn(text, each);
    const moved = rewriteText(text, [{ block, order: [1, 0] }]);
    expect(labels(moved)).not.toEqual(labels(text));
    for (const { start, end } of block.documents) expect(moved).toContain(text.slice(start, end));
  });

  it('two documents of the same text stay two', () => {
    const contents = ['P0Q the same words in both of them, and many', 'P0Q the same words in both of them, and many'];
    const text = marked(contents);
    const documents = blockDocuments(text, blockIn(text, each));
    expect(new Set(documents.map(({ key }) => key)).size).toBe(2);
  });
});
