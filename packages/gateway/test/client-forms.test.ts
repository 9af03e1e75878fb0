import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import type { AIMessageChunk } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { jsonSchema, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunningGateway } from '../src/start-gateway.js';
import { FakeEngine } from './fake-engine.js';
import { gatewayAt } from './harness.js';

/** What a client makes of an answer. */
interface Read {
  readonly text: string;
  readonly calls: readonly { readonly name: string; readonly input: unknown }[];
}

type Client = (url: string) => Promise<Read>;

const SCHEMA = { type: 'object' as const, properties: { x: { type: 'number' as const } } };
const QUESTION = [{ role: 'user' as const, content: 'Q' }];

function anthropic(isStream: boolean): Client {
  return async (url) => {
    const client = new Anthropic({ baseURL: url, apiKey: 'k', maxRetries: 0 });
    const tools = ['f', 'g'].map((name) => ({ name, input_schema: SCHEMA }));
    const params = { model: 'm', max_tokens: 9, tools, messages: QUESTION };
    const { content, stop_reason } = isStream
      ? await client.messages.stream(params).finalMessage()
      : await client.messages.create(params);
    const calls = content.flatMap((block) =>
      block.type === 'tool_use' ? [{ name: block.name, input: block.input }] : [],
    );
    expect(stop_reason).toBe(calls.length > 0 ? 'tool_use' : 'end_turn');
    return { text: content.map((block) => (block.type === 'text' ? block.text : '')).join(''), calls };
  };
}

function responses(isStream: boolean): Client {
  return async (url) => {
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'k', maxRetries: 0 });
    const tools = ['f', 'g'].map((name) => ({ type: 'function' as const, name, parameters: SCHEMA, strict: false }));
    const params = { model: 'm', tools, input: QUESTION };
    const response = isStream
      ? await client.responses.stream(params).finalResponse()
      : await client.responses.create(params);
    expect(response.status).toBe('completed');
    const output = response.output as readonly OpenAI.Responses.ResponseOutputItem[];
    const calls = output.flatMap((item) =>
      item.type === 'function_call' ? [{ name: item.name, input: JSON.parse(item.arguments) as unknown }] : [],
    );
    return { text: response.output_text, calls };
  };
}

const chat: Client = async (url) => {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'k', maxRetries: 0 });
  const tools = ['f', 'g'].map((name) => ({ type: 'function' as const, function: { name, parameters: SCHEMA } }));
  const { message } = (
    await client.chat.completions.stream({ model: 'm', tools, messages: QUESTION }).finalChatCompletion()
  ).choices[0]!;
  const calls = (message.tool_calls ?? []).map((call) => {
    if (call.type !== 'function') throw new Error(call.type);
    return { name: call.function.name, input: JSON.parse(call.function.arguments) as unknown };
  });
  return { text: message.content ?? '', calls };
};

const aiSdk: Client = async (url) => {
  const model = createOpenAICompatible({ name: 'w', baseURL: `${url}/v1`, apiKey: 'k' })('m');
  const tools = Object.fromEntries(['f', 'g'].map((name) => [name, tool({ inputSchema: jsonSchema(SCHEMA) })]));
  let failure: unknown;
  const onError = ({ error }: { readonly error: unknown }): void => {
    failure = error;
  };
  const result = streamText({ model, tools, prompt: 'Q', maxRetries: 0, onError });
  const [text, calls] = await Promise.all([result.text, result.toolCalls]);
  if (failure !== undefined) throw failure;
  return { text, calls: calls.map(({ toolName, input }) => ({ name: toolName, input: input as unknown })) };
};

function langChain(useResponsesApi: boolean): Client {
  return async (url) => {
    const configuration = { baseURL: `${url}/v1` };
    const model = new ChatOpenAI({ model: 'm', apiKey: 'k', maxRetries: 0, useResponsesApi, configuration });
    const tools = ['f', 'g'].map((name) => ({ type: 'function' as const, function: { name, parameters: SCHEMA } }));
    let whole: AIMessageChunk | undefined;
    for await (const part of await model.bindTools(tools).stream('Q')) whole = whole?.concat(part) ?? part;
    const calls = (whole?.tool_calls ?? []).map(({ name, args }) => ({ name, input: args as unknown }));
    return { text: whole?.text ?? '', calls };
  };
}

/** Clients whose API the engine does not speak. */
const TRANSLATED: Readonly<Record<string, Client>> = {
  'Messages, streamed': anthropic(true),
  'Messages, whole': anthropic(false),
  'Responses, streamed': responses(true),
  'Responses, whole': responses(false),
  'Responses, LangChain': langChain(true),
};
/** Clients that get the engine's bytes. */
const UNTRANSLATED: Readonly<Record<string, Client>> = {
  'chat completions, streamed': chat,
  'chat completions, AI SDK': aiSdk,
  'chat completions, LangChain': langChain(false),
};

let engine: FakeEngine;
let gateway: RunningGateway;
let url: string;
/** The stream that the engine writes, whatever was asked for. */
let stream: string;

beforeAll(async () => {
  engine = await FakeEngine.start();
  gateway = await gatewayAt(engine.url, {}, { apiRoute: 'translate' });
  url = gateway.url;
});

afterAll(async () => {
  await gateway.close();
  await engine.close();
});

function streams(contentType: string): void {
  engine.answer = (response) => response.writeHead(200, { 'content-type': contentType }).end(stream);
}

const chunk = (choice: object) =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, finish_reason: null, ...choice }] })}\n\n`;
const said = (...deltas: readonly object[]) => deltas.map((delta) => chunk({ delta })).join('');
const called = (...calls: readonly object[]) => said(...calls.map((call) => ({ tool_calls: [call] })));
const fn = (name: string | undefined, text: unknown) => ({ type: 'function', function: { name, arguments: text } });
const ended = (finish_reason = 'stop') => `${chunk({ delta: {}, finish_reason })}data: [DONE]\n\n`;
const TWO = {
  text: '',
  calls: [
    { name: 'f', input: { x: 0 } },
    { name: 'g', input: { x: 1 } },
  ],
};
const ONE = { text: '', calls: TWO.calls.slice(0, 1) };

/** Forms that every client reads by itself. */
const PLAIN: readonly (readonly [name: string, sent: string, read: Read])[] = [
  [
    'a text',
    said({ role: 'assistant', content: '' }, { content: 'Yes' }, { content: '.' }) + ended(),
    { text: 'Yes.', calls: [] },
  ],
  [
    'comments',
    `: wait\n\n${said({ role: 'assistant', content: 'Yes.' })}: more\n\n${ended()}`,
    { text: 'Yes.', calls: [] },
  ],
  [
    'two calls',
    said({ role: 'assistant', content: null }) +
      called(
        { index: 0, id: 'a', ...fn('f', '{"x"') },
        { index: 0, function: { arguments: ':0}' } },
        { index: 1, id: 'b', ...fn('g', '{"x":1}') },
      ) +
      ended('tool_calls'),
    TWO,
  ],
];
/** Forms of some engines, that a translation has to read. */
const OWN: typeof PLAIN = [
  [
    'two calls with one index',
    called({ index: 0, id: 'a', ...fn('f', '{"x":0}') }, { index: 0, id: 'b', ...fn('g', '{"x":1}') }) +
      ended('tool_calls'),
    TWO,
  ],
  [
    'two calls without index',
    called({ id: 'a', ...fn('f', '{"x":0}') }, { id: 'b', ...fn('g', '{"x":1}') }) + ended('tool_calls'),
    TWO,
  ],
  ['two calls with neither', called(fn('f', '{"x":0}'), fn('g', '{"x":1}')) + ended('stop'), TWO],
  ['an object', called({ index: 0, id: 'a', ...fn('f', { x: 0 }) }) + ended('tool_calls'), ONE],
  [
    'a late id and name',
    called({ index: 0, ...fn(undefined, '{"x"') }, { index: 0, id: 'a', ...fn('f', ':0}') }) + ended('tool_calls'),
    ONE,
  ],
  [
    'the old form',
    said({ function_call: { name: 'f', arguments: '{"x"' } }, { function_call: { arguments: ':0}' } }) +
      ended('function_call'),
    ONE,
  ],
  [
    'empty finish reasons',
    chunk({ delta: { content: 'Yes.' }, finish_reason: '' }) + ended('eos_token'),
    { text: 'Yes.', calls: [] },
  ],
  ['a byte order mark', `\uFEFF${said({ content: 'Yes.' })}${ended()}`, { text: 'Yes.', calls: [] }],
];
const BROKEN: readonly (readonly [name: string, sent: string])[] = [
  [
    'an error object',
    `${said({ content: 'half' })}data: {"error":{"message":"boom","type":"server_error","code":500}}\n\n`,
  ],
  ['an error event', `${said({ content: 'half' })}event: error\ndata: {"error":{"message":"boom"}}\n\n`],
];
const UNFINISHED: typeof BROKEN = [
  [
    'an object that is an error',
    `${said({ content: 'half' })}data: {"object":"error","message":"boom"}\n\ndata: [DONE]\n\n`,
  ],
  ['a finish reason that is an error', said({ content: 'half' }) + ended('boom')],
];

describe.each(Object.entries(TRANSLATED))('%s', (_, client) => {
  it.each([...PLAIN, ...OWN])('reads %s', async (_name, sent, read) => {
    stream = sent;
    for (const contentType of ['text/event-stream', 'text/plain']) {
      streams(contentType);
      expect(await client(url)).toEqual(read);
    }
  });

  it.each([...BROKEN, ...UNFINISHED])('is told of %s', async (_name, sent) => {
    stream = sent;
    streams('text/event-stream');
    await expect(client(url)).rejects.toThrow('boom');
  });

  it('is told of a stream that just ends', async () => {
    stream = said({ content: 'half' });
    streams('text/event-stream');
    await expect(client(url)).rejects.toThrow(/ended before|closed the connection/);
  });
});

describe.each(Object.entries(UNTRANSLATED))('%s', (_, client) => {
  it.each(PLAIN)('reads %s', async (_name, sent, read) => {
    stream = sent;
    streams('text/event-stream');
    expect(await client(url)).toEqual(read);
  });

  it.each(BROKEN)('is told of %s', async (_name, sent) => {
    stream = sent;
    streams('text/event-stream');
    await expect(client(url)).rejects.toThrow(/boom/);
  });
});
