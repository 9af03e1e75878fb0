import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startFakeEmbeddings } from '../../retrieval/test/fake-embeddings.js';
import { chatOnlyEngine } from './chat-only-engine.js';
import { type Answer, answerJson, answerStream } from './fake-engine.js';
import { closing, errorOf, type Reply, send, stand, told } from './harness.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-gateway-retrieval-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const DOCUMENTS = [
  { id: 'velka', title: 'Velka', content: 'The weight of Velka is 42 kg. The colour of Velka is teal.' },
  { id: 'orsin', title: 'Orsin', content: 'The weight of Orsin is 17 kg.' },
];
const APIS = ['messages', 'responses'] as const;
type Api = (typeof APIS)[number];
const SAID = 'It is 42 kg – dä.';

const event = (type: string, fields: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`;
const message = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'm',
  content: [{ type: 'text', text: SAID }],
  stop_reason: 'end_turn',
  stop_sequence: null,
  usage: { input_tokens: 20, output_tokens: 8 },
};
const part = { type: 'output_text', text: SAID, annotations: [] };
const item = { type: 'message', id: 'i', role: 'assistant', status: 'completed', content: [part] };
const response = { id: 'r', object: 'response', created_at: 1, status: 'completed', model: 'm', output: [item] };
const at = { item_id: 'i', output_index: 0, content_index: 0 };
const WHOLE: Record<Api, object> = { messages: message, responses: response };
const STREAM: Record<Api, string> = {
  messages: [
    event('message_start', { message: { ...message, content: [], stop_reason: null } }),
    event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
    event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: SAID } }),
    event('content_block_stop', { index: 0 }),
    event('message_delta', { delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: 8 } }),
    event('message_stop', {}),
  ].join(''),
  responses: [
    event('response.created', { sequence_number: 0, response: { ...response, status: 'in_progress', output: [] } }),
    event('response.output_item.added', { sequence_number: 1, output_index: 0, item: { ...item, content: [] } }),
    event('response.content_part.added', { sequence_number: 2, ...at, part: { ...part, text: '' } }),
    event('response.output_text.delta', { sequence_number: 3, ...at, delta: SAID, logprobs: [] }),
    event('response.completed', { sequence_number: 4, response }),
  ].join(''),
};

/** Where the sources stand in a stream. */
const SOURCES: Record<Api, RegExp> = {
  messages:
    /event: warmpath\.sources\ndata: \{"type":"warmpath\.sources",("warmpath":.*)\}\n\n(?=event: message_stop\n)/,
  responses: /,("warmpath":\{"sources":\[.*\]\})(?=\}\}\n\n$)/,
};

/** An engine that speaks the API itself, in pieces of seven bytes. */
const native =
  (api: Api): Answer =>
  (reply, { body }) => {
    const isStream = (JSON.parse(body) as { stream?: boolean }).stream === true;
    reply.writeHead(200, { 'content-type': isStream ? 'text/event-stream' : 'application/json' });
    const bytes = Buffer.from(isStream ? STREAM[api] : JSON.stringify(WHOLE[api]));
    for (let from = 0; from < bytes.length; from += 7) reply.write(bytes.subarray(from, from + 7));
    reply.end();
  };
/** One that speaks chat completions alone. */
const chatOnly = chatOnlyEngine((reply, { body }) =>
  (JSON.parse(body) as { stream?: boolean }).stream === true ? answerStream(reply) : answerJson(reply),
);

async function here(answer: Answer, collections: object = {}) {
  const models = { handbook: { model: 'engine-model', collection: 'handbook', k: 2 } };
  const one = await stand(answer, { collections: { folder, models, ...collections } });
  const filled = await send(`${one.gateway.url}/v1/collections/handbook/documents`, { documents: DOCUMENTS });
  expect(filled.status).toBe(200);
  return { ...one, at: (path: string) => `${one.gateway.url}/v1/${path}` };
}

const QUESTION = 'What is the weight of Velka?';
const body = (api: Api, fields: object) => ({
  ...(api === 'messages'
    ? { max_tokens: 9, messages: [{ role: 'user', content: [{ type: 'text', text: QUESTION }] }] }
    : { input: [{ role: 'user', content: [{ type: 'input_text', text: QUESTION }] }] }),
  ...fields,
});
const retrieval = { collection: 'handbook', k: 2 };
const sourcesOf = (text: string) =>
  (JSON.parse(text) as { warmpath: { sources: { source: string }[] } }).warmpath.sources.map(({ source }) => source);

describe.each(APIS)('retrieval in /v1/%s', (api) => {
  describe.each([
    ['an engine that speaks it', native(api)],
    ['an engine that speaks chat completions only', chatOnly],
  ])('behind %s', (_, answer) => {
    it.each([
      ['by the body', { model: 'm', warmpath: { retrieval } }, 'm'],
      ['by the name of a model', { model: 'handbook' }, 'engine-model'],
    ])('answers from a collection, asked %s', async (_, fields, model) => {
      const { engine, at } = await here(answer);
      const whole = await send(at(api), body(api, fields));
      expect([whole.status, sourcesOf(whole.text)]).toEqual([200, ['velka', 'orsin']]);
      expect(told(whole)).toMatchObject({ documents: '2' });
      const sent = JSON.parse(engine.last.body) as Record<string, unknown>;
      expect(sent['model']).toBe(model);
      expect(engine.last.body).toContain('The weight of Velka is 42 kg.');
      expect(engine.last.body).not.toMatch(/"warmpath"|"documents"/);
      const streamed = await send(at(api), body(api, { ...fields, stream: true }));
      const found = SOURCES[api].exec(streamed.text)!;
      expect(sourcesOf(`{${found[1]!}}`)).toEqual(['velka', 'orsin']);
      // All else is as it would be without.
      const without = streamed.text.replace(found[0], '');
      expect(without).toContain(api === 'messages' ? 'content_block_delta' : 'output_text.delta');
      expect(without).toMatch(/event: (message_stop|response\.completed)\ndata: .*\n\n$/);
      if (answer !== chatOnly) expect(without).toBe(STREAM[api]);
    });

    it('is read by the official client, which passes over the sources', async () => {
      const { gateway } = await here(answer);
      const fields = { model: 'handbook' };
      const texts: string[] = [];
      if (api === 'messages') {
        const client = new Anthropic({ baseURL: gateway.url, apiKey: 'none', maxRetries: 0 });
        const asked = body(api, fields) as Anthropic.MessageCreateParamsNonStreaming;
        for (const { content } of [
          await client.messages.create(asked),
          await client.messages.stream(asked).finalMessage(),
        ]) {
          texts.push(content.map((block) => (block.type === 'text' ? block.text : '')).join(''));
        }
      } else {
        const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'none', maxRetries: 0 });
        const asked = body(api, fields) as unknown as { input: string; model: string };
        const streamed = await client.responses.stream(asked).finalResponse();
        for (const { output } of [await client.responses.create(asked), streamed]) {
          const [first] = output;
          if (first?.type === 'message') {
            texts.push(first.content.map((each) => (each.type === 'output_text' ? each.text : '')).join(''));
          }
        }
      }
      expect(texts).toHaveLength(2);
      for (const text of texts) expect(text).toContain('42 kg');
    });
  });

  it('refuses what it cannot search for', async () => {
    const { engine, at } = await here(native(api));
    const name = api === 'messages' ? 'messages' : 'input';
    const empty = { model: 'handbook', max_tokens: 9, [name]: [{ role: 'assistant', content: 'a' }] };
    expect(errorOf(await send(at(api), empty))).toMatchObject({ code: 'WARMPATH_INVALID_REQUEST', param: name });
    const unknown = body(api, { model: 'm', warmpath: { retrieval: { collection: 'unknown' } } });
    expect(errorOf(await send(at(api), unknown))).toMatchObject({ code: 'WARMPATH_COLLECTION_NOT_FOUND' });
    // Only whether it speaks the API was asked.
    expect(engine.received.map(({ body }) => body)).toEqual(['{}']);
  });
});

describe('what a search goes without', () => {
  const warned = ({ text }: Reply) =>
    (JSON.parse(text) as { warmpath: { warnings?: { code: string; path: string }[] } }).warmpath.warnings;

  it('stands in the answer, whole and streamed, and the endpoint is left alone for a while', async () => {
    const fake = closing(await startFakeEmbeddings());
    const url = fake.url.replace('http://', 'http://operator:password@');
    const { at } = await here(native('messages'), { embeddings: { url, model: 'fake' } });
    const ask = (fields: object = {}) => send(at('messages'), body('messages', { model: 'handbook', ...fields }));
    const well = await ask();
    expect([warned(well), told(well)['warnings']]).toEqual([undefined, undefined]);
    fake.answer = () => ({ status: 503 });
    for (let asked = 0; asked < 5; asked++) {
      const reply = await ask();
      expect([reply.status, sourcesOf(reply.text)[0]]).toEqual([200, 'velka']);
      expect(warned(reply)).toMatchObject([{ code: 'WARMPATH_RETRIEVAL_ERROR', path: 'dense' }]);
      expect(told(reply)['warnings']).toContain('WARMPATH_RETRIEVAL_ERROR dense');
      expect(reply.text).not.toMatch(/password|127\.0\.0\.1/);
    }
    // One to embed the documents, one that was well, three that failed; the others did not wait for the same.
    expect(fake.requests).toHaveLength(5);
    const streamed = await ask({ stream: true });
    expect(streamed.text).toMatch(/event: warmpath\.sources\ndata: .*"warnings":\[\{"code":"WARMPATH_RETRIEVAL_ERROR"/);
  });
});
