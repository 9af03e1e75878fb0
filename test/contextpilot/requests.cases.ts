import { expect } from 'vitest';
import { resolveConfig } from '../../packages/gateway/src/config/load.js';
import type { Answer } from '../../packages/gateway/test/fake-engine.js';
import {
  chat,
  DOCUMENTS,
  errorOf,
  labelsIn,
  type RequestOptions,
  send,
  stand,
  told,
} from '../../packages/gateway/test/harness.js';
import type { ConformanceCase } from './case.js';
import { CHAT, contentOf, docs, LAMP, MESSAGES, PEAR, PORT, reordered, searching, through, user } from './prompts.js';

const [VELKA, ORSIN, TAMIR] = DOCUMENTS;
const MARK = { cache_control: { type: 'ephemeral' } };
const url = 'http://engine:8000';

/** A message that answers calls of tools, one result after the other. */
const toolResults = (...contents: readonly unknown[]) => ({
  model: 'm',
  max_tokens: 9,
  messages: [
    {
      role: 'user',
      content: contents.map((content, at) => ({ type: 'tool_result', tool_use_id: `t${at}`, content })),
    },
  ],
});

/** As Anthropic's API answers, without a word of what was cached. */
const answerMessage: Answer = (response) => {
  response.writeHead(200, { 'content-type': 'application/json' }).end('{"type":"message","content":[]}');
};

/**
 * What the engine gets of a request of `/v1/messages` with breakpoints, behind one that served the first two documents.
 */
async function withMarks(fields: object, layout: 'question' | 'system' = 'question'): Promise<string> {
  const upstream = { dialect: 'anthropic' } as const;
  const gateway = await stand(answerMessage, { upstream, arrange: { layout, hints: false } }, { apiRoute: 'native' });
  const request = {
    model: 'm',
    max_tokens: 9,
    messages: [{ role: 'user', content: 'What do they weigh?' }],
    ...fields,
  };
  // What is shorter is not cached by the API.
  const [velka, orsin, tamir] = [VELKA, ORSIN, TAMIR].map((one) => ({ ...one, content: one.content.repeat(60) }));
  await through(gateway, { ...request, documents: [velka, orsin] }, MESSAGES);
  return through(gateway, { ...request, documents: [tamir, orsin, velka] }, MESSAGES);
}

/** The labels of the documents in each block that ends in a breakpoint. */
function markedDocuments(body: string): readonly string[] {
  const { system, messages } = JSON.parse(body) as { system?: unknown; messages: readonly { content: unknown }[] };
  const blocks = [system, ...messages.map(({ content }) => content)].flat() as {
    text?: string;
    cache_control?: object;
  }[];
  return blocks
    .filter((block) => block?.cache_control !== undefined && labelsIn(block.text ?? '').length > 0)
    .map(({ text }) => labelsIn(text!).join(' '));
}

const breakpoints = (body: string) => body.split('"cache_control":{').length - 1;

async function bareDefaults(): Promise<void> {
  expect(resolveConfig({ upstream: { url } })).toMatchObject({
    arrange: { policy: 'foresight', hints: true },
    recognise: 'ask',
  });
  expect(resolveConfig({ upstream: { url } }).arrange.maxShift).toBeUndefined();
  const { gateway, engine } = await stand();
  const reply = await send(gateway.url + CHAT, chat());
  expect(told(reply).policy).toBe('foresight');
  for (const warmpath of [null, {}, { session: null, deduplicate: null, bypass: null, recognise: null }]) {
    await send(gateway.url + CHAT, chat(DOCUMENTS, { warmpath }));
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin', 'tamir']);
    expect(engine.last.body).not.toContain('"warmpath"');
  }
}

async function refusedSwitches(): Promise<void> {
  const { gateway, engine } = await stand();
  for (const [name, value] of [
    ['policy', 'best'],
    ['maxShift', -1],
    ['maxShift', '0.001'],
    ['pin', ['nobody']],
    ['hints', 'yes'],
    ['deduplicate', 1],
    ['bypass', 'true'],
    ['recognise', 'all'],
    ['session', ''],
    ['scope', 'all'],
  ] as const) {
    const reply = await send(gateway.url + CHAT, chat(DOCUMENTS, { warmpath: { [name]: value } }));
    expect(reply.status, name).toBe(400);
    expect(errorOf(reply).param).toContain(`warmpath.${name}`);
  }
  for (const value of ['', 'x'.repeat(257)]) {
    const reply = await send(gateway.url + CHAT, chat(), { headers: { 'x-warmpath-session': value } });
    expect([reply.status, errorOf(reply).param]).toEqual([400, 'x-warmpath-session']);
  }
  expect(engine.received).toHaveLength(0);
}

async function sessionHeader(): Promise<void> {
  const { gateway, engine } = await stand();
  const opening = (chat() as { messages: object[] }).messages;
  const messages = [
    ...opening,
    { role: 'assistant', content: 'The weight is 42 kg.' },
    { role: 'user', content: 'Why?' },
  ];
  const ask = async (fields: object, options?: RequestOptions) => {
    const reply = await send(gateway.url + CHAT, chat([VELKA], fields), options);
    return reply.status === 200 ? told(reply).references : errorOf(reply).code;
  };
  const named = (name: string, value: string) => ({ headers: { [name]: value } });
  await ask({}, named('X-WarmPath-SESSION', 'one'));
  expect(engine.last.headers).not.toHaveProperty('x-warmpath-session');
  expect(await ask({ messages }, named('x-warmpath-session', 'one'))).toBe('1');
  expect(await ask({ messages })).toBeUndefined();
  expect(await ask({ messages, warmpath: { session: 'two' } }, named('x-warmpath-session', 'one'))).toBe(
    'WARMPATH_CONVERSATION_FORGOTTEN',
  );
  const marked = { session: 'two', forgotten: 'mark' };
  expect(await ask({ messages, warmpath: marked }, named('x-warmpath-session', 'one'))).toBeUndefined();
  expect(await ask({ messages, warmpath: { session: 'one' } }, named('x-warmpath-session', 'two'))).toBe('1');
}

async function resultForms(): Promise<void> {
  for (const write of [(text: string) => text, (text: string) => [{ type: 'text', text }]]) {
    const both = (...texts: readonly string[]) => toolResults(write(docs(...texts)), 'none', write(docs(PEAR, PORT)));
    expect(JSON.parse(await reordered(both(PORT, LAMP), both(LAMP, PORT), MESSAGES))).toEqual(both(PORT, LAMP));
    const second = (...texts: readonly string[]) => toolResults('none', write(docs(...texts)));
    expect(JSON.parse(await reordered(second(PORT, LAMP), second(LAMP, PORT), MESSAGES))).toEqual(second(PORT, LAMP));
  }
  const camel = (text: string) => JSON.parse(JSON.stringify(toolResults(text)).replace('tool_result', 'toolResult'));
  const other = camel(docs(LAMP, PORT)) as object;
  expect(await reordered(camel(docs(PORT, LAMP)), other, MESSAGES)).toBe(JSON.stringify(other));

  const chatTool = (text: string) =>
    user(
      'Why?',
      { role: 'assistant', content: null, tool_calls: null },
      { role: 'tool', tool_call_id: 'x', content: text },
    );
  const moved = await reordered(chatTool(docs(PORT, LAMP)), chatTool(docs(LAMP, PORT)));
  expect(JSON.parse(moved)).toEqual(chatTool(docs(PORT, LAMP)));
}

async function routesAndMarks(): Promise<void> {
  const request = (system: string, tool: string) => ({ ...toolResults(tool), system });
  const routes = await searching({ recognise: 'off' });
  await through(routes, request(docs(PORT, LAMP), docs(PORT, LAMP)), MESSAGES);
  const left = request(docs(LAMP, PORT), docs(LAMP, PORT));
  expect(await through(routes, left, MESSAGES)).toBe(JSON.stringify(left));

  const mark = (text: string) => `<warmpath-documents>${text}</warmpath-documents>`;
  const unmarked = (text: string) => text.replaceAll('warmpath-documents', 'documents');
  const [served, asked] = [docs(PORT, LAMP), docs(LAMP, PORT)].map(unmarked) as [string, string];
  const marks = await searching();
  await through(marks, request(mark(served), served), MESSAGES);
  const inSystem = JSON.parse(await through(marks, request(mark(asked), asked), MESSAGES));
  expect(inSystem).toEqual(request(mark(served), asked));
  await through(marks, request(served, mark(served)), MESSAGES);
  await through(marks, request(asked, mark(served)), MESSAGES);
  const inTool = JSON.parse(await through(marks, request(asked, mark(asked)), MESSAGES));
  expect(inTool).toEqual(request(asked, mark(served)));
}

async function systemText(): Promise<void> {
  const inSystem = JSON.parse(await withMarks({ system: 'Be brief.' }, 'system')) as { system: object[] };
  expect(inSystem.system.every((block) => 'text' in block)).toBe(true);
  expect(markedDocuments(JSON.stringify(inSystem))).toEqual(['orsin', 'tamir']);
}

async function longResults(): Promise<void> {
  for (const length of [100, 1_023, 1_024, 5_000]) {
    const [result] = toolResults('x'.repeat(length)).messages;
    const messages = [result, { role: 'assistant', content: 'A' }, { role: 'user', content: 'What do they weigh?' }];
    const body = await withMarks({ messages });
    expect(body).toContain(JSON.stringify(result));
    expect(breakpoints(body)).toBe(2);
  }
}

/** What the client wrote stays, byte for byte, beside what is added. */
async function inputUnchanged(): Promise<void> {
  const upstream = { dialect: 'anthropic' } as const;
  const { gateway, engine } = await stand(undefined, { upstream, arrange: { hints: false } }, { apiRoute: 'native' });
  const question = '{"text" : "DOCS and a qu\\u00e9stion", "type":"text"}';
  const before = '{"max_tokens":9, "messages" :[ {"content":[ ';
  const content = `DOCS${' DOCS'.repeat(1_500)}`;
  const document = JSON.stringify({ id: 'a', content });
  await send(gateway.url + MESSAGES, `${before}${question} ],"role":"user"} ], "documents": [${document}]}`);
  const added = { type: 'text', text: `<document id="a">\n${content}\n</document>\n`, ...MARK };
  expect(engine.last.body).toBe(`${before}${JSON.stringify(added)},${question} ],"role":"user"} ]}`);
}

const PLACES = [0, 1, 2, 3];

/** Requests in which the client has set so many breakpoints itself, all of a kind. */
function markedByClient(count: number): readonly Readonly<Record<string, unknown>>[] {
  const mark = (at: number, marked = count) => (at < marked ? MARK : {});
  const tools = (marked: number) => PLACES.map((at) => ({ name: `t${at}`, input_schema: {}, ...mark(at, marked) }));
  const history = [
    { role: 'user', content: PLACES.map((at) => ({ type: 'text', text: `Q${at}`, ...mark(at) })) },
    { role: 'assistant', content: 'A' },
  ];
  return [
    { tools: tools(count) },
    { system: PLACES.map((at) => ({ type: 'text', text: `Rule ${at}.`, ...mark(at) })) },
    { messages: [...history, { role: 'user', content: 'What do they weigh?' }] },
    // One that Anthropic's API places itself, at the end of the request.
    ...(count > 0 ? [{ ...MARK, tools: tools(count - 1) }] : []),
  ];
}

async function atMostFour(): Promise<void> {
  for (const count of [0, 1, 2, 3, 4]) {
    const expected = count <= 2 ? ['orsin', 'tamir'] : count === 3 ? ['tamir'] : [];
    for (const fields of markedByClient(count)) {
      const body = await withMarks(fields);
      expect(markedDocuments(body)).toEqual(expected);
      expect(breakpoints(body)).toBe(count + expected.length);
      for (const [name, value] of Object.entries(fields)) {
        const given = name === 'messages' ? (value as readonly unknown[]).slice(0, 2) : value;
        expect(body).toContain(`"${name}":${JSON.stringify(given).slice(0, -1)}`);
      }
    }
  }
}

/** Requests: what they may say, and where documents and breakpoints stand in those of Anthropic's API. */
export const requestCases: readonly ConformanceCase[] = [
  {
    number: 13,
    title:
      'one header, the name of the conversation, in any case, and one field for all else; both have defaults, and a bad value is an error that names it, never a default',
    run: async () => {
      await bareDefaults();
      await refusedSwitches();
      await sessionHeader();
    },
  },
  {
    number: 19,
    title:
      'results of tools as a string and as blocks, several in a message; `toolResult` is unknown and goes through; there is no scope by role: routes are searched or not, and marks say which text',
    run: async () => {
      await resultForms();
      await routesAndMarks();
    },
  },
  {
    number: 25,
    title:
      "breakpoints: at most four with the client's, the newest documents first; a system text becomes blocks; results of tools get none of whatever length, and what the client wrote stays",
    run: async () => {
      await systemText();
      await atMostFour();
      await longResults();
      await inputUnchanged();
    },
  },
  {
    number: 26,
    title:
      'markers of external content that differ in their drawn ids alone go out with the same bytes; others, and those not closed, keep apart',
    run: async () => {
      const marker = (id: string, text = PORT, closing = id) =>
        user(
          `Read this.\n<<<EXTERNAL_UNTRUSTED_CONTENT id="${id}">>>\n${text}\n<<<END_EXTERNAL_UNTRUSTED_CONTENT id="${closing}">>>\nWhy?`,
        );
      const idIn = (body: string) => /id="(\w+)"/.exec(contentOf(body))![1];
      const gateway = await searching({ recognise: 'auto' });
      const one = await through(gateway, marker('a1b2c3d4'));
      expect(await through(gateway, marker('ffff0000'))).toBe(one);
      expect(contentOf(one)).toContain(PORT);
      expect(contentOf(one).replaceAll(idIn(one)!, 'a1b2c3d4')).toBe(contentOf(JSON.stringify(marker('a1b2c3d4'))));
      expect(idIn(await through(gateway, marker('a1b2c3d4', LAMP)))).not.toBe(idIn(one));
      const open = marker('a1b2c3d4', PORT, 'b1b2c3d4');
      expect(await through(gateway, open)).toBe(JSON.stringify(open));
      const off = await stand();
      expect(await through(off, marker('a1b2c3d4'))).toBe(JSON.stringify(marker('a1b2c3d4')));
    },
  },
];
