import { describe, expect, it } from 'vitest';
import { type PromptText, recognise } from '../../src/index.js';
import { suggestTemplate } from '../../src/internal.js';
import { CLOCK, FERRY, GLACIER, HARBOUR, LANTERN } from './prompts/prompt.js';

const PASSAGES = [HARBOUR, LANTERN, CLOCK];
const said = (text: string, role: PromptText['role'] = 'user'): readonly PromptText[] => [{ role, text }];

/** What the suggested frame takes for documents. */
function found(texts: readonly PromptText[]): readonly string[] | undefined {
  const suggested = suggestTemplate(texts);
  if (suggested === undefined) return undefined;
  const { text, template, documents } = suggested;
  const [block] = recognise(texts, { mode: 'conservative', templates: [template] });
  expect(block).toMatchObject({ text, format: 'separator' });
  expect(block!.documents).toHaveLength(documents);
  return block!.documents.map(({ start, end }) => texts[text]!.text.slice(start, end));
}

describe('the frame of a prompt whose documents nothing but white space parts', () => {
  it.each([
    [
      "LangChain's prompt of the hub",
      `Use the following pieces of retrieved context to answer the question.\nQuestion: How deep? \nContext: ${PASSAGES.join('\n\n')} \nAnswer:`,
    ],
    [
      'a context in a tag',
      `Answer any user questions based solely on the context below:\n\n<context>\n${PASSAGES.join('\n\n')}\n</context>`,
    ],
    [
      'a context behind its paragraph',
      `You are an assistant. Use the following pieces of retrieved context to answer. Keep it concise.\n\n${PASSAGES.join('\n\n')}`,
    ],
    [
      "LlamaIndex's rules",
      `Context information is below.\n---------------------\n${PASSAGES.join('\n\n')}\n---------------------\nGiven the context information and not prior knowledge, answer the query.\nQuery: How?\nAnswer:`,
    ],
    [
      'single lines, as in the cookbook of the AI SDK',
      `Answer the following question based only on the provided context:\n             ${PASSAGES.join('\n')}\n\n             Question: How deep?`,
    ],
    ['rules between them', `Documents:\n${PASSAGES.join('\n---\n')}\n\nQuestion: How deep?`],
    ['a question in front of them', `How deep is it? Answer from the following context: ${PASSAGES.join('\n\n')}`],
  ])('%s', (_, text) => {
    expect(recognise(said(text), { mode: 'conservative' })).toEqual([]);
    expect(found(said(text))).toEqual(PASSAGES);
    // The same frame finds other documents of the same prompt.
    const { template } = suggestTemplate(said(text))!;
    const other = text.replaceAll(HARBOUR, GLACIER);
    expect(recognise(said(other), { mode: 'conservative', templates: [template] })[0]!.documents).toHaveLength(3);
  });

  it('is not the same words farther up', () => {
    const text = `Rules for the given context: be short.\n\nAnswer from the given context:\n\n${PASSAGES.join('\n\n')}`;
    expect(found([{ role: 'system', text }])).toEqual(PASSAGES);
  });

  it.each([
    ['prose', `${PASSAGES.join('\n\n')}\n\nSummarise this.`],
    ['one passage', `Context:\n${HARBOUR}\n\nQuestion: How deep?`],
    ['a list of words', 'Sources:\na.md\nb.md\nc.md\n\nQuestion: which?'],
    ['code', 'Write a class with these documents: none'],
  ])('is none in %s', (_, text) => {
    expect(suggestTemplate(said(text))).toBeUndefined();
  });

  it('is not looked for in what the model or a tool said', () => {
    const text = `Context:\n${PASSAGES.join('\n\n')}`;
    expect(suggestTemplate([...said(text, 'assistant'), ...said(text, 'tool')])).toBeUndefined();
  });

  it('takes linear time, whatever the text', () => {
    for (const text of [
      'context: \n\n'.repeat(20_000),
      '<context>'.repeat(25_000),
      '\n---\n'.repeat(40_000),
      ': '.repeat(100_000),
    ]) {
      suggestTemplate(said(text));
    }
  });
});

describe("Haystack's default prompt", () => {
  const prompt = (...documents: string[]) =>
    `\nGiven the following information, answer the question.\n\nContext:\n${documents.map((text) => `\n    ${text}\n`).join('')}\n\nQuestion: How deep?\nAnswer:\n`;
  const documentsIn = (text: string) =>
    recognise(said(text), { mode: 'conservative' }).map(({ documents }) =>
      documents.map(({ start, end }) => text.slice(start, end)),
    );

  it('is known by its words and its indentation, which keep paragraphs of one passage together', () => {
    expect(documentsIn(prompt(HARBOUR, FERRY, CLOCK))).toEqual([[HARBOUR, FERRY, CLOCK]]);
    expect(recognise(said(prompt(HARBOUR, CLOCK)), { mode: 'marked' })).toEqual([]);
  });

  it('is left alone with what could be code', () => {
    expect(documentsIn(prompt(HARBOUR, `Call it so:\n\n    const depth = read();`, CLOCK))).toEqual([]);
    expect(documentsIn(prompt(HARBOUR, `A list:\n\n        deeper still`, CLOCK))).toEqual([]);
  });
});
