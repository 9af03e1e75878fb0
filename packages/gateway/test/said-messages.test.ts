import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { linkedMessages } from '../src/conversation/message-links.js';
import { chatApi } from '../src/intake/apis/chat-api.js';
import { type ByteSpan, saidMessages } from '../src/intake/said-messages.js';

const SEED = { seed: 20261121, numRuns: 500 };
const SAID = { opening: 'system', messages: 'messages' };

const member = fc.tuple(fc.constantFrom('messages', 'system', 'seed', 'x"y', 'm\\', 'é'), fc.jsonValue());
/** A body as text, its members in any order, some more than once, and with white space or without. */
const bodies = fc.tuple(fc.array(member, { maxLength: 5 }), fc.constantFrom(0, 1, '\t')).map(([members, indent]) => {
  const written = members.map(([key, value]) => `${JSON.stringify(key)}: ${JSON.stringify(value, null, indent)}`);
  return ` {${written.join(' ,\n')}} `;
});

function read(body: string | Buffer) {
  const bytes = Buffer.from(body);
  const found = saidMessages(bytes, SAID);
  const textOf = ({ start, end }: ByteSpan) => bytes.toString('utf8', start, end);
  return found && { opening: found.opening && textOf(found.opening), messages: found.messages.map(textOf) };
}

describe('messages as bytes', () => {
  it('are those that JSON.parse finds, as the client wrote them', () => {
    fc.assert(
      fc.property(bodies, (body) => {
        const { messages, system } = JSON.parse(body) as { messages?: unknown; system?: unknown };
        const found = read(body);
        if (messages === undefined) expect(found).toBeUndefined();
        else {
          expect(found!.messages.map((raw) => JSON.parse(raw))).toEqual(
            Array.isArray(messages) ? messages : [messages],
          );
          expect(found!.opening && JSON.parse(found!.opening)).toEqual(system);
          for (const raw of found!.messages) expect(body).toContain(raw);
        }
      }),
      SEED,
    );
  });

  it('are none in a body that breaks off, and nothing in any body is an error', () => {
    const body = '{"system":[1,{"a":"\\\\"}],"messages":[{"content":"a\\"b]"}, 12, null ,"x",[]],"seed":1}';
    expect(read(body)!.messages).toEqual(['{"content":"a\\"b]"}', '12', 'null', '"x"', '[]']);
    const start = body.indexOf(',"seed"');
    for (let cut = 0; cut < start; cut++) expect(read(body.slice(0, cut)), body.slice(0, cut)).toBeUndefined();
    fc.assert(
      fc.property(bodies, fc.array(fc.tuple(fc.nat(), fc.nat({ max: 255 })), { maxLength: 4 }), (text, changes) => {
        const bytes = Buffer.from(text);
        for (const [at, byte] of changes) bytes[at % bytes.length] = byte;
        read(bytes);
      }),
      SEED,
    );
    expect(read('{"messages" "x"}')).toBeUndefined();
    expect(read('{"\\ud":1,"messages":[]}')).toBeUndefined();
    expect(read('{"mess\\u0061ges":[1]}')!.messages).toEqual(['1']);
  });
});

describe('their hash chain', () => {
  const links = (...messages: string[]) => linkedMessages(Buffer.from(`{"messages":[${messages}]}`), chatApi)!.links;

  it('has equal links up to where the bytes differ, and never again after it', () => {
    const message = fc.constantFrom('{"a":1}', '{"a": 1}', '{"a":2}', '"é"', '"\\u00e9"');
    fc.assert(
      fc.property(fc.array(message, { minLength: 1 }), fc.array(message, { minLength: 1 }), (one, other) => {
        const parts = one.findIndex((each, place) => each !== other[place]);
        const [first, second] = [links(...one), links(...other)];
        for (const [place, link] of first.entries()) {
          expect(link === second[place], `${place}`).toBe(parts < 0 || place < parts);
        }
      }),
      SEED,
    );
  });

  it('depends on what stands before the messages, and reads no message until it is asked for', () => {
    const api = { ...chatApi, said: SAID };
    const read = (body: string) => linkedMessages(Buffer.from(body), api)!;
    const messages = '"messages":[{"role":"user"},{"role":"assistant","content":"A"},broken]';
    const [one, other] = [read(`{"system":"a",${messages}}`), read(`{"system":"b",${messages}}`)];
    expect(one.links).toHaveLength(3);
    expect(one.links.filter((link) => other.links.includes(link))).toEqual([]);
    expect([one.at(1), one.at(2), one.at(3)]).toEqual([{ role: 'assistant', content: 'A' }, undefined, undefined]);
    expect(one.answeredLinks).toEqual([one.links[0]]);
    expect(linkedMessages(Buffer.from('{"messages":[]}'), api)).toBeUndefined();
    expect(read('{"messages":[1,{"name":"assistants"},2,[{"role" :"assistant"}]]}').answeredLinks).toHaveLength(1);
  });
});
