import { access, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import type { GgufMetadata, GgufValue } from '../../../dist/gguf/format.js';
import { readGgufHeader } from '../../../dist/gguf/reader.js';
import { type GgufTensorSource, type WriteGgufOptions, writeGguf } from './gguf-writer.js';
import { type Architecture, chooseArchitecture } from './random-architecture.js';
import { seededWeights } from './seeded-weights.js';
import { buildVocabulary, CONTROL_TOKENS, VOCABULARY_SIZE, type Vocabulary } from './vocabulary.js';

/** Raised whenever the same request would produce other bytes, so that files of an older form are not taken. */
const FORM = 1;
const DEFAULT_SEED = 1;
const MAX_MILLIONS = 2000;
/** Tokens that the metadata promises; rotary positions need no training to be computed. */
const CONTEXT_LENGTH = 32_768;
const RMS_EPSILON = 1e-5;

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
  /**
   * Tokens of a sliding window to which three of four layers attend; 0 for a model that attends to everything. With a
   * window it has Cohere 2's architecture, without one Llama's.
   */
  readonly window: number;
}

export interface RandomModelOptions extends WriteGgufOptions {
  /** Folder for models; the file lies in `random/` below it. */
  readonly cacheDir: string;
}

/**
 * Reads `<size>m[-f16|-q8_0][-window<tokens>][@<seed>]`, for instance `24m`, `24m-q8_0`, `4m-window32`, `24m@7`. Sizes
 * are whole millions, 1 to 2000.
 * Errors: `WARMPATH_MODEL_SPEC`.
 */
export function parseRandomModel(text: string): RandomModelRequest {
  const match = /^(\d{1,4})m(?:-(f16|q8_0))?(?:-window(\d{1,5}))?(?:@(\d{1,10}))?$/i.exec(text);
  const millions = Number(match?.[1]);
  const seed = match?.[4] === undefined ? DEFAULT_SEED : Number(match[4]);
  if (match === null || millions < 1 || millions > MAX_MILLIONS || seed > 0xffffffff) {
    throw new WarmpathError('WARMPATH_MODEL_SPEC', {
      path: `random:${text}`,
      detail: `a random-weights model is named random:<size>m[-f16|-q8_0][-window<tokens>][@seed], with a size of 1m to ${MAX_MILLIONS}m and a 32-bit seed, for instance random:24m or random:24m-q8_0@7`,
    });
  }
  const weights = (match[2]?.toLowerCase() ?? 'f16') as RandomWeightType;
  return { millions, seed, weights, window: Number(match[3] ?? 0) };
}

/** The model's name: `random-24m`, `random-24m-q8_0`, `random-24m-seed7`. */
export function randomModelName({ millions, weights, seed, window }: RandomModelRequest): string {
  const parts = [`random-${millions}m`];
  if (weights !== 'f16') parts.push(weights);
  if (window > 0) parts.push(`window${window}`);
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
  const architecture = chooseArchitecture(request.millions * 1e6);
  const metadata = describeModel(name, architecture, buildVocabulary(), request);
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
  { layers, width, feedForward, heads, kvHeads, headWidth }: Architecture,
  vocabulary: Vocabulary,
  { weights, window }: RandomModelRequest,
): GgufMetadata {
  const text = (value: string): GgufValue => ({ type: 'string', value });
  const count = (value: number): GgufValue => ({ type: 'uint32', value });
  const id = (token: (typeof CONTROL_TOKENS)[number]) =>
    count(VOCABULARY_SIZE - CONTROL_TOKENS.length + CONTROL_TOKENS.indexOf(token));
  const family = window > 0 ? 'cohere2' : 'llama';
  const isControl = (index: number) => index >= VOCABULARY_SIZE - CONTROL_TOKENS.length;
  return new Map<string, GgufValue>([
    ['general.architecture', text(family)],
    ['general.name', text(`warmpath-${name}`)],
    [
      'general.description',
      text('Random weights: the text is noise, timings and caching are those of a model of its size.'),
    ],
    // llama.cpp's numbers for "mostly f16" and "mostly q8_0".
    ['general.file_type', count(weights === 'f16' ? 1 : 7)],
    [`${family}.vocab_size`, count(VOCABULARY_SIZE)],
    [`${family}.context_length`, count(CONTEXT_LENGTH)],
    [`${family}.embedding_length`, count(width)],
    [`${family}.block_count`, count(layers)],
    [`${family}.feed_forward_length`, count(feedForward)],
    [`${family}.attention.head_count`, count(heads)],
    [`${family}.attention.head_count_kv`, count(kvHeads)],
    [`${family}.rope.dimension_count`, count(headWidth)],
    [`${family}.attention.layer_norm${window > 0 ? '' : '_rms'}_epsilon`, { type: 'float32', value: RMS_EPSILON }],
    ...windowMetadata(family, window),
    [`${family}.rope.freq_base`, { type: 'float32', value: 10_000 }],
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
  ]);
}

function windowMetadata(family: string, window: number): [string, GgufValue][] {
  if (window === 0) return [];
  return [
    [`${family}.attention.sliding_window`, { type: 'uint32', value: window }],
    [`${family}.logit_scale`, { type: 'float32', value: 1 }],
  ];
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
  { weights: type, seed, window }: RandomModelRequest,
): GgufTensorSource[] {
  const { layers, width, feedForward, heads, kvHeads, headWidth } = architecture;
  const matrix = (name: string, inputs: number, outputs: number, gain: number): GgufTensorSource => ({
    name,
    type,
    shape: [inputs, outputs],
    weights: seededWeights({ seed, name, count: inputs * outputs, deviation: gain / Math.sqrt(inputs) }),
  });
  const norm = (name: string): GgufTensorSource => ({
    name,
    type: 'f32',
    shape: [width],
    weights: [new Float32Array(width).fill(1)],
  });
  const tensors = [matrix('token_embd.weight', width, VOCABULARY_SIZE, 2), norm('output_norm.weight')];
  for (let layer = 0; layer < layers; layer++) {
    const block = `blk.${layer}`;
    tensors.push(
      norm(`${block}.attn_norm.weight`),
      matrix(`${block}.attn_q.weight`, width, heads * headWidth, 1.5),
      matrix(`${block}.attn_k.weight`, width, kvHeads * headWidth, 1.5),
      matrix(`${block}.attn_v.weight`, width, kvHeads * headWidth, 1),
      matrix(`${block}.attn_output.weight`, heads * headWidth, width, 1),
      // Cohere 2 computes attention and feed-forward side by side, behind one norm.
      ...(window > 0 ? [] : [norm(`${block}.ffn_norm.weight`)]),
      matrix(`${block}.ffn_gate.weight`, width, feedForward, 1),
      matrix(`${block}.ffn_up.weight`, width, feedForward, 1),
      matrix(`${block}.ffn_down.weight`, feedForward, width, 1),
    );
  }
  return tensors;
}
