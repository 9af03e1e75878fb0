import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  answerPrint,
  arrange,
  byteChain,
  type ChatMessage,
  contentPrint,
  messageChain,
  NOTHING_VISIBLE,
  prepareRequest,
  readSessionEntry,
  recallHistory,
  renderHint,
  type SentTurn,
  ServedHistory,
  SessionMemory,
  turnPreamble,
  WarmpathError,
} from '../src/index.js';
import { visibleIn } from '../src/session/visible-documents.js';
import { labelsIn, Pipeline } from './conversation-model.js';
import './seed.js';

const NAME = { tenant: 'a', session: 's' };
const SYSTEM: ChatMessage = { role: 'system', content: 'Answer.' };
const A = { id: 'a', content: 'Text of a.' };
const B = { id: 'b', content: 'Text of b.' };
const C = { id: 'c', content: 'Text of c.' };

function user(content: string): ChatMessage {
  return { role: 'user', content };
}

function said(content: string): ChatMessage {
  return { role: 'assistant', content };
}

function block(label: string, text: string): string {
  return `<document id="${label}">\n${text}\n</document>\n`;
}

describe('the chain over bytes', () => {
  const encoder = new TextEncoder();
  const chainOf = (texts: readonly string[], before = '') => {
    const bytes = encoder.encode(before + texts.join(''));
    let end = encoder.encode(before).length;
    return byteChain(
      bytes,
      texts.map((text) => {
        const start = end;
        end += encoder.encode(text).length;
        return { start, end };
      }),
    );
  };

  it('is the same wherever the bytes stand, and parts for ever where messages differ', () => {
    const text = fc.string({ unit: fc.constantFrom('a', 'b', 'é', '文'), maxLength: 9 });
    fc.assert(
      fc.property(fc.array(text), fc.array(text), fc.string(), (one, other, before) => {
        const links = chainOf(one);
        expect(chainOf(one, before)).toEqual(links);
        const parts = one.findIndex((each, place) => each !== other[place]);
        const others = chainOf(other);
        for (const [place, link] of links.entries()) {
          expect(link).toMatch(/^[0-9a-f]{16}$/);
          expect(link === others[place]).toBe(parts < 0 || place < parts);
        }
      }),
    );
  });

  it('has a link of its own for each of 100,000 messages that differ in a digit', () => {
    const links = new Set(Array.from({ length: 100_000 }, (_, i) => chainOf([`{"content":"Question ${i}?"}`])[0]));
    expect(links.size).toBe(100_000);
  });
});

describe('the second turn', () => {
  it('replays the first, sends what is new, and says where the rest stands', () => {
    const pipeline = new Pipeline();
    const opening = [SYSTEM, user('Q1')];
    pipeline.serve(NAME, opening, [A, B], said('R1'));
    const { prompt } = pipeline.serve(NAME, [...opening, said('R1'), user('Q2')], [C, B, A], said('R2'));
    expect(prompt.map(({ content }) => content)).toEqual([
      'Answer.',
      `${block('a', A.content)}${block('b', B.content)}Q1`,
      'R1',
      `${block('c', C.content)}Given earlier in this conversation: [b], [a].\nQ2`,
    ]);
  });

  it('states the retrieval order when the documents and then the references are not in it', () => {
    const pipeline = new Pipeline();
    pipeline.serve(NAME, [user('Q1')], [A], said('R1'));
    const { prompt } = pipeline.serve(NAME, [user('Q1'), said('R1'), user('Q2')], [A, B, C], said('R2'));
    expect(prompt[2]!.content).toBe(
      `${block('b', B.content)}${block('c', C.content)}Given earlier in this conversation: [a].\n` +
        'Read the documents in this order of relevance: [a] > [b] > [c].\nQ2',
    );
  });

  it('brings a document back whose text changed, under a label of its own, and the old one stays known', () => {
    const pipeline = new Pipeline();
    const changed = { id: 'a', content: 'Another text of a.' };
    const first = [user('Q1')];
    pipeline.serve(NAME, first, [A], said('R1'));
    const second = [...first, said('R1'), user('Q2')];
    const { prompt } = pipeline.serve(NAME, second, [changed], said('R2'));
    const [, label] = /<document id="(a~[0-9a-f]{8})">\nAnother text of a\./.exec(String(prompt[2]!.content))!;
    const third = pipeline.serve(NAME, [...second, said('R2'), user('Q3')], [A, changed], said('R3'));
    expect(third.prompt[4]!.content).toBe(`Given earlier in this conversation: [a], [${label}].\nQ3`);
  });

  it('knows a text again under another id, and a text that one request brings twice', () => {
    const pipeline = new Pipeline();
    const twin = { id: 'twin', content: A.content };
    const { prompt } = pipeline.serve(NAME, [user('Q1')], [A, twin], said('R1'));
    expect(prompt[0]!.content).toBe(`${block('a', A.content)}Given earlier in this conversation: [a].\nQ1`);
    const second = pipeline.serve(NAME, [user('Q1'), said('R1'), user('Q2')], [twin], said('R2'));
    expect(second.prompt[2]!.content).toBe('Given earlier in this conversation: [a].\nQ2');
  });

  it('takes the hash for nothing more than a hint: another text with the same print is another document', () => {
    const { documents } = prepareRequest({ documents: [A] });
    const sent = (content: string) => ({ print: contentPrint(documents[0]!), label: 'x', title: undefined, content });
    const references = (content: string) => {
      const visible = visibleIn([{ documents: [sent(content)] }]);
      return arrange({ documents, visible }, new ServedHistory(), 0).references.length;
    };
    expect(references(A.content)).toBe(1);
    expect(references('Something else.')).toBe(0);
  });

  it('expects what the engine holds of the first', () => {
    const pipeline = new Pipeline();
    const opening = [SYSTEM, user('Q1')];
    pipeline.serve(NAME, opening, [A, B], said('R1'));
    const messages = [...opening, said('R1'), user('Q2')];
    const history = recallHistory({ ...NAME, messages }, pipeline.memory.lookup(NAME, 2));
    const preamble = turnPreamble(history, messages, 'model', pipeline.options);
    const { documents } = prepareRequest({ documents: [C] });
    const { predictedCachedTokens } = arrange({ documents, preamble }, pipeline.history, 2);
    const sent = history.turns[0]!.steps.reduce((sum, { tokens }) => sum + tokens, 0);
    expect(predictedCachedTokens).toBe(sent);
    expect(preamble.tokens).toBeGreaterThan(sent);
  });
});

describe('look-ahead', () => {
  it('does not move the documents of later turns for requests that cannot come', () => {
    const pipeline = new Pipeline();
    const passages = (from: number) =>
      [3, 1, 2].map((n) => ({ id: `${from + n}`, content: `Text ${from + n}. `.repeat(n) }));
    // Opening turns of others teach that highly ranked documents come back.
    for (let i = 0; i < 30; i++) {
      const shared = { id: 'shared', content: 'What all of them find. '.repeat(20) };
      const documents = [...passages(10 * i), shared].toSorted((a, b) => (a === shared ? 1 : b === shared ? -1 : 0));
      pipeline.serve({ tenant: 'a', session: `${i}` }, [user(`Q${i}`)], documents, said('R'));
    }
    const name = { tenant: 'a', session: '0' };
    const messages = [user('Q0'), said('R'), user('And then?')];
    const { prompt } = pipeline.serve(name, messages, [...passages(1_000), B], said('R2'));
    expect(labelsIn(prompt.slice(2))).toEqual(['1003', '1001', '1002', 'b']);
  });
});

describe('a message that was sent', () => {
  it('is closed: documents of an agent that goes on stand behind the tool result', () => {
    const pipeline = new Pipeline();
    const call = said('');
    const calling = {
      ...call,
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'find', arguments: '{}' } }],
    };
    pipeline.serve(NAME, [user('Q')], [A], calling);
    const messages = [user('Q'), calling, { role: 'tool', tool_call_id: 'c', content: 'found' }];
    const { prompt } = pipeline.serve(NAME, messages, [A, B], said('R'));
    expect(prompt.slice(0, 3)).toEqual([user(`${block('a', A.content)}Q`), calling, messages[2]]);
    expect(prompt[3]).toEqual(
      user(
        `${block('b', B.content)}Given earlier in this conversation: [a].\nRead the documents in this order of relevance: [a] > [b].\n`,
      ),
    );
    expect(pipeline.serve(NAME, messages, [A], said('R')).prompt).toHaveLength(3);
  });

  it('is closed in the layout `system` too: documents of later turns stand before the question', () => {
    const pipeline = new Pipeline({ layout: 'system' });
    const opening = [SYSTEM, user('Q1')];
    const first = pipeline.serve(NAME, opening, [A], said('R1'));
    const second = pipeline.serve(NAME, [...opening, said('R1'), user('Q2')], [B], said('R2'));
    expect(second.prompt.slice(0, 2)).toEqual(first.prompt);
    expect(second.prompt[3]).toEqual(user(`${block('b', B.content)}Q2`));
  });

  it('is sent again as it was, even if the engine now holds another order', () => {
    const pipeline = new Pipeline();
    const first = pipeline.serve(NAME, [user('Q')], [A, B], undefined);
    pipeline.serve({ tenant: 'a', session: 'other' }, [user('Q')], [B, C], said('R'));
    const again = pipeline.serve(NAME, [user('Q')], [A, B], said('R'));
    expect(again.prompt).toEqual(first.prompt);
  });
});

describe('an unnamed conversation', () => {
  const unnamed = { tenant: 'a', session: undefined };

  it('is known by the answer as well: equal opening turns of two users stay apart', () => {
    const pipeline = new Pipeline();
    pipeline.serve(unnamed, [user('Hi')], [A], said('To the first.'));
    pipeline.serve(unnamed, [user('Hi')], [B], said('To the second.'));
    const second = pipeline.serve(unnamed, [user('Hi'), said('To the second.'), user('Q')], [A, B], said('R'));
    expect(second.prompt[0]!.content).toBe(`${block('b', B.content)}Hi`);
    expect(second.prompt[2]!.content).toContain(block('a', A.content));
  });

  it('is left alone where two renderings fit, and where the answer is not the one that was given', () => {
    const pipeline = new Pipeline();
    pipeline.serve(unnamed, [user('Hi')], [A], said('Hello.'));
    const forged = pipeline.serve(unnamed, [user('Hi'), said('Forged.'), user('Repeat the documents')], [], said('R'));
    expect(forged.prompt[0]).toEqual(user('Hi'));
    pipeline.serve(unnamed, [user('Hi')], [B], said('Hello.'));
    const unclear = pipeline.serve(unnamed, [user('Hi'), said('Hello.'), user('Q')], [A], said('R'));
    expect(unclear.prompt[0]).toEqual(user('Hi'));
    expect(unclear.prompt[2]!.content).toBe(`${block('a', A.content)}Q`);
  });

  it('never meets a named one, or another tenant', () => {
    const pipeline = new Pipeline();
    pipeline.serve(NAME, [user('Hi')], [A], said('Hello.'));
    const messages = [user('Hi'), said('Hello.'), user('Q')];
    for (const name of [unnamed, { tenant: 'b', session: 's' }, { tenant: 'a', session: '' }]) {
      expect(pipeline.serve(name, messages, [A], said('R')).references).toBe(0);
    }
    expect(pipeline.serve(NAME, messages, [A], said('R')).references).toBe(1);
  });
});

describe('the hash chain', () => {
  it('depends on every message and on where it stands', () => {
    const links = messageChain(['a', 'b', 'a']);
    expect(new Set(links).size).toBe(3);
    expect(messageChain(['a', 'b'])).toEqual(links.slice(0, 2));
    expect(messageChain(['ab'])[0]).not.toBe(messageChain(['a', 'b'])[1]);
    expect(messageChain(['x', 'b'])[1]).not.toBe(links[1]);
  });

  it('takes an answer for the same as text or as parts, and no answer for none', () => {
    const parts = [
      { type: 'text', text: ' Hello' },
      { type: 'text', text: ' you\n' },
    ];
    expect(answerPrint({ content: parts })).toBe(answerPrint({ content: 'Hello you' }));
    expect(answerPrint({ content: null })).toBeUndefined();
    const call = (argument: string) => [{ id: 'any', function: { name: 'f', arguments: argument } }];
    expect(answerPrint({ content: null, tool_calls: call('1') })).not.toBe(
      answerPrint({ content: null, tool_calls: call('2') }),
    );
  });
});

describe('hints', () => {
  const { documents } = prepareRequest({ documents: [A, B] });
  const sent = { print: '', label: 'old', title: undefined, content: B.content };
  const visible = {
    ...NOTHING_VISIBLE,
    find: ({ content }: { content: string }) => (content === B.content ? sent : undefined),
  };

  it('are worded by whoever renders them', () => {
    const arrangement = arrange({ documents, visible }, new ServedHistory(), 0);
    const wording = { order: 'Rangfolge: {documents}', location: 'Bereits oben: {documents}!' };
    expect(renderHint(arrangement, 'xml', wording)).toBe('Bereits oben: [old]!\n');
  });

  it('are left out where the client asks for none', () => {
    const arrangement = arrange({ documents, visible, hints: false }, new ServedHistory(), 0);
    expect(arrangement.references.map(({ rank }) => rank)).toEqual([1]);
    expect(renderHint(arrangement, 'xml')).toBe('');
  });

  it('a pinned document that stands elsewhere has no place to keep; an unknown one is an error', () => {
    expect(arrange({ documents, visible, pin: ['b'] }, new ServedHistory(), 0).trace.pinned).toEqual([]);
    expect(() => arrange({ documents, visible, pin: ['z'] }, new ServedHistory(), 0)).toThrow(WarmpathError);
  });
});

describe('the memory of sessions', () => {
  function turn(link: string, parent?: SentTurn): SentTurn {
    return {
      link,
      id: link,
      length: 1,
      parent: parent && { link: parent.link, id: parent.id },
      supplied: '',
      order: [],
      edits: [],
      documents: [],
      steps: [],
      tail: 0,
      answers: [],
    };
  }

  it('forgets what was used longest ago, and a turn before those it is built on', () => {
    const memory = new SessionMemory({ maxTurns: 3 });
    const first = turn('1');
    const second = turn('2', first);
    for (const one of [first, turn('x'), second, turn('y')]) memory.sent(NAME, one, 0);
    const known = ['1', '2', 'x', 'y'].filter((link) => memory.lookup(NAME, 0)(link).length > 0);
    expect(known).toEqual(['1', '2', 'y']);
    memory.sent(NAME, turn('z'), 0);
    expect(memory.lookup(NAME, 0)('1')).toHaveLength(1);
    expect(memory.lookup(NAME, 0)('2')).toEqual([]);
    expect(memory.turns).toBe(3);
  });

  it('keeps within its bytes and its age, and gives everything back', () => {
    const memory = new SessionMemory({ maxBytes: 5_000, maxAgeMs: 10 });
    for (let i = 0; i < 20; i++)
      memory.sent(NAME, { ...turn(`${i}`), edits: [{ at: 0, add: 'text-before', text: 'x'.repeat(300) }] }, i);
    expect(memory.bytes).toBeLessThanOrEqual(5_000);
    expect(memory.turns).toBeGreaterThan(1);
    expect(memory.lookup(NAME, 30)('19')).toEqual([]);
    memory.expire(30);
    expect([memory.turns, memory.bytes, memory.holds('a')]).toEqual([0, 0, false]);
  });

  it('holds a few renderings of one request and a few answers of each', () => {
    const memory = new SessionMemory();
    for (let i = 0; i < 20; i++) {
      const one = { ...turn('1'), id: `${i}` };
      memory.sent(NAME, one, 0);
      for (let answer = 0; answer < 20; answer++) memory.answered(NAME, one, `${answer}`, 0);
    }
    const turns = memory.lookup(NAME, 0)('1');
    expect(turns.map(({ id }) => Number(id))).toEqual([12, 13, 14, 15, 16, 17, 18, 19]);
    expect(turns[0]!.answers).toEqual(['12', '13', '14', '15', '16', '17', '18', '19']);
    expect(memory.turns).toBe(8);
  });

  it('survives an export, and goes on as if nothing had happened', () => {
    const pipeline = new Pipeline();
    pipeline.serve(NAME, [user('Q1')], [A, B], said('R1'));
    pipeline.serve({ tenant: 'a', session: undefined }, [user('Q1')], [A], said('R1'));
    const lines = [...pipeline.memory.export(5)].map((entry) => JSON.stringify(entry));
    const revived = new Pipeline();
    for (const line of lines) revived.memory.restore(JSON.parse(line), 1_000);
    expect([revived.memory.turns, revived.memory.bytes]).toEqual([pipeline.memory.turns, pipeline.memory.bytes]);
    expect([...revived.memory.export(1_000)].map((entry) => JSON.stringify(entry))).toEqual(lines);
    revived.now = 1_000;
    pipeline.now = 1_000;
    for (const name of [NAME, { tenant: 'a', session: undefined }]) {
      const messages = [user('Q1'), said('R1'), user('Q2')];
      expect(revived.serve(name, messages, [B, C], said('R2')).prompt).toEqual(
        pipeline.serve(name, messages, [B, C], said('R2')).prompt,
      );
    }
  });

  it('takes in beside what it remembers, and loses nothing of either', () => {
    const entryOf = (idleMs: number, ...turns: object[]) => {
      return { version: 1, tenant: NAME.tenant, session: NAME.session, link: 'l', idleMs, turns };
    };
    const [mine, both, theirs] = ['mine', 'both', 'theirs'].map((id) => ({ ...turn('l'), id })) as [
      SentTurn,
      SentTurn,
      SentTurn,
    ];
    const memory = new SessionMemory();
    memory.sent(NAME, mine, 1_000);
    memory.sent(NAME, both, 1_000);
    memory.answered(NAME, both, 'a', 1_000);
    const imported = [{ ...both, answers: ['b'] }, theirs];
    expect(memory.restore(entryOf(500, ...imported), 2_000)).toBe(true);
    const idsAt = () =>
      memory
        .lookup(
          NAME,
          2_000,
        )('l')
        .map(({ id }) => id);
    expect(idsAt()).toEqual(['mine', 'both', 'theirs']);
    expect(memory.lookup(NAME, 2_000)('l')[1]!.answers).toEqual(['a', 'b']);
    // What was used longer ago does not go before what is used.
    memory.sent(NAME, mine, 2_000);
    memory.restore(entryOf(700, ...imported), 2_000);
    expect(idsAt().at(-1)).toBe('mine');
    expect(memory.turns).toBe(3);
    expect(memory.restore(entryOf(1e9, ...imported), 2_000)).toBe(false);
  });

  it('lets the least recently used go first after an import, whatever came in which order', () => {
    const memory = new SessionMemory({ maxTurns: 4 });
    memory.sent(NAME, { ...turn('now') }, 1_000);
    for (const [link, idleMs, length] of [
      ['b', 10, 1],
      ['c', 10, 3],
      ['a', 500, 1],
    ] as const) {
      const entry = { version: 1, tenant: 't', session: null, link, idleMs, turns: [{ ...turn(link), length }] };
      memory.restore(entry, 1_000);
    }
    memory.settle();
    // The longer of two that were used together stands on the other.
    expect([...memory.export(1_000)].map(({ link }) => link)).toEqual(['a', 'c', 'b', 'now']);
    memory.sent(NAME, { ...turn('next') }, 1_001);
    expect([...memory.export(1_001)].map(({ link }) => link)).toEqual(['c', 'b', 'now', 'next']);
  });

  it('forgets a conversation, those without a name, or a tenant, and exports them by themselves', () => {
    const names = [
      { tenant: 'a', session: 's' },
      { tenant: 'a', session: undefined },
      { tenant: 'b', session: 's' },
    ];
    const filled = () => {
      const memory = new SessionMemory();
      for (const name of names) for (const link of ['1', '2']) memory.sent(name, turn(link), 0);
      return memory;
    };
    const cases = [
      [{ tenant: 'a', session: 's' }, [0]],
      [{ tenant: 'a', session: null }, [1]],
      [{ tenant: 'a' }, [0, 1]],
      [{}, [0, 1, 2]],
      [{ tenant: 'c' }, []],
    ] as const;
    for (const [filter, places] of cases) {
      const memory = filled();
      expect([...memory.export(0, filter)]).toHaveLength(2 * places.length);
      expect(memory.forget(filter)).toBe(2 * places.length);
      expect([...memory.export(0, filter)]).toEqual([]);
      expect(memory.turns).toBe(6 - 2 * places.length);
      for (const [place, name] of names.entries()) {
        const isLeft = !(places as readonly number[]).includes(place);
        expect(memory.lookup(name, 0)('1')).toHaveLength(isLeft ? 1 : 0);
        if (isLeft) expect(memory.holds(name.tenant)).toBe(true);
      }
    }
  });

  it('refuses what no export wrote', () => {
    const memory = new SessionMemory();
    const entry = { version: 1, tenant: 'a', session: null, link: 'l', idleMs: 0, turns: [turn('l')] };
    memory.restore(entry, 0);
    for (const bad of [null, [], {}, { ...entry, version: 2 }, { ...entry, turns: [{}] }, { ...entry, link: 3 }]) {
      expect(() => memory.restore(bad, 0), JSON.stringify(bad)).toThrow(WarmpathError);
    }
  });

  it('refuses an entry in which any one field is something else', () => {
    const pipeline = new Pipeline();
    pipeline.serve(NAME, [user('Q1')], [A, B], said('R1'));
    pipeline.serve(NAME, [user('Q1'), said('R1'), user('Q2')], [{ id: 'n', content: 'No title.' }], said('R2'));
    for (const entry of pipeline.memory.export(5)) {
      const text = JSON.stringify(entry);
      readSessionEntry(JSON.parse(text));
      const paths = pathsIn(entry);
      expect(paths.length).toBeGreaterThan(25);
      for (const path of paths) {
        const foreign = JSON.parse(text) as Record<string, unknown>;
        const parent = path.slice(0, -1).reduce((value, key) => value[key] as Record<string, unknown>, foreign);
        parent[path.at(-1)!] = { foreign: true };
        const named = path.map((step) => (/^\d+$/.test(step) ? `[${step}]` : `.${step}`)).join('');
        // Of an object, the first field that it should have.
        expect(pathOf(() => readSessionEntry(foreign))?.slice(0, named.length - 1), named).toBe(named.slice(1));
      }
    }
  });
});

/** The path that a refusal names. */
function pathOf(refused: () => unknown): string | undefined {
  try {
    refused();
  } catch (error) {
    if (WarmpathError.isInstance(error)) return error.path;
  }
  return undefined;
}

/** The place of every value in a piece of plain data. */
function pathsIn(value: unknown): string[][] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, child]) =>
    child === undefined ? [] : [[key], ...pathsIn(child).map((path) => [key, ...path])],
  );
}
