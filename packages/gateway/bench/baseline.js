// How far the baseline is off: with arranging off, it and the engine's reported counts should be the same.
// `node bench/baseline.js URL [--dialect NAME] [--model NAME] [--prompts N] [--json]`, after a build, before an engine
// that is idle. Exits with 1 where they differ by more than two points of the prompt tokens.
import { parseArgs } from 'node:util';
import { startGateway } from '@warmpath/gateway';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    dialect: { type: 'string', default: 'auto' },
    model: { type: 'string', default: '' },
    prompts: { type: 'string', default: '100' },
    json: { type: 'boolean', default: false },
  },
});
const [url] = positionals;
if (url === undefined) throw new Error('usage: baseline.js URL');
const PROMPTS = Number(values.prompts);
const MAX_POINTS = 0.02;
const PASSAGES = 12;
const TURNS = 4;

/** Numbers that look random and are the same in each run. */
function* numbers(state) {
  for (;;) {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    yield state >>> 8;
  }
}
const random = numbers(7);
const below = (count) => random.next().value % count;

function passage(number) {
  const sentence = `Passage ${number} tells how the harbour was found, and what it was worth in year ${18 * number}.`;
  return {
    id: `p${number}`,
    content: Array(4 + (number % 4))
      .fill(sentence)
      .join(' '),
  };
}

function context() {
  const chosen = new Set();
  while (chosen.size < 4) chosen.add(below(1 + below(PASSAGES)));
  return [...chosen].map(passage);
}

const reports = [];
const config = {
  server: { port: 0 },
  upstream: { url, dialect: values.dialect },
  arrange: { policy: 'retrieval', hints: false },
  log: { level: 'silent' },
};
let found = () => {};
const isFound = new Promise((resolve) => {
  found = resolve;
});
const gateway = await startGateway(config, {
  onEngine: (report) => report.state === 'up' && found(),
  onRequest: (report) => reports.push(report),
});
await isFound;

async function ask(fields) {
  const response = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: values.model, max_tokens: 8, ...fields }),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(JSON.stringify(answer));
  return answer.choices[0].message;
}

/** Sends requests one after the other. @returns what was reported of them. */
async function measured(send) {
  const first = reports.length;
  await send();
  const rows = reports.slice(first).filter(({ promptTokens }) => promptTokens !== undefined);
  const sum = (name) => rows.reduce((total, row) => total + (row[name] ?? Number.NaN), 0);
  const [prompt, reported, baseline] = ['promptTokens', 'cachedTokens', 'baselineTokens'].map(sum);
  return { prompts: rows.length, prompt, reported, baseline, points: (baseline - reported) / prompt };
}

const system = (name) => ({ role: 'system', content: `${name}: answer from the documents.` });
const kinds = {
  'field `documents`': async () => {
    for (let i = 0; i < PROMPTS; i++) {
      const messages = [system('Field'), { role: 'user', content: `What was found in case ${i}?` }];
      await ask({ messages, documents: context() });
    }
  },
  'documents in the text': async () => {
    for (let i = 0; i < PROMPTS; i++) {
      const texts = context().map(({ content }) => content);
      const messages = [system('Text'), { role: 'user', content: `${texts.join('\n\n')}\n\nCase ${i}?` }];
      await ask({ messages, warmpath: { bypass: true } });
    }
  },
  conversations: async () => {
    for (let i = 0; i < PROMPTS / TURNS; i++) {
      const messages = [system(`Conversation ${i}`)];
      for (let turn = 0; turn < TURNS; turn++) {
        messages.push({ role: 'user', content: `${passage(below(PASSAGES)).content} What of that, number ${turn}?` });
        messages.push(await ask({ messages }));
      }
    }
  },
};
const results = {};
for (const [name, send] of Object.entries(kinds)) results[name] = await measured(send);
await gateway.close();
if (values.json) console.log(JSON.stringify(results, undefined, 2));
else {
  console.log('| prompts | count | tokens | cached, reported | cached, baseline | points |');
  console.log('| --- | --: | --: | --: | --: | --: |');
  for (const [name, { prompts, prompt, reported, baseline, points }] of Object.entries(results)) {
    console.log(`| ${name} | ${prompts} | ${prompt} | ${reported} | ${baseline} | ${(100 * points).toFixed(2)} |`);
  }
}
process.exitCode = Object.values(results).every(({ points }) => Math.abs(points) <= MAX_POINTS) ? 0 : 1;
