import { createStuffDocumentsChain } from '@langchain/classic/chains/combine_documents';
import { Document } from '@langchain/core/documents';
import { ChatPromptTemplate } from '@langchain/core/prompts';
import { ChatOpenAI } from '@langchain/openai';
import { afterEach, describe, expect, it } from 'vitest';
import { allowPrompts, letterLists, passages, type RealGateway, realGateway } from '../../../test/real-gateway.js';

let gateway: RealGateway | undefined;
afterEach(async () => {
  await gateway?.close();
  gateway = undefined;
});

/** The prompts of LangChain's tutorials, as somebody writes them who knows nothing of Warmpath. */
const PROMPTS = [
  [
    'the context in a tag of the system prompt',
    [
      ['system', 'Answer any use questions based solely on the context below:\n\n<context>\n{context}\n</context>'],
      ['human', '{input}'],
    ],
  ],
  [
    'the context at the end of the system prompt',
    [
      [
        'system',
        'You are an assistant for question-answering tasks. Use the following pieces of retrieved context to answer the question. Keep the answer concise.\n\n{context}',
      ],
      ['human', '{input}'],
    ],
  ],
  ['the question in front of the context', [['human', 'Question: {input} \nContext: {context} \nAnswer:']]],
] as const;

async function chainBefore({ url }: RealGateway, messages: (typeof PROMPTS)[number][1]) {
  const configuration = { baseURL: `${url}/v1` };
  const llm = new ChatOpenAI({
    model: 'warmpath-tiny',
    maxRetries: 0,
    temperature: 0,
    maxTokens: 8,
    apiKey: 'x',
    configuration,
  });
  const prompt = ChatPromptTemplate.fromMessages(messages as unknown as [string, string][]);
  return createStuffDocumentsChain({ llm, prompt });
}

const found = (letters: string) => passages(letters).map(({ content }) => new Document({ pageContent: content }));
const ask = (letters: string) => ({ input: 'What is the weight of Velka?', context: found(letters) });

describe("LangChain's createStuffDocumentsChain, its code unchanged", () => {
  it.each(PROMPTS)('gains once its prompt is allowed: %s', async (_, messages) => {
    gateway = await realGateway();
    const chain = await chainBefore(gateway, messages);
    for (const letters of letterLists()) await chain.invoke(ask(letters));
    const asked = gateway.asked.map(({ body }) => body['messages']);
    expect(gateway.prompts().map(({ messages }) => messages)).toEqual(asked);
    await allowPrompts(gateway.url, 1, { authorization: 'Bearer x' });
    gateway.forget();
    for (const letters of ['vot', 'tov', 'otv']) await chain.invoke(ask(letters));
    const accounts = await Promise.all([0, 1, 2].map((place) => gateway!.account(place)));
    expect(accounts.map(({ blocks }) => blocks.map(({ documents }) => documents))).toEqual([[3], [3], [3]]);
    const [first, second, third] = gateway.prompts().map((prompt) => JSON.stringify(prompt));
    expect([second, third]).toEqual([first, first]);
  });
});
