import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { chunkMarkdown } from '../src/demo/chunk.js';

const SOURCE = { id: 'guide', name: 'Guide' };
/** 900 characters, and a rest of up to 200 that joins the passage before it. */
const LONGEST = 900 + 2 + 200;

const word = fc.stringMatching(/^[a-z]{1,12}$/);
const paragraph = fc.array(word, { minLength: 1, maxLength: 240, size: 'max' }).map((words) => words.join(' '));
const code = fc
  .array(word, { minLength: 1, maxLength: 20 })
  .map((lines) => `\`\`\`js\n> ${lines.join('\n\n')}\n\`\`\``);
const heading = fc.tuple(fc.integer({ min: 1, max: 4 }), word).map(([depth, text]) => `${'#'.repeat(depth)} ${text}`);
const markdown = fc
  .array(
    fc.oneof({ weight: 5, arbitrary: paragraph }, { weight: 1, arbitrary: code }, { weight: 2, arbitrary: heading }),
  )
  .map((blocks) => blocks.join('\n\n'));

const words = (text: string) => text.match(/[a-z]+/g) ?? [];

describe('chunkMarkdown', () => {
  it('loses no word of the text below headings, keeps the order, and never exceeds its length', () => {
    fc.assert(
      fc.property(markdown, (text) => {
        const passages = chunkMarkdown(text, SOURCE);
        const body = words(text.replace(/^#{1,4} [a-z]+$/gm, ''));
        const kept = words(passages.map(({ content }) => content.replace(/^## [a-z]+$/gm, '')).join('\n'));
        expect(kept).toEqual(body);
        for (const { content } of passages) expect(content.length).toBeLessThanOrEqual(LONGEST);
      }),
      { seed: 7, numRuns: 300 },
    );
  });

  it('gives every passage an id of its own', () => {
    fc.assert(
      fc.property(markdown, (text) => {
        const ids = chunkMarkdown(text, SOURCE).map(({ id }) => id);
        expect(new Set(ids).size).toBe(ids.length);
      }),
      { seed: 7, numRuns: 100 },
    );
  });

  it('names a passage after its section, and keeps the headings of short sections that follow in it', () => {
    const passages = chunkMarkdown('# Hooks\n\nIntro.\n\n## `onSend` [^](#x)\n\nChanges the payload.\n', SOURCE);
    expect(passages).toEqual([
      { id: 'guide-1', title: 'Guide › Hooks', content: 'Intro.\n\n## onSend ^\n\nChanges the payload.' },
    ]);
  });

  it('takes a heading mark or a blank line inside a code block for neither', () => {
    const block = '```sh\n# not a heading\n\nnpm start\n```';
    const [passage, ...others] = chunkMarkdown(`## Start\n\n${block}\n`, SOURCE);
    expect(passage).toEqual({ id: 'guide-1', title: 'Guide › Start', content: block });
    expect(others).toEqual([]);
  });

  it('leaves comments and anchors out', () => {
    const [passage] = chunkMarkdown('<!-- hidden -->\n<a id="x"></a>\nSeen.', SOURCE);
    expect(passage?.content).toBe('Seen.');
  });
});
