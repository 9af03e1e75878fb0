import fc from 'fast-check';
import './seed.js';
import { describe, expect, it } from 'vitest';
import { contentHash } from '../src/document.js';
import { arrange, type ChatMessage, prepareRequest, renderHint, ServedHistory, WarmpathError } from '../src/index.js';
import {
  answerHash,
  byteChain,
  MAX_ANSWERS,
  MAX_RENDERINGS,
  messageChain,
  NOTHING_VISIBLE,
  plainTurn,
  recallConversation,
  renderTurn,
  turnPreamble,
} from '../src/internal.js';
import { visibleIn } from '../src/session/recall.js';
import { labelsIn, type Passage, Pipeline } from './conversation-model.js';

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
        'In order of relevance: [a] > [b] > [c].\nQ2',
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
    const sent = (content: string) => ({ hash: contentHash(documents[0]!), label: 'x', title: undefined, content });
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
    const history = recallConversation({ ...NAME, messages }, pipeline.memory.lookup(NAME, 2));
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
      user(`${block('b', B.content)}Given earlier in this conversation: [a].\nIn order of relevance: [a] > [b].\n`),
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

describe('a conversation', () => {
  it('never meets another tenant, end user or name, whatever the words', () => {
    const pipeline = new Pipeline();
    const name = { tenant: 'a', user: 'u', session: 's' };
    pipeline.serve(name, [user('Hi')], [A], said('Hello.'));
    const messages = [user('Hi'), said('Hello.'), user('Q')];
    for (const other of [
      { ...name, tenant: 'b' },
      { ...name, user: 'v' },
      { tenant: 'a', session: 's' },
      { ...name, session: 't' },
      { ...name, session: '' },
    ]) {
      const served = pipeline.serve(other, messages, [A], undefined);
      expect([served.references, served.isForgotten]).toEqual([0, true]);
      expect(served.prompt[0]).toEqual(user('Hi'));
    }
    const served = pipeline.serve(name, messages, [A], said('R'));
    expect([served.references, served.isForgotten]).toEqual([1, false]);
  });

  it('continues the rendering that was answered so, else one whose answer nobody read, else the latest', () => {
    const pipeline = new Pipeline();
    pipeline.serve(NAME, [user('Hi')], [A], said('First.'));
    pipeline.serve(NAME, [user('Hi')], [B], undefined);
    pipeline.serve(NAME, [user('Hi')], [C], said('Third.'));
    const begins = (answer: string) => {
      const { prompt, isForgotten } = pipeline.serve(NAME, [user('Hi'), said(answer), user('Q')], [], undefined);
      expect(isForgotten).toBe(false);
      return prompt[0]!.content;
    };
    expect(begins('First.')).toBe(`${block('a', A.content)}Hi`);
    expect(begins('Third.')).toBe(`${block('c', C.content)}Hi`);
    expect(begins('Cut off')).toBe(`${block('b', B.content)}Hi`);
    pipeline.serve(NAME, [user('Hi')], [B], said('Second.'));
    expect(begins('Edited.')).toBe(`${block('b', B.content)}Hi`);
  });

  it('of more renderings than are remembered is not known by an answer that fits none', () => {
    const pipeline = new Pipeline();
    const begin = (number: number) =>
      pipeline.serve(NAME, [user('Hi')], [{ id: `${number}`, content: `Text ${number}.` }], said(`Answer ${number}.`));
    const goOn = (number: number) =>
      pipeline.serve(NAME, [user('Hi'), said(`Answer ${number}.`), user('Q')], [A], undefined);
    const label = (prompt: readonly ChatMessage[]) => labelsIn(prompt.slice(0, 1));
    for (let i = 0; i < MAX_RENDERINGS - 1; i++) begin(i);
    expect(label(goOn(1_000).prompt)).toEqual([`${MAX_RENDERINGS - 2}`]);
    for (let i = MAX_RENDERINGS - 1; i <= MAX_RENDERINGS; i++) begin(i);
    const gone = goOn(0);
    expect([gone.isForgotten, label(gone.prompt)]).toEqual([true, []]);
    for (const i of [1, MAX_RENDERINGS]) {
      const known = goOn(i);
      expect([known.isForgotten, label(known.prompt)]).toEqual([false, [`${i}`]]);
    }
  });

  it('is continued by an answer that was given long ago, or is not known', () => {
    const pipeline = new Pipeline();
    for (let i = 0; i <= MAX_ANSWERS; i++) pipeline.serve(NAME, [user('Hi')], [A], said(`Answer ${i}.`));
    pipeline.serve(NAME, [user('Hi')], [B], said('Other.'));
    const { prompt, isForgotten } = pipeline.serve(NAME, [user('Hi'), said('Answer 0.'), user('Q')], [], undefined);
    expect(isForgotten || labelsIn(prompt).includes('a')).toBe(true);
  });

  it('whose turn is not known is reported, and goes on from there', () => {
    const pipeline = new Pipeline();
    pipeline.serve(NAME, [user('Q1')], [A], said('R1'));
    pipeline.memory.forget({});
    const second = [user('Q1'), said('R1'), user('Q2')];
    const served = pipeline.serve(NAME, second, [A], said('R2'));
    expect(served.isForgotten).toBe(true);
    expect(served.prompt.map(({ content }) => content)).toEqual(['Q1', 'R1', `${block('a', A.content)}Q2`]);
    const third = pipeline.serve(NAME, [...second, said('R2'), user('Q3')], [A], said('R3'));
    expect([third.isForgotten, third.references]).toEqual([false, 1]);
    expect(third.prompt.slice(0, 3)).toEqual(served.prompt);
  });

  it('is known up to an answer of several messages: calls of a tool, then words', () => {
    const known = (...messages: readonly ChatMessage[]) => {
      const pipeline = new Pipeline();
      pipeline.serve(NAME, [user('Q1')], [A], said('R1'));
      return !pipeline.serve(NAME, [user('Q1'), ...messages], [], undefined).isForgotten;
    };
    expect(known(said('R1'), said('More.'), user('Q2'))).toBe(true);
    expect(known(user('Q2'))).toBe(true);
    expect(known(said('R1'), { role: 'tool', tool_call_id: 'c', content: 'found' })).toBe(true);
    expect(known(said('R1'), { role: 'tool', tool_call_id: 'c', content: 'found' }, said('R2'), user('Q2'))).toBe(
      false,
    );
    expect(known(said('R1'), user('Q2'), said('R2'), user('Q3'))).toBe(false);
  });
});

describe('a turn that adds nothing', () => {
  it('is recorded as the latest turn goes on, and keeps it for the turns behind', () => {
    const pipeline = new Pipeline();
    const first = pipeline.serve(NAME, [user('Q1')], [A], said('R1'));
    const messages = [user('Q1'), said('R1'), user('Q2')];
    const history = recallConversation({ ...NAME, messages }, pipeline.memory.lookup(NAME, 1));
    const plain = plainTurn(history);
    expect(plain.parent).toEqual({ link: history.turns[0]!.link, id: history.turns[0]!.id });
    const { id } = renderTurn(
      { history, messages, arrangement: arrange({ documents: [] }, new ServedHistory(), 0), supplied: '' },
      pipeline.options,
    ).turn;
    expect(plain.id).toBe(id);
    pipeline.memory.sent(NAME, plain, 1);
    const third = pipeline.serve(NAME, [...messages, said('R2'), user('Q3')], [A, B], said('R3'));
    expect([third.isForgotten, third.references]).toEqual([false, 1]);
    expect(third.prompt.slice(0, 1)).toEqual(first.prompt);
  });
});

describe('documents that are sent again', () => {
  const send = (pipeline: Pipeline, messages: readonly ChatMessage[], documents: readonly Passage[]) => {
    pipeline.deduplicate = false;
    return pipeline.serve(NAME, messages, documents, said('R'));
  };

  it('stand in full, under the label that they have', () => {
    const pipeline = new Pipeline();
    send(pipeline, [user('Q1')], [A]);
    const { prompt, references } = send(pipeline, [user('Q1'), said('R'), user('Q2')], [A, B]);
    expect(references).toBe(0);
    expect(prompt[2]!.content).toContain(`${block('a', A.content)}${block('b', B.content)}Q2`);
  });

  it('have a label of their own where theirs names another text', () => {
    const pipeline = new Pipeline();
    send(pipeline, [user('Q1')], [A]);
    const changed = { id: 'a', content: 'Another text of a.' };
    const { prompt } = send(pipeline, [user('Q1'), said('R'), user('Q2')], [changed]);
    expect(prompt[2]!.content).toMatch(/^<document id="a~[0-9a-f]{8}">\nAnother text of a\./);
  });

  it('keep a label under which the conversation shows them, if it shows them under another one as well', () => {
    const pipeline = new Pipeline();
    const first = [user('Q1')];
    const second = [...first, said('R'), user('Q2')];
    send(pipeline, first, [A]);
    send(pipeline, second, [{ id: 'twin', content: A.content }]);
    const { prompt } = send(pipeline, [...second, said('R'), user('Q3')], [A]);
    expect(labelsIn(prompt)).toEqual(['a', 'twin', 'a']);
  });

  it('keep the label that they were given when theirs was taken', () => {
    const pipeline = new Pipeline();
    const changed = { id: 'a', content: 'Another text of a.' };
    const first = [user('Q1')];
    const second = [...first, said('R'), user('Q2')];
    send(pipeline, first, [A]);
    send(pipeline, second, [changed]);
    const labels = labelsIn(send(pipeline, [...second, said('R'), user('Q3')], [changed]).prompt);
    expect(labels[2]).toBe(labels[1]);
  });
});

describe('the hash chain', () => {
  it('depends on every message and on where it stands', () => {
    const links = messageChain([['a'], ['b'], ['a']]);
    expect(new Set(links).size).toBe(3);
    expect(messageChain([['a'], ['b']])).toEqual(links.slice(0, 2));
    expect(messageChain([['ab']])[0]).not.toBe(messageChain([['a'], ['b']])[1]);
    expect(messageChain([['x'], ['b']])[1]).not.toBe(links[1]);
  });

  it('takes an answer for the same as text or as parts, and no answer for none', () => {
    const parts = [
      { type: 'text', text: ' Hello' },
      { type: 'text', text: ' you\n' },
    ];
    expect(answerHash({ content: parts })).toBe(answerHash({ content: 'Hello you' }));
    expect(answerHash({ content: null })).toBeUndefined();
    const call = (argument: string) => [{ id: 'any', function: { name: 'f', arguments: argument } }];
    expect(answerHash({ content: null, tool_calls: call('1') })).not.toBe(
      answerHash({ content: null, tool_calls: call('2') }),
    );
  });
});

describe('hints', () => {
  const { documents } = prepareRequest({ documents: [A, B] });
  const sent = { hash: '', label: 'old', title: undefined, content: B.content };
  const visible = {
    ...NOTHING_VISIBLE,
    find: ({ content }: { content: string }) => (content === B.content ? sent : undefined),
  };

  it('name what the conversation has by its label', () => {
    const arrangement = arrange({ documents, visible }, new ServedHistory(), 0);
    expect(renderHint(arrangement, 'xml')).toBe('Given earlier in this conversation: [old].\n');
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
