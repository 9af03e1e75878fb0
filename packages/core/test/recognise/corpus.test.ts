import { describe, expect, it } from 'vitest';
import { recognise, rewriteText } from '../../src/index.js';
import { isCounted } from '../../src/internal.js';
import { PROMPTS } from './prompts/index.js';
import { NEGATIVE_PROMPTS } from './prompts/negatives.js';
import type { PromptCase } from './prompts/prompt.js';

const textsOf = ({ texts }: PromptCase) => texts.map(([role, text]) => ({ role, text }));

describe('prompts as tools write them', () => {
  it('are many, and many of them hold no documents', () => {
    expect(PROMPTS.length).toBeGreaterThanOrEqual(60);
    expect(NEGATIVE_PROMPTS.length).toBeGreaterThanOrEqual(20);
  });

  it.each(PROMPTS.map((prompt) => [prompt.name, prompt] as const))('%s', (_, prompt) => {
    const texts = textsOf(prompt);
    const blocks = recognise(texts, { mode: 'form' });
    const found = blocks.map((block) => ({
      format: block.format,
      text: block.text,
      documents: block.documents.length,
      marked: block.marked,
      fixed: block.fixed !== undefined,
    }));
    expect(found).toEqual(
      prompt.blocks.map(({ format, text = 0, documents, marked = false, fixed = false }) => ({
        format,
        text,
        documents: documents.length,
        marked,
        fixed,
      })),
    );
    for (const [index, expected] of prompt.blocks.entries()) {
      const block = blocks[index]!;
      const { text } = texts[block.text]!;
      for (const [place, passage] of expected.documents.entries()) {
        const { start, end, contentStart, contentEnd } = block.documents[place]!;
        const decoded = text.slice(contentStart, contentEnd);
        expect(text.slice(start, end)).toContain(decoded);
        const written = block.format === 'json' || block.format === 'python' ? decodeLiteral(decoded) : decoded;
        expect(written).toContain(passage);
      }
      for (const [place, begins] of (expected.starts ?? []).entries()) {
        expect(text.slice(block.documents[place]!.start)).toMatch(new RegExp(`^${begins}`));
      }
      for (const [place, { start }] of block.documents.slice(1).entries()) {
        if (expected.between !== undefined)
          expect(text.slice(block.documents[place]!.end, start)).toBe(expected.between);
      }
      if (expected.counted !== undefined) expect(isCounted(block)).toBe(expected.counted);
      if (expected.ids !== undefined) expect(block.documents.map(({ id }) => id)).toEqual(expected.ids);
    }
  });

  it.each(PROMPTS.map((prompt) => [prompt.name, prompt] as const))(
    'unchanged order, unchanged bytes: %s',
    (_, prompt) => {
      const texts = textsOf(prompt);
      const blocks = recognise(texts, { mode: 'form' });
      for (const [index, { text }] of texts.entries()) {
        const rewrites = blocks
          .filter((block) => block.text === index)
          .map((block) => ({ block, order: block.documents.map((_, rank) => rank) }));
        expect(rewriteText(text, rewrites)).toBe(text);
      }
    },
  );

  it.each(PROMPTS.map((prompt) => [prompt.name, prompt] as const))(
    'the same with Windows line ends: %s',
    (_, prompt) => {
      const outcome = (texts: ReturnType<typeof textsOf>) =>
        recognise(texts, { mode: 'form' }).map(({ documents, start: _start, end: _end, ...block }) => ({
          ...block,
          documents: documents.map(({ id, title, labels }) => ({ id, title, labels: labels.length })),
        }));
      const texts = textsOf(prompt);
      const windows = texts.map(({ role, text }) => ({ role, text: text.replaceAll(/\r?\n/g, '\r\n') }));
      expect(outcome(windows)).toEqual(outcome(texts));
    },
  );

  it.each(PROMPTS.map((prompt) => [prompt.name, prompt] as const))(
    'only marked ones in marked mode: %s',
    (_, prompt) => {
      const blocks = recognise(textsOf(prompt), { mode: 'marked' });
      expect(blocks.map(({ marked }) => marked)).toEqual(prompt.blocks.filter(({ marked }) => marked).map(() => true));
    },
  );
});

function decodeLiteral(literal: string): string {
  if (literal.startsWith('"')) {
    try {
      return JSON.parse(literal) as string;
    } catch {
      // Python's strings are close enough.
    }
  }
  return literal.slice(1, -1);
}
