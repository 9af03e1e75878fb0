// The Vercel AI SDK: the middleware puts the documents into the prompt, in an order that the engine holds.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { warmpathMiddleware } from '@warmpath/ai-sdk';
import { LocalWarmpath } from '@warmpath/client';
import { generateText, wrapLanguageModel } from 'ai';

const url = process.env.WARMPATH_URL ?? 'http://localhost:8080';
const engine = createOpenAICompatible({ name: 'engine', baseURL: `${url}/v1` });
const middleware = warmpathMiddleware(new LocalWarmpath());
const model = wrapLanguageModel({ model: engine('warmpath-tiny'), middleware });

const documents = [
  { id: 'velka', content: 'The weight of Velka is 42 kg.' },
  { id: 'orsin', content: 'The weight of Orsin is 17 kg.' },
];
const { text } = await generateText({
  model,
  prompt: 'What is the weight of Velka?',
  providerOptions: { warmpath: { documents } },
});
process.stdout.write(`${text.trim()}\n`);

// Prints:
// 42 kg
