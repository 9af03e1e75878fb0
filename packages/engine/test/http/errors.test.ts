import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EventLog, someTokens, TestEngine } from '../support/engine.js';

const CHAT = '/v1/chat/completions';
const PLAIN = '/v1/completions';
const user = (content: unknown): object => ({ messages: [{ role: 'user', content }] });

describe('bad requests', () => {
  let engine: TestEngine;
  beforeAll(async () => {
    engine = await TestEngine.start({ bodyLimitBytes: 200_000 });
  });
  afterAll(() => engine.close());

  it.each([
    ['truncated JSON', CHAT, '{"messages": [{"role": "us', 400, 'WARMPATH_INVALID_JSON', null],
    ['an empty body', CHAT, '', 400, 'WARMPATH_INVALID_JSON', null],
    ['no messages', CHAT, {}, 400, 'WARMPATH_INVALID_REQUEST', 'messages'],
    ['an empty conversation', CHAT, { messages: [] }, 400, 'WARMPATH_INVALID_REQUEST', 'messages'],
    ['a list for a body', CHAT, [], 400, 'WARMPATH_INVALID_REQUEST', 'body'],
    [
      'an unknown role',
      CHAT,
      { messages: [{ role: 'x', content: '' }] },
      400,
      'WARMPATH_INVALID_REQUEST',
      'messages[0].role',
    ],
    ['a number for content', CHAT, user(3), 400, 'WARMPATH_INVALID_REQUEST', 'messages[0].content'],
    [
      'an image part',
      CHAT,
      user([{ type: 'text', text: 'a' }, { type: 'image_url' }]),
      400,
      'WARMPATH_INVALID_REQUEST',
      'messages[0].content[1].type',
    ],
    [
      'a part without text',
      CHAT,
      user([{ type: 'text' }]),
      400,
      'WARMPATH_INVALID_REQUEST',
      'messages[0].content[0].text',
    ],
    [
      'a call without a function',
      CHAT,
      { messages: [{ role: 'assistant', tool_calls: [{ id: 'a', function: { name: 'f' } }] }] },
      400,
      'WARMPATH_INVALID_REQUEST',
      'messages[0].tool_calls[0].function.arguments',
    ],
    [
      'a message without content',
      CHAT,
      { messages: [{ role: 'user' }] },
      400,
      'WARMPATH_INVALID_REQUEST',
      'messages[0].content',
    ],
    ['too many completions', CHAT, { ...user('a'), n: 129 }, 400, 'WARMPATH_INVALID_REQUEST', 'n'],
    ['fewer tokens than none', CHAT, { ...user('a'), max_tokens: -2 }, 400, 'WARMPATH_INVALID_REQUEST', 'max_tokens'],
    [
      'a text for temperature',
      CHAT,
      { ...user('a'), temperature: 'hot' },
      400,
      'WARMPATH_INVALID_REQUEST',
      'temperature',
    ],
    ['top_p below 0', CHAT, { ...user('a'), top_p: -0.1 }, 400, 'WARMPATH_INVALID_REQUEST', 'top_p'],
    ['a broken seed', CHAT, { ...user('a'), seed: 1.5 }, 400, 'WARMPATH_INVALID_REQUEST', 'seed'],
    ['a number to stop at', CHAT, { ...user('a'), stop: [1] }, 400, 'WARMPATH_INVALID_REQUEST', 'stop'],
    ['the likeliest tokens', CHAT, { ...user('a'), top_logprobs: 2 }, 400, 'WARMPATH_INVALID_REQUEST', 'top_logprobs'],
    ['21 tokens', PLAIN, { prompt: 'a', logprobs: 21 }, 400, 'WARMPATH_INVALID_REQUEST', 'logprobs'],
    ['a grammar', PLAIN, { prompt: 'a', grammar: 'root ::= "a"' }, 400, 'WARMPATH_INVALID_REQUEST', 'grammar'],
    [
      'too little of a token',
      CHAT,
      { ...user('a'), logit_bias: { 5: -101 } },
      400,
      'WARMPATH_INVALID_REQUEST',
      'logit_bias.5',
    ],
    [
      'a bias for a word',
      CHAT,
      { ...user('a'), logit_bias: { word: 1 } },
      400,
      'WARMPATH_INVALID_REQUEST',
      'logit_bias.word',
    ],
    [
      'a bias for no token',
      CHAT,
      { ...user('a'), logit_bias: { 1536: 1 } },
      400,
      'WARMPATH_INVALID_REQUEST',
      'logit_bias.1536',
    ],
    [
      'a broken penalty',
      CHAT,
      { ...user('a'), presence_penalty: 3 },
      400,
      'WARMPATH_INVALID_REQUEST',
      'presence_penalty',
    ],
    [
      'broken stream options',
      CHAT,
      { ...user('a'), stream_options: { include_usage: 1 } },
      400,
      'WARMPATH_INVALID_REQUEST',
      'stream_options.include_usage',
    ],
    ['another model', CHAT, { ...user('a'), model: 'gpt-x' }, 404, 'WARMPATH_MODEL_NOT_FOUND', 'model'],
    ['no prompt', PLAIN, {}, 400, 'WARMPATH_INVALID_REQUEST', 'prompt'],
    ['an empty prompt', PLAIN, { prompt: '' }, 400, 'WARMPATH_EMPTY_PROMPT', null],
    ['an empty list of tokens', PLAIN, { prompt: [] }, 400, 'WARMPATH_EMPTY_PROMPT', null],
    ['a prompt that is none', PLAIN, { prompt: ['a', 1] }, 400, 'WARMPATH_INVALID_REQUEST', 'prompt[1]'],
    ['a token that does not exist', PLAIN, { prompt: [5, 1536] }, 400, 'WARMPATH_INVALID_REQUEST', 'prompt[1]'],
    ['a negative token', PLAIN, { prompt: [-1] }, 400, 'WARMPATH_INVALID_REQUEST', 'prompt[0]'],
    ['chances of the prompt', PLAIN, { prompt: 'a', echo: true, logprobs: 1 }, 400, 'WARMPATH_INVALID_REQUEST', 'echo'],
    ['nothing to tokenize', '/tokenize', {}, 400, 'WARMPATH_INVALID_REQUEST', 'content'],
    [
      'a token too high to turn back',
      '/detokenize',
      { tokens: [99_999] },
      400,
      'WARMPATH_INVALID_REQUEST',
      'tokens[0]',
    ],
    ['a path that is not there', '/v1/nothing', {}, 404, 'WARMPATH_NOT_FOUND', null],
    ['a body over the limit', CHAT, user('x'.repeat(200_001)), 413, 'WARMPATH_BODY_TOO_LARGE', null],
  ])('say what is wrong and where: %s', async (_name, path, body, status, code, param) => {
    const error = await engine.error(path, body);
    expect(error).toMatchObject({ status, code, param });
    expect(error.remedy).not.toBe('');
    expect(error.message).not.toBe('');
  });

  it('get the numbers when the prompt is longer than the context', async () => {
    const tooLong = await engine.error(PLAIN, { prompt: someTokens(4096) });
    expect(tooLong).toMatchObject({ status: 400, code: 'context_length_exceeded' });
    expect(tooLong.message).toContain('4096');
    const tooMuch = await engine.error(PLAIN, { prompt: someTokens(4000), max_tokens: 100 });
    expect(tooMuch.message).toContain('4000');
    expect(tooMuch.message).toContain('100');
    const stream = await engine.error(PLAIN, { prompt: someTokens(4096), stream: true });
    expect(stream).toMatchObject({ status: 400, code: 'context_length_exceeded' });
    expect((await engine.complete(someTokens(4095))).usage.prompt_tokens).toBe(4095);
  });

  it('never repeat what the client sent', async () => {
    const secret = 'hunter2';
    for (const body of [
      user([secret]),
      { ...user('a'), stop: { secret } },
      `{"${secret}`,
      { ...user('a'), model: secret },
    ]) {
      expect(JSON.stringify(await engine.error(CHAT, body))).not.toContain(secret);
    }
  });

  it('read a body as JSON whatever its content type says', async () => {
    const response = await fetch(engine.server.url + PLAIN, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: JSON.stringify({ prompt: 'a', max_tokens: 1 }),
    });
    expect(response.status).toBe(200);
  });

  it('lose nothing that is in flight elsewhere', async () => {
    const good = engine.complete(someTokens(100, 7), { max_tokens: 50, ignore_eos: true });
    for (let round = 0; round < 5; round++) {
      await engine.error(CHAT, '{');
      await engine.error(PLAIN, { prompt: someTokens(5000) });
    }
    expect((await good).usage.completion_tokens).toBe(50);
  });
});

describe('a full queue', () => {
  it('refuses with 429 and says when to come back', async () => {
    const engine = await TestEngine.start({ maxRunning: 1, queueLimit: 1 });
    const log = new EventLog();
    const running = engine.stream(PLAIN, { prompt: someTokens(20), max_tokens: 3000, ignore_eos: true });
    await running.next();
    const waiting = engine.complete(someTokens(20, 1));
    await log.until(() => engine.server.stats().waiting === 1);
    const refused = await engine.call(PLAIN, { prompt: 'a' });
    expect(refused.status).toBe(429);
    expect(refused.body).toMatchObject({ error: { code: 'WARMPATH_OVERLOADED' } });
    expect(refused.headers.get('retry-after')).toBe('1');
    running.destroy();
    expect((await waiting).usage.completion_tokens).toBe(1);
    log.close();
    await engine.close();
  });
});

describe('a queue of no places', () => {
  it('lets run what can at once, and refuses the rest', async () => {
    const engine = await TestEngine.start({ maxRunning: 1, queueLimit: 0 });
    expect((await engine.complete(someTokens(20))).usage.completion_tokens).toBe(1);
    const running = engine.stream(PLAIN, { prompt: someTokens(20), max_tokens: 3000, ignore_eos: true });
    await running.next();
    expect((await engine.call(PLAIN, { prompt: 'a' })).status).toBe(429);
    running.destroy();
    await engine.close();
  });
});

describe('shutdown', () => {
  it('finishes what runs, refuses what waits, and accepts nothing new', async () => {
    const engine = await TestEngine.start({ maxRunning: 1 });
    const log = new EventLog();
    const running = engine.stream(PLAIN, { prompt: someTokens(20), max_tokens: 100, ignore_eos: true });
    await running.next();
    const waiting = engine.error(PLAIN, { prompt: someTokens(20, 1) });
    await log.until(() => engine.server.stats().waiting === 1);
    const closed = engine.close();
    expect(await waiting).toMatchObject({ status: 503, code: 'WARMPATH_SHUTTING_DOWN' });
    const rest = await running.rest();
    expect(rest.at(-1)!.choices[0]!.finish_reason).toBe('length');
    await closed;
    await expect(fetch(engine.server.url)).rejects.toThrow();
    log.close();
  });

  it('ends what takes longer than its grace, with an error in the stream', async () => {
    const engine = await TestEngine.start({ shutdownGraceMs: 0 });
    const log = new EventLog();
    const running = engine.stream(PLAIN, { prompt: someTokens(20), max_tokens: 3000, ignore_eos: true });
    await running.next();
    const closed = engine.close();
    expect((await running.rest()).at(-1)!.error).toMatchObject({ code: 'WARMPATH_SHUTTING_DOWN' });
    await closed;
    expect(log.ends.map(({ outcome }) => outcome)).toEqual(['aborted']);
    log.close();
    await engine.close();
  });
});
