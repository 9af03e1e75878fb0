import { type DocumentBlock, type PromptText, recognise, rewriteText } from '@warmpath/core';
import { expect } from 'vitest';
import type { ConformanceCase } from './case.js';
import { contentOf, docs, LAMP, PEAR, PORT, reorderedByForm, searching, through, user } from './prompts.js';

const FUNCTION = `\`\`\`js\nif (rows[0] < rows[1]) {\n\treturn [rows[1],  rows[0]];\n}\n\`\`\``;

function blocksIn(text: string, role: PromptText['role'] = 'user', mode: 'marked' | 'form' = 'form') {
  return recognise([{ role, text }], { mode });
}

/** The one block of a text, with what stands before it, what its documents say, and what stands behind. */
function parts(text: string, role?: PromptText['role']) {
  const blocks = blocksIn(text, role);
  expect(blocks).toHaveLength(1);
  const { start, end, documents, format } = blocks[0]!;
  return {
    format,
    before: text.slice(0, start),
    contents: documents.map(({ contentStart, contentEnd }) => text.slice(contentStart, contentEnd).trim()),
    behind: text.slice(end),
  };
}

const reversed = (text: string, [block]: readonly DocumentBlock[]) =>
  rewriteText(text, [{ block: block!, order: block!.documents.map((_, rank) => rank).reverse() }]);

const marked = (format: string, text: string) =>
  `<warmpath-documents format="${format}">\n${text}\n</warmpath-documents>`;

const results = (...passages: readonly (readonly [path: string, text: string])[]) =>
  JSON.stringify({ took: 3, results: passages.map(([path, text]) => ({ path, text })), next: null });

type Pair = readonly [a: string, b: string];
/** One way of writing two documents with something around them. */
type Form = (...passages: Pair) => string;

/** Those in which a document ends where it says so itself. */
const CLOSED_FORMS: readonly Form[] = [
  (a, b) =>
    `Intro.\n<docs kind="x">\n  <doc id="1x"  src='p'>\n${a}\n</doc>\n\n  <doc id="2x">${b}</doc>\n</docs>\nOutro?`,
  (a, b) => `Intro. <files>\n<file path="a.md">${a}</file>\n<file path="b.md">${b}</file>\n</files> Outro?`,
  (a, b) => results(['a', a], ['b', b]),
  (a, b) => JSON.stringify({ results: [{ text: a }, { text: b }], total: 1e2 }, undefined, '\t'),
];
/** Those in which the next one ends it, and the last one ends where the question begins. */
const OPEN_FORMS: readonly Form[] = [
  (a, b) => `Sources:\n[1] ${a}\n[2] ${b}\n\nQuestion: why [so]?`,
  (a, b) => `Sources:\r\n[1]   ${a}  \r\n\r\n[2]\t${b}\r\n\r\nWhy?\r\n`,
];

/** Documents in prompts: which forms are seen, which are not, and what stays as it is. */
export const recognitionCases: readonly ConformanceCase[] = [
  {
    number: 14,
    title:
      'tags: the documents, and what stands around them; one document is none; `<files>` is as good as `<documents>`, but a name that means nothing to us is left alone, even where it is marked',
    run: async () => {
      const inWrapper = (wrapper: string, item: string) =>
        `Read this. <${wrapper}><${item}>${PORT}</${item}>\n<${item}>${LAMP}</${item}></${wrapper}> Why?`;
      for (const [wrapper, item] of [
        ['documents', 'document'],
        ['files', 'file'],
        ['search_results', 'result'],
      ] as const) {
        expect(parts(inWrapper(wrapper, item))).toEqual({
          format: 'tags',
          before: `Read this. <${wrapper}>`,
          contents: [PORT, LAMP],
          behind: `</${wrapper}> Why?`,
        });
      }
      const own = inWrapper('velmora', 'leaflet');
      expect([blocksIn(own), blocksIn(marked('tags', own))]).toEqual([[], []]);
      expect([blocksIn(docs(PORT)), blocksIn(`<document>${PORT}</document>`)]).toEqual([[], []]);
      const moved = reorderedByForm(user(inWrapper('files', 'file')), user(inWrapper('files', 'file')));
      expect(contentOf(moved)).toBe(inWrapper('files', 'file'));
      const single = user(docs(PORT));
      expect(await through(await searching(), single)).toBe(JSON.stringify(single));
    },
  },
  {
    number: 15,
    title:
      'numbers: documents at line starts under a line that says so, or marked; `[1]` within a sentence, a single one, code and citations are none',
    run: async () => {
      const list = (...texts: readonly string[]) => texts.map((text, i) => `[${i + 1}] ${text}`).join('\n');
      const prompt = (...texts: readonly string[]) => `Intro. Sources:\n${list(...texts)}\n\nWhat is the weight?`;
      expect(parts(prompt(PORT, LAMP))).toEqual({
        format: 'numbered',
        before: 'Intro. Sources:\n',
        contents: [PORT, LAMP],
        behind: '\n\nWhat is the weight?',
      });
      const inline = `Intro [1] ${PORT} [2] ${LAMP}`;
      expect(parts(marked('numbered', inline))).toMatchObject({
        before: '<warmpath-documents format="numbered">\nIntro ',
        contents: [PORT, LAMP],
      });
      for (const text of [
        inline,
        prompt(PORT),
        marked('numbered', `Intro [1] ${PORT}`),
        `Sources:\nrows[0] = rows[1];\nrows[1] = rows[2];\nWhat is wrong with \`x[0]\`, \`x[1]\` and \`x[2]\`?`,
        `Sources:\n${FUNCTION}\nWhat is wrong?`,
        `${PORT} [1] ${LAMP} [2] Are these citations right?`,
        `References:\n${list(PORT, LAMP)}`,
      ]) {
        expect(blocksIn(text), text).toEqual([]);
        expect(await through(await searching(), user(text))).toBe(JSON.stringify(user(text)));
      }
      const moved = contentOf(reorderedByForm(user(prompt(PORT, LAMP)), user(prompt(LAMP, PORT))));
      // Another label is another text: nothing of it was served before.
      expect(moved).toBe(prompt(LAMP, PORT));
    },
  },
  {
    number: 16,
    title:
      'JSON: two results or more change places and nothing else does; one, none or no JSON is left alone; passages of one file are documents of their own',
    run: async () => {
      const two = results(['a', PORT], ['b', LAMP]);
      expect(blocksIn(two)[0]).toMatchObject({ format: 'json' });
      expect(reversed(two, blocksIn(two))).toBe(results(['b', LAMP], ['a', PORT]));
      for (const text of [
        results(['a', PORT]),
        results(),
        JSON.stringify({ took: 3, weight: 42 }),
        two.slice(0, -2),
        two.replace(':3,', ':three,'),
      ]) {
        expect(blocksIn(text, 'tool'), text).toEqual([]);
        expect(await through(await searching(), user(text))).toBe(JSON.stringify(user(text)));
      }
      const first = results(['a.ts', PORT], ['a.ts', LAMP]);
      const second = results(['a.ts', PEAR], ['a.ts', LAMP], ['a.ts', PORT]);
      const moved = contentOf(reorderedByForm(user(first), user(second)));
      expect(moved).toBe(results(['a.ts', PORT], ['a.ts', LAMP], ['a.ts', PEAR]));
    },
  },
  {
    number: 17,
    title:
      'tags go before JSON and JSON before numbers where two see documents in one place, else each is seen; rules never unasked, sections only where each heading names its source; both when asked for',
    run: () => {
      const formats = (text: string) => blocksIn(text, 'tool').map(({ format }) => format);
      const numbers = (...texts: readonly string[]) =>
        `Sources:\n${texts.map((text, i) => `[${i + 1}] ${text}`).join('\n')}\n`;
      const found = results(['a', PORT], ['b', LAMP]);
      expect(formats(docs(numbers(PORT, LAMP), PEAR))).toEqual(['tags']);
      expect(formats(docs(`\n${found}\n`, PEAR))).toEqual(['tags']);
      expect(formats(numbers(`\n${found}\n`, PEAR))).toEqual(['json']);
      expect(formats(numbers(docs(PORT, LAMP), PEAR))).toEqual(['tags']);
      expect(formats(`${docs(PORT, LAMP)}\n\n${found}\n\n${numbers(PORT, PEAR)}`)).toEqual([
        'tags',
        'json',
        'numbered',
      ]);

      const rules = `${PORT}\n---\n${LAMP}\n---\n${PEAR}`;
      const sections = `## Harbour\n${PORT}\n\n## Lanterns\n${LAMP}`;
      expect([formats(rules), formats(sections)]).toEqual([[], []]);
      expect(formats(sections.replaceAll('## ', '## Source: '))).toEqual(['markdown']);
      for (const [format, text] of [
        ['separator', rules],
        ['markdown', sections],
      ] as const) {
        for (const mode of ['marked', 'form'] as const) {
          const asked = blocksIn(marked(format, text), 'user', mode);
          expect(asked).toMatchObject([{ format, marked: true }]);
          expect(asked[0]!.documents).toHaveLength(format === 'separator' ? 3 : 2);
        }
      }
    },
  },
  {
    number: 18,
    title:
      'the same order is the same bytes, with attributes, white space and code; another order has the same characters; what may belong to the last document is never parted from it',
    run: async () => {
      const inParagraphs: Pair = [`${PORT}\n${FUNCTION}`, `${LAMP}   \n\n\t${FUNCTION}`];
      const passages: readonly Pair[] = [[PORT, LAMP], [`${PORT}\n${FUNCTION}`, `${LAMP}\n${FUNCTION}`], inParagraphs];
      const texts = [
        ...CLOSED_FORMS.flatMap((write) => passages.map((two) => write(...two))),
        ...OPEN_FORMS.flatMap((write) => passages.slice(0, 2).map((two) => write(...two))),
      ];
      for (const text of texts) {
        const [block] = blocksIn(text);
        expect(block?.documents, text).toHaveLength(2);
        expect(rewriteText(text, [{ block: block!, order: [0, 1] }])).toBe(text);
        const moved = reversed(text, [block!]);
        expect(moved).not.toBe(text);
        expect([...moved].sort().join('')).toBe([...text].sort().join(''));
        expect(reorderedByForm(user(text), user(text))).toBe(JSON.stringify(user(text)));
        // Labels that moved with their documents do not count up any more: such a text is no list.
        if (block!.documents.some(({ labels }) => labels.length > 0)) continue;
        expect(reversed(moved, blocksIn(moved)), text).toBe(text);
        expect(reorderedByForm(user(text), user(moved))).toBe(JSON.stringify(user(text)));
      }
      for (const write of OPEN_FORMS) expect(blocksIn(write(...inParagraphs))).toEqual([]);
    },
  },
];
