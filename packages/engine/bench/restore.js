// What it costs to bring cells back from host memory, against computing them again. One thread, nothing but the
// library. `node bench/restore.js [--models demo,random:24m] [--rounds 7]`
import { parseArgs } from 'node:util';
import { crc32 } from 'node:zlib';
import { resolveModel } from '../dist/index.js';
import { llamaBindings } from '../dist/native/bindings.js';
import { NativeContext } from '../dist/native/context.js';
import { NativeModel } from '../dist/native/model.js';
import { modelPath } from './random-model/dist/model-path.js';

const { values } = parseArgs({ options: { models: { type: 'string' }, rounds: { type: 'string' } } });
const MODELS = (values.models ?? 'demo,random:24m').split(',');
const ROUNDS = Number(values.rounds ?? 7);
const BATCH_TOKENS = 128;
/** Tokens in front of the document, and of the document. */
const SHAPES = [
  [0, 128],
  [0, 512],
  [1024, 128],
  [1024, 512],
];

function median(numbers) {
  return [...numbers].sort((a, b) => a - b)[numbers.length >> 1];
}

async function compute(context, from, count) {
  for (let done = 0; done < count; done += BATCH_TOKENS) {
    const end = Math.min(count, done + BATCH_TOKENS);
    context.batch.clear();
    for (let index = done; index < end; index++) {
      context.batch.add(300 + ((index * 7) % 1000), from + index, 1, index === end - 1);
    }
    if ((await context.decode()) !== 0) {
      throw new Error('llama_decode failed');
    }
  }
}

async function timed(samples, work) {
  const start = performance.now();
  const result = await work();
  samples.push(performance.now() - start);
  return result;
}

async function measure(context, prefix, count) {
  const samples = { compute: [], save: [], check: [], restore: [] };
  const end = prefix + count;
  let bytes = 0;
  context.remove(1, 0, -1);
  await compute(context, 0, prefix);
  for (let round = 0; round < ROUNDS; round++) {
    await timed(samples.compute, () => compute(context, prefix, count));
    const state = await timed(samples.save, () => context.save(1, prefix, end));
    await timed(samples.check, () => crc32(state));
    context.remove(1, prefix, -1);
    if (!(await timed(samples.restore, () => context.restore(1, state, prefix, end)))) {
      throw new Error('A state was refused');
    }
    context.remove(1, prefix, -1);
    bytes = state.length;
  }
  const { compute: computing, save, check, restore } = samples;
  const back = median(restore) + median(check);
  return {
    prefix,
    tokens: count,
    'compute ms': median(computing).toFixed(1),
    'save ms': median(save).toFixed(2),
    'checksum ms': median(check).toFixed(2),
    'restore ms': median(restore).toFixed(2),
    'back / compute': `${((100 * back) / median(computing)).toFixed(2)} %`,
    'bytes a token': Math.round(bytes / count),
  };
}

for (const spec of MODELS) {
  const { path } = await resolveModel(await modelPath(spec));
  const model = await NativeModel.load(llamaBindings(), path);
  const options = { cells: 4096, batchTokens: BATCH_TOKENS, outputs: 1, threads: 1 };
  const context = await NativeContext.create(llamaBindings(), model, options);
  const rows = [];
  for (const [prefix, count] of SHAPES) {
    rows.push(await measure(context, prefix, count));
  }
  process.stdout.write(`${spec}\n`);
  console.table(rows);
  context.free();
  model.free();
}
