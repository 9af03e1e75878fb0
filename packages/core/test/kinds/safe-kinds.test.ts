import { describe, expect, it } from 'vitest';
import type { PromptText } from '../../src/index.js';
import { PromptKinds } from '../../src/internal.js';
import { isNeutralText } from '../../src/kinds/neutral-text.js';

const NEUTRAL = [
  'Use the following pieces of context to answer the question at the end.',
  "You are an assistant for question-answering tasks. Use the following pieces of retrieved context to answer the question. If you don't know the answer, just say that you don't know. Use three sentences maximum and keep the answer concise.",
  'Context information is below.\n---------------------',
  '---------------------\nGiven the context information and not prior knowledge, answer the query.\nQuery:',
  'You are a helpful assistant. Answer only from the context:',
  'Answer the user’s question using only the documents.',
  '\n\nQuestion:',
  '<context>',
  '',
];

/** Sentences that state an order, name a document by its place, or might do so. */
const ORDERED = [
  'The documents are sorted by date, newest first.',
  'Prefer the first document.',
  'The most relevant passages come first.',
  'Documents are ranked by relevance.',
  'Cite the last source only where needed.',
  'The passage above is the answer.',
  'Later documents replace earlier ones.',
  'Use the top document.',
  'Each excerpt continues the one before it.',
  'The chunks follow the text of the manual.',
  'Read the documents in sequence.',
  'The 2nd document is a draft.',
  'Document 1 wins over document 2.',
  'Chronological order.',
  'Answer from the pages of the chapter.',
  'If sources contradict each other, trust the upper one.',
  'Die Dokumente sind nach Datum geordnet.',
  'Bevorzuge das erste Dokument.',
  'Les documents sont classés par pertinence.',
  'Los documentos están ordenados por fecha.',
  'I documenti sono in ordine di rilevanza.',
  'Os documentos estão em ordem cronológica.',
  'De documenten staan op volgorde van datum.',
  'Dokumenten är sorterade efter datum.',
  'Dokumenty są uporządkowane według daty.',
  'Документы отсортированы по дате.',
  '文档按相关性排序。',
  '文書は日付順です。',
  '문서는 날짜순입니다.',
  'المستندات مرتبة حسب التاريخ.',
  'דוקומנטים ממוינים לפי תאריך.',
  'दस्तावेज़ तिथि के अनुसार क्रमबद्ध हैं।',
  'Belgeler tarihe göre sıralanmıştır.',
  'Tài liệu được sắp xếp theo ngày.',
];

describe('a text that says nothing about the order of documents', () => {
  it.each(NEUTRAL)('is known: %s', (text) => {
    expect(isNeutralText(text)).toBe(true);
  });

  it.each(ORDERED)('is not: %s', (text) => {
    expect(isNeutralText(text)).toBe(false);
  });
});

const PASSAGES = Array.from(
  { length: 12 },
  (_, i) =>
    `The ${'harbour lantern market bridge orchard quarry chapel tunnel meadow cannery granary ferry'.split(' ')[i]} has stood since ${1_500 + ((i * 37) % 100)}, and its keeper lives beside it all the year.`,
);

/** Random lists of passages, four a prompt, by a linear congruential generator. */
function lists(count: number): number[][] {
  let state = 7;
  const random = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  return Array.from({ length: count }, () => {
    const rest = PASSAGES.map((_, i) => i);
    return Array.from({ length: 4 }, () => rest.splice(random(rest.length), 1)[0]!);
  });
}

const BEFORE = 'Use the following pieces of context to answer the question at the end.\n\n';

interface Written {
  readonly before?: string;
  readonly role?: PromptText['role'];
  readonly write?: (passage: number, place: number, prompt: number) => string;
  readonly order?: (passages: number[]) => number[];
}

/** Whether the documents of a new prompt of the kind may move without consent. */
function isSafe({
  before = BEFORE,
  role = 'user',
  write = (passage) => PASSAGES[passage]!,
  order = (passages) => passages,
}: Written): boolean {
  const kinds = new PromptKinds({ salt: 'salt', maxBytes: 8_000_000 });
  const prompts = lists(120).map((passages, n): PromptText[] => {
    const documents = order(passages).map((passage, place) => write(passage, place, n));
    return [{ role, text: `${before}${documents.join('\n\n')}\n\nQuestion: Who keeps key ${n}?` }];
  });
  for (const texts of prompts.slice(0, 100)) kinds.learn('t', texts);
  const found = prompts.slice(100).flatMap((texts) => kinds.find('t', texts));
  expect(found.some(({ block }) => (block?.documents.length ?? 0) >= 2)).toBe(true);
  expect(kinds.list('t').some((kind) => kind.isSafe)).toBe(found.some((each) => each.isSafe));
  return found.some((each) => each.isSafe);
}

const ascending = (passages: number[]) => passages.toSorted((a, b) => a - b);
const tagged = (attributes: string, passage: number) => `<document ${attributes}>${PASSAGES[passage]}</document>`;

describe('documents move without consent', () => {
  it('where the text is neutral and their order changes', () => {
    expect(isSafe({})).toBe(true);
    expect(isSafe({ write: (passage) => tagged(`id="d${passage}"`, passage) })).toBe(true);
  });

  it.each(ORDERED)('never where the text says: %s', (sentence) => {
    expect(isSafe({ before: `${sentence}\n\n` })).toBe(false);
  });

  it.each<[string, Written]>([
    ['text without numbers that always stands in the same order', { order: ascending }],
    ['parts of one file', { order: ascending, write: (passage) => tagged(`source="manual.md"`, passage) }],
    ['dates that rise', { order: ascending, write: (passage) => tagged(`date="20${10 + passage}-01-11"`, passage) }],
    ['dates that fall', { order: ascending, write: (passage) => tagged(`date="20${30 - passage}-01-11"`, passage) }],
    ['versions', { order: ascending, write: (passage) => `Release 1.${passage}\n${PASSAGES[passage]}` }],
    ['chapters', { order: ascending, write: (passage) => `Chapter ${passage + 1}\n${PASSAGES[passage]}` }],
    ['hunks of a diff', { order: ascending, write: (passage) => `@@ -${9 * passage},7 @@\n${PASSAGES[passage]}` }],
    [
      'turns of a thread',
      { order: ascending, write: (passage) => `#${passage} at 10:${10 + passage}: ${PASSAGES[passage]}` },
    ],
    [
      'dates of texts that never come again',
      { write: (passage, place, n) => tagged(`date="20${10 + place}" n="${n}${place}"`, passage) },
    ],
    ['results of tools', { role: 'tool' }],
    ['labels that count positions', { write: (passage, place) => tagged(`id="${place + 1}"`, passage) }],
  ])('never for %s', (_, written) => {
    expect(isSafe(written)).toBe(false);
  });
});
