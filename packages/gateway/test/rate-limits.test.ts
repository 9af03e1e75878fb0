import { describe, expect, it } from 'vitest';
import { answerAsAsked, CHAT_STREAM, startStream } from './fake-engine.js';
import { chat, errorOf, openRequest, type Reply, type StandConfig, send, stand } from './harness.js';

const PATH = '/v1/chat/completions';
const KEY = 'the-key-of-a-client';
const headers = { authorization: `Bearer ${KEY}` };

type Limits = Pick<
  NonNullable<NonNullable<StandConfig['server']>['keys']>[number],
  'requestsPerMinute' | 'tokensPerMinute' | 'maxConcurrent'
>;

/** A gateway with one limited key, and a clock that only the test moves. */
async function limited(limits: Limits, answer = answerAsAsked) {
  const clock = { now: 0 };
  const keys = [
    { name: 'limited', key: KEY, ...limits },
    { name: 'other', key: 'the-key-of-another' },
  ];
  const stood = await stand(answer, { server: { keys } }, { now: () => clock.now });
  const ask = (body: object | string = chat(), path = PATH) => send(stood.gateway.url + path, body, { headers });
  return { ...stood, clock, ask };
}

function refusal(reply: Reply): [number, string, string | undefined] {
  return [reply.status, errorOf(reply).code, reply.headers['retry-after']];
}

describe('the limits of a key', () => {
  it('are requests a minute, refilled evenly, and say when to come again', async () => {
    const { engine, gateway, clock, ask } = await limited({ requestsPerMinute: 3 });
    for (let i = 0; i < 3; i++) expect((await ask()).status).toBe(200);
    expect(refusal(await ask())).toEqual([429, 'WARMPATH_RATE_LIMITED', '20']);
    clock.now = 5_000;
    expect(refusal(await ask())).toEqual([429, 'WARMPATH_RATE_LIMITED', '15']);
    expect(engine.received).toHaveLength(3);
    // Nobody else waits for that.
    const other = { headers: { authorization: 'Bearer the-key-of-another' } };
    expect((await send(gateway.url + PATH, chat(), other)).status).toBe(200);
    clock.now = 20_000;
    expect((await ask()).status).toBe(200);
    expect((await ask()).status).toBe(429);
    // No more than a minute's worth is saved up.
    clock.now = 3_600_000;
    for (let i = 0; i < 3; i++) expect((await ask()).status).toBe(200);
    expect((await ask()).status).toBe(429);
  });

  it.each([false, true])('are tokens a minute, as the engine counts them; as a stream: %s', async (stream) => {
    const { clock, ask } = await limited({ tokensPerMinute: 256 });
    // 128 tokens each: what is left after the second is nothing.
    for (let i = 0; i < 2; i++) expect((await ask(chat(undefined, { stream }))).status).toBe(200);
    expect(refusal(await ask())).toEqual([429, 'WARMPATH_RATE_LIMITED', '1']);
    clock.now = 1_000;
    // A request that uses more than there is makes a debt.
    expect((await ask()).status).toBe(200);
    expect(refusal(await ask())).toEqual([429, 'WARMPATH_RATE_LIMITED', '30']);
  });

  it('count what every prompt uses, also of a conversation, a translation, and what is passed through', async () => {
    const usage = { prompt_tokens: 100, total_tokens: 100 };
    for (const [path, body, left] of [
      [PATH, chat([], { warmpath: { session: 's' } }), 128],
      ['/v1/messages', { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'Hello' }] }, 128],
      ['/v1/embeddings', { model: 'm', input: 'Hello' }, 100],
    ] as const) {
      const { clock, ask } = await limited({ tokensPerMinute: 60 }, (response, request) => {
        if (request.path === '/v1/messages') response.writeHead(404).end();
        else if (request.path !== '/v1/embeddings') answerAsAsked(response, request);
        else response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ usage }));
      });
      expect([path, (await ask(body, path)).status]).toEqual([path, 200]);
      // A token a second.
      expect([path, ...refusal(await ask(body, path)).slice(2)]).toEqual([path, String(left - 59)]);
      clock.now = (left - 59) * 1_000;
      expect((await ask(body, path)).status).toBe(200);
    }
  });

  it('estimate what the engine does not count, and charge nothing for what it refuses', async () => {
    let status = 500;
    const { ask } = await limited({ tokensPerMinute: 60 }, (response) => {
      if (status === 500) response.writeHead(500, { 'content-type': 'application/json' }).end('{}');
      else startStream(response).end(CHAT_STREAM.replace(/"usage":\{.*\}\}/, '"usage":null}'));
    });
    const prompt = chat([], { messages: [{ role: 'user', content: 'word '.repeat(200) }], stream: true });
    for (let i = 0; i < 3; i++) expect((await ask(prompt)).status).toBe(500);
    status = 200;
    expect((await ask(prompt)).status).toBe(200);
    const [code, , retryAfter] = refusal(await ask(prompt));
    expect(code).toBe(429);
    expect(Number(retryAfter)).toBeGreaterThan(100);
    expect(Number(retryAfter)).toBeLessThan(400);
  });

  const words = 'word '.repeat(200);
  it.each([
    ['chat', PATH, { model: 'm', messages: [{ role: 'user', content: words }] }],
    ['completions', '/v1/completions', { model: 'm', prompt: words }],
    ['messages', '/v1/messages', { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: words }] }],
    ['responses', '/v1/responses', { model: 'm', input: words }],
    ['embeddings', '/v1/embeddings', { model: 'm', input: words }],
  ])('are not switched off by an engine that counts 0 tokens: %s', async (_, path, body) => {
    const zeros = [
      { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 },
      { prompt_tokens: 0 },
      { input_tokens: 0, output_tokens: 0 },
      { input_tokens: 0, cache_read_input_tokens: 0, cache_creation_input_tokens: 0, output_tokens: 0 },
      { prompt_tokens: -5, completion_tokens: -5 },
      { prompt_tokens: null, completion_tokens: '0' },
    ];
    for (const usage of zeros) {
      for (const stream of path === '/v1/embeddings' ? [false] : [false, true]) {
        const { ask } = await limited({ tokensPerMinute: 60 }, (response, request) => {
          if (request.method !== 'POST') response.writeHead(404).end();
          else if (stream) {
            const choices = [{ index: 0, delta: { content: 'An answer.' }, text: 'An answer.' }];
            startStream(response).end(`data: ${JSON.stringify({ choices, usage })}\n\ndata: [DONE]\n\n`);
          } else {
            response.writeHead(200, { 'content-type': 'application/json' });
            response.end(JSON.stringify({ choices: [{ text: 'An answer.' }], usage }));
          }
        });
        expect((await ask({ ...body, stream }, path)).status).toBe(200);
        const [code, , retryAfter] = refusal(await ask({ ...body, stream }, path));
        expect([JSON.stringify(usage), stream, code]).toEqual([JSON.stringify(usage), stream, 429]);
        expect(Number(retryAfter)).toBeGreaterThan(100);
      }
    }
  });

  it('count an answer that the engine says had 0 tokens', async () => {
    const answer = 'word '.repeat(400);
    const { ask } = await limited({ tokensPerMinute: 60 }, (response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      const usage = { prompt_tokens: 3, completion_tokens: 0, total_tokens: 3 };
      response.end(JSON.stringify({ choices: [{ message: { role: 'assistant', content: answer } }], usage }));
    });
    expect((await ask()).status).toBe(200);
    expect(Number(refusal(await ask())[2])).toBeGreaterThan(200);
  });

  it.each(['maxConcurrent', 'requestsPerMinute', 'tokensPerMinute'] as const)(
    'are named in the error: %s',
    async (limit) => {
      let answerFirst = () => {};
      const { ask, engine } = await limited({ [limit]: 1 }, (response, request) => {
        if (limit === 'maxConcurrent') answerFirst = () => answerAsAsked(response, request);
        else answerAsAsked(response, request);
      });
      const first = ask();
      if (limit === 'maxConcurrent') await engine.until('request', 1);
      else await first;
      const { message } = errorOf(await ask());
      expect(message).toContain(`Key "limited" has reached its limit (\`${limit}\`: 1).`);
      answerFirst();
      expect((await first).status).toBe(200);
    },
  );

  it('are requests at once, given back when an answer is over or its client left', async () => {
    const answers: (() => void)[] = [];
    const { engine, gateway, ask } = await limited({ maxConcurrent: 2 }, (response, request) => {
      answers.push(() => answerAsAsked(response, request));
    });
    const first = ask();
    const second = openRequest(gateway.url + PATH, chat(), { headers });
    second.on('error', () => {});
    await engine.until('request', 2);
    expect(refusal(await ask())).toEqual([429, 'WARMPATH_RATE_LIMITED', '1']);
    second.destroy();
    await engine.until('abort', 1);
    const third = ask();
    await engine.until('request', 3);
    expect((await ask()).status).toBe(429);
    for (const answer of answers) answer();
    expect([(await first).status, (await third).status]).toEqual([200, 200]);
    const fourth = ask();
    await engine.until('request', 4);
    answers.at(-1)!();
    expect((await fourth).status).toBe(200);
  });

  it('charge a warm-up for what it prefills', async () => {
    const { ask } = await limited({ tokensPerMinute: 60 });
    const messages = [{ role: 'system', content: 'word '.repeat(200) }];
    expect((await ask({ model: 'm', messages }, '/v1/warmup')).status).toBe(202);
    expect((await ask()).status).toBe(429);
  });
});
