import { describe, expect, it } from 'vitest';
import { LocalWarmpath } from '../src/index.js';

const passage = (id: string) => ({ id, content: `${id} was found in a year of many rains. `.repeat(8) });
const SYSTEM = { role: 'system', content: 'Answer from the documents.' };
const ask = (warmpath: LocalWarmpath, ids: string[], fields: object = {}) =>
  warmpath.arrangeChat({
    messages: [SYSTEM, { role: 'user', content: 'What was found?' }],
    documents: ids.map(passage),
    ...fields,
  });

describe('a chat without a gateway', () => {
  it('has its documents before the question, in an order that was served', () => {
    const warmpath = new LocalWarmpath();
    ask(warmpath, ['a', 'b']);
    const { messages, arrangement } = ask(warmpath, ['b', 'c', 'a']);
    expect(messages[0]).toBe(SYSTEM);
    expect(messages).toHaveLength(2);
    const { content } = messages[1]!;
    expect([...String(content).matchAll(/<document id="(\w)"/g)].map(([, id]) => id)).toEqual(['a', 'b', 'c']);
    expect(content).toMatch(/relevance: \[c\] > \[a\]\.\nWhat was found\?$/);
    expect(arrangement.predictedCachedTokens).toBeGreaterThan(100);
  });

  it('keeps scopes apart, and takes back what failed', async () => {
    const warmpath = new LocalWarmpath();
    const first = ask(warmpath, ['a', 'b']);
    expect(ask(warmpath, ['b', 'a'], { scope: 'other model' }).arrangement.order).toEqual([0, 1]);
    await first.failed();
    expect(ask(warmpath, ['b', 'a']).arrangement.order).toEqual([0, 1]);
  });

  it('takes template, layout, switches and token counter from its options, and the switches from the request first', () => {
    const warmpath = new LocalWarmpath({
      template: 'brackets',
      layout: 'message',
      policy: 'retrieval',
      countTokens: (text) => text.length,
    });
    const { messages, arrangement } = ask(warmpath, ['a', 'b']);
    expect(messages).toHaveLength(3);
    expect(messages[1]!.content).toMatch(/^\[a\]\n/);
    expect(arrangement.documents[0]!.tokens).toBe(String(messages[1]!.content).length / 2);
    expect(ask(warmpath, ['b', 'a']).arrangement.order).toEqual([0, 1]);
    expect(ask(warmpath, ['b', 'a'], { policy: 'sorted' }).arrangement.order).toEqual([1, 0]);
  });

  it('repeats in a session what was sent, and sends no document twice', () => {
    const warmpath = new LocalWarmpath();
    const messages = [SYSTEM, { role: 'user', content: 'What was found?' }];
    const first = warmpath.arrangeChat({ messages, documents: ['a', 'b'].map(passage), session: 's' });
    const next = [...messages, { role: 'assistant', content: 'Much.' }, { role: 'user', content: 'And then?' }];
    const second = warmpath.arrangeChat({ messages: next, documents: ['b', 'c'].map(passage), session: 's' });
    expect(second.messages.slice(0, 2)).toEqual(first.messages);
    expect(second.arrangement.references.map(({ document }) => document.id)).toEqual(['b']);
    expect(String(second.messages.at(-1)!.content)).toMatch(
      /^<document id="c">[\s\S]*earlier[\s\S]*\[b\][\s\S]*And then\?$/,
    );
    expect([first.isForgotten, second.isForgotten]).toEqual([false, false]);
    // Another conversation has seen nothing, and says so; a history that was cut off brings its documents back.
    for (const name of [{ session: 't' }, { session: 's', user: 'another' }]) {
      const other = warmpath.arrangeChat({ messages: next, documents: ['b', 'c'].map(passage), ...name });
      expect([other.arrangement.references, other.isForgotten]).toEqual([[], true]);
    }
    const cut = warmpath.arrangeChat({ messages: next.slice(3), documents: ['b', 'c'].map(passage), session: 's' });
    expect([cut.arrangement.references, cut.isForgotten]).toEqual([[], false]);
  });

  it('goes on from the answer that the client kept, where the same messages went out with other documents', () => {
    const warmpath = new LocalWarmpath();
    const messages = [{ role: 'user', content: 'What was found?' }];
    const said = (content: string) => ({ role: 'assistant', content });
    for (const id of ['a', 'b']) {
      warmpath.arrangeChat({ messages, documents: [passage(id)], session: 's' }).answered(said(`Of ${id}.`));
    }
    const goOn = (answer: string) =>
      warmpath.arrangeChat({
        messages: [...messages, said(answer), { role: 'user', content: 'And then?' }],
        documents: [],
        session: 's',
      });
    expect(goOn('Of a.').messages[0]!.content).toContain('a was found');
    expect(goOn('Of b.').messages[0]!.content).toContain('b was found');
  });

  it('keeps conversations within the bounds that it is given', () => {
    let now = 0;
    const warmpath = new LocalWarmpath({ now: () => now, sessions: { maxBytes: 20_000, maxAgeMs: 1_000 } });
    const opening = [{ role: 'user', content: 'What was found?' }];
    const next = [...opening, { role: 'assistant', content: 'Much.' }, { role: 'user', content: 'And then?' }];
    const begin = (session: string) => warmpath.arrangeChat({ messages: opening, documents: [passage('a')], session });
    const goOn = (session: string) => warmpath.arrangeChat({ messages: next, documents: [passage('a')], session });
    for (let i = 0; i < 20; i++) begin(`${i}`);
    expect(goOn('19').arrangement.references).toHaveLength(1);
    expect(goOn('0').arrangement.references).toHaveLength(0);
    begin('s');
    now = 1_001;
    expect(goOn('s').arrangement.references).toHaveLength(0);
  });

  it('goes by the clock that it is given', () => {
    let now = 0;
    const warmpath = new LocalWarmpath({ now: () => now, history: { maxAgeMs: 1_000 } });
    ask(warmpath, ['a', 'b']);
    now = 5_000;
    ask(warmpath, ['x', 'y']);
    expect(ask(warmpath, ['b', 'a']).arrangement.order).toEqual([0, 1]);
  });

  it('refuses a chat that asks nothing', () => {
    const refused = () => new LocalWarmpath().arrangeChat({ messages: [SYSTEM], documents: [passage('a')] });
    expect(refused).toThrow(expect.objectContaining({ code: 'WARMPATH_INVALID_REQUEST', path: 'messages' }));
  });
});
