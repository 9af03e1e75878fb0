import { describe, expect, it } from 'vitest';
import { type TranslatedApi, translate } from '../src/index.js';

const APIS = ['messages', 'responses'] as const;
const REQUESTS = { messages: { model: 'm', messages: [] }, responses: { model: 'm', input: 'Q' } };

interface Told {
  readonly type?: string;
  readonly usage: Record<string, unknown>;
  readonly [member: string]: unknown;
}

/** Chunks of a stream, or one answer in one piece, as the client of an API gets it. */
function told(api: TranslatedApi, chunks: readonly object[] | object, fields: object = {}): Told {
  const isStream = Array.isArray(chunks);
  const { answer } = translate({
    api,
    body: Buffer.from(JSON.stringify({ ...REQUESTS[api], ...fields, stream: isStream })),
  });
  const sent = isStream
    ? `${chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join('')}data: [DONE]\n\n`
    : JSON.stringify(chunks);
  answer.start({ status: 200, contentType: isStream ? 'text/event-stream' : 'application/json' });
  const written = answer.write(Buffer.from(sent)) + answer.end();
  if (!isStream) return JSON.parse(written) as Told;
  const events = [...written.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!) as Told);
  if (api === 'responses') return events.at(-1)!['response'] as Told;
  return events.find(({ type }) => type === 'message_delta')!;
}

const HEAD = { id: 'c', model: 'm', created: 1 };
const PLAIN = { prompt_tokens: 100, completion_tokens: 8 };
const ENDED = { index: 0, delta: {}, finish_reason: 'stop' };

describe.each(APIS)('counts of tokens reach the client of %s', (api) => {
  const counted = (cached: number, written: number) =>
    api === 'messages'
      ? {
          input_tokens: 100 - cached - written,
          cache_read_input_tokens: cached,
          cache_creation_input_tokens: written,
          output_tokens: 8,
        }
      : { input_tokens: 100, input_tokens_details: { cached_tokens: cached }, output_tokens: 8 };

  it.each<[string, object, number, number]>([
    ['OpenAI', { usage: { ...PLAIN, prompt_tokens_details: { cached_tokens: 60, cache_write_tokens: 30 } } }, 60, 30],
    ['DeepSeek', { usage: { ...PLAIN, prompt_cache_hit_tokens: 60 } }, 60, 0],
    ['Moonshot', { usage: { ...PLAIN, cached_tokens: 60 } }, 60, 0],
    ['an engine that counts beside the usage', { usage: PLAIN, cached_tokens: 60 }, 60, 0],
    ['Groq', { x_groq: { usage: { ...PLAIN, prompt_tokens_details: { cached_tokens: 60 } } } }, 60, 0],
    [
      'Alibaba',
      { usage: { ...PLAIN, prompt_tokens_details: { cached_tokens: 0, cache_creation_input_tokens: 60 } } },
      0,
      60,
    ],
    ['llama-server', { timings: { prompt_n: 40, cache_n: 60, predicted_n: 8 } }, 60, 0],
    ['an engine that counts nothing cached', { usage: PLAIN }, 0, 0],
  ])('%s', (_, usage, cached, written) => {
    const stream = [
      { ...HEAD, choices: [ENDED] },
      { ...HEAD, choices: [], ...usage },
    ];
    const whole = { ...HEAD, choices: [{ index: 0, message: { content: 'x' }, finish_reason: 'stop' }], ...usage };
    for (const answer of [stream, whole]) expect(told(api, answer).usage).toMatchObject(counted(cached, written));
  });

  it('in the choice of a stream, as Moonshot writes them', () => {
    const usage = { ...PLAIN, cached_tokens: 60 };
    expect(told(api, [{ ...HEAD, choices: [{ ...ENDED, usage }] }]).usage).toMatchObject(counted(60, 0));
  });

  it('each as it was last stated, where they come apart', () => {
    const usage = { ...PLAIN, prompt_tokens_details: { cached_tokens: 60 } };
    const stream = [
      { ...HEAD, choices: [], usage },
      { ...HEAD, choices: [{ ...ENDED, usage: { completion_tokens: 8 } }] },
    ];
    expect(told(api, stream).usage).toMatchObject(counted(60, 0));
  });
});
