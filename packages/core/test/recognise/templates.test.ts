import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type PromptText, recognise, rewriteText } from '../../src/index.js';
import type { DocumentTemplate } from '../../src/internal.js';
import { FERRY, GLACIER, HARBOUR, LANTERN } from './prompts/prompt.js';

/** LangChain's `createStuffDocumentsChain` with its default separator. */
const STUFF: DocumentTemplate = { before: 'Answer from this context:\n\n', separator: '\n\n' };
const system = (...documents: string[]) => `You are a keeper. Answer from this context:\n\n${documents.join('\n\n')}`;
const found = (text: string, templates: readonly DocumentTemplate[], more: readonly PromptText[] = []) =>
  recognise([{ role: 'system', text }, ...more], { mode: 'conservative', templates });
const saidIn = (text: string, templates: readonly DocumentTemplate[]) =>
  found(text, templates).map(({ documents }) => documents.map(({ start, end }) => text.slice(start, end)));

describe('frames that the caller knows', () => {
  it('hold documents that nothing else tells apart', () => {
    const text = system(HARBOUR, LANTERN, GLACIER);
    expect(found(text, [])).toEqual([]);
    const [block] = found(text, [STUFF]);
    expect(block).toMatchObject({ format: 'separator', marked: false, fixed: undefined });
    expect(rewriteText(text, [{ block: block!, order: [2, 0, 1] }])).toBe(system(GLACIER, HARBOUR, LANTERN));
    expect(rewriteText(text, [{ block: block!, order: [0, 1, 2] }])).toBe(text);
  });

  it('end where they say so, and not at all where that is missing', () => {
    const until: DocumentTemplate = { ...STUFF, after: '\n\nQuestion:' };
    expect(saidIn(`${system(HARBOUR, LANTERN)}\n\nQuestion: why?\n\nBe short.`, [until])).toEqual([[HARBOUR, LANTERN]]);
    expect(saidIn(system(HARBOUR, LANTERN), [until])).toEqual([]);
    expect(saidIn(system(HARBOUR), [STUFF])).toEqual([]);
    expect(saidIn('Answer from that context:\n\na\n\nb', [STUFF])).toEqual([]);
  });

  it('know no other sign than theirs: what has the separator in it is two', () => {
    expect(saidIn(system(FERRY, LANTERN), [STUFF])[0]).toHaveLength(3);
    const own: DocumentTemplate = { ...STUFF, separator: '\n%%\n' };
    expect(saidIn(`Answer from this context:\n\n${FERRY}\n%%\n${LANTERN}`, [own])).toEqual([[FERRY, LANTERN]]);
  });

  it('are looked for where documents are, and the question can still hold their order', () => {
    const text = system(HARBOUR, LANTERN);
    expect(recognise([{ role: 'system', text }], { mode: 'marked', templates: [STUFF] })).toEqual([]);
    expect(recognise([{ role: 'assistant', text }], { mode: 'conservative', templates: [STUFF] })).toEqual([]);
    const [block] = found(text, [STUFF], [{ role: 'user', text: 'What does the first document say?' }]);
    expect(block!.fixed).toBe('order-referred');
  });

  it('are surer than what is guessed inside of them, and give way to marks', () => {
    const inside = `[1] ${HARBOUR}\n[2] ${LANTERN}`;
    expect(saidIn(system(`Sources:\n${inside}`, GLACIER), [STUFF])).toEqual([[`Sources:\n${inside}`, GLACIER]]);
    const marked = `<warmpath-documents>\n${inside}\n</warmpath-documents>`;
    expect(found(system(marked, GLACIER), [STUFF])).toMatchObject([{ marked: true, format: 'numbered' }]);
  });

  it('any text, any frames: nothing is lost, and in its order nothing changes', () => {
    const signs = fc.array(fc.constantFrom('a', 'b', '\n', '\n\n', '[1] ', '[2] ', '<doc>x y</doc>'), {
      maxLength: 30,
    });
    const texts = signs.map((parts) => parts.join(''));
    const frames = fc.record({
      before: fc.constantFrom('a', '\n', 'ab'),
      separator: fc.constantFrom('\n\n', 'b', '\n'),
      after: fc.constantFrom(undefined, 'a', '\n\n'),
    });
    let moved = 0;
    fc.assert(
      fc.property(texts, fc.array(frames, { minLength: 1, maxLength: 3 }), (text, templates) => {
        const blocks = found(text, templates);
        let from = 0;
        for (const { start, end } of blocks.flatMap(({ documents }) => documents)) {
          expect(start).toBeGreaterThanOrEqual(from);
          expect(end).toBeGreaterThan(start);
          from = end;
        }
        const same = blocks.map((block) => ({ block, order: block.documents.map((_, rank) => rank) }));
        expect(rewriteText(text, same)).toBe(text);
        const turned = same.map(({ block, order }) => ({
          block,
          order: order.toReversed(),
        }));
        expect([...rewriteText(text, turned)].sort().join('')).toBe([...text].sort().join(''));
        moved += blocks.length;
      }),
      { seed: 20_261_121, numRuns: 1_000 },
    );
    expect(moved).toBeGreaterThan(30);
  });
});
