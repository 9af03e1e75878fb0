import { access, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import type { GgufMetadata, GgufValue } from './gguf-format.js';
import { readGgufHeader } from './gguf-reader.js';
import { type GgufTensorSource, type WriteGgufOptions, writeGguf } from './gguf-writer.js';
import { type Architecture, chooseArchitecture } from './random-architecture.js';
import { type RandomFamily, readFamily, type TensorMaker } from './random-family.js';
import { seededWeights } from './seeded-weights.js';
import { buildVocabulary, CONTROL_TOKENS, VOCABULARY_SIZE, type Vocabulary } from './vocabulary.js';

/** Raised whenever the same request would produce other bytes, so that files of an older form are not taken. */
const FORM = 1;
const DEFAULT_SEED = 1;
const MAX_MILLIONS = 2000;
/** Tokens that the metadata promises; rotary positions need no training to be computed. */
const CONTEXT_LENGTH = 32_768;

const CHAT_TEMPLATE =
  "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n" +
  '{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}';

/** How the matrices of a random-weights model are stored. */
type RandomWeightType = 'f16' | 'q8_0';

/** Which random-weights model to make. */
export interface RandomModelRequest {
  /** Millions of weights, about; the nearest sensible architecture is taken. */
  readonly millions: number;
  readonly weights: RandomWeightType;
  /** 32-bit seed of the weights. */
  readonly seed: number;
  readonly family: RandomFamily;
  /** Tokens of the vocabulary. */
  readonly vocabulary: number;
}

export interface RandomModelOptions extends WriteGgufOptions {
  /** Folder for models; the file lies in `random/` below it. */
  readonly cacheDir: string;
}

/**
 * Reads `<size>m[-f16|-q8_0][-<family>][~<tokens>][@<seed>]`, for instance `24m`, `24m-q8_0`, `4m-mla`, `24m@7`, or
 * `16m~150000` for another size of the vocabulary.
 * Sizes are whole millions, 1 to 2000; the families are those of {@link readFamily}.
 * Errors: `WARMPATH_MODEL_SPEC`.
 */
export function parseRandomModel(text: string): RandomModelRequest {
  const match = /^(\d{1,4})m(?:-(f16|q8_0))?(?:-([a-z]+\d{0,5}))?(?:~(\d{4,6}))?(?:@(\d{1,10}))?$/i.exec(text);
  const millions = Number(match?.[1]);
  const family = readFamily(match?.[3]);
  const vocabulary = Number(match?.[4] ?? VOCABULARY_SIZE);
  const seed = match?.[5] === undefined ? DEFAULT_SEED : Number(match[5]);
  const isSmall = vocabulary < VOCABULARY_SIZE;
  if (
    match === null ||
    family === undefined ||
    isSmall ||
    millions < 1 ||
    millions > MAX_MILLIONS ||
    seed > 0xffffffff
  ) {
    throw new WarmpathError('WARMPATH_MODEL_SPEC', {
      path: `random:${text}`,
      detail: `a random-weights model is named random:<size>m[-f16|-q8_0][-<family>][~<tokens>][@seed], with a size of 1m to ${MAX_MILLIONS}m, one of the families window<tokens>, longrope<tokens>, mrope, mla, recurrent and hybrid, a vocabulary of ${VOCABULARY_SIZE} tokens or more, and a 32-bit seed, for instance random:24m or random:24m-q8_0@7`,
    });
  }
  const weights = (match[2]?.toLowerCase() ?? 'f16') as RandomWeightType;
  return { millions, seed, weights, family, vocabulary };
}

/** The model's name: `random-24m`, `random-24m-q8_0`, `random-4m-mla`, `random-24m-seed7`. */
export function randomModelName({ millions, weights, seed, family, vocabulary }: RandomModelRequest): string {
  const parts = [`random-${millions}m`];
  if (weights !== 'f16') parts.push(weights);
  if (family.suffix !== '') parts.push(family.suffix);
  if (vocabulary !== VOCABULARY_SIZE) parts.push(`vocabulary${vocabulary}`);
  if (seed !== DEFAULT_SEED) parts.push(`seed${seed}`);
  return parts.join('-');
}

/**
 * Path of a GGUF file with random weights, generated at the first call and kept in the cache folder.
 * The same request gives the same bytes on every machine. It computes like a trained model of its size (attention looks
 * at the context, logits are finite and spread), but its text is noise.
 *
 * Several processes may call this at once: each writes a temporary file and renames it into place.
 * Errors: WARMPATH_CONFIG_INVALID when the folder cannot be made; the file system's own; the signal's reason.
 * Cost: a look at the header when the file is there; else about 0.5 s for the vocabulary and 0.5 s per 20 M weights,
 * given back to the event loop every 64 k weights; 2 bytes of disk a weight (f16), 1.06 (q8_0).
 */
export async function randomModel(request: RandomModelRequest, options: RandomModelOptions): Promise<string> {
  const name = randomModelName(request);
  const folder = join(options.cacheDir, 'random');
  const path = join(folder, `${name}.form${FORM}.gguf`);
  if (await isIntact(path)) return path;
  await createFolder(folder);
  const architecture = chooseArchitecture(request.millions * 1e6, request.vocabulary);
  const metadata = describeModel(name, architecture, buildVocabulary(request.vocabulary), request);
  await writeGguf(path, metadata, planTensors(architecture, request), options);
  return path;
}

async function isIntact(path: string): Promise<boolean> {
  try {
    await access(path);
    await readGgufHeader(path);
    return true;
  } catch {
    // Absent or damaged: it can be made again, which costs seconds.
    return false;
  }
}

function describeModel(
  name: string,
  architecture: Architecture,
  vocabulary: Vocabulary,
  { weights, family }: RandomModelRequest,
): GgufMetadata {
  const text = (value: string): GgufValue => ({ type: 'string', value });
  const count = (value: number): GgufValue => ({ type: 'uint32', value });
  const id = (token: (typeof CONTROL_TOKENS)[number]) =>
    count(vocabulary.tokens.length - CONTROL_TOKENS.length + CONTROL_TOKENS.indexOf(token));
  const isControl = (index: number) => index >= vocabulary.tokens.length - CONTROL_TOKENS.length;
  const { name: prefix, metadata } = family;
  return new Map<string, GgufValue>([
    ['general.architecture', text(prefix)],
    ['general.name', text(`warmpath-${name}`)],
    [
      'general.description',
      text('Random weights: the text is noise, timings and caching are those of a model of its size.'),
    ],
    // llama.cpp's numbers for "mostly f16" and "mostly q8_0".
    ['general.file_type', count(weights === 'f16' ? 1 : 7)],
    [`${prefix}.vocab_size`, count(vocabulary.tokens.length)],
    [`${prefix}.context_length`, count(CONTEXT_LENGTH)],
    [`${prefix}.embedding_length`, count(architecture.width)],
    [`${prefix}.block_count`, count(architecture.layers)],
    [`${prefix}.feed_forward_length`, count(architecture.feedForward)],
    [`${prefix}.attention.head_count`, count(architecture.heads)],
    ...Object.entries(metadata(architecture)).map(([key, value]) => [`${prefix}.${key}`, value] as const),
    [`${prefix}.rope.freq_base`, { type: 'float32', value: 10_000 }],
    ['tokenizer.ggml.model', text('gpt2')],
    ['tokenizer.ggml.pre', text('gpt-2')],
    ['tokenizer.ggml.tokens', { type: 'array', of: 'string', value: vocabulary.tokens }],
    // 1 is a normal token, 3 a control token.
    [
      'tokenizer.ggml.token_type',
      { type: 'array', of: 'int32', value: vocabulary.tokens.map((_, index) => (isControl(index) ? 3 : 1)) },
    ],
    ['tokenizer.ggml.merges', { type: 'array', of: 'string', value: vocabulary.merges }],
    ['tokenizer.ggml.bos_token_id', id('<|bos|>')],
    ['tokenizer.ggml.eos_token_id', id('<|im_end|>')],
    ['tokenizer.ggml.padding_token_id', id('<|pad|>')],
    ['tokenizer.ggml.add_bos_token', { type: 'bool', value: true }],
    ['tokenizer.ggml.add_eos_token', { type: 'bool', value: false }],
    ['tokenizer.chat_template', text(CHAT_TEMPLATE)],
    ...Object.entries(family.tokenizer ?? {}).map(([key, value]) => [`tokenizer.ggml.${key}`, value] as const),
  ]);
}

/** @throws WARMPATH_CONFIG_INVALID when the folder cannot be made. */
async function createFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true });
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? 'unknown error';
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: 'cacheDir',
      detail: `The folder ${folder} cannot be made (${code})`,
      cause,
    });
  }
}

/**
 * The tensors by the names that llama.cpp expects. There is no output matrix: it takes the embedding's.
 *
 * Inputs of every matrix have a mean square near 1 (RMS norm), so a spread of 1/√inputs keeps outputs there too.
 * Queries and keys spread wider, so that attention picks some tokens out of thousands instead of averaging all, and
 * what stands in the cache shows in the logits. The embedding is small beside the layers' sum, or the tied output would
 * answer every token with itself.
 */
function planTensors(
  architecture: Architecture,
  { weights: type, seed, family, vocabulary }: RandomModelRequest,
): GgufTensorSource[] {
  const { layers, width } = architecture;
  const maker: TensorMaker = {
    matrix: (name, shape, gain, own) => ({
      name,
      type: own ?? type,
      shape,
      weights: seededWeights({
        seed,
        name,
        count: shape.reduce((product, length) => product * length, 1),
        deviation: gain / Math.sqrt(shape[0]!),
      }),
    }),
    values: (name, values, shape) => ({
      name,
      type: 'f32',
      shape: shape ?? [values.length],
      weights: [Float32Array.from(values)],
    }),
  };
  const tensors = [maker.matrix('token_embd.weight', [width, vocabulary], 2), ...family.tensors(architecture, maker)];
  for (let layer = 0; layer < layers; layer++) {
    tensors.push(...family.layer(architecture, `blk.${layer}`, maker));
  }
  return tensors;
}
