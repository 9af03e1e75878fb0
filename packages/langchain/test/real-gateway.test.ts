import { ContextualCompressionRetriever } from '@langchain/classic/retrievers/contextual_compression';
import type { CallbackManagerForRetrieverRun } from '@langchain/core/callbacks/manager';
import { Document } from '@langchain/core/documents';
import { type AIMessageChunk, HumanMessage } from '@langchain/core/messages';
import { BaseRetriever } from '@langchain/core/retrievers';
import { tool } from '@langchain/core/tools';
import { MemorySaver } from '@langchain/langgraph';
import { ChatOpenAI } from '@langchain/openai';
import { Warmpath } from '@warmpath/client';
import { createAgent } from 'langchain';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import {
  callsTool,
  failsWith,
  lettersIn,
  passages,
  type RealGateway,
  realGateway,
  timesIn,
} from '../../../test/real-gateway.js';
import { warmpathMiddleware } from '../src/agent.js';
import { formatDocuments, WarmpathCompressor } from '../src/index.js';

let gateway: RealGateway;
beforeAll(async () => {
  gateway = await realGateway();
});
afterEach(() => gateway.forget());
afterAll(() => gateway.close());

const found = (letters: string) =>
  passages(letters).map(({ id, content }) => new Document({ id, pageContent: content }));

/** Each test is a tenant of its own, which shares nothing with the others. */
function clients(apiKey: string, fields: object = {}) {
  const configuration = { baseURL: `${gateway.url}/v1` };
  const settings = { model: 'warmpath-tiny', maxRetries: 0, temperature: 0, maxTokens: 12, apiKey, configuration };
  return {
    arranger: new Warmpath({ baseURL: gateway.url, apiKey }),
    model: new ChatOpenAI({ ...settings, ...fields }),
  };
}

describe('an agent behind a gateway', () => {
  const search = tool(async ({ letters }: { letters: string }) => ['found', found(letters)], {
    name: 'search',
    description: 'Finds documents.',
    schema: z.object({ letters: z.string() }),
    responseFormat: 'content_and_artifact',
  });

  function agentOf(apiKey: string) {
    const { arranger, model } = clients(apiKey);
    const checkpointer = new MemorySaver();
    return createAgent({
      model,
      tools: [search],
      systemPrompt: 'Answer from the documents.',
      middleware: [warmpathMiddleware(arranger)],
      checkpointer,
    });
  }
  const input = (question: string) => ({ messages: [new HumanMessage(question)] });
  const thread = { configurable: { thread_id: 'one' } };

  it.each([
    ['asked at once', false],
    ['streamed', true],
  ])('%s: one session, no document twice, and the engine’s counts are told', async (_, streaming) => {
    const agent = agentOf(`agent ${streaming}`);
    const ask = async (question: string) => {
      if (!streaming) await agent.invoke(input(question), thread);
      // What listens to messages has the model stream.
      else for await (const _ of await agent.stream(input(question), { ...thread, streamMode: 'messages' }));
    };
    gateway.script(callsTool('search', { letters: 'vo' }, streaming));
    await ask('What is the weight of Velka?');
    gateway.script(callsTool('search', { letters: 'otv' }, streaming));
    await ask('What is the weight of Tamir?');
    const chats = gateway.asked.filter(({ path }) => path === '/v1/chat/completions');
    expect(chats.map(({ headers }) => headers['x-warmpath-session'])).toEqual(Array(4).fill('one'));
    expect(chats.map(({ body }) => body['stream'] ?? false)).toEqual(Array(4).fill(streaming));
    // What the tool found stands in what the model is sent, each document once, in both turns.
    const [, first, , second] = gateway.prompts();
    expect(lettersIn(first!)).toBe('vo');
    expect(second!.messages.slice(0, first!.messages.length)).toEqual(first!.messages);
    expect([...'vot'].map((letter) => timesIn(second!, letter))).toEqual([1, 1, 1]);
    const account = await gateway.account(gateway.asked.indexOf(chats[3]!));
    expect(account.references).toBe(2);
    expect(account.cachedTokens).toBeGreaterThan(100);
    // Each order was asked for once, and what became of it was told.
    const paths = gateway.asked.map(({ path }) => path.slice(4));
    expect(paths.filter((path) => path !== 'chat/completions')).toEqual(['arrange', 'observe', 'arrange', 'observe']);
    const told = gateway.asked.filter(({ path }) => path === '/v1/observe');
    expect(told.map(({ answer }) => JSON.parse(answer) as object)).toEqual(
      Array(2).fill({ object: 'observation', state: 'observed' }),
    );
    expect(told[0]!.body).toMatchObject({ outcome: 'completed', cachedTokens: expect.any(Number) as number });
  });

  it('an error of the engine reaches the caller in its words, and the order is taken back', async () => {
    const agent = agentOf('failing agent');
    gateway.script(callsTool('search', { letters: 'vo' }));
    gateway.script(failsWith(500, 'The engine is out of memory.'));
    await expect(agent.invoke(input('What is the weight of Velka?'), thread)).rejects.toThrow(
      'The engine is out of memory.',
    );
    expect(gateway.asked.at(-1)).toMatchObject({ path: '/v1/observe', body: { outcome: 'failed' } });
  });

  it('an abort reaches the engine', async () => {
    const agent = agentOf('leaving agent');
    const leaving = new AbortController();
    gateway.script(() => leaving.abort());
    const asked = agent.invoke(input('What is the weight of Velka?'), { ...thread, signal: leaving.signal });
    await expect(asked).rejects.toThrow(/abort/i);
    await gateway.left(0);
  });
});

describe('a chain behind a gateway', () => {
  class LetterRetriever extends BaseRetriever {
    lc_namespace = ['warmpath', 'test'];

    override async _getRelevantDocuments(letters: string, _run?: CallbackManagerForRetrieverRun): Promise<Document[]> {
      return found(letters);
    }
  }

  it.each([
    ['asked at once', false],
    ['streamed', true],
  ])('%s: the second prompt goes on from the first, and the counts are told', async (_, streaming) => {
    const { arranger, model } = clients(`chain ${streaming}`);
    const compressor = new WarmpathCompressor(arranger);
    const retriever = new ContextualCompressionRetriever({
      baseCompressor: compressor,
      baseRetriever: new LetterRetriever(),
    });
    const ask = async (letters: string) => {
      const prompt = `${formatDocuments(await retriever.invoke(letters))}What is the weight of Velka?`;
      const callbacks = { callbacks: [compressor.feedback] };
      if (!streaming) return (await model.invoke(prompt, callbacks)).text;
      let text = '';
      for await (const chunk of await model.stream(prompt, callbacks)) text += chunk.text;
      return text;
    };
    expect(await ask('vo')).toContain('42');
    expect(await ask('tov')).toContain('42');
    expect(gateway.prompts().map(lettersIn)).toEqual(['vo', 'vot']);
    const told = gateway.asked.filter(({ path }) => path === '/v1/observe');
    expect(told.map(({ body }) => body['outcome'])).toEqual(['completed', 'completed']);
    expect(told[0]!.body['cachedTokens']).toBeLessThan(30);
    expect(told[1]!.body['cachedTokens']).toBeGreaterThan(100);
  });
});

it('a chain that speaks Responses: translated, documents arranged, counts told', async () => {
  const { model } = clients('responses', { useResponsesApi: true });
  const ask = (letters: string) =>
    model.withConfig({ headers: { 'x-warmpath-session': 'one' } } as object).stream([
      ['system', 'Answer from the documents.'],
      ['human', `${formatDocuments(found(letters))}What is the weight of Velka?`],
    ]);
  const read = async (letters: string) => {
    let whole: AIMessageChunk | undefined;
    for await (const chunk of await ask(letters)) whole = whole === undefined ? chunk : whole.concat(chunk);
    return whole!;
  };
  expect((await read('vo')).text).toContain('42');
  const again = await read('ov');
  expect(again.text).toContain('42');
  expect(again.usage_metadata!.input_token_details!.cache_read).toBeGreaterThan(100);
  expect(gateway.prompts().map(lettersIn)).toEqual(['vo', 'vo']);
  expect(gateway.asked.map(({ path, headers }) => [path, headers['x-warmpath-session']])).toEqual(
    Array(2).fill(['/v1/responses', 'one']),
  );
});
