import { RetrieverQueryEngine } from '@llamaindex/core/query-engine';
import { getResponseSynthesizer } from '@llamaindex/core/response-synthesizers';
import { BaseRetriever } from '@llamaindex/core/retriever';
import { type NodeWithScore, TextNode } from '@llamaindex/core/schema';
import { OpenAI } from '@llamaindex/openai';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { allowPrompts, letterLists, passages, type RealGateway, realGateway } from '../real-gateway.js';

let gateway: RealGateway;
beforeEach(async () => {
  gateway = await realGateway();
});
afterEach(() => gateway.close());

/** Finds three passages, with the metadata that readers of files give them, or without. */
class FixedRetriever extends BaseRetriever {
  constructor(
    readonly letters: string,
    readonly withMetadata: boolean,
  ) {
    super();
  }

  override async _retrieve(): Promise<NodeWithScore[]> {
    return passages(this.letters).map(({ id, content: text }) => {
      const metadata = this.withMetadata ? { file_name: `${id}.md` } : {};
      return { node: new TextNode({ text, metadata }), score: 1 };
    });
  }
}

/** Asks with LlamaIndex's own default template for questions. */
async function ask(letters: string, withMetadata: boolean): Promise<void> {
  const llm = new OpenAI({
    model: 'warmpath-tiny' as 'gpt-4o',
    apiKey: 'x',
    baseURL: `${gateway.url}/v1`,
    temperature: 0,
    maxTokens: 1,
    maxRetries: 0,
  });
  const engine = new RetrieverQueryEngine(
    new FixedRetriever(letters, withMetadata),
    getResponseSynthesizer('compact', { llm }),
  );
  await engine.query({ query: 'What is the weight of Velka?' });
}

it.each([
  ['with the metadata of files', true],
  ['without metadata', false],
])("LlamaIndex's default prompt gains once it is allowed: nodes %s", async (_, withMetadata) => {
  for (const letters of letterLists()) await ask(letters, withMetadata);
  const asked = gateway.asked.map(({ body }) => body['messages']);
  expect(gateway.prompts().map(({ messages }) => messages)).toEqual(asked);
  await allowPrompts(gateway.url, 1, { authorization: 'Bearer x' });
  gateway.forget();
  for (const letters of ['vot', 'tov', 'otv']) await ask(letters, withMetadata);
  expect((await gateway.account(0)).blocks).toMatchObject([{ documents: 3 }]);
  const [first, second, third] = gateway.prompts().map((prompt) => JSON.stringify(prompt));
  expect([second, third]).toEqual([first, first]);
});
