// How well search finds the passages of a later turn, by its question alone and with the two questions before it.
// `node bench/follow-ups.js FOLDER`, after a build; FOLDER holds the `tasks.jsonl` of MTRAG-UN. Every passage of every
// task may be found.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Bm25Retriever } from '../dist/index.js';

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error('Name the folder of MTRAG-UN');
const { signal } = new AbortController();
const tasks = readFileSync(join(folder, 'tasks.jsonl'), 'utf8')
  .split('\n')
  .filter(Boolean)
  .map((line) => JSON.parse(line));
const passages = new Map();
for (const { contexts } of tasks) {
  for (const { document_id: id, title, text } of contexts)
    passages.set(id, { id, content: text, ...(title && { title }) });
}
const turns = tasks
  .map(({ input, contexts }) => ({
    questions: input.filter(({ speaker }) => speaker === 'user').map(({ text }) => text),
    relevant: new Set(contexts.map(({ document_id: id }) => id)),
  }))
  .filter(({ questions, relevant }) => questions.length > 1 && relevant.size > 0);
const retriever = Bm25Retriever.over([...passages.values()]);

async function meanRecall(queryOf, k) {
  let sum = 0;
  for (const { questions, relevant } of turns) {
    let found = [];
    for await (const { candidates } of retriever.search(queryOf(questions), { k, signal })) found = candidates;
    sum += found.filter(({ id }) => relevant.has(id)).length / Math.min(k, relevant.size);
  }
  return (sum / turns.length).toFixed(3);
}

console.log(`${turns.length} later turns, ${passages.size} passages`);
for (const [name, queryOf] of Object.entries({
  'the question alone': (questions) => ({ text: questions.at(-1) }),
  'with the two before': (questions) => ({ text: questions.at(-1), earlier: questions.slice(-3, -1).join('\n') }),
})) {
  console.log(
    `${name.padEnd(20)} recall@5 ${await meanRecall(queryOf, 5)}, recall@10 ${await meanRecall(queryOf, 10)}`,
  );
}
