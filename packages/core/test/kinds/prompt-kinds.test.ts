import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { isFull } from '../../../../test/suite.js';
import { type PromptText, rewriteText } from '../../src/index.js';
import { PromptKinds } from '../../src/internal.js';
import '../seed.js';

const WORDS = 'harbour lantern market bridge orchard quarry chapel tunnel meadow cannery granary ferry'.split(' ');

/** Passages of one to three paragraphs, each of its own words. */
const PASSAGES = Array.from({ length: 12 }, (_, i) =>
  Array.from(
    { length: 1 + (i % 3) },
    (_each, part) =>
      `The ${WORDS[i]} is part ${part} of what the town has built, and its keeper has the key number ${i}.`,
  ).join('\n\n'),
);

/** Random lists of passages, four a prompt. */
function lists(count: number, seed = 7, passages = PASSAGES): string[][] {
  let state = seed;
  const random = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  return Array.from({ length: count }, () => {
    const rest = [...passages];
    return Array.from({ length: 4 }, () => rest.splice(random(rest.length), 1)[0]!);
  });
}

type Write = (documents: readonly string[], number: number) => string;

/** Prompts as programs write them. */
const PROMPTS: Readonly<Record<string, Write>> = {
  'empty lines between': (documents, n) =>
    `Use the following context.\nBe brief.\n\n${documents.join('\n\n')}\n\nQuestion: Who keeps key ${n}?\nHelpful Answer:`,
  'a tag around': (documents, n) => `<context>${documents.join('\n\n')}</context>\nFrage: Wer hat ${n}?`,
  'words in front': (documents) => `Du bist ein Helfer. Kontext: ${documents.join('\n\n')}`,
  'rules between': (documents, n) => `Read this:\n\n${documents.join('\n\n---\n\n')}\n\nQuestion: Who keeps ${n}?`,
  'tags with names': (documents, n) =>
    `<documents>\n${documents.map((text) => `<document id="${text.slice(4, 10)}">\n${text}\n</document>`).join('\n')}\n</documents>\nWho keeps ${n}?`,
  'in Chinese': (documents, n) => `根据以下资料回答问题。\n\n${documents.join('\n\n')}\n\n问题：谁有${n}？`,
  'labels by position': (documents, n) =>
    `Sources:\n${documents.map((text, i) => `[${i + 1}] ${text}`).join('\n\n')}\n\nQuestion: Who keeps ${n}?`,
  JSON: (documents, n) =>
    `Documents:\n${JSON.stringify(documents.map((text) => ({ text })))}\n\nQuestion: Who keeps ${n}?`,
  'no words of a program behind': (documents, n) => `Context:\n${documents.join('\n\n')}\n\nWho keeps ${n}?`,
};

function texts(text: string, role: PromptText['role'] = 'user'): PromptText[] {
  return [{ role, text }];
}

function learned(write: Write, given: readonly (readonly string[])[], salt = 'salt'): PromptKinds {
  const kinds = new PromptKinds({ salt, maxBytes: 8_000_000 });
  for (const [n, documents] of given.entries()) kinds.learn('t', texts(write(documents, n)));
  return kinds;
}

function programOf(kinds: PromptKinds): string {
  return kinds
    .list('t')
    .flatMap(({ parts }) => parts.map((part) => (part.kind === 'text' ? part.text : `{${part.kind}}`)))
    .join('|');
}

describe.each(Object.entries(PROMPTS))('a prompt with %s', (name, write) => {
  test('is learned, and its documents are found', () => {
    const kinds = learned(write, lists(120));
    expect(kinds.list('t')).toHaveLength(1);
    const found = lists(30, 99).filter((documents, n) => {
      const [first] = kinds.find('t', texts(write(documents, 1_000 + n)));
      return (first?.block?.documents.length ?? 0) >= 2;
    });
    expect(found.length).toBeGreaterThan(20);
  });

  test('keeps each document in one piece, whatever the order', () => {
    const kinds = new PromptKinds({ salt: 'salt', maxBytes: 8_000_000 });
    let moved = 0;
    for (const [n, documents] of lists(150, 3).entries()) {
      const text = write(documents, n);
      for (const { block } of kinds.find('t', texts(text))) {
        if (block === undefined) continue;
        const order = block.documents.map((_, rank) => rank).reverse();
        const sent = rewriteText(text, [{ block, order }]);
        moved++;
        for (const document of documents) {
          const written = name === 'JSON' ? JSON.stringify(document) : document;
          expect(sent.split(written)).toHaveLength(2);
        }
        expect([...sent].sort()).toEqual([...text].sort());
        const last = documents.at(-1)!.slice(-9);
        expect(sent.endsWith(text.slice(text.lastIndexOf(last) + last.length))).toBe(true);
      }
      kinds.learn('t', texts(text));
    }
    expect(moved).toBeGreaterThan(40);
  });

  test('shows the program’s text, and neither documents nor questions', () => {
    const shown = programOf(learned(write, lists(120)));
    expect(shown).toContain('{documents}');
    for (const word of WORDS) expect(shown).not.toContain(word);
    expect(shown).not.toContain('key');
  });

  test('has the same id in another process, and is known there once it is restored', () => {
    const [here, there] = ['one', 'other'].map((salt) => learned(write, lists(120, salt.length), salt));
    expect(here!.list('t')[0]!.id).toBe(there!.list('t')[0]!.id);
    const restored = new PromptKinds({ salt: 'third', maxBytes: 8_000_000 });
    for (const program of here!.programTexts('t')) restored.restore('t', program);
    expect(restored.find('t', texts(write(PASSAGES.slice(0, 4), 5)))[0]?.kind).toBe(here!.list('t')[0]!.id);
  });
});

describe('text is kept only where it is the program’s', () => {
  const write = PROMPTS['empty lines between']!;

  test('nothing of fewer than twenty prompts', () => {
    expect(learned(write, lists(19)).list('t')).toEqual([]);
  });

  test('nothing of one prompt that comes again and again', () => {
    const same = lists(1)[0]!;
    const kinds = new PromptKinds({ salt: 'salt', maxBytes: 8_000_000 });
    for (let i = 0; i < 100; i++) kinds.learn('t', texts(write(same, 1)));
    expect(kinds.list('t')).toEqual([]);
  });

  test('nothing where the documents are always the same and the questions differ', () => {
    const same = lists(1)[0]!;
    expect(
      learned(
        write,
        Array.from({ length: 100 }, () => same),
      ).list('t'),
    ).toEqual([]);
  });

  test('no document that stands in three quarters of the prompts', () => {
    const popular = 'The town hall opens at nine, and its clock is wound by hand on the first day of each month.';
    const given = lists(200).map((documents, n) => (n % 4 === 0 ? documents : [popular, ...documents]));
    const kinds = learned(write, given);
    expect(programOf(kinds)).toContain('Helpful Answer:');
    expect(programOf(kinds)).not.toContain('town hall');
  });

  test('no name of a user that stands in a part of the prompts', () => {
    const named: Write = (documents, n) =>
      `You help ${['Anna', 'Bob', 'Carla'][n % 3]} now.\nUse the context.\nBe brief.\n\n${documents.join('\n\n')}\n\nQuestion: ${n}?`;
    const shown = programOf(learned(named, lists(200)));
    expect(shown).toContain('Use the context.');
    expect(shown).not.toMatch(/Anna|Bob|Carla/);
  });

  test('nothing of another tenant', () => {
    const kinds = learned(write, lists(100));
    expect(kinds.list('other')).toEqual([]);
    expect(kinds.find('other', texts(write(PASSAGES.slice(0, 4), 1)))).toEqual([]);
  });
});

test('two programs of a tenant are two kinds', () => {
  const kinds = new PromptKinds({ salt: 'salt', maxBytes: 8_000_000 });
  const writes = [PROMPTS['empty lines between']!, PROMPTS['in Chinese']!];
  for (const [n, documents] of lists(200).entries()) kinds.learn('t', texts(writes[n % 2]!(documents, n)));
  expect(
    kinds
      .list('t')
      .map(({ parts }) => parts.length)
      .toSorted(),
  ).toEqual([4, 5]);
});

describe('notices say why a kind brings no gain, or must not move without consent', () => {
  const plain = PROMPTS['empty lines between']!;

  function noticesOf(prompts: readonly PromptText[][]): readonly string[] {
    const kinds = new PromptKinds({ salt: 'salt', maxBytes: 8_000_000 });
    for (const prompt of prompts) kinds.learn('t', prompt);
    return kinds.list('t').flatMap(({ notices }) => notices);
  }

  test.each<[string, PromptText[][]]>([
    ['program-text', lists(100).map((documents, n) => texts(PROMPTS['in Chinese']!(documents, n)))],
    ['labels-by-position', lists(100).map((documents, n) => texts(PROMPTS['labels by position']!(documents, n)))],
    ['tool-result', lists(100).map((documents, n) => texts(plain(documents, n), 'tool'))],
    [
      'question-first',
      lists(100).map((documents, n) => [
        { role: 'user', text: `Who keeps ${n}?` },
        { role: 'tool', text: plain(documents, n) },
      ]),
    ],
    [
      'changing-text-first',
      lists(100).map((documents, n) =>
        texts(`Question: Who keeps ${n}?\nContext:\n${documents.join('\n\n')}\nAnswer:`),
      ),
    ],
    [
      'own-order',
      lists(100).map((documents, n) =>
        texts(
          `Documents:\n${documents.map((text, i) => `<document id="a${i}x" date="${1990 + n + i}-02-03">${text}</document>`).join('\n')}\n\nQuestion: ${n}`,
        ),
      ),
    ],
  ])('%s', (notice, prompts) => {
    expect(noticesOf(prompts)).toContain(notice);
  });

  test('documents in no order of their own have no such notice', () => {
    const notices = noticesOf(lists(100).map((documents, n) => texts(plain(documents, n))));
    expect(notices).toEqual([]);
  });
});

describe('white space at the end of a document moves with it', () => {
  const passages = PASSAGES.map((text, i) => `${text}${['', ' ', '\n', '\t', '  '][i % 5]}`);

  test.each(['empty lines between', 'labels by position', 'words in front'])('%s', (name) => {
    const kinds = new PromptKinds({ salt: 'salt', maxBytes: 8_000_000 });
    let moved = 0;
    for (const [n, documents] of lists(200, 11, passages).entries()) {
      const text = PROMPTS[name]!(documents, n);
      for (const { block } of kinds.find('t', texts(text))) {
        if (block === undefined) continue;
        moved++;
        const order = block.documents.map((_each, rank) => rank).reverse();
        const sent = rewriteText(text, [{ block, order }]);
        for (const document of documents) expect(sent).toContain(document);
      }
      kinds.learn('t', texts(text));
    }
    expect(moved).toBeGreaterThan(40);
  });
});

describe('a line that some documents have', () => {
  const SHARED = 'All rights are with the council of the town.';
  const places: Readonly<Record<string, (text: string) => string>> = {
    'at the end': (text) => `${text}\n\n${SHARED}`,
    'at the beginning': (text) => `${SHARED}\n\n${text}`,
    'in the middle': (text) => text.replace(/\n\n|(?<=built), /, `\n\n${SHARED}\n\n`),
  };
  const cases = Object.keys(places).flatMap((place) =>
    [1, 2, 4, 6, 9, 11, 12].flatMap((having) =>
      ['\n\n', '\n', '\n\n---\n\n'].map((between) => ({ place, having, between })),
    ),
  );

  test.each(cases)('stays with them: $place of $having of 12, $between', ({ place, having, between }) => {
    const passages = PASSAGES.map((text, i) => ((i * 5) % 12 < having ? places[place]!(text) : text));
    const write: Write = (documents, n) => `Read this.\n\n${documents.join(between)}\n\nQuestion: Who keeps ${n}?`;
    for (const seed of isFull ? [3, 4, 5] : [3]) {
      const kinds = new PromptKinds({ salt: 'salt', maxBytes: 8_000_000 });
      for (const [n, documents] of lists(120, seed, passages).entries()) {
        const text = write(documents, n);
        for (const { block } of kinds.find('t', texts(text))) {
          if (block === undefined) continue;
          const order = block.documents.map((_each, rank) => rank).reverse();
          const sent = rewriteText(text, [{ block, order }]);
          for (const document of documents) expect(sent).toContain(document);
        }
        kinds.learn('t', texts(text));
      }
    }
  });
});

describe('labels in forms that are not known', () => {
  test.each<[string, (place: number) => string]>([
    ['letters', (place) => `${'ABCD'[place]})`],
    ['words', (place) => `${['First', 'Second', 'Third', 'Fourth'][place]} source`],
    ['signs', (place) => '①②③④'[place]!],
    ['numbers in words', (place) => `Passage ${place + 1} of 4`],
  ])('%s stay with their documents', (_, label) => {
    const passages = PASSAGES.map((text) => text.split('\n\n')[0]!);
    const write: Write = (documents, n) =>
      `Read this.\n\n${documents.map((text, i) => `${label(i)}\n${text}`).join('\n')}\n\nQuestion: ${n}`;
    const kinds = new PromptKinds({ salt: 'salt', maxBytes: 8_000_000 });
    for (const [n, documents] of lists(200, 5, passages).entries()) {
      const text = write(documents, n);
      for (const { block } of kinds.find('t', texts(text))) {
        if (block === undefined) continue;
        const order = block.documents.map((_each, rank) => rank).reverse();
        const sent = rewriteText(text, [{ block, order }]);
        for (const [place, document] of documents.entries()) expect(sent).toContain(`${label(place)}\n${document}`);
      }
      kinds.learn('t', texts(text));
    }
  });
});

test('what is remembered stays within its bytes', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(5), fc.nat(1_000)), { maxLength: 80 }), (prompts) => {
      const kinds = new PromptKinds({ salt: 'salt', maxBytes: 30_000 });
      for (const [tenant, n] of prompts) {
        const [documents] = lists(1, n);
        kinds.learn(`t${tenant}`, texts(PROMPTS['empty lines between']!(documents!, n)));
        expect(kinds.bytes).toBeLessThanOrEqual(30_000);
      }
    }),
    { numRuns: 20 },
  );
});

test('an answer of the model is no prompt', () => {
  const kinds = new PromptKinds({ salt: 'salt', maxBytes: 8_000_000 });
  for (const [n, documents] of lists(100).entries()) {
    kinds.learn('t', texts(PROMPTS['empty lines between']!(documents, n), 'assistant'));
  }
  expect(kinds.list('t')).toEqual([]);
  expect(kinds.bytes).toBe(0);
});

test('a kind that is kept outlives any number of others, and a new kind takes the place of the one used longest ago', () => {
  const program = (name: string) =>
    ({ id: name, role: 'user', segments: [`${name} says:`], opens: true, closes: false, documents: 1 }) as const;
  const kinds = new PromptKinds({ salt: 'salt', maxBytes: 8_000_000 });
  kinds.restore('t', program('kept'));
  for (let n = 0; n < 24; n++) {
    for (const [m, documents] of lists(60, n + 1).entries()) {
      kinds.learn(
        't',
        texts(`Program ${'abcdefghijklmnopqrstuvwx'[n]} says.\n\n${documents.join('\n\n')}\n\nQuestion: ${m}`),
      );
    }
  }
  const ids = kinds.list('t').map(({ id, parts }) => (id === 'kept' ? id : JSON.stringify(parts)));
  expect(ids).toContain('kept');
  expect(ids.some((parts) => parts.includes('Program x says'))).toBe(true);
  expect(ids.some((parts) => parts.includes('Program a says'))).toBe(false);
});
