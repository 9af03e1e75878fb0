import { estimateTokens } from '@warmpath/core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import type { Answer } from './fake-engine.js';
import { labelsIn, type Stand, type StandConfig, send, stand } from './harness.js';
import '../../core/test/seed.js';

const MARK = { type: 'ephemeral' };
/** What Anthropic's API caches at least, in estimated tokens. */
const LEAST = 1_024;

/** A document of about 600 tokens: two are worth caching by themselves. */
function passage(id: string) {
  return { id, content: `The weight of ${id} is known. `.repeat(100) };
}
const [VELKA, ORSIN, TAMIR, KORVO] = ['velka', 'orsin', 'tamir', 'korvo'].map(passage) as [Doc, Doc, Doc, Doc];
type Doc = ReturnType<typeof passage>;

const LONG_TEXT = 'Answer from the documents alone, and say so where they do not tell. '.repeat(90);
const QUESTION = 'What do they weigh?';
const REQUEST = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: QUESTION }] };

interface Part {
  readonly type: string;
  readonly text?: string;
  readonly cache_control?: object;
  readonly prompt_cache_breakpoint?: object;
}
type Content = string | readonly Part[];
interface Body {
  readonly system?: Content;
  readonly messages: readonly { readonly role: string; readonly content: Content }[];
}

/** As Anthropic's API answers, without a word of what was cached. */
const answerMessage: Answer = (response) => {
  const answer = { type: 'message', role: 'assistant', content: [{ type: 'text', text: 'A lot.' }] };
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
};

function messagesStand(config: StandConfig = {}): Promise<Stand> {
  const upstream = { dialect: 'anthropic', ...config.upstream } as const;
  const arrange = { hints: false, ...config.arrange };
  return stand(answerMessage, { ...config, upstream, arrange }, { apiRoute: 'native' });
}

/** What the engine gets for each request, one after another. */
async function sent({ engine, gateway }: Stand, requests: readonly object[], path = '/v1/messages'): Promise<Body[]> {
  const bodies: Body[] = [];
  for (const request of requests) {
    const reply = await send(gateway.url + path, request);
    expect(reply.status).toBe(200);
    bodies.push(JSON.parse(engine.last.body) as Body);
  }
  return bodies;
}

/** Each part by the documents in it, or its text, with whether it ends in a breakpoint. */
function shape(content: Content | undefined): (string | [string])[] {
  const parts = typeof content === 'string' ? [{ type: 'text', text: content } as Part] : (content ?? []);
  return parts.map((part) => {
    const name = labelsIn(part.text ?? '').join(' ') || (part.text ?? part.type);
    return part.cache_control === undefined && part.prompt_cache_breakpoint === undefined ? name : [name];
  });
}

describe('cache breakpoints', () => {
  it('stand at the end of the documents, and where a path that was served before ends', async () => {
    const bodies = await sent(await messagesStand(), [
      { ...REQUEST, documents: [VELKA, ORSIN] },
      { ...REQUEST, documents: [TAMIR, ORSIN, VELKA] },
    ]);
    expect(bodies.map(({ messages }) => shape(messages[0]!.content))).toEqual([
      ['velka', ['orsin'], QUESTION],
      ['velka', ['orsin'], ['tamir'], QUESTION],
    ]);
  });

  it('stand at other ends from which requests went different ways, as far as there is room', async () => {
    const place = await messagesStand({ arrange: { policy: 'exact', hints: false } });
    const [, , , last] = await sent(place, [
      { ...REQUEST, documents: [VELKA, ORSIN, TAMIR] },
      { ...REQUEST, documents: [VELKA, ORSIN, KORVO, passage('ulmen')] },
      { ...REQUEST, documents: [VELKA, ORSIN, KORVO, passage('ulmen')] },
      { ...REQUEST, system: LONG_TEXT, documents: [VELKA, ORSIN, KORVO, passage('ulmen'), passage('baran')] },
    ]);
    // Behind another system prompt nothing was served yet.
    expect(shape(last!.system)).toEqual([[LONG_TEXT]]);
    expect(shape(last!.messages[0]!.content)).toEqual(['velka', 'orsin', 'korvo', 'ulmen', ['baran'], QUESTION]);
    const [again] = await sent(place, [
      { ...REQUEST, documents: [VELKA, ORSIN, KORVO, passage('ulmen'), passage('baran')] },
    ]);
    expect(shape(again!.messages[0]!.content)).toEqual(['velka', ['orsin'], 'korvo', ['ulmen'], ['baran'], QUESTION]);
  });

  it('stand at the end of the system text, once it is long enough', async () => {
    const documents = [VELKA, ORSIN];
    const [short, text, parts, tools] = await sent(await messagesStand(), [
      { ...REQUEST, documents, system: 'Be brief.' },
      { ...REQUEST, documents, system: LONG_TEXT },
      {
        ...REQUEST,
        documents,
        system: [
          { type: 'text', text: 'Be brief.' },
          { type: 'text', text: LONG_TEXT },
        ],
      },
      { ...REQUEST, documents, system: 'Be brief.', tools: [{ name: 't', description: LONG_TEXT, input_schema: {} }] },
    ]);
    expect(short!.system).toBe('Be brief.');
    expect(shape(text!.system)).toEqual([[LONG_TEXT]]);
    expect(shape(parts!.system)).toEqual(['Be brief.', [LONG_TEXT]]);
    expect(shape(tools!.system)).toEqual([['Be brief.']]);
  });

  it('part the system text from documents that are put behind it', async () => {
    const place = await messagesStand({ arrange: { layout: 'system', hints: false } });
    const [one, own] = await sent(place, [
      { ...REQUEST, documents: [VELKA, ORSIN], system: LONG_TEXT },
      { ...REQUEST, documents: [VELKA, ORSIN], system: [{ type: 'text', text: LONG_TEXT, cache_control: MARK }] },
    ]);
    expect(shape(one!.system)).toEqual([[`${LONG_TEXT}\n\n`], 'velka', ['orsin']]);
    expect(shape(own!.system)).toEqual([[LONG_TEXT], 'velka', ['orsin']]);
  });

  it('stand at the end of the message in a conversation with a name, whose messages are sent again as they were', async () => {
    const first = { ...REQUEST, system: LONG_TEXT, documents: [VELKA, ORSIN], warmpath: { session: 's' } };
    const { engine, gateway } = await messagesStand();
    const turns = [
      ...first.messages,
      { role: 'assistant', content: 'A lot.' },
      { role: 'user', content: 'And the others?' },
    ];
    const [one, two] = await sent({ engine, gateway }, [
      first,
      { ...first, documents: [TAMIR, KORVO], messages: turns },
    ]);
    const content = one!.messages[0]!.content as readonly Part[];
    expect(content).toHaveLength(1);
    expect(content[0]).toMatchObject({ cache_control: MARK });
    expect(content[0]!.text!.endsWith(QUESTION)).toBe(true);
    expect(shape(one!.system)).toEqual([[LONG_TEXT]]);
    expect(shape(two!.system)).toEqual([[LONG_TEXT]]);
    expect(textOf(two!.messages[0]!.content)).toBe(content[0]!.text);
    expect(two!.messages[2]!.content).toMatchObject([{ cache_control: MARK }]);
  });

  it.each([
    [1, ['velka orsin', 'tamir']],
    [3, ['velka orsin tamir']],
    [4, []],
  ])("make no more than four with the client's own %i", async (count, expected) => {
    const tools = Array.from({ length: count }, (_, at) => ({ name: `t${at}`, input_schema: {}, cache_control: MARK }));
    const [, body] = await sent(await messagesStand(), [
      { ...REQUEST, tools, documents: [VELKA, ORSIN] },
      { ...REQUEST, tools, documents: [TAMIR, ORSIN, VELKA] },
    ]);
    const { content } = body!.messages[0]!;
    const ends: string[] = [];
    let before: string[] = [];
    for (const part of Array.isArray(content) ? (content as readonly Part[]) : []) {
      before.push(...labelsIn(part.text!));
      if (part.cache_control === undefined) continue;
      ends.push(before.join(' '));
      before = [];
    }
    expect(ends).toEqual(expected);
  });

  it('are not set without being asked for, nor below the least that is cached, nor for chat completions', async () => {
    const unasked = await stand(undefined, {}, { apiRoute: 'native' });
    await send(`${unasked.gateway.url}/v1/messages`, { ...REQUEST, documents: [VELKA, ORSIN] });
    expect(unasked.engine.last.body).not.toContain('cache_control');
    const marking = await messagesStand();
    await sent(marking, [{ ...REQUEST, documents: [VELKA] }]);
    expect(marking.engine.last.body).not.toContain('cache_control');
    const chat = { messages: [{ role: 'user', content: 'Q' }], documents: [VELKA, ORSIN] };
    await sent(marking, [chat], '/v1/chat/completions');
    expect(marking.engine.last.body).not.toContain('cache_control');
  });

  it('are of OpenAI’s own kind before its models that go by them, one less for the one that it sets itself', async () => {
    const place = await stand(undefined, { upstream: { dialect: 'openai' }, arrange: { hints: false } });
    const chat = (model: string, fields: object = {}) => ({
      model,
      documents: [VELKA, ORSIN],
      messages: [{ role: 'system', content: LONG_TEXT }, ...REQUEST.messages],
      ...fields,
    });
    const own = { type: 'text', text: 'Hm.', prompt_cache_breakpoint: { mode: 'explicit' } };
    const three = { messages: [{ role: 'user', content: [own, own, own] }, ...chat('').messages] };
    const bodies = await sent(
      place,
      [
        chat('gpt-4o'),
        chat('gpt-5.5'),
        chat('gpt-5.6-terra'),
        chat('gpt-6'),
        chat('gpt-6', three),
        chat('gpt-6', { ...three, prompt_cache_options: { mode: 'explicit' } }),
      ],
      '/v1/chat/completions',
    );
    const marks = bodies.map((body) => JSON.stringify(body).split('"prompt_cache_breakpoint":{').length - 1);
    expect(marks).toEqual([0, 0, 2, 2, 3, 4]);
    expect(shape(bodies[2]!.messages[0]!.content)).toEqual([[LONG_TEXT]]);
    expect(shape(bodies[2]!.messages[1]!.content)).toEqual(['velka', ['orsin'], QUESTION]);
  });

  it('change no text, are never more than four with the client’s own, and never too early, whatever is asked', async () => {
    const text = fc.constantFrom('Yes.', 'What now?', LONG_TEXT, LONG_TEXT.slice(0, 2_500));
    const part = fc.record({ text, isMarked: fc.boolean() }).map(({ text: words, isMarked }): Part => {
      return { type: 'text', text: words, ...(isMarked && { cache_control: MARK }) };
    });
    const content = fc.oneof(text, fc.array(part, { minLength: 1, maxLength: 2 }));
    const earlier = fc.array(fc.tuple(content, content), { maxLength: 1 });
    const tool = fc.record({ description: text, isMarked: fc.boolean() }).map(({ description, isMarked }) => {
      return { name: 't', description, input_schema: {}, ...(isMarked && { cache_control: MARK }) };
    });
    const anyRequest = fc
      .record({
        system: fc.option(content, { nil: undefined }),
        tools: fc.array(tool, { maxLength: 1 }),
        earlier,
        last: content,
        documents: fc.subarray(['velka', 'orsin', 'tamir', 'korvo', 'ulmen', 'baran'], { minLength: 1 }),
      })
      .map(({ system, tools, earlier: turns, last, documents }) => ({
        ...REQUEST,
        ...(system !== undefined && { system }),
        ...(tools.length > 0 && { tools }),
        messages: [
          ...turns.flatMap(([question, answer]) => [
            { role: 'user', content: question },
            { role: 'assistant', content: answer },
          ]),
          { role: 'user', content: last },
        ],
        documents: documents.map(passage),
      }));
    for (const layout of ['question', 'system'] as const) {
      const arrange = { layout, hints: false };
      const marking = await messagesStand({ arrange });
      const plain = await messagesStand({ arrange, upstream: { dialect: 'generic' } });
      await fc.assert(
        fc.asyncProperty(anyRequest, async (request) => {
          const [marked] = await sent(marking, [request]);
          const [unmarked] = await sent(plain, [request]);
          expect(textsOf(marked!)).toEqual(textsOf(unmarked!));
          const own = countOf(request);
          expect(countOf(marked!)).toBeGreaterThanOrEqual(own);
          expect(countOf(marked!)).toBeLessThanOrEqual(Math.max(4, own));
          // Where the client marks nothing itself, each mark is the gateway's.
          if (own === 0)
            for (const before of textsBeforeMarks(marked!))
              expect(estimateTokens(before)).toBeGreaterThan(0.95 * LEAST);
        }),
        { numRuns: runs(40) },
      );
    }
  });
});

function countOf(value: object): number {
  return JSON.stringify(value).split('"cache_control":{').length - 1;
}

function textOf(content: Content | undefined): string {
  return typeof content === 'string' ? content : (content ?? []).map(({ text }) => text).join('');
}

/** All that the model reads, member by member. */
function textsOf({ system, messages }: Body): string[] {
  return [textOf(system), ...messages.map(({ role, content }) => `${role}: ${textOf(content)}`)];
}

/** What stands before each breakpoint, from the request's start: tools, system prompt, messages. */
function textsBeforeMarks(body: Body & { readonly tools?: readonly object[] }): string[] {
  let before = JSON.stringify(body.tools ?? '');
  const texts: string[] = [];
  for (const content of [body.system, ...body.messages.map((message) => message.content)]) {
    for (const part of typeof content === 'string' ? [{ text: content } as Part] : (content ?? [])) {
      before += part.text;
      if (part.cache_control !== undefined) texts.push(before);
    }
  }
  return texts;
}
