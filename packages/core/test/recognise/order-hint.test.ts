import { describe, expect, it } from 'vitest';
import { recognise, rewriteText } from '../../src/index.js';
import { DEFAULT_HINT_WORDING, textMoves } from '../../src/internal.js';
import { CLOCK, HARBOUR, LANTERN } from './prompts/prompt.js';

const { order: hint } = DEFAULT_HINT_WORDING;
const PASSAGES = [HARBOUR, LANTERN, CLOCK];

/** The prompt with its documents the other way round, and a hint where one is due. */
function turned(text: string, order = [2, 1, 0]): string {
  const [block] = recognise([{ role: 'user', text }], { mode: 'form' });
  expect(block?.documents).toHaveLength(3);
  return rewriteText(text, [{ block: block!, order, hint }]);
}
const lastLines = (text: string) => text.split('\n').slice(-3);

describe('the hint that states the given order in a prompt of the client', () => {
  it('names documents by their ids, behind the last one', () => {
    const text = `${PASSAGES.map((passage, i) => `<document id="d${i}">${passage}</document>`).join('\n')}\nHow deep?`;
    expect(lastLines(turned(text))).toEqual([
      `<document id="d0">${HARBOUR}</document>`,
      'In order of relevance: d0 > d1 > d2.',
      'How deep?',
    ]);
  });

  it('names them by their labels', () => {
    const text = `Context:\n${PASSAGES.map((passage, i) => `[${i + 1}] ${passage}`).join('\n')}\n\nHow deep is it?`;
    expect(turned(text)).toContain(`[1] ${HARBOUR}\nIn order of relevance: [1] > [2] > [3].`);
  });

  it('is not there in the given order, where a document has no name, or where the form has no place for it', () => {
    const named = `${PASSAGES.map((passage, i) => `<document id="d${i}">${passage}</document>`).join('\n')}\nHow deep?`;
    expect(turned(named, [0, 1, 2])).toBe(named);
    const unnamed = `${PASSAGES.map((passage) => `<document>${passage}</document>`).join('\n')}\nHow deep?`;
    expect(turned(unnamed)).not.toContain('relevance');
    const json = JSON.stringify({ results: PASSAGES.map((content, i) => ({ id: `d${i}`, content })) });
    const [block] = recognise([{ role: 'tool', text: json }], { mode: 'form' });
    expect(JSON.parse(rewriteText(json, [{ block: block!, order: [2, 1, 0], hint }]))).toBeDefined();
  });

  it('keeps bytes from being moved where it is to be written', () => {
    const text = `${PASSAGES.map((passage, i) => `<document id="d${i}">${passage}</document>`).join('\n')}\nHow deep?`;
    const [block] = recognise([{ role: 'user', text }], { mode: 'form' });
    expect(textMoves(text, [{ block: block!, order: [2, 1, 0], hint }])).toBeUndefined();
    expect(textMoves(text, [{ block: block!, order: [2, 1, 0] }])).toHaveLength(2);
    expect(textMoves(text, [{ block: block!, order: [0, 1, 2], hint }])).toEqual([]);
  });
});
