// What keys and values as q8_0 cost and change: bytes of a token, milliseconds of a prompt and of a step, and how far
// the logits after each of many prompts lie from those with f16, beside how far they move when the same prompt is
// computed in batches of another size. `npm run bench:kv-type -w packages/engine [-- --models demo,random:24m --prompts
// 40 --tokens 600 --threads 2]`
import { parseArgs } from 'node:util';
import { resolveModel } from '../dist/index.js';
import { llamaBindings } from '../dist/native/bindings.js';
import { NativeContext } from '../dist/native/context.js';
import { NativeModel } from '../dist/native/model.js';
import { modelPath } from './random-model/dist/model-path.js';

const { values } = parseArgs({
  options: {
    models: { type: 'string', default: 'demo,random:24m' },
    prompts: { type: 'string', default: '40' },
    tokens: { type: 'string', default: '600' },
    threads: { type: 'string', default: '2' },
  },
});
const TOKENS = Number(values.tokens);
const STEPS = 32;
const SEQUENCE = 1;

/** Documents of words that the demo model knows, with a question behind them. */
async function promptOf(vocabulary, index) {
  const names = ['Velka', 'Orsin', 'Tamir', 'Marlo', 'Quill'];
  const facts = Array.from({ length: 60 }, (_, at) => {
    const name = names[(index + at) % names.length];
    return `The weight of ${name} is ${(index * 31 + at * 7) % 90} kg. The colour of ${name} is teal.`;
  });
  const [tokens] = await vocabulary.tokenize([{ text: facts.join(' '), parseSpecial: false }]);
  return tokens.slice(0, TOKENS);
}

async function compute(context, tokens, size) {
  let last = 0;
  const startedMs = performance.now();
  for (let from = 0; from < tokens.length; from += size) {
    const part = tokens.slice(from, from + size);
    context.batch.clear();
    for (const [index, token] of part.entries()) {
      last = context.batch.add(token, from + index, SEQUENCE, from + index === tokens.length - 1);
    }
    await context.decode(from + part.length);
  }
  return { logits: context.logits(last), ms: performance.now() - startedMs };
}

async function stepMs(context, tokens) {
  const startedMs = performance.now();
  for (let step = 0; step < STEPS; step++) {
    context.batch.clear();
    context.batch.add(tokens[step % tokens.length], tokens.length + step, SEQUENCE, true);
    await context.decode(tokens.length + step + 1);
  }
  return (performance.now() - startedMs) / STEPS;
}

const largest = (logits) => logits.reduce((best, logit, token) => (logit > logits[best] ? token : best), 0);
const distance = (a, b) => a.reduce((most, logit, token) => Math.max(most, Math.abs(logit - b[token])), 0);
const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
const median = (numbers) => [...numbers].sort((a, b) => a - b)[numbers.length >> 1];

/** Kullback-Leibler divergence in nats, from the first distribution to the second. */
function divergence(a, b) {
  const logSum = (logits) => {
    const most = logits[largest(logits)];
    return most + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
  };
  const [sumA, sumB] = [logSum(a), logSum(b)];
  return a.reduce((sum, logit, token) => sum + Math.exp(logit - sumA) * (logit - sumA - (b[token] - sumB)), 0);
}

async function measure(model, bindings, kvType) {
  const shape = { cells: TOKENS + STEPS + 64, batchTokens: 512, outputs: 1, threads: Number(values.threads), kvType };
  const context = await NativeContext.create(bindings, model, shape);
  const results = [];
  for (let index = 0; index < Number(values.prompts); index++) {
    const tokens = await promptOf(model.vocabulary, index);
    const whole = await compute(context, tokens, 512);
    const step = await stepMs(context, tokens);
    context.remove(SEQUENCE, tokens.length, -1);
    const bytes = context.save(SEQUENCE, 0, tokens.length).length / tokens.length;
    context.remove(SEQUENCE, 0, -1);
    const other = await compute(context, tokens, 96);
    context.remove(SEQUENCE, 0, -1);
    results.push({ ...whole, step, bytes, other: other.logits });
  }
  context.free();
  return results;
}

const rows = [];
for (const name of values.models.split(',')) {
  const { path } = await resolveModel(await modelPath(name));
  const bindings = llamaBindings();
  const model = await NativeModel.load(bindings, path);
  const [plain, small] = [await measure(model, bindings, 'f16'), await measure(model, bindings, 'q8_0')];
  for (const [kvType, results] of [
    ['f16, other batches', plain.map((result) => ({ ...result, logits: result.other }))],
    ['q8_0', small],
  ]) {
    const compared = results.map(({ logits }, index) => [plain[index].logits, logits]);
    rows.push({
      model: name,
      'keys and values': kvType,
      'bytes a token': Math.round(mean(results.map(({ bytes }) => bytes))),
      'prompt, ms': Math.round(median(results.map(({ ms }) => ms))),
      'step, ms': median(results.map(({ step }) => step)).toFixed(1),
      'logits, largest difference': Math.max(...compared.map(([a, b]) => distance(a, b))).toFixed(3),
      'divergence, mean': mean(compared.map(([a, b]) => divergence(a, b))).toExponential(1),
      'same first token': `${compared.filter(([a, b]) => largest(a) === largest(b)).length} of ${compared.length}`,
    });
  }
  model.free();
}
console.table(rows);
