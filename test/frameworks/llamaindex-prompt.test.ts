import { RetrieverQueryEngine } from '@llamaindex/core/query-engine';
import { getResponseSynthesizer } from '@llamaindex/core/response-synthesizers';
import { BaseRetriever } from '@llamaindex/core/retriever';
import { type NodeWithScore, TextNode } from '@llamaindex/core/schema';
import { OpenAI } from '@llamaindex/openai';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { explained, passages, type RealGateway, realGateway } from '../real-gateway.js';

let gateway: RealGateway;
beforeAll(async () => {
  gateway = await realGateway({ recognise: { mode: 'conservative' } });
});
afterEach(() => gateway.forget());
afterAll(() => gateway.close());

/** Finds three passages, with the metadata that readers of files give them, or without. */
class FixedRetriever extends BaseRetriever {
  constructor(readonly withMetadata: boolean) {
    super();
  }

  override async _retrieve(): Promise<NodeWithScore[]> {
    return passages('vot').map(({ id, content: text }) => {
      const metadata = this.withMetadata ? { file_name: `${id}.md` } : {};
      return { node: new TextNode({ text, metadata }), score: 1 };
    });
  }
}

/** Asks with LlamaIndex's own default template for questions. */
async function ask(withMetadata: boolean): Promise<void> {
  const llm = new OpenAI({
    model: 'warmpath-tiny' as 'gpt-4o',
    apiKey: 'x',
    baseURL: `${gateway.url}/v1`,
    temperature: 0,
    maxTokens: 8,
    maxRetries: 0,
  });
  const engine = new RetrieverQueryEngine(new FixedRetriever(withMetadata), getResponseSynthesizer('compact', { llm }));
  await engine.query({ query: 'What is the weight of Velka?' });
}

it("LlamaIndex's default prompt: nodes of files are recognised", async () => {
  await ask(true);
  expect((await gateway.account(0)).blocks).toMatchObject([{ documents: 3 }]);
});

it('nodes without metadata are not, and explain names the frame that finds them', async () => {
  await ask(false);
  expect((await gateway.account(0)).blocks).toEqual([]);
  const { template } = explained(gateway.sent()[0]!.body);
  expect(template).toMatchObject({ documents: 3, template: { separator: '\n\n' } });
  expect(explained(gateway.sent()[0]!.body, [template!.template]).blocks).toMatchObject([{ format: 'separator' }]);
});
