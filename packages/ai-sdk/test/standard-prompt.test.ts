import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText } from 'ai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { allowPrompts, letterLists, passages, type RealGateway, realGateway } from '../../../test/real-gateway.js';

let gateway: RealGateway;
beforeAll(async () => {
  gateway = await realGateway();
});
afterAll(() => gateway.close());

it("the cookbook's prompt, one line a document, gains once it is allowed", async () => {
  const provider = createOpenAICompatible({ name: 'warmpath', baseURL: `${gateway.url}/v1`, apiKey: 'x' });
  const ask = (letters: string) =>
    generateText({
      model: provider('warmpath-tiny'),
      maxOutputTokens: 1,
      prompt: `Answer the following question based only on the provided context:
             ${passages(letters)
               .map(({ content }) => content)
               .join('\n')}

             Question: What is the weight of Velka?`,
    });
  for (const letters of letterLists()) await ask(letters);
  const asked = gateway.asked.map(({ body }) => body['messages']);
  expect(gateway.prompts().map(({ messages }) => messages)).toEqual(asked);
  await allowPrompts(gateway.url, 1, { authorization: 'Bearer x' });
  gateway.forget();
  for (const letters of ['vot', 'tov', 'otv']) await ask(letters);
  const [first, second, third] = gateway.prompts().map((prompt) => JSON.stringify(prompt));
  expect([second, third]).toEqual([first, first]);
});
