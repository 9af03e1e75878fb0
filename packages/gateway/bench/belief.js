// How far predicted cached tokens are from those that an engine reports, prompt by prompt, with 1, 4 and 8 at once.
// `node bench/belief.js URL [--model NAME] [--prompts N] [--json]`
// Build first. The engine must be idle and report cached tokens. Each run has documents of its own. To see evictions,
// give the engine a small cache. The gateway follows the engine's KV events if it publishes any.
import { randomBytes } from 'node:crypto';
import { parseArgs } from 'node:util';
import { startGateway } from '@warmpath/gateway';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    model: { type: 'string', default: '' },
    prompts: { type: 'string', default: '200' },
    json: { type: 'boolean', default: false },
  },
});
const [url] = positionals;
if (url === undefined) throw new Error('usage: belief.js URL');
const PROMPTS = Number(values.prompts);
const PASSAGES = 60;
const DOCUMENTS = 5;
const CONCURRENCY = [1, 4, 8];

/** Numbers that look random and are the same in each run. */
function* numbers(state) {
  for (;;) {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    yield state >>> 8;
  }
}

function passage(run, number) {
  const sentence = `Passage ${number} of ${run} tells how the harbour was found, and its worth in year ${18 * number}.`;
  const content = Array(3 + (number % 5))
    .fill(sentence)
    .join(' ');
  return { id: `p${number}`, content };
}

/** Contexts in which low numbers are frequent. */
function contexts(run) {
  const random = numbers(7);
  const below = (count) => random.next().value % count;
  return Array.from({ length: PROMPTS }, () => {
    const chosen = new Set();
    while (chosen.size < DOCUMENTS) chosen.add(below(1 + below(PASSAGES)));
    return [...chosen].map((number) => passage(run, number));
  });
}

async function measure(concurrency) {
  const run = randomBytes(4).toString('hex');
  const rows = [];
  let found = () => {};
  const isFound = new Promise((resolve) => {
    found = resolve;
  });
  const gateway = await startGateway(
    { server: { port: 0 }, upstream: { url }, log: { level: 'silent' } },
    {
      onEngine: (report) => report.state === 'up' && found(report),
      onRequest: ({ promptTokens, cachedTokens, predictedCachedTokens = 0 }) =>
        rows.push({ promptTokens, cachedTokens, predicted: predictedCachedTokens }),
    },
  );
  const { facts } = await isFound;
  const events = (facts.eventSources?.length ?? 0) > 0;
  while (events && !(await (await fetch(`${gateway.url}/metrics`)).text()).includes('warmpath_kv_events_exact{'));
  const waiting = contexts(run);
  const client = async () => {
    for (let documents = waiting.shift(); documents !== undefined; documents = waiting.shift()) {
      const messages = [{ role: 'user', content: `What was found, with ${waiting.length} to go?` }];
      const response = await fetch(`${gateway.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ model: values.model, max_tokens: 4, messages, documents }),
      });
      const answer = await response.text();
      if (!response.ok) throw new Error(answer);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, client));
  await gateway.close();
  const counted = rows.filter(({ cachedTokens }) => cachedTokens !== undefined);
  const errors = counted.map(({ predicted, cachedTokens }) => Math.abs(predicted - cachedTokens)).sort((a, b) => a - b);
  const sum = (name) => counted.reduce((total, row) => total + row[name], 0);
  const blockTokens = facts.cacheSize?.blockTokens ?? 16;
  return {
    events,
    concurrency,
    prompts: counted.length,
    mean: errors.reduce((total, error) => total + error, 0) / errors.length,
    p50: errors[Math.floor(0.5 * errors.length)],
    p95: errors[Math.floor(0.95 * errors.length)],
    withinBlock: errors.filter((error) => error <= blockTokens).length / errors.length,
    points: (100 * (sum('predicted') - sum('cachedTokens'))) / sum('promptTokens'),
  };
}

const results = [];
for (const concurrency of CONCURRENCY) results.push(await measure(concurrency));
if (values.json) console.log(JSON.stringify(results, undefined, 2));
else {
  console.log('| events | at once | prompts | mean error | p50 | p95 | within a block | total, points |');
  console.log('| --- | --: | --: | --: | --: | --: | --: | --: |');
  for (const { events, concurrency, prompts, mean, p50, p95, withinBlock, points } of results) {
    const cells = [events ? 'yes' : 'no', concurrency, prompts, mean.toFixed(1), p50, p95, withinBlock.toFixed(2)];
    console.log(`| ${cells.join(' | ')} | ${points.toFixed(2)} |`);
  }
}
