import { llamaBindings } from './bindings.js';
import { NativeContext } from './context.js';
import type { VariantToTime } from './measured-variant.js';
import { NativeModel } from './model.js';

/** A prompt of retrieved documents, in one batch, and steps of so many streams behind it. */
const PROMPT_TOKENS = 512;
const STREAMS = 8;
/** As many for each stream as a request with a short answer takes, divided among the streams that share a step. */
const STEPS = 8;

/**
 * Loads one variant of llama.cpp, and times a small set of decodes whenever the parent asks: what a process does that
 * `timeVariants` starts. Tells the parent when it is ready, then milliseconds. Lives as long as the parent.
 */
export async function timeVariant({ model: path, threads, narrowVectors, ...settings }: VariantToTime): Promise<void> {
  const bindings = llamaBindings({ ...settings, cpu: { narrowVectors } });
  const model = await NativeModel.load(bindings, path);
  const context = await NativeContext.create(bindings, model, {
    cells: 2 * PROMPT_TOKENS,
    batchTokens: PROMPT_TOKENS,
    outputs: STREAMS,
    threads,
    padding: 'faster',
  });
  // The first is slower than all others.
  await timeDecodes(context);
  process.on('message', async () => process.send!(await timeDecodes(context)));
  process.send!(0);
}

/** Milliseconds of a prompt and some steps of streams that share it. */
async function timeDecodes(context: NativeContext): Promise<number> {
  const streams = context.sequences.slice(0, STREAMS);
  const [first, ...others] = streams as [number, ...number[]];
  const startedMs = performance.now();
  context.batch.clear();
  for (let position = 0; position < PROMPT_TOKENS; position++) {
    // Any token will do: the time does not depend on which.
    context.batch.add(0, position, first, position === PROMPT_TOKENS - 1);
  }
  await decode(context);
  for (const stream of others) {
    context.copy(first, stream, 0, PROMPT_TOKENS);
  }
  for (let step = 0; step < STEPS; step++) {
    context.batch.clear();
    for (const stream of streams) {
      context.batch.add(0, PROMPT_TOKENS + step, stream, true);
    }
    await decode(context);
  }
  const tookMs = performance.now() - startedMs;
  for (const stream of streams) {
    context.remove(stream, 0, -1);
  }
  return tookMs;
}

async function decode(context: NativeContext): Promise<void> {
  const code = await context.decode();
  if (code !== 0) {
    throw new Error(`llama_decode gave ${code}`);
  }
}
