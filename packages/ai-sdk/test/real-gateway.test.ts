import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { type EngineUsage, Warmpath } from '@warmpath/client';
import { generateText, type LanguageModel, rerank, stepCountIs, streamText, tool, wrapLanguageModel } from 'ai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { ListeningWarmpath } from '../../../test/listening-warmpath.js';
import {
  callsTool,
  failsWith,
  lettersIn,
  passages,
  type RealGateway,
  realGateway,
  timesIn,
} from '../../../test/real-gateway.js';
import { warmpathMiddleware, warmpathReranking } from '../src/index.js';

let gateway: RealGateway;
beforeAll(async () => {
  gateway = await realGateway();
});
afterEach(() => gateway.forget());
afterAll(() => gateway.close());

const clock = tool({ description: 'Tells the time.', inputSchema: z.object({}), execute: async () => 'noon' });

interface Asked {
  readonly messages: { role: 'user' | 'assistant'; content: string }[];
  readonly warmpath: object;
  readonly abortSignal?: AbortSignal;
}

describe.each([
  ['generateText', false],
  ['streamText', true],
])('%s behind a gateway', (_, streaming) => {
  /** Each name is a tenant of its own. */
  function modelOf(name: string) {
    const baseURL = `${gateway.url}/v1`;
    // Streams state usage only where it is asked for.
    const provider = createOpenAICompatible({
      name: 'warmpath',
      baseURL,
      apiKey: `${name} ${streaming}`,
      includeUsage: true,
    });
    return provider('warmpath-tiny');
  }

  async function ask(model: LanguageModel, { messages, warmpath, ...rest }: Asked) {
    const call = {
      model,
      system: 'Answer from the documents.',
      messages,
      providerOptions: { warmpath } as Record<string, Record<string, string>>,
      tools: { clock },
      stopWhen: stepCountIs(3),
      maxOutputTokens: 12,
      temperature: 0,
      maxRetries: 0,
      ...rest,
    };
    if (!streaming) {
      const { text, usage } = await generateText(call);
      return { text, cached: usage.inputTokenDetails.cacheReadTokens };
    }
    let failure: unknown;
    const stream = streamText({
      ...call,
      onError: ({ error }) => {
        failure = error;
      },
    });
    let text = '';
    for await (const piece of stream.textStream) text += piece;
    if (failure !== undefined) throw failure;
    return { text, cached: (await stream.usage).inputTokenDetails.cacheReadTokens };
  }

  const question = { role: 'user' as const, content: 'What is the weight of Velka?' };
  const next = { role: 'user' as const, content: 'What is the weight of Tamir?' };

  /** Two turns; what the engine was sent in each, and what of the second it had cached. */
  async function twoTurns(model: LanguageModel, warmpathOf: (letters: string) => object) {
    const { text } = await ask(model, { messages: [question], warmpath: warmpathOf('vo') });
    expect(text).toContain('42');
    const messages = [question, { role: 'assistant' as const, content: text }, next];
    const answer = await ask(model, { messages, warmpath: warmpathOf('otv') });
    expect(answer.text).toContain('8 kg');
    expect(answer.cached).toBeGreaterThan(200);
    const [first, second] = gateway.prompts();
    expect(lettersIn(first!)).toBe('vo');
    expect(second!.messages.slice(0, 2)).toEqual(first!.messages);
    expect([...'vot'].map((letter) => timesIn(second!, letter))).toEqual([1, 1, 1]);
  }

  it('a provider hands documents and session on; the second turn sends none twice', async () => {
    await twoTurns(modelOf('provider'), (letters) => ({
      documents: passages(letters),
      warmpath: { session: 'one' },
    }));
    expect(gateway.asked.map(({ body }) => body['warmpath'])).toEqual(Array(2).fill({ session: 'one' }));
    const account = await gateway.account(1);
    expect(account).toMatchObject({ references: 2 });
    expect(account.cachedTokens).toBeGreaterThan(200);
  });

  it('the middleware does the same by itself, and hears what was cached', async () => {
    const warmpath = new ListeningWarmpath();
    const model = wrapLanguageModel({ model: modelOf('middleware'), middleware: warmpathMiddleware(warmpath) });
    await twoTurns(model, (letters) => ({ documents: passages(letters), session: 'one' }));
    const [, told] = warmpath.told as EngineUsage[];
    expect(warmpath.told).toHaveLength(2);
    expect(told!.cachedTokens).toBeGreaterThan(200);
    expect(told!.promptTokens).toBeGreaterThan(told!.cachedTokens!);
  });

  it('a call of a tool goes on behind the same bytes', async () => {
    const warmpath = new ListeningWarmpath();
    const model = wrapLanguageModel({ model: modelOf('tools'), middleware: warmpathMiddleware(warmpath) });
    gateway.script(callsTool('clock', {}, streaming));
    await ask(model, { messages: [question], warmpath: { documents: passages('vo'), session: 'one' } });
    const [before, after] = gateway.prompts();
    expect(after!.messages.slice(0, before!.messages.length)).toEqual(before!.messages);
    expect(after!.messages.slice(before!.messages.length).map(({ role }) => role)).toEqual(['assistant', 'tool']);
  });

  it('an error of the engine reaches the caller in its words, and is told', async () => {
    const warmpath = new ListeningWarmpath();
    const model = wrapLanguageModel({ model: modelOf('errors'), middleware: warmpathMiddleware(warmpath) });
    gateway.script(failsWith(400, 'The engine is out of memory.'));
    const asked = ask(model, { messages: [question], warmpath: { documents: passages('vo') } });
    await expect(asked).rejects.toThrow('The engine is out of memory.');
    expect(warmpath.told).toEqual(['failed']);
  });

  it('an abort reaches the engine', async () => {
    const warmpath = new ListeningWarmpath();
    const model = wrapLanguageModel({ model: modelOf('aborts'), middleware: warmpathMiddleware(warmpath) });
    const leaving = new AbortController();
    gateway.script(() => leaving.abort());
    const given = { messages: [question], warmpath: { documents: passages('vo') }, abortSignal: leaving.signal };
    await ask(model, given).catch(() => undefined);
    await gateway.left(0);
    expect(warmpath.told).toEqual(['failed']);
  });
});

it('the reranking model gives the order of a gateway, which hears what became of it', async () => {
  const warmpath = new Warmpath({ baseURL: gateway.url, apiKey: 'reranking' });
  const contents = (letters: string) => passages(letters).map(({ content }) => content);
  const order = async (letters: string) => {
    const told: Promise<void>[] = [];
    const onArranged = {
      onArranged: (context: { completed(usage: EngineUsage): Promise<void> }) =>
        void told.push(context.completed({ promptTokens: 300, cachedTokens: 130 })),
    };
    const { ranking } = await rerank({
      model: warmpathReranking(warmpath, onArranged),
      documents: contents(letters),
      query: 'q',
    });
    await Promise.all(told);
    return ranking.map(({ originalIndex }) => letters[originalIndex]).join('');
  };
  expect(await order('vo')).toBe('vo');
  expect(await order('tov')).toBe('vot');
  expect(gateway.asked.map(({ path }) => path)).toEqual(['/v1/arrange', '/v1/observe', '/v1/arrange', '/v1/observe']);
  expect(gateway.asked[3]!.answer).toContain('"observed"');
});
