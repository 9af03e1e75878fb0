import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseRandomModel, randomModel } from '../../bench/random-model/src/random-model.js';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeContext } from '../../src/native/context.js';
import { NativeModel } from '../../src/native/model.js';

const PROMPT =
  'The river rises in the mountains and reaches the sea in the north of the country. ' +
  'In 1995 the council built a bridge near the old market.\n\nWhere does the river rise?';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-native-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

interface Generation {
  readonly promptTokens: number;
  readonly tokens: number[];
  /** Logits after the prompt. */
  readonly logits: Float32Array;
}

/** Prefills the prompt and takes the likeliest token again and again. */
async function generate(model: NativeModel, context: NativeContext, prompt: string): Promise<Generation> {
  const promptTokens = [model.vocabulary.leadingBos!, ...(await tokenize(model, prompt))];
  context.batch.clear();
  for (const [position, token] of promptTokens.entries()) {
    context.batch.add(token, position, 0, position === promptTokens.length - 1);
  }
  expect(await context.decode()).toBe(0);
  const logits = context.logits(promptTokens.length - 1).slice();
  const tokens = [likeliest(logits)];
  while (tokens.length < 24) {
    context.batch.clear();
    context.batch.add(tokens.at(-1)!, promptTokens.length + tokens.length - 1, 0, true);
    expect(await context.decode()).toBe(0);
    tokens.push(likeliest(context.logits(0)));
  }
  context.remove(0, 0, -1);
  return { promptTokens: promptTokens.length, tokens, logits };
}

async function tokenize({ vocabulary }: NativeModel, text: string, parseSpecial = false): Promise<number[]> {
  return (await vocabulary.tokenize([{ text, parseSpecial }]))[0]!;
}

function likeliest(logits: Float32Array): number {
  return logits.reduce((best, logit, token) => (logit > logits[best]! ? token : best), 0);
}

describe.each(['1m', '1m-q8_0'])('the model random:%s in llama.cpp', (size) => {
  let model: NativeModel;
  let context: NativeContext;

  beforeAll(async () => {
    const bindings = llamaBindings();
    const path = await randomModel(parseRandomModel(size), { cacheDir: folder });
    model = await NativeModel.load(bindings, path);
    // One thread: ggml's threads spin while they wait for each other, which is slow where other work takes the cores.
    context = await NativeContext.create(bindings, model, { cells: 512, batchTokens: 128, outputs: 1, threads: 1 });
  });
  afterAll(() => {
    context.free();
    model.free();
  });

  it('is loaded with its vocabulary, template and context length', async () => {
    expect(model.trainedContext).toBe(32_768);
    expect(model.chatTemplate).toContain('<|im_start|>');
    expect(model.vocabulary.size).toBe(6144);
    expect(model.vocabulary.bosText).toBe('<|bos|>');
    const specials = ['<|bos|>', '<|im_start|>', '<|im_end|>', '<|pad|>'];
    expect(`${specials.join(' ')} <|eos|>`.match(model.vocabulary.specialTexts)).toEqual(specials);
    expect(model.vocabulary.endsGeneration((await tokenize(model, '<|im_end|>', true))[0]!)).toBe(true);
  });

  it('gives back any text, and each special token as one', async () => {
    const text = `Grüße, 日本! 🦙 {"a": [1, 23]}\n\n\tif (x !== y) {}  \n<|im_start|>user`;
    const tokens = await tokenize(model, text, true);
    expect(await model.vocabulary.detokenize(tokens)).toBe(text);
    expect(await tokenize(model, '<|im_start|>', true)).toHaveLength(1);
  });

  it('computes finite, spread logits, the same ones each time, that depend on the whole prompt', async () => {
    const first = await generate(model, context, PROMPT);
    const again = await generate(model, context, PROMPT);
    const other = await generate(model, context, PROMPT.replace('river', 'coast'));
    expect(first.promptTokens).toBeLessThan(PROMPT.length / 3);
    expect(first.logits.every(Number.isFinite)).toBe(true);
    const deviation = Math.sqrt(first.logits.reduce((sum, logit) => sum + logit ** 2, 0) / first.logits.length);
    expect(deviation).toBeGreaterThan(1);
    expect(deviation).toBeLessThan(4);
    expect(again.tokens).toStrictEqual(first.tokens);
    expect(other.tokens).not.toStrictEqual(first.tokens);
    const change = first.logits.reduce((sum, logit, token) => sum + Math.abs(logit - other.logits[token]!), 0);
    expect(change / first.logits.length).toBeGreaterThan(0.1);
    expect(new Set(first.tokens).size).toBeGreaterThan(8);
  });
});
