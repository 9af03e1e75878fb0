// LangChain.js: retrieved documents go through the compressor, which orders them, and the model's usage is told back.
import { Document } from '@langchain/core/documents';
import { ChatOpenAI } from '@langchain/openai';
import { LocalWarmpath } from '@warmpath/client';
import { formatDocuments, WarmpathCompressor } from '@warmpath/langchain';

const url = process.env.WARMPATH_URL ?? 'http://localhost:8080';
const compressor = new WarmpathCompressor(new LocalWarmpath());
const model = new ChatOpenAI({ model: 'warmpath-tiny', apiKey: 'none', configuration: { baseURL: `${url}/v1` } });

const passages = ['The weight of Velka is 42 kg.', 'The weight of Orsin is 17 kg.'];
const question = 'What is the weight of Velka?';
for (const found of [passages, passages.toReversed()]) {
  const documents = found.map((pageContent) => new Document({ pageContent }));
  const context = formatDocuments(await compressor.compressDocuments(documents, question));
  const answer = await model.invoke(context + question, { callbacks: [compressor.feedback] });
  const order = [...context.matchAll(/weight of (\w+)/g)].map(([, name]) => name);
  process.stdout.write(`${order.join(', ')}: ${answer.text.trim()}\n`);
}

// Prints:
// Velka, Orsin: 42 kg
// Velka, Orsin: …
