import type { ServerResponse } from 'node:http';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { chatApi, completionsApi, errorShapeOf, messagesApi, UntouchedBody } from '../src/apis/prompt-apis.js';
import { type DialectName, dialectOf } from '../src/dialects/dialects.js';
import { askingForUsage, WithoutUsage } from '../src/dispatch/send-prompt.js';
import type { Report } from '../src/shapes/shapes.js';
import type { ReceivedRequest } from './fake-engine.js';
import { send, stand } from './harness.js';

const CHAT = '/v1/chat/completions';

const event = (data: string) => `data: ${data}\n\n`;
const chunk = (content: string, more = '') =>
  event(
    `{"id":"c","choices":[{"index":0,"delta":{"content":${JSON.stringify(content)}},"finish_reason":null}]${more}}`,
  );
const COUNTS = '{"prompt_tokens":120,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":96}}';
const counts = (more = '') => event(`{"id":"c","choices":[],"usage":${COUNTS}${more}}`);
const DONE = event('[DONE]');

/** Words that look like what is taken out. */
const WORDS = [
  'The wéight',
  ' is "usage":null, {"usage": {}} ',
  ' 42 kg. 🦀',
  '\n\ndata: {"choices":[],"usage":{}}\n\n',
];
const PLAIN = WORDS.map((word) => chunk(word)).join('');

function filtered(stream: string, cuts: readonly number[], dialect: DialectName = 'vllm'): string {
  const filter = new WithoutUsage(new UntouchedBody(errorShapeOf(CHAT)), dialectOf(dialect));
  filter.head({ status: 200, headers: { 'content-type': 'text/event-stream; charset=utf-8' } });
  const bytes = Buffer.from(stream);
  const places = [0, ...[...cuts].sort((a, b) => a - b), bytes.length];
  const parts = places.slice(1).map((end, i) => Buffer.from(filter.data(bytes.subarray(places[i], end))));
  return Buffer.concat([...parts, Buffer.from(filter.end().rest)]).toString();
}

describe('a stream whose counts the gateway asked for', () => {
  const streams: readonly [name: string, sent: string, passed: string, dialect: DialectName][] = [
    ['an event of counts', PLAIN + counts() + DONE, PLAIN + DONE, 'vllm'],
    ['no event of counts', PLAIN + DONE, PLAIN + DONE, 'vllm'],
    ['no end', PLAIN + counts().trimEnd(), PLAIN, 'vllm'],
    [
      'nulls in all events, as OpenAI writes them',
      WORDS.map((word) => chunk(word, ',"usage":null')).join('') + counts() + DONE,
      PLAIN + DONE,
      'openai',
    ],
    [
      'nulls that the engine writes in any case',
      WORDS.map((word) => chunk(word, ',"usage":null')).join('') + counts() + DONE,
      WORDS.map((word) => chunk(word, ',"usage":null')).join('') + DONE,
      'sglang',
    ],
    [
      'counts with the last content',
      PLAIN + chunk('.', `,"usage":${COUNTS}`),
      PLAIN + chunk('.', `,"usage":${COUNTS}`),
      'vllm',
    ],
    [
      'comments and names',
      `: ping\n\nevent: x\n${PLAIN}${counts()}: end\n\n`,
      `: ping\n\nevent: x\n${PLAIN}: end\n\n`,
      'vllm',
    ],
  ];

  it.each(streams)('keeps all other bytes, cut anywhere: %s', (_, sent, passed, dialect) => {
    for (const end of ['\n', '\r\n', '\r']) {
      const [given, wanted] = [sent, passed].map((text) => text.replaceAll('\n', end)) as [string, string];
      const cuts = fc.array(fc.nat(Buffer.byteLength(given)), { maxLength: 40 });
      fc.assert(
        fc.property(cuts, (places) => {
          expect(filtered(given, places, dialect)).toBe(wanted);
        }),
        { seed: 3, numRuns: 60 },
      );
    }
  });

  it('is passed on event by event', () => {
    const filter = new WithoutUsage(new UntouchedBody(errorShapeOf(CHAT)), dialectOf('vllm'));
    filter.head({ status: 200, headers: { 'content-type': 'text/event-stream' } });
    for (const word of WORDS) expect(filter.data(Buffer.from(chunk(word))).toString()).toBe(chunk(word));
  });
});

describe('the request for counts', () => {
  const asked = (body: object | string, dialect: DialectName = 'vllm', api = chatApi) => {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    return askingForUsage(Buffer.from(text), api, dialectOf(dialect))?.toString();
  };

  it('is added to streams of chats and completions alone, and not where the client asks itself', () => {
    expect(asked({ stream: true, messages: [] })).toBe(
      '{"stream":true,"messages":[],"stream_options":{"include_usage":true}}',
    );
    expect(asked('{ "stream" : true, "stream_options": {"include_usage": false, "x": 1} }')).toBe(
      '{ "stream" : true, "stream_options": {"include_usage":true,"x":1} }',
    );
    expect(asked({ stream: true, prompt: 'x' }, 'vllm', completionsApi as typeof chatApi)).toContain('include_usage');
    expect(asked({ stream: true, stream_options: null })).toContain('"include_usage":true');
    for (const body of [{ stream: false }, { stream: 'true' }, {}, '{"stream":tr', { stream_options: {} }])
      expect(asked(body)).toBeUndefined();
    expect(asked({ stream: true, stream_options: { include_usage: true } })).toBeUndefined();
    expect(asked({ stream: true, stream_options: 'all' })).toBeUndefined();
    expect(asked({ stream: true }, 'vllm', messagesApi as unknown as typeof chatApi)).toBeUndefined();
    for (const dialect of ['mistral', 'anthropic', 'llama-server'] as const)
      expect(asked({ stream: true }, dialect)).toBeUndefined();
  });
});

/** Streams words, and counts where it is asked for them. */
function streaming(refuses: boolean) {
  return (response: ServerResponse, { body }: ReceivedRequest): void => {
    const { stream_options: options, bad } = JSON.parse(body) as { stream_options?: object; bad?: boolean };
    if (bad || (refuses && options !== undefined)) {
      response.writeHead(bad ? 422 : 400, { 'content-type': 'application/json' });
      response.end(`{"error":{"message":"${bad ? 'bad' : 'stream_options'}"}}`);
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(PLAIN + (options === undefined ? '' : counts()) + DONE);
  };
}

describe('a gateway before an engine that streams', () => {
  const body = { model: 'm', stream: true, messages: [{ role: 'user', content: 'How heavy is Velka?' }] };

  it('has the counts of streams whose clients did not ask, who get no word of it', async () => {
    const reports: Report[] = [];
    const onRequest = (report: Report) => reports.push(report);
    const { engine, gateway } = await stand(streaming(false), {}, { onRequest });
    expect((await send(gateway.url + CHAT, body)).text).toBe(PLAIN + DONE);
    const asks = { ...body, stream_options: { include_usage: true } };
    expect((await send(gateway.url + CHAT, asks)).text).toBe(PLAIN + counts() + DONE);
    expect(engine.received.map(({ body }) => body.includes('"include_usage":true'))).toEqual([true, true]);
    expect(reports.map(({ promptTokens, cachedTokens }) => [promptTokens, cachedTokens])).toEqual([
      [120, 96],
      [120, 96],
    ]);
  });

  it('sends the request again as it was to an engine that refuses, and asks it no more', async () => {
    const { engine, gateway } = await stand(streaming(true));
    for (let i = 0; i < 3; i++) {
      const reply = await send(gateway.url + CHAT, body);
      expect([reply.status, reply.text]).toEqual([200, PLAIN + DONE]);
    }
    expect(engine.received.map(({ body }) => body.includes('stream_options'))).toEqual([true, false, false, false]);
  });

  it('passes on what the engine refuses for another reason, and goes on asking', async () => {
    const { engine, gateway } = await stand(streaming(false));
    const refused = await send(gateway.url + CHAT, { ...body, bad: true });
    expect([refused.status, refused.text]).toEqual([422, '{"error":{"message":"bad"}}']);
    expect((await send(gateway.url + CHAT, body)).text).toBe(PLAIN + DONE);
    expect((await send(gateway.url + CHAT, { ...body, bad: true })).status).toBe(422);
    expect(engine.received.map(({ body }) => body.includes('stream_options'))).toEqual([true, false, true, true]);
  });

  it('reads the counts of a llama-server, which states them in any case', async () => {
    const reports: Report[] = [];
    const last =
      '{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"timings":{"cache_n":96,"prompt_n":24,"predicted_n":8}}';
    const { gateway } = await stand(
      (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.end(PLAIN + event(last) + DONE);
      },
      { upstream: { dialect: 'llama-server' } },
      { onRequest: (report) => reports.push(report) },
    );
    expect((await send(gateway.url + CHAT, body)).text).toBe(PLAIN + event(last) + DONE);
    expect(reports[0]).toMatchObject({ promptTokens: 120, cachedTokens: 96 });
  });
});
