// What references save and what hints cost, in estimated tokens: MTRAG's conversations, BM25 over its passages, each
// turn as `@warmpath/core` renders it; and what parts save of this repository's own sources, read again after an edit.
// Counts only, no engine.
//
// `npm run bench:references -w packages/cli -- --data <folder>/mtrag-un/tasks.jsonl [--top-k 5]`
import { readdirSync, readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { arrange, estimateTokens, observe, prepareRequest, renderHint, ServedHistory } from '@warmpath/core';
import {
  answerHash,
  ConversationLog,
  recallConversation,
  renderTurn,
  SeenSegments,
  shownSegments,
  suppliedHash,
  turnPreamble,
} from '@warmpath/core/internal';
import { mtragDialogues } from '@warmpath/lab';

const { values } = parseArgs({ options: { data: { type: 'string' }, 'top-k': { type: 'string', default: '5' } } });
if (values.data === undefined) throw new Error('--data <tasks.jsonl> is missing');

const OPTIONS = { template: 'xml', layout: 'question' };
const STRATEGIES = [
  { name: 'all documents anew', deduplicates: false, parts: false },
  { name: 'de-duplicated', deduplicates: true, parts: false },
  { name: 'de-duplicated, parts too', deduplicates: true, parts: true },
];

const dialogues = await mtragDialogues(values.data, Number(values['top-k']));
console.log(`${dialogues.length} conversations; a turn, in estimated tokens\n`);
console.log(
  `${'strategy'.padEnd(28)}${['documents', 'location', 'order', 'CPU ms'].map((name) => name.padStart(12)).join('')}`,
);
let counts;
for (const strategy of STRATEGIES) {
  counts = countAll(strategy);
  const { turns } = counts;
  const each = [counts.documentTokens, counts.locationTokens, counts.orderTokens].map((sum) =>
    (sum / turns).toFixed(0),
  );
  const cells = [...each, (counts.cpuMs / turns).toFixed(2)];
  console.log(strategy.name.padEnd(28) + cells.map((cell) => cell.padStart(12)).join(''));
}
const { turns, documents, references, shortened, locationHints, locationTokens, orderHints, orderTokens } = counts;
console.log(`\n${turns} turns, ${documents} documents; ${references} referred to as a whole, ${shortened} in parts`);
console.log(
  `a location hint: ${(locationTokens / locationHints).toFixed(0)} tokens for ${(references / locationHints).toFixed(1)} documents`,
);
console.log(`an order hint: ${(orderTokens / Math.max(1, orderHints)).toFixed(0)} tokens, in ${orderHints} turns`);

const edited = editedSources(new URL('../../core/src/', import.meta.url));
console.log(
  `\n${edited.files} source files read again after a line was edited: ${(100 * edited.spared).toFixed(0)} % of their tokens are spared`,
);

/** Every file of a folder as an agent reads it, and once more with a comment behind the line in its middle. */
function editedSources(folder) {
  const files = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith('.ts'));
  let tokens = 0;
  let left = 0;
  for (const name of files) {
    const text = readFileSync(new URL(name, folder), 'utf8');
    const lines = text.split('\n');
    lines[Math.floor(lines.length / 2)] += ' // edited';
    const seen = new SeenSegments();
    seen.add(text);
    tokens += estimateTokens(text);
    left += estimateTokens(seen.shorten(lines.join('\n')).text);
  }
  return { files: files.length, spared: 1 - left / tokens };
}

function countAll(strategy) {
  const sums = {
    turns: 0,
    documents: 0,
    references: 0,
    shortened: 0,
    documentTokens: 0,
    locationHints: 0,
    locationTokens: 0,
    orderHints: 0,
    orderTokens: 0,
    cpuMs: 0,
  };
  const served = new ServedHistory();
  for (const dialogue of dialogues) {
    const memory = new ConversationLog();
    const messages = [];
    for (const { question, answer, passages } of dialogue.turns) {
      messages.push({ role: 'user', content: question });
      const before = process.cpuUsage();
      const arrangement = take(
        { tenant: '', session: dialogue.id },
        { messages, passages },
        { strategy, memory, served },
      );
      const { user, system } = process.cpuUsage(before);
      sums.cpuMs += (user + system) / 1_000;
      count(sums, arrangement);
      messages.push({ role: 'assistant', content: answer ?? '' });
    }
  }
  return sums;
}

/** One turn: arranged, rendered, remembered. */
function take(name, { messages, passages }, { strategy, memory, served }) {
  const now = performance.now();
  const history = recallConversation({ ...name, messages }, memory.lookup(name, now));
  const documents = passages.map(({ id, title, content }) => ({ id, title, content }));
  const request = {
    ...prepareRequest({ documents }),
    ...(strategy.deduplicates && { visible: history.visible }),
    ...(strategy.parts && { shown: shownSegments(history, messages, OPTIONS) }),
  };
  const preamble = turnPreamble(history, messages, 'model', OPTIONS);
  const arrangement = arrange({ ...request, preamble }, served, now);
  const { turn } = renderTurn({ history, messages, arrangement, supplied: suppliedHash(request, OPTIONS) }, OPTIONS);
  memory.sent(name, turn, now);
  memory.answered(name, turn, answerHash({ content: 'Answered.' }), now);
  observe({ kind: 'completed', arrangement, now }, served);
  return arrangement;
}

function count(sums, arrangement) {
  const { documents, references, hint, locationHint } = arrangement;
  sums.turns++;
  sums.documents += documents.length + references.length;
  sums.references += references.length;
  sums.shortened += documents.filter(({ whole }) => whole !== undefined).length;
  sums.documentTokens += documents.reduce((sum, { tokens }) => sum + tokens, 0);
  if (locationHint) {
    sums.locationHints++;
    sums.locationTokens += estimateTokens(renderHint({ ...arrangement, hint: undefined }, OPTIONS.template));
  }
  if (hint !== undefined) {
    sums.orderHints++;
    sums.orderTokens += estimateTokens(renderHint({ ...arrangement, locationHint: false }, OPTIONS.template));
  }
}
