import { CallbackManager, Settings } from '@llamaindex/core/global';
import type { QueryBundle } from '@llamaindex/core/query-engine';
import { RetrieverQueryEngine } from '@llamaindex/core/query-engine';
import { getResponseSynthesizer } from '@llamaindex/core/response-synthesizers';
import { BaseRetriever } from '@llamaindex/core/retriever';
import { type NodeWithScore, TextNode } from '@llamaindex/core/schema';
import { OpenAI } from '@llamaindex/openai';
import { Warmpath } from '@warmpath/client';
import { WarmpathPostprocessor } from '@warmpath/llamaindex';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { failsWith, passages, type RealGateway, realGateway, type SentPrompt, textOf } from '../real-gateway.js';

let gateway: RealGateway;
beforeAll(async () => {
  gateway = await realGateway();
});
afterEach(() => gateway.forget());
afterAll(() => gateway.close());

/** Finds the passages whose first letters the question ends with, in brackets. */
class LetterRetriever extends BaseRetriever {
  // The base class hides its constructor.
  // biome-ignore lint/complexity/noUselessConstructor: it makes the constructor public
  constructor() {
    super();
  }

  override async _retrieve({ query }: QueryBundle): Promise<NodeWithScore[]> {
    const [, letters] = /\((\w+)\)$/.exec(String(query))!;
    return passages(letters!).map(({ content }) => ({ node: new TextNode({ text: content }), score: 1 }));
  }
}

/** First letters of the documents in a prompt; LlamaIndex writes no labels. */
function weightsIn(prompt: SentPrompt): string {
  const text = prompt.messages.map(({ content }) => textOf(content)).join('');
  const names = [...text.matchAll(/The weight of (\w)/g)].map(([, letter]) => letter!.toLowerCase());
  return [...new Set(names)].join('');
}

describe.each([
  ['at once', false],
  ['streamed', true],
])('a query engine behind a gateway, %s', (_, stream) => {
  function engineOf(name: string) {
    const apiKey = `${name} ${stream}`;
    const arranger = new Warmpath({ baseURL: gateway.url, apiKey });
    const postprocessor = new WarmpathPostprocessor(arranger);
    const callbacks = new CallbackManager();
    Settings.callbackManager = callbacks;
    postprocessor.listen(callbacks);
    const llm = new OpenAI({
      model: 'warmpath-tiny' as 'gpt-4o',
      apiKey,
      baseURL: `${gateway.url}/v1`,
      temperature: 0,
      maxTokens: 12,
      maxRetries: 0,
      additionalSessionOptions: { defaultHeaders: { 'x-warmpath-session': 'one' } },
      // Streams state usage only where it is asked for.
      ...(stream && { additionalChatOptions: { stream_options: { include_usage: true } } }),
    });
    const engine = new RetrieverQueryEngine(new LetterRetriever(), getResponseSynthesizer('compact', { llm }), [
      postprocessor,
    ]);
    const ask = async (query: string) => {
      if (!stream) return (await engine.query({ query })).message.content;
      let text = '';
      for await (const chunk of await engine.query({ query, stream: true })) text += chunk.delta;
      return text;
    };
    return ask;
  }

  it('the second prompt goes on from the first; session and counts are told', async () => {
    const ask = engineOf('turns');
    expect(await ask('What is the weight of Velka? (vo)')).toContain('42');
    expect(await ask('What is the weight of Velka? (tov)')).toContain('42');
    expect(gateway.prompts().map(weightsIn)).toEqual(['vo', 'vot']);
    const chats = gateway.asked.filter(({ path }) => path === '/v1/chat/completions');
    expect(chats.map(({ headers }) => headers['x-warmpath-session'])).toEqual(['one', 'one']);
    await gateway.heard('/v1/observe', 2);
    const told = gateway.asked.filter(({ path }) => path === '/v1/observe');
    expect(told[0]!.body).toMatchObject({ outcome: 'completed', cachedTokens: 0 });
    // What LlamaIndex writes in front is not the documents'.
    expect(told[1]!.body['cachedTokens']).toBeGreaterThan(130);
    expect(told[1]!.body['cachedTokens']).toBeLessThan(191);
    expect(told.map(({ answer }) => answer)).toEqual(Array(2).fill(expect.stringContaining('"observed"')));
  });

  it('an error of the engine reaches the caller in its words', async () => {
    const ask = engineOf('errors');
    gateway.script(failsWith(400, 'The engine is out of memory.'));
    await expect(ask('What is the weight of Velka? (vo)')).rejects.toThrow('The engine is out of memory.');
  });
});
