import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type DocumentBlock, recognise, SeenDocuments, withReferences } from '../../src/index.js';
import { FORMAT_CASES, type FormatCase } from './format.cases.js';

const SEED = 20_261_121;
const sentences = fc
  .array(fc.stringMatching(/^[a-zäß日0-9]{2,9}$/), { minLength: 40, maxLength: 60 })
  .map((words) => `${words.join(' ')}.`);
const passages = fc
  .array(sentences, { minLength: 2, maxLength: 8 })
  .map((all) => all.map((text, i) => `P${i}Q says "${i}" ${text}`));

const marked = (each: FormatCase, contents: readonly string[]) =>
  `Before.\n<warmpath-documents format="${each.format}">\n${each.write(contents)}\n</warmpath-documents>\nBehind.`;

function blockIn(text: string): DocumentBlock {
  const blocks = recognise([{ role: 'tool', text }], { mode: 'marked' });
  expect(blocks).toHaveLength(1);
  return blocks[0]!;
}

describe.each(FORMAT_CASES.map((each) => [`${each.format}: ${each.name}`, each] as const))('%s', (_, each) => {
  it('puts the hint where the words stood, and nothing else changes', () => {
    fc.assert(
      fc.property(passages, fc.array(fc.boolean(), { minLength: 8, maxLength: 8 }), (contents, repeated) => {
        const first = marked(each, contents);
        const again = contents.map((content, i) => (repeated[i]! ? content : `N${content}`));
        const text = marked(each, again);
        const block = blockIn(text);
        const seen = new SeenDocuments();
        expect(seen.add(first, blockIn(first))).toEqual([]);
        const repeats = seen.add(text, block);
        expect(repeats.map(({ rank }) => rank)).toEqual(contents.flatMap((__, i) => (repeated[i] ? [i] : [])));
        const written = withReferences(text, [{ block, repeats }]);
        const hints = new Map(repeats.map(({ rank, written: hint }) => [rank, hint]));
        const words = again.map((content, i) => {
          const hint = hints.get(i);
          return hint === undefined
            ? content
            : each.format === 'json' || each.format === 'python'
              ? JSON.parse(hint)
              : hint;
        });
        expect(written.text).toBe(marked(each, words));
        expect(written.blocks[0]!.documents.map(({ labels: __, ...span }) => span)).toEqual(
          blockIn(written.text).documents.map(({ labels: __, ...span }) => span),
        );
        expect(written.text.length).toBeLessThanOrEqual(text.length);
      }),
      { seed: SEED, numRuns: 30 },
    );
  });
});

const tags = (...documents: readonly (readonly [id: string, text: string])[]) =>
  documents.map(([id, text]) => `<document id="${id}">${text}</document>`).join('\n');
const long = (seed: string) => `${seed} ${'told at length and more than once, '.repeat(5)}by ${seed}`;

/** The hints of a block behind another one. */
function hintsOf(first: string, second: string): readonly (readonly [number, string])[] {
  const blocks = recognise(
    [first, second].map((text) => ({ role: 'tool', text })),
    { mode: 'form' },
  );
  const seen = new SeenDocuments();
  seen.add(first, blocks[0]!);
  return seen.add(second, blocks[1]!).map(({ rank, written }) => [rank, written]);
}

describe('SeenDocuments', () => {
  it('names a document as the prompt does, and by its words where two are called alike', () => {
    expect(
      hintsOf(
        tags(['a', long('Ash')], ['b', long('Birch')]),
        tags(['c', long('Ash')], ['b', long('Beech')], ['d', long('Birch')]),
      ),
    ).toEqual([
      [0, 'Given earlier in this conversation: [a].'],
      [2, expect.stringMatching(/conversation: \[«Birch told at length .*…»\]\.$/)],
    ]);
  });

  it('lets a document stay that is no longer than its hint, or that no name tells apart', () => {
    const short = 'Gate 7 opens at nine o’clock.';
    const alike = (middle: string) => `${long('Ash')} ${middle} ${long('Ash')}`;
    const first = tags(['a', short], ['x', alike('one')], ['x', alike('two')]);
    expect(hintsOf(first, tags(['a', short], ['x', alike('two')]))).toEqual([]);
  });

  it('takes words apart that differ in one character, and not by the white space around them', () => {
    const first = tags(['a', long('Ash')], ['b', long('Birch')]);
    expect(hintsOf(first, tags(['a', `${long('Ash')}!`], ['b', `\n  ${long('Birch')}\n`]))).toEqual([
      [1, 'Given earlier in this conversation: [b].'],
    ]);
  });

  it('keeps what names a document beside its words', () => {
    const form = (text: string) =>
      ['a', 'b']
        .map(
          (id) =>
            `<document index="${id === 'a' ? 1 : 2}"><source>${id}.md</source><document_content>${text}${id}</document_content></document>`,
        )
        .join('\n');
    const text = form(long('Ash'));
    const [block] = recognise([{ role: 'tool', text }], { mode: 'form' });
    const seen = new SeenDocuments();
    seen.add(text, block!);
    const { text: written } = withReferences(text, [{ block: block!, repeats: seen.add(text, block!) }]);
    expect(written).toMatch(/<source>a\.md<\/source><document_content>Given earlier .*?<\/document_content>/);
    expect(written).toMatch(/<source>b\.md<\/source><document_content>Given earlier .*?<\/document_content>/);
  });
});
