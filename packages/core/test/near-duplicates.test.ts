import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { arrange, type ChatMessage, type LayoutName, prepareRequest, ServedHistory } from '../src/index.js';
import { readSessionEntry, SeenSegments } from '../src/internal.js';
import { type Passage, Pipeline, type Served } from './conversation-model.js';
import { steps, World } from './conversation-world.js';
import './seed.js';
import { runs } from '../../../test/suite.js';

const OPENS = ['The keeper of', 'In spring', 'Nobody at', 'За маяком', '灯台の下で', '🌊 Waves at'];

/** A sentence that no other begins or ends like; every seventh is written without spaces. */
function sentence(page: number, i: number): string {
  if (i % 7 === 6) return `第${page}頁の第${i}文は港の記録であり、船が${1_700 + i}年に着いたと書いてある。`;
  return `${OPENS[(page + i) % OPENS.length]!} house ${page}-${i} wrote down what the sea had brought 🐚 in the year ${1_700 + i * 3 + page}. `;
}

/** Windows over three pages that overlap, some with a sentence changed: what retrievers of chunks bring. */
function window(number: number): Passage {
  const page = number % 3;
  const from = (number * 5) % 14;
  const changed = number % 4 === 0 ? from + 3 : -1;
  const sentences = Array.from({ length: 16 }, (_, i) =>
    from + i === changed ? `Changed for ${number}: nothing was written down. ` : sentence(page, from + i),
  );
  const id = `p${number % 7}`;
  return { id, content: `${sentences.join('')}\nPassage ${id} in version ${number % 10}.` };
}

/** The part of a page that a user pastes, or that a model claims to quote. */
function quoted(page: number): string {
  return Array.from({ length: 12 }, (_, i) => sentence(page, i + 4)).join('');
}

const REFERENCE = /Given earlier in this conversation: \[(?:([^\]«]+): )?«(.*?) … (.*?)»\]\./g;
const DOCUMENT = /<document id="([^"]+)">\n([\s\S]*?)\n<\/document>/g;

interface ShownDocument {
  readonly label: string;
  readonly text: string;
  /** What stands before it, in all messages but the model's. */
  readonly before: string;
}

/** The documents of a prompt as the model reads them, with what it can look up. */
function shownDocuments(prompt: readonly ChatMessage[]): readonly ShownDocument[] {
  const text = prompt.map(({ role, content }) => (role === 'assistant' ? '' : String(content ?? ''))).join('\n\0\n');
  return [...text.matchAll(DOCUMENT)].map((found) => {
    return { label: found[1]!, text: found[2]!, before: text.slice(0, found.index) };
  });
}

/** A document with every reference replaced by what it leads to; throws for one that leads nowhere. */
function reassembled({ text, before }: ShownDocument): string {
  return text.replace(REFERENCE, (reference, name: string | undefined, first: string, last: string) => {
    const named = [...before.matchAll(DOCUMENT)].find(([, label]) => label === name)?.[2];
    const holder = name === undefined ? before : named;
    const pattern = new RegExp(`${spaced(first)}[\\s\\S]*?${spaced(last)}`);
    const found = holder === undefined ? null : pattern.exec(holder);
    if (found === null) throw new Error(`${reference} leads nowhere`);
    return found[0];
  });
}

function spaced(words: string): string {
  return words.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&').replaceAll(' ', '\\s+');
}

/** How many documents of the prompt say what the passage says, references followed. */
function copiesResolved({ prompt }: Pick<Served, 'prompt'>, { content }: Passage): number {
  return shownDocuments(prompt).filter((document) => reassembled(document) === content).length;
}

const QUOTING = {
  passage: window,
  copies: copiesResolved,
  question: (pick: number): ChatMessage => {
    return { role: 'user', content: pick % 4 === 0 ? `Is this so? ${quoted(pick % 3)}` : `Question ${pick % 3}?` };
  },
  answer: (pick: number): ChatMessage => {
    return { role: 'assistant', content: pick % 4 === 0 ? `I read: ${quoted(pick % 3)}` : `Answer ${pick % 2}.` };
  },
};

const layouts: fc.Arbitrary<LayoutName> = fc.constantFrom('question', 'message', 'system');

describe('parts that documents of a conversation have in common', () => {
  it('are shown once, and every document can be put together again at every turn', () => {
    let shortened = 0;
    let crossing = 0;
    fc.assert(
      fc.property(layouts, steps, (layout, played) => {
        const world = new World(new Pipeline({ layout, blocks: true }), {
          ...QUOTING,
          copies: (served, passage) => {
            const references = JSON.stringify(served.prompt).match(/conversation: \[[^\]]*«/g) ?? [];
            shortened += references.length;
            crossing += references.filter((reference) => reference.includes('[«')).length;
            return copiesResolved(served, passage);
          },
        });
        for (const step of played) world.play(step);
      }),
      { numRuns: 400 },
    );
    expect(shortened).toBeGreaterThan(2_000);
    expect(crossing).toBeGreaterThan(50);
  });

  it('come back when almost nothing is remembered', () => {
    fc.assert(
      fc.property(layouts, steps, fc.integer({ min: 8_000, max: 200_000 }), (layout, played, maxBytes) => {
        const pipeline = new Pipeline({ layout, limits: { maxBytes }, blocks: true });
        const world = new World(pipeline, { ...QUOTING, remembersAll: false });
        for (const step of played) world.play(step);
      }),
      { numRuns: runs(150) },
    );
  });

  it('are referred to by the name of the document that shows them; the whole document afterwards by its own', () => {
    const pipeline = new Pipeline({ blocks: true });
    const name = { tenant: 't', session: 's' };
    const answered = (content: string): ChatMessage => ({ role: 'assistant', content });
    const [first, next] = [window(1), window(4)] as const;
    const opening: ChatMessage[] = [{ role: 'user', content: 'One?' }];
    pipeline.serve(name, opening, [first], answered('A'));
    const second = [...opening, answered('A'), { role: 'user', content: 'Two?' }];
    const shortened = pipeline.serve(name, second, [next], answered('B'));
    expect(String(shortened.prompt[2]!.content)).toContain(`Given earlier in this conversation: [${first.id}: «`);
    expect(copiesResolved(shortened, next)).toBe(1);
    expect(JSON.stringify(pipeline.serve(name, second, [next], answered('B')))).toBe(JSON.stringify(shortened));
    const third = [...second, answered('B'), { role: 'user', content: 'Three?' }];
    const repeated = pipeline.serve(name, third, [next], answered('C'));
    expect(repeated.prompt.at(-1)!.content).toBe(`Given earlier in this conversation: [${next.id}].\nThree?`);
    expect(repeated.prompt.slice(0, 3)).toEqual(shortened.prompt);
    for (const entry of pipeline.memory.export(pipeline.now)) {
      expect(readSessionEntry(JSON.parse(JSON.stringify(entry)))).toEqual(JSON.parse(JSON.stringify(entry)));
    }
  });

  it('stay whole where the quoted words fit two places, or where little is spared', () => {
    const middle = (i: number) =>
      `Of what happened in year ${i} only the harbour book tells, and it is short on words. `;
    const alike = (i: number) =>
      `${'The same long beginning of every record in this book. '.repeat(3)}${middle(i)}${'And the same long ending of every record in this book too, word for word.'.repeat(2)}\n`;
    const seen = new SeenSegments();
    seen.add(alike(1));
    expect(seen.shorten(alike(1)).text).not.toBe(alike(1));
    seen.add(alike(2));
    expect(seen.shorten(alike(1)).text).toBe(alike(1));
    const short = `${'word '.repeat(26)}end.\n`;
    seen.add(short);
    expect(seen.shorten(short).text).toBe(short);
  });

  it('quote signs that mean something elsewhere as they stand', () => {
    const seen = new SeenSegments();
    const text = `${quoted(1)}\n`.replace('house', '$& house');
    seen.add(text, { name: '$1' });
    const shortened = seen.shorten(text).text;
    expect(shortened.includes('Given earlier in this conversation: [$1: «')).toBe(true);
    expect(shortened.includes('»].')).toBe(true);
  });

  it('of a text that was shortened count only as far as they are found in what stands there', () => {
    const text = Array.from({ length: 60 }, (_, i) => sentence(1, i)).join('');
    const lost = new SeenSegments();
    lost.add(text, { shown: text.slice(text.length / 2) });
    expect(lost.shorten(text).text).toBe(text);
    const cut = new SeenSegments();
    cut.add(text, { shown: text.slice(0, text.length / 2) });
    expect(cut.shorten(text).text.endsWith(text.slice(text.length / 2))).toBe(true);
    expect(cut.shorten(text).replaced).toBeGreaterThan(0);
  });

  it('cost the document its key and its tokens, and nothing else', () => {
    const shown = new SeenSegments();
    shown.add(window(1).content);
    const { documents } = prepareRequest({ documents: [window(4), window(2)] });
    const arranged = arrange({ documents, shown, policy: 'retrieval', pin: ['p4'] }, new ServedHistory(), 0);
    const [shortened, other] = arranged.documents;
    expect(shortened!.whole).toBe(documents[0]);
    expect(shortened).toMatchObject({ id: 'p4', label: 'p4' });
    expect(shortened!.key).not.toBe(documents[0]!.key);
    expect(shortened!.tokens).toBeLessThan(documents[0]!.tokens);
    expect(other).toBe(documents[1]);
  });
});
