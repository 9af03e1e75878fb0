import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Answer, someTokens, TestEngine, textOf } from '../support/engine.js';

const DOCUMENTS =
  '<document id="a">\nThe weight of Marlo is 52 kg. The colour of Marlo is green.\n</document>\n' +
  '<document id="b">\nThe weight of Tibin is 7 kg.\n</document>\n';

describe('completions on the real engine', () => {
  let engine: TestEngine;
  beforeAll(async () => {
    engine = await TestEngine.start();
  });
  afterAll(() => engine.close());

  const cached = (answer: Answer): number => answer.usage.prompt_tokens_details.cached_tokens;

  it('answers a request that names a speculation as any other, and keeps nothing of it', async () => {
    const fields = { prompt: 'one two', max_tokens: 1, speculation: { id: 'a' } };
    for (let round = 0; round < 2; round++) {
      expect(await engine.call('/v1/completions', fields)).toMatchObject({ status: 200 });
    }
    expect(await engine.call('/v1/speculations/a/confirm', {})).toMatchObject({ status: 404 });
  });

  it('reads earlier calls and what answered them', async () => {
    const response = await fetch(`${engine.server.url}/tokenize`, {
      method: 'POST',
      body: JSON.stringify({
        messages: [
          { role: 'user', content: 'Where?' },
          {
            role: 'assistant',
            content: null,
            tool_calls: [{ id: 'c1', type: 'function', function: { name: 'find', arguments: '{"what":"it"}' } }],
          },
          { role: 'tool', tool_call_id: 'c1', content: 'Here.' },
        ],
      }),
    });
    const { tokens } = (await response.json()) as { tokens: number[] };
    const detokenized = await fetch(`${engine.server.url}/detokenize`, {
      method: 'POST',
      body: JSON.stringify({ tokens }),
    });
    const { content } = (await detokenized.json()) as { content: string };
    expect(content).toContain('{"name":"find","arguments":{"what":"it"}}');
    expect(content).toContain('tool\nHere.');
  });

  it('answers a question from the documents', async () => {
    const answer = await engine.chat(`${DOCUMENTS}Question: What is the weight of Marlo?`);
    expect(answer.choices[0]).toMatchObject({
      index: 0,
      message: { role: 'assistant', content: ' 52 kg' },
      finish_reason: 'stop',
    });
    expect(answer).toMatchObject({ object: 'chat.completion', model: 'warmpath-tiny' });
  });

  it('counts cached tokens exactly', async () => {
    const prompt = someTokens(300);
    expect(cached(await engine.complete(prompt))).toBe(0);
    // The last token is computed again, for its logits.
    expect(cached(await engine.complete(prompt))).toBe(299);
    expect(cached(await engine.complete(prompt.slice(0, 120)))).toBe(119);
    expect(cached(await engine.complete([...prompt.slice(0, 200), ...someTokens(50, 9)]))).toBe(200);
    expect(cached(await engine.complete([...prompt.slice(0, 200), ...someTokens(50, 9), 300]))).toBe(250);
    expect(cached(await engine.complete([...prompt, 300, 301]))).toBe(300);
    expect(cached(await engine.complete(someTokens(40, 77)))).toBe(0);
  });

  it('reports usage and timings that agree', async () => {
    const prompt = someTokens(50, 3);
    await engine.complete(prompt.slice(0, 30));
    const { usage, timings } = await engine.complete(prompt, { max_tokens: 5, ignore_eos: true });
    expect(usage).toEqual({
      prompt_tokens: 50,
      completion_tokens: 5,
      total_tokens: 55,
      prompt_tokens_details: { cached_tokens: 30, cached_tokens_by_tier: { device: 0, host: 30, disk: 0 } },
    });
    expect(timings).toMatchObject({ cached: 30, cached_device: 0, cached_host: 30, prompt_n: 20, predicted_n: 5 });
    expect(timings.prompt_ms).toBeGreaterThan(0);
    expect(timings.predicted_ms).toBeGreaterThan(0);
  });

  it('chooses tokens as it is asked to', async () => {
    const prompt = someTokens(40, 8);
    const text = async (fields: object) =>
      (await engine.complete(prompt, { max_tokens: 12, ...fields })).choices[0]!.text;
    const greedy = await text({ ignore_eos: true });
    // One token to choose from is the likeliest, whatever the temperature.
    expect(await text({ ignore_eos: true, top_k: 1, temperature: 2, seed: 5 })).toBe(greedy);
    // The eleventh letter of the vocabulary, again and again.
    const [letter] = await engine.tokenize({ content: 'k' });
    expect(await text({ ignore_eos: true, logit_bias: { [letter!]: 100 } })).toBe('k'.repeat(12));
    const apart = await text({ ignore_eos: true, logit_bias: { [letter!]: 5 }, frequency_penalty: 2 });
    expect(apart!.split('k').length - 1).toBeLessThan(12);
  });

  it('computes a prompt for the cache alone when no token is asked for', async () => {
    const prompt = someTokens(200, 31);
    const first = await engine.complete(prompt, { max_tokens: 0 });
    expect(first.choices).toEqual([{ index: 0, text: '', logprobs: null, finish_reason: 'length' }]);
    expect(first.usage).toMatchObject({ prompt_tokens: 200, completion_tokens: 0, total_tokens: 200 });
    expect(first.timings).toMatchObject({ cached: 0, prompt_n: 200, predicted_n: 0, predicted_ms: 0 });
    expect(first.timings.prompt_ms).toBeGreaterThan(0);
    // No logits are wanted, so the last token need not be computed again.
    const steps = await engine.metric('warmpath_engine_steps_total');
    const seen = await engine.metric('vllm:time_to_first_token_seconds_count');
    expect(cached(await engine.complete(prompt, { max_tokens: 0 }))).toBe(200);
    expect(await engine.metric('warmpath_engine_steps_total')).toBe(steps);
    expect(await engine.metric('vllm:time_to_first_token_seconds_count')).toBe(seen);
    expect(cached(await engine.complete(prompt))).toBe(199);
  });

  it('streams an answer without text when no token is asked for, on both endpoints', async () => {
    const fields = { max_tokens: 0, stream_options: { include_usage: true } };
    const plain = await engine.stream('/v1/completions', { prompt: someTokens(40, 32), ...fields }).rest();
    expect(plain.map(({ choices: [choice] }) => choice?.finish_reason)).toEqual(['length', undefined]);
    const chat = { messages: [{ role: 'user', content: 'Hello' }], max_completion_tokens: 0, ...fields };
    const chunks = await engine.stream('/v1/chat/completions', chat).rest();
    for (const answer of [plain, chunks]) {
      expect(textOf(answer)).toBe('');
      expect(answer.at(-1)!.usage!.completion_tokens).toBe(0);
    }
  });

  it('computes a prompt that fills the whole context, when no token is asked for', async () => {
    const small = await TestEngine.start({ contextTokens: 256 });
    const whole = someTokens(256, 33);
    expect((await small.complete(whole, { max_tokens: 0 })).usage.prompt_tokens).toBe(256);
    expect((await small.error('/v1/completions', { prompt: whole, max_tokens: 1 })).code).toBe(
      'context_length_exceeded',
    );
    await small.close();
  });

  it('keeps the answer cached for the next turn', async () => {
    const question = { role: 'user', content: `${DOCUMENTS}Question: What is the weight of Tibin?` };
    const first = await engine.chat(question.content);
    const messages = [
      question,
      { role: 'assistant', content: first.choices[0]!.message!.content },
      { role: 'user', content: 'And what is the colour of Marlo?' },
    ];
    const second = await engine.chat('', { messages });
    // Everything but the end token, which was chosen and never computed.
    expect(cached(second)).toBe(first.usage.prompt_tokens + first.usage.completion_tokens - 1);
  });

  it('gives the same text with and without a cached prefix', async () => {
    const prompt = (topic: string): string => `${DOCUMENTS}Question: What is the colour of ${topic}?`;
    const other = await TestEngine.start();
    const cold = await other.chat(prompt('Marlo'));
    await other.close();
    await engine.chat(prompt('Tibin'));
    const warm = await engine.chat(prompt('Marlo'));
    expect(cached(cold)).toBe(0);
    expect(cached(warm)).toBeGreaterThan(40);
    expect(warm.choices[0]!.message!.content).toBe(cold.choices[0]!.message!.content);
  });

  it.each([
    ['at temperature 0', { temperature: 0 }],
    ['with a seed', { temperature: 1.5, seed: 11 }],
  ])('streams the same text that it answers at once, %s', async (_name, sampling) => {
    const fields = { ...sampling, max_tokens: 40, ignore_eos: true };
    const whole = await engine.chat(`${DOCUMENTS}Tell me about Marlo.`, fields);
    const stream = engine.stream('/v1/chat/completions', {
      ...fields,
      messages: [{ role: 'user', content: `${DOCUMENTS}Tell me about Marlo.` }],
      stream_options: { include_usage: true },
    });
    const chunks = await stream.rest();
    expect(textOf(chunks)).toBe(whole.choices[0]!.message!.content);
    expect(chunks[0]!.choices[0]!.delta).toEqual({ role: 'assistant', content: '' });
    expect(chunks.at(-2)).toMatchObject({ choices: [{ finish_reason: 'length' }], timings: { predicted_n: 40 } });
    expect(chunks.at(-1)).toMatchObject({
      choices: [],
      usage: { ...whole.usage, prompt_tokens_details: { cached_tokens: whole.usage.prompt_tokens - 1 } },
    });
  });

  it('sends no usage chunk that was not asked for, and ends with [DONE]', async () => {
    const prompt = someTokens(20, 4);
    const chunks = await engine.stream('/v1/completions', { prompt, max_tokens: 3, ignore_eos: true }).rest();
    expect(chunks.every((chunk) => chunk.usage === undefined)).toBe(true);
    expect(chunks.at(-1)!.choices[0]!.finish_reason).toBe('length');
    const raw = await fetch(`${engine.server.url}/v1/completions`, {
      method: 'POST',
      body: JSON.stringify({ prompt, max_tokens: 1, stream: true }),
    });
    expect(raw.headers.get('content-type')).toContain('text/event-stream');
    expect((await raw.text()).endsWith('data: [DONE]\n\n')).toBe(true);
  });

  it('repeats itself with the same seed and not with another', async () => {
    const prompt = someTokens(30, 5);
    const sample = async (seed: number): Promise<string> =>
      (await engine.complete(prompt, { temperature: 1.2, top_p: 0.95, seed, max_tokens: 24, ignore_eos: true }))
        .choices[0]!.text!;
    const first = await sample(1);
    expect(await sample(1)).toBe(first);
    expect(await sample(2)).not.toBe(first);
  });

  it('stops at a stop string and leaves it out, streamed or not', async () => {
    const prompt = someTokens(40, 6);
    const fields = { max_tokens: 60, ignore_eos: true };
    const whole = (await engine.complete(prompt, fields)).choices[0]!.text!;
    // A stop string that begins in the middle of one token and ends in the middle of another.
    const stop = whole.slice(11, 17);
    const stopped = await engine.complete(prompt, { ...fields, stop: [stop, 'never said'] });
    expect(stopped.choices[0]).toMatchObject({ text: whole.slice(0, whole.indexOf(stop)), finish_reason: 'stop' });
    const chunks = await engine.stream('/v1/completions', { ...fields, prompt, stop }).rest();
    expect(textOf(chunks)).toBe(whole.slice(0, whole.indexOf(stop)));
  });

  it('takes the prompt as text, as token ids, or either in an array', async () => {
    const text = 'The weight of Marlo';
    const tokens = await engine.tokenize({ prompt: text });
    const answers = [text, tokens, [text], [tokens]].map((prompt) =>
      engine.complete(prompt as string, { max_tokens: 6, ignore_eos: true }),
    );
    const [first, ...others] = await Promise.all(answers);
    for (const other of others) {
      expect(other.choices[0]!.text).toBe(first!.choices[0]!.text);
      expect(other.usage.prompt_tokens).toBe(tokens.length);
    }
  });

  it('reads a message in parts as one text', async () => {
    const parts = [
      { type: 'text', text: DOCUMENTS },
      { type: 'text', text: 'Question: What is the weight of Marlo?' },
    ];
    const answer = await engine.chat('', { messages: [{ role: 'user', content: parts }] });
    expect(answer.choices[0]!.message!.content).toBe(' 52 kg');
  });

  it('ends at the limit of the context', async () => {
    const prompt = someTokens(4090, 8);
    const answer = await engine.complete(prompt, { max_tokens: undefined, ignore_eos: true });
    expect(answer.usage.completion_tokens).toBe(6);
    expect(answer.choices[0]!.finish_reason).toBe('length');
  });

  it('ignores fields that it does not know, and takes its own name for the model', async () => {
    const answer = await engine.complete(someTokens(5), {
      model: 'warmpath-tiny',
      user: 'someone',
      metadata: { a: 1 },
      // What would change the answer, and asks for nothing.
      ...{ min_p: 0, min_tokens: 0, repeat_penalty: 1, typical_p: 1, mirostat: 0, dry_multiplier: 0 },
      ...{ xtc_probability: 0, stop_token_ids: [], bad_words: [], guided_regex: null },
    });
    expect(answer.usage.completion_tokens).toBe(1);
  });
});
