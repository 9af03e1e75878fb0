import Anthropic from '@anthropic-ai/sdk';
import { type EngineProcess, spawnEngine } from '@warmpath/engine';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { closing, DOCUMENTS, gatewayAt, send } from './harness.js';

/** The engine speaks chat completions only; what the clients of the other APIs see is a translation. */
let engine: EngineProcess;

beforeAll(async () => {
  engine = await spawnEngine({ port: 0, model: 'demo', threads: 1 });
});

afterAll(async () => {
  await engine.stop();
});

const MODEL = 'warmpath-tiny';
const QUESTION = 'What is the weight of Velka?';
const documents = DOCUMENTS;

async function clients() {
  const gateway = closing(await gatewayAt(engine.url));
  return {
    gateway,
    anthropic: new Anthropic({ baseURL: gateway.url, apiKey: 'k', maxRetries: 0 }),
    openai: new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'k', maxRetries: 0 }),
  };
}

describe("Anthropic's client, the real engine behind it", () => {
  const ask = {
    model: MODEL,
    max_tokens: 24,
    temperature: 0,
    messages: [{ role: 'user' as const, content: QUESTION }],
  };

  it('gets an answer from the documents, and the second time from the cache', async () => {
    const { anthropic } = await clients();
    const body = { ...ask, documents } as Anthropic.MessageCreateParamsNonStreaming;
    const first = await anthropic.messages.create(body);
    expect(first).toMatchObject({ type: 'message', role: 'assistant', model: MODEL, stop_reason: 'end_turn' });
    expect(first.content[0]).toMatchObject({ type: 'text', text: expect.stringContaining('42') as string });
    const { data: again, response, request_id } = await anthropic.messages.create(body).withResponse();
    expect(again.content).toEqual(first.content);
    expect(request_id).toBe(response.headers.get('x-request-id'));
    expect(again.usage.cache_read_input_tokens).toBeGreaterThan(50);
    expect(again.usage.input_tokens + again.usage.cache_read_input_tokens!).toBe(
      first.usage.input_tokens + first.usage.cache_read_input_tokens!,
    );
    expect(Number(/predicted=(\d+)/.exec(response.headers.get('x-warmpath') ?? '')?.[1])).toBeGreaterThan(50);
  });

  it('streams the same answer', async () => {
    const { anthropic, gateway } = await clients();
    const body = { ...ask, documents } as Anthropic.MessageCreateParamsNonStreaming;
    const whole = await anthropic.messages.create(body);
    const stream = anthropic.messages.stream(body);
    const types = new Set<string>();
    for await (const event of stream) types.add(event.type);
    const message = await stream.finalMessage();
    expect(message.content).toEqual(whole.content);
    expect(message.stop_reason).toBe(whole.stop_reason);
    expect(message.usage.output_tokens).toBe(whole.usage.output_tokens);
    expect(message.usage.cache_read_input_tokens).toBeGreaterThan(50);
    expect([...types]).toEqual([
      'message_start',
      'content_block_start',
      'content_block_delta',
      'content_block_stop',
      'message_delta',
      'message_stop',
    ]);
    expect((await send(`${gateway.url}/metrics`)).text).toMatch(/warmpath_ttft_seconds_count 1\n/);
  });

  it('says which stop sequence ended the answer', async () => {
    const { anthropic } = await clients();
    const body = { ...ask, documents, stop_sequences: ['teal', '42'] } as Anthropic.MessageCreateParamsNonStreaming;
    const ending = { stop_reason: 'stop_sequence', stop_sequence: '42' };
    expect(await anthropic.messages.create(body)).toMatchObject(ending);
    expect(await anthropic.messages.stream(body).finalMessage()).toMatchObject(ending);
  });

  it('is told of errors in its own words', async () => {
    const { anthropic } = await clients();
    const images = [{ type: 'image' as const, source: { type: 'url' as const, url: 'https://x/y.png' } }];
    const refused = anthropic.messages.create({ ...ask, messages: [{ role: 'user', content: images }] });
    await expect(refused).rejects.toBeInstanceOf(Anthropic.BadRequestError);
    await expect(refused).rejects.toThrow('text parts only');
    await expect(refused).rejects.toMatchObject({ requestID: expect.stringMatching(/\S/) as string });
    const unknown = anthropic.messages.create({ ...ask, model: 'none' });
    await expect(unknown).rejects.toBeInstanceOf(Anthropic.NotFoundError);
    const form = { output_format: { type: 'grammar' } } as object;
    await expect(anthropic.messages.create({ ...ask, ...form })).rejects.toMatchObject({
      status: 400,
      error: { type: 'error', error: { code: 'WARMPATH_NOT_TRANSLATABLE', param: 'output_format.type' } },
    });
  });
});

describe("OpenAI's client, the real engine behind it", () => {
  const ask = { model: MODEL, max_output_tokens: 24, temperature: 0, input: QUESTION };

  it('gets an answer from the documents, and the second time from the cache', async () => {
    const { openai } = await clients();
    const body = { ...ask, documents } as OpenAI.Responses.ResponseCreateParamsNonStreaming;
    const first = await openai.responses.create(body);
    expect(first).toMatchObject({ object: 'response', status: 'completed', model: MODEL, store: true });
    expect(first.output_text).toContain('42');
    const again = await openai.responses.create(body);
    expect(again.output_text).toBe(first.output_text);
    expect(again.usage!.input_tokens_details.cached_tokens).toBeGreaterThan(50);
    expect(again.usage!.input_tokens).toBe(first.usage!.input_tokens);
  });

  it('streams the same answer', async () => {
    const { openai } = await clients();
    const body = { ...ask, documents } as OpenAI.Responses.ResponseCreateParamsNonStreaming;
    const whole = await openai.responses.create(body);
    const stream = openai.responses.stream(body as Parameters<typeof openai.responses.stream>[0]);
    let text = '';
    let sequence = 0;
    for await (const event of stream) {
      expect(event.sequence_number).toBe(sequence++);
      if (event.type === 'response.output_text.delta') text += event.delta;
    }
    const response = await stream.finalResponse();
    expect(text).toBe(whole.output_text);
    expect(response.output_text).toBe(whole.output_text);
    expect(response.usage!.output_tokens).toBe(whole.usage!.output_tokens);
  });

  it('says when an answer was cut short', async () => {
    const { openai } = await clients();
    const response = await openai.responses.create({ ...ask, max_output_tokens: 2 });
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } });
  });

  it('is told of errors in its own words', async () => {
    const { openai } = await clients();
    await expect(openai.responses.create({ ...ask, previous_response_id: 'resp_1' })).rejects.toMatchObject({
      status: 400,
      code: 'WARMPATH_NOT_TRANSLATABLE',
      param: 'previous_response_id',
    });
    await expect(openai.responses.create({ ...ask, model: 'none' })).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  });

  it('speaks chat completions with the same documents', async () => {
    const { openai } = await clients();
    const answer = await openai.chat.completions.create({
      model: MODEL,
      max_tokens: 24,
      temperature: 0,
      messages: [{ role: 'user', content: QUESTION }],
      documents,
    } as OpenAI.ChatCompletionCreateParamsNonStreaming);
    expect(answer.choices[0]!.message.content).toContain('42');
  });
});
