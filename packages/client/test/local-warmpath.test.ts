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

// The chat itself is core's `Warmpath`, which has tests of its own.
describe('a chat without a gateway', () => {
  it('takes back what failed, and believes what the engine reports', async () => {
    const warmpath = new LocalWarmpath();
    await ask(warmpath, ['a', 'b']).failed();
    const chat = ask(warmpath, ['b', 'a']);
    expect(chat.arrangement.order).toEqual([0, 1]);
    await chat.completed({ usage: { prompt_tokens: 500, prompt_tokens_details: { cached_tokens: 0 } } });
    expect(ask(warmpath, ['a', 'b']).arrangement.order).toEqual([1, 0]);
  });

  it('repeats in a session what was sent, of the end user who is named', () => {
    const warmpath = new LocalWarmpath();
    const first = ask(warmpath, ['a', 'b'], { session: 's', user: 'u' });
    const messages = [
      SYSTEM,
      { role: 'user', content: 'What was found?' },
      { role: 'assistant', content: 'Much.' },
      { role: 'user', content: 'And then?' },
    ];
    const second = ask(warmpath, ['b', 'c'], { messages, session: 's', user: 'u' });
    expect(second.messages.slice(0, 2)).toEqual(first.messages);
    expect(second.arrangement.references.map(({ document }) => document.id)).toEqual(['b']);
    expect(ask(warmpath, ['b', 'c'], { messages, session: 's', user: 'v' }).isForgotten).toBe(true);
  });

  it('goes on from the answer that the client kept', () => {
    const warmpath = new LocalWarmpath();
    const said = (content: string) => ({ role: 'assistant', content });
    for (const id of ['a', 'b']) ask(warmpath, [id], { session: 's' }).answered(said(`Of ${id}.`));
    const messages = [
      SYSTEM,
      { role: 'user', content: 'What was found?' },
      said('Of a.'),
      { role: 'user', content: 'So?' },
    ];
    expect(ask(warmpath, [], { messages, session: 's' }).messages[1]!.content).toContain('a was found');
  });

  it('goes by the clock that it is given', () => {
    let now = 0;
    const warmpath = new LocalWarmpath({ now: () => now, maxAgeMs: 1_000 });
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
