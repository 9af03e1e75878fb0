import { describe, expect, it, test } from 'vitest';
import { isFull, pairs } from '../../../../test/suite.js';
import { type PromptText, rewriteText } from '../../src/index.js';
import { isCounted, LabelMap, PromptKinds } from '../../src/internal.js';
import { CITING_LANGUAGES, type CitingLanguage } from './citing-languages.js';

const WORDS = 'harbour lantern market bridge orchard quarry chapel tunnel meadow cannery granary ferry'.split(' ');
const PASSAGES = WORDS.map(
  (word, i) =>
    `The ${word} is what the town has built.${i % 3 === 0 ? '\n' : ' '}Its keeper has the key with the number ${i}.`,
);

/** Random lists of passages, three or four a prompt. */
function lists(count: number, seed: number, passages = PASSAGES): string[][] {
  let state = seed;
  const random = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  return Array.from({ length: count }, (_, n) => {
    const rest = [...passages];
    return Array.from({ length: 3 + (n % 2) }, () => rest.splice(random(rest.length), 1)[0]!);
  });
}

/** Ways to count documents, with the language's word for a source. */
const FORMS: Readonly<Record<string, (text: string, number: number, language: CitingLanguage) => string>> = {
  '[1] text': (text, number) => `[${number}] ${text}`,
  '[1], text below': (text, number) => `[${number}]\n${text}`,
  '【1】text': (text, number) => `【${number}】${text}`,
  '(1) text': (text, number) => `(${number}) ${text}`,
  '1. text': (text, number) => `${number}. ${text}`,
  '1) text': (text, number) => `${number}) ${text}`,
  '#1 text': (text, number) => `#${number} ${text}`,
  '**1** text': (text, number) => `**${number}** ${text}`,
  'Source 1: text': (text, number, { noun }) => `${noun} ${number}: ${text}`,
  'Source 1, text below': (text, number, { noun }) => `${noun} ${number}:\n${text}`,
  '[Source 1] text': (text, number, { noun }) => `[${noun} ${number}] ${text}`,
  '## Source 1, text below': (text, number, { noun }) => `## ${noun} ${number}\n${text}`,
  '<source id="1">': (text, number) => `<source id="${number}">${text}</source>`,
};
/** What stands between documents, whether a line announces them, and the first number. */
const SETTINGS = (['\n\n', '\n'] as const).flatMap((between) =>
  [false, true].flatMap((isAnnounced) => [1, 0].map((firstNumber) => ({ between, isAnnounced, firstNumber }))),
);
const TRIED = isFull ? SETTINGS : [SETTINGS[0]!, SETTINGS.at(-1)!];

type Write = (documents: readonly string[], n: number) => string;

/** The prompts of a kind that were not learned yet, with the documents that are found in them. */
function* found(write: Write, passages = PASSAGES) {
  const kinds = new PromptKinds({ salt: 'salt', maxBytes: 8_000_000 });
  for (const [n, documents] of lists(90, 11, passages).entries()) {
    const texts: PromptText[] = [{ role: 'user', text: write(documents, n) }];
    const [first] = kinds.find('t', texts);
    kinds.learn('t', texts);
    if (n >= 60) yield { texts, text: texts[0]!.text, documents, first, kinds };
  }
}

describe('documents that a program counts', () => {
  test.each(
    pairs(CITING_LANGUAGES, Object.keys(FORMS)).map(([language, form]) => ({ name: language.name, form, language })),
  )('in $name: $form', ({ form, language }) => {
    const { asks, sources, question } = language;
    for (const { between, isAnnounced, firstNumber } of TRIED) {
      const head = isAnnounced ? `${sources}\n` : '';
      const written = (text: string, place: number) => FORMS[form]!(text, place + firstNumber, language);
      const write: Write = (documents, n) =>
        `${asks}\n\n${head}${documents.map(written).join(between)}\n\n${question}: ${n}?`;
      for (const { texts, text, documents, first, kinds } of found(write)) {
        const block = first?.block;
        expect(block?.documents).toHaveLength(documents.length);
        expect(isCounted(block!)).toBe(true);
        expect(kinds.list('t')[0]!.notices).toContain('labels-by-position');
        const map = LabelMap.of(texts, [block!]);
        const { text: mapped, blocks } = map.relabel(texts[0]!, 0, [block!]);
        const order = documents.map((_, rank) => rank).reverse();
        const sent = rewriteText(mapped, [{ block: blocks[0]!, order }]);
        for (const [rank, document] of documents.entries()) {
          const label = Number(map.labelOf(block!, rank));
          expect(sent).toContain(FORMS[form]!(document, label, language));
          const given = `${rank + firstNumber}`;
          for (const cite of [language.cite, (name: string) => `[${name}]`]) {
            expect(map.inAnswer(`1931 ${cite(`${label}`)}.`)).toBe(`1931 ${cite(given)}.`);
          }
        }
        expect(sent.startsWith(text.slice(0, block!.start))).toBe(true);
        expect(sent.endsWith(text.slice(block!.end))).toBe(true);
      }
    }
  });
});

describe('a number that counts no documents', () => {
  const write: Write = (documents, n) => `Gather it.\n\n${documents.join('\n\n')}\n\nAsked is ${n}.`;
  const counted: Write = (documents, n) =>
    write(
      documents.map((text, i) => `${i + 1}. ${text}`),
      n,
    );

  /** Documents of prompts stay whole in any order. */
  function expectWhole(writeAll: Write, passages: readonly string[]): void {
    for (const { text, documents, first } of found(writeAll, [...passages])) {
      if (first?.block === undefined) continue;
      const order = first.block.documents.map((_, rank) => rank).reverse();
      const sent = rewriteText(text, [{ block: first.block, order }]);
      for (const document of documents) expect(sent).toContain(document);
    }
  }

  const steps = (count: number) => Array.from({ length: count }, (_, i) => `${i + 1}. Do what step ${'abcd'[i]} says.`);
  it.each([
    ['steps of every document', PASSAGES.map((text, i) => `${steps(2 + (i % 2)).join('\n')}\n${text}`)],
    [
      'steps of one document in three',
      PASSAGES.map((text, i) => (i % 3 === 0 ? `${steps(3).join('\n')}\n${text}` : text)),
    ],
    ['steps behind a paragraph', PASSAGES.map((text) => `${text}\n\n${steps(3).join('\n')}`)],
  ])('%s', (_, passages) => {
    expectWhole(write, passages);
  });

  it.each([
    ['the number of the next document', PASSAGES.map((text, i) => (i % 3 === 0 ? `${text}\n2. is a list.` : text))],
    ['a list of its own', PASSAGES.map((text, i) => (i % 3 === 0 ? `${text}\n\n${steps(2).join('\n\n')}` : text))],
  ])('in a document that is counted itself: %s', (_, passages) => {
    expectWhole(counted, passages);
  });

  it.each<[string, Write]>([
    [
      'nothing of the program behind',
      (documents, n) => `Sources are these.\n\n${documents.join('\n\n')}\n\nWho keeps ${n}?`,
    ],
    [
      'a question before the program’s last words',
      (documents, n) => `Sources are these.\n\n${documents.join('\n\n')}\n\nWho keeps ${n}?\n\nAnswer:`,
    ],
  ])('the question is no part of the last document: %s', (_, ask) => {
    for (const label of [(i: number) => `${i + 1}. `, (i: number) => `Bron ${i + 1}: `, (i: number) => `[${i + 1}] `]) {
      const numbered: Write = (documents, n) =>
        ask(
          documents.map((text, i) => `${label(i)}${text}`),
          n,
        );
      let moved = 0;
      for (const { text, first } of found(numbered)) {
        if (first?.block === undefined) continue;
        moved++;
        const order = first.block.documents.map((_each, rank) => rank).reverse();
        const sent = rewriteText(text, [{ block: first.block, order }]);
        const behind = text.slice(text.indexOf('Who keeps'));
        expect(sent.endsWith(`\n\n${behind}`)).toBe(true);
      }
      expect(moved).toBeGreaterThan(20);
    }
  });

  it('moves no documents without a person’s consent, since a list may be steps', () => {
    const plain = PASSAGES.map((text) => text.replace(/\n/g, ' '));
    const neutral: Write = (documents, n) =>
      `Use the following context.\n\n${documents.map((text, i) => `${i + 1}. ${text}`).join('\n')}\n\nQuestion: ${n}?`;
    const all = [...found(neutral, plain)];
    expect(all.every(({ first }) => first?.block !== undefined)).toBe(true);
    expect(all.some(({ first }) => first!.isSafe)).toBe(false);
    expect(
      all
        .at(-1)!
        .kinds.list('t')
        .some(({ isSafe }) => isSafe),
    ).toBe(false);
  });
});
