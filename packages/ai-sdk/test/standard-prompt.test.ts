import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText } from 'ai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { explained, passages, type RealGateway, realGateway } from '../../../test/real-gateway.js';

let gateway: RealGateway;
beforeAll(async () => {
  gateway = await realGateway({ recognise: { mode: 'conservative' } });
});
afterAll(() => gateway.close());

it("explain names the frame of the cookbook's prompt, one line a document", async () => {
  const context = passages('vot')
    .map(({ content }) => content)
    .join('\n');
  const provider = createOpenAICompatible({ name: 'warmpath', baseURL: `${gateway.url}/v1`, apiKey: 'x' });
  await generateText({
    model: provider('warmpath-tiny'),
    maxOutputTokens: 8,
    prompt: `Answer the following question based only on the provided context:
             ${context}

             Question: What is the weight of Velka?`,
  });
  const { body } = gateway.sent()[0]!;
  const { blocks, template } = explained(body);
  expect(blocks).toEqual([]);
  expect(template).toMatchObject({ documents: 3, template: { separator: '\n' } });
  expect(explained(body, [template!.template]).blocks).toMatchObject([{ format: 'separator' }]);
});
