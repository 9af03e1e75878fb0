/**
 * What learned prompt kinds gain on questions of a BEIR folder, for prompts as frameworks write them: the share of the
 * gain that known documents have, in the first and the second half of the requests, and the documents that were cut.
 * The cache is unbounded, in blocks of 64 characters.
 *
 * `npm run bench:prompt-kinds -w packages/lab -- <folder>` (about a minute).
 */
import { argv } from 'node:process';
import { rewriteText } from '@warmpath/core';
import { LabelMap, PromptKinds } from '@warmpath/core/internal';
import { readQuestions } from '../dist/index.js';

const BLOCK_CHARACTERS = 64;
const REQUESTS = 500;
const TOP_K = 5;

/** Each passage as one to three paragraphs, so that documents are more than a line. */
function paragraphs(content) {
  const sentences = content.split(/(?<=[.!?])\s+/);
  const count = Math.min(sentences.length, 1 + (content.length % 3));
  const step = Math.ceil(sentences.length / count);
  return Array.from({ length: count }, (_, i) => sentences.slice(i * step, (i + 1) * step).join(' '))
    .filter((text) => text !== '')
    .join('\n\n');
}

const CONTEXT =
  'Use the following pieces of context to answer the question at the end.\nSay so if you do not know.\n\n';

/** A framework's prompt: how one document is written at a place, and what stands around and between them. */
const PROMPTS = [
  {
    name: 'LangChain, stuff chain',
    before: CONTEXT,
    write: (content) => content,
    between: '\n\n',
    after: (question) => `\n\nQuestion: ${question}\nHelpful Answer:`,
  },
  {
    name: 'LlamaIndex, no metadata',
    before: 'Context information is below.\n---------------------\n',
    write: (content) => content,
    between: '\n\n',
    after: (question) =>
      `\n---------------------\nGiven the context information and not prior knowledge, answer the query.\nQuery: ${question}\nAnswer: `,
  },
  {
    name: 'AI SDK, joined by a line end',
    before: 'You answer questions. Context: ',
    write: (content) => content.replaceAll('\n\n', ' '),
    between: '\n',
    after: () => '',
  },
  {
    name: 'JSON.stringify(documents)',
    before: 'Answer from these documents:\n[',
    write: (content) => JSON.stringify({ pageContent: content, metadata: {} }),
    between: ',',
    after: (question) => `]\n\nQuestion: ${question}`,
  },
  {
    name: '[1] …, labels mapped',
    before: 'Answer from these sources and cite them:\n\n',
    write: (content, place) => `[${place + 1}] ${content}`,
    between: '\n\n',
    after: (question) => `\n\nQuestion: ${question}`,
    mapped: true,
  },
];

/** What an unbounded prefix cache holds. */
class PrefixCache {
  #blocks = new Set();

  /** Characters of a prompt that were cached; the prompt is cached afterwards. */
  serve(text) {
    let cached = 0;
    for (let end = BLOCK_CHARACTERS; end <= text.length; end += BLOCK_CHARACTERS) {
      const prefix = text.slice(0, end);
      if (this.#blocks.has(prefix)) cached = end;
      else this.#blocks.add(prefix);
    }
    return cached;
  }
}

/** The orders that were sent, step by step. */
class SentOrders {
  #root = new Map();

  /** The order of units that repeats most of an earlier prompt, behind fixed steps. */
  best(fixed, units) {
    let best = { length: 0, path: [] };
    const walk = (node, left, path, length) => {
      if (length > best.length) best = { length, path };
      for (const unit of left) {
        let at = node;
        let more = length;
        for (const step of unit.steps) {
          at = at?.get(step);
          if (at === undefined) break;
          more += step.length;
        }
        const next = [...path, unit];
        if (at !== undefined) walk(at, new Set([...left].filter((other) => other !== unit)), next, more);
        else if (more > best.length) best = { length: more, path: next };
      }
    };
    let start = this.#root;
    for (const step of fixed) start = start?.get(step);
    if (start !== undefined) walk(start, new Set(units), [], 0);
    return [...best.path, ...units.filter((unit) => !best.path.includes(unit))];
  }

  add(steps) {
    let node = this.#root;
    for (const step of steps) {
      if (!node.has(step)) node.set(step, new Map());
      node = node.get(step);
    }
  }
}

const linesOf = (text) => text.split('\n').filter((line) => line.trim() !== '');

/** The prompt with a block's documents in the order that repeats most of what was sent. */
function ordered(text, block, { before, orders, byLine }) {
  const units = block.documents.map(({ start, end }, rank) => {
    const document = text.slice(start, end);
    return { rank, steps: byLine ? linesOf(document) : [document] };
  });
  const fixed = [before, ...linesOf(text.slice(before.length, block.start))];
  const best = orders.best(fixed, units);
  orders.add([...fixed, ...best.flatMap(({ steps }) => steps), ...linesOf(text.slice(block.end))]);
  return rewriteText(text, [{ block, order: best.map(({ rank }) => rank) }]);
}

function knownBlock(prompt, contents) {
  let at = prompt.before.length;
  const documents = contents.map((content, place) => {
    const start = at;
    const end = start + prompt.write(content, place).length;
    at = end + prompt.between.length;
    return { start, end, contentStart: start, contentEnd: end, id: undefined, title: undefined, labels: [] };
  });
  return { text: 0, format: 'result', marked: true, start: documents[0].start, end: documents.at(-1).end, documents };
}

function promptOf(prompt, contents, question) {
  return prompt.before + contents.map(prompt.write).join(prompt.between) + prompt.after(question);
}

function run(prompt, requests, arm, programs = []) {
  const cache = new PrefixCache();
  const orders = new SentOrders();
  const kinds = new PromptKinds({ salt: 'bench', maxBytes: 16e6 });
  for (const program of programs) kinds.restore('t', program);
  const halves = [0, 0].map(() => ({ cached: 0, all: 0 }));
  let cut = 0;
  let ms = 0;
  for (const [index, { question, contents }] of requests.entries()) {
    const given = arm === 'known' && prompt.mapped ? { ...prompt, write: (content) => content } : prompt;
    const text = promptOf(given, contents, question);
    let sent = text;
    if (arm === 'known')
      sent = ordered(text, knownBlock(given, contents), { before: given.before, orders, byLine: false });
    if (arm === 'kinds') {
      const texts = [{ role: 'user', text }];
      const start = performance.now();
      const found = kinds.find('t', texts).find(({ block }) => block !== undefined);
      kinds.learn('t', texts);
      ms += performance.now() - start;
      if (found !== undefined) {
        const blocks = prompt.mapped
          ? LabelMap.of(texts, [found.block]).relabel(texts[0], 0, [found.block])
          : undefined;
        const block = blocks?.blocks[0] ?? found.block;
        sent = ordered(blocks?.text ?? text, block, {
          before: prompt.before,
          orders,
          byLine: block.format === 'recurrence',
        });
      } else orders.add([prompt.before, ...linesOf(text.slice(prompt.before.length))]);
      cut += contents.filter((content) => !sent.includes(prompt.write(content, 0).replace(/^\[1\] /, ''))).length;
    }
    const half = halves[index < requests.length / 2 ? 0 : 1];
    half.all += sent.length;
    half.cached += cache.serve(sent);
  }
  const shares = halves.map(({ cached, all }) => cached / all);
  const programTexts = kinds.programTexts('t');
  return { shares, cut, ms: ms / requests.length, kinds: kinds.list('t'), bytes: kinds.bytes, programTexts };
}

const { questions } = await readQuestions(argv[2], { topK: TOP_K, limit: REQUESTS, seed: 42 });
const requests = questions
  .map(({ text, passages }) => ({
    question: text,
    contents: passages.map(({ content }) => paragraphs(content)),
  }))
  .filter(({ contents }) => contents.length >= 2);
const percent = (share) => `${(100 * share).toFixed(1)} %`.padStart(8);
console.log(
  `${'prompt'.padEnd(30)}  cached in the second half, by arm       share of what known documents gain: first, second half`,
);
console.log(
  `${''.padEnd(30)}  retrieval     known   learned   allowed         learned            allowed          cut   ms a prompt`,
);
for (const prompt of PROMPTS) {
  const [retrieval, known, learned] = ['retrieval', 'known', 'kinds'].map((arm) => run(prompt, requests, arm));
  // As in a gateway that was started again after the kind was allowed.
  const allowed = run(prompt, requests, 'kinds', learned.programTexts);
  const gains = [learned, allowed].flatMap(({ shares }) =>
    [0, 1].map((h) => (shares[h] - retrieval.shares[h]) / (known.shares[h] - retrieval.shares[h])),
  );
  const second = [retrieval, known, learned, allowed].map(({ shares }) => percent(shares[1])).join('  ');
  const cut = learned.cut + allowed.cut;
  console.log(
    `${prompt.name.padEnd(30)}  ${second}   ${gains.map(percent).join('  ')}   ${cut}   ${allowed.ms.toFixed(2)}`,
  );
  if (argv.includes('--show')) console.log(JSON.stringify(learned.kinds, undefined, 1), learned.bytes);
}
