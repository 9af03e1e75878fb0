// What a small batch costs behind a long prefix, as llama.cpp computes it and filled up to a whole tile of attention.
// Behind 2,000 cached tokens, a batch of fewer than 64 goes row by row: on the demo model it is many times slower than
// a larger one. `TilePadding` decides by an estimate fitted to this table; the last column is its choice. `node
// bench/small-batches.js [--models demo,random:24m] [--prefixes 0,512,2048,6144] [--rounds 5] [--threads 1]`
import { parseArgs } from 'node:util';
import { resolveModel } from '../dist/index.js';
import { llamaBindings } from '../dist/native/bindings.js';
import { NativeContext } from '../dist/native/context.js';
import { NativeModel } from '../dist/native/model.js';
import { TILE_ROWS, TilePadding } from '../dist/native/tile-padding.js';
import { modelPath } from './random-model/dist/model-path.js';

const { values } = parseArgs({
  options: {
    models: { type: 'string', default: 'demo,random:24m' },
    prefixes: { type: 'string', default: '0,512,2048,6144' },
    rounds: { type: 'string', default: '5' },
    threads: { type: 'string', default: '1' },
  },
});
const ROUNDS = Number(values.rounds);
const THREADS = Number(values.threads);
const SIZES = [1, 4, 8, 16, 24, 32, 48, 63, 64, 96, 128];
const BATCH_TOKENS = 128;
const SCRATCH = 0;
const SEQUENCE = 1;

function median(numbers) {
  return [...numbers].sort((a, b) => a - b)[numbers.length >> 1];
}

/** Computes `count` tokens at a position, with others that nobody wants beside them. */
async function compute(context, from, count, padding = 0) {
  const { batch } = context;
  batch.clear();
  let last = 0;
  for (let index = 0; index < count; index++) {
    last = batch.add(300 + ((index * 7 + from) % 1000), from + index, SEQUENCE, index === count - 1);
  }
  for (let index = 0; index < padding; index++) {
    batch.add(300, index, SCRATCH, false);
  }
  const start = performance.now();
  if ((await context.decode()) !== 0) {
    throw new Error('llama_decode failed');
  }
  const ms = performance.now() - start;
  context.remove(SCRATCH, 0, -1);
  return { ms, logits: context.logits(last) };
}

async function measure(context, prefix, size) {
  const padding = Math.max(0, TILE_ROWS - size);
  const times = { plain: [], padded: [] };
  let difference = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const plain = await compute(context, prefix, size);
    context.remove(SEQUENCE, prefix, -1);
    const padded = await compute(context, prefix, size, padding);
    context.remove(SEQUENCE, prefix, -1);
    times.plain.push(plain.ms);
    times.padded.push(padded.ms);
    difference = Math.max(difference, ...plain.logits.map((value, token) => Math.abs(value - padded.logits[token])));
  }
  return { plain: median(times.plain), padded: median(times.padded), difference };
}

for (const spec of values.models.split(',')) {
  const { path } = await resolveModel(await modelPath(spec));
  const model = await NativeModel.load(llamaBindings(), path);
  const options = { cells: 8192, batchTokens: BATCH_TOKENS, outputs: 2, threads: THREADS };
  const context = await NativeContext.create(llamaBindings(), model, options);
  const rule = new TilePadding({ ...model.attentionShape, threads: THREADS });
  for (const prefix of values.prefixes.split(',').map(Number)) {
    context.remove(SEQUENCE, 0, -1);
    for (let done = 0; done < prefix; done += BATCH_TOKENS) {
      await compute(context, done, Math.min(BATCH_TOKENS, prefix - done));
    }
    const rows = [];
    for (const size of SIZES) {
      const { plain, padded, difference } = await measure(context, prefix, size);
      const attended = size * (prefix + (size + 1) / 2);
      rows.push({
        tokens: size,
        'ms as it is': plain.toFixed(2),
        'ms filled up': padded.toFixed(2),
        'logits differ by': difference.toFixed(3),
        'filled up by the engine': rule.wanted({ rows: size, attended, span: prefix + size }) > 0,
      });
    }
    process.stdout.write(`${spec}, ${prefix} tokens before them, ${THREADS} thread(s)\n`);
    console.table(rows);
  }
  context.free();
  model.free();
}
