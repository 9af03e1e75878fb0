import type { GgufValue } from '../../../dist/gguf/format.js';
import type { GgufTensorSource } from './gguf-writer.js';
import type { Architecture } from './random-architecture.js';

const NORM_EPSILON = 1e-5;

/** Makes tensors of random or given weights. */
export interface TensorMaker {
  /** Random weights whose outputs have `gain` times the spread of their inputs. */
  matrix(name: string, shape: readonly number[], gain: number): GgufTensorSource;
  values(name: string, values: readonly number[]): GgufTensorSource;
}

/** What tells the models of one family from Llama's: how llama.cpp calls it, its metadata and its attention. */
export interface RandomFamily {
  /** `general.architecture`, which also begins the keys of its metadata. */
  readonly name: string;
  /** What the names of its models say of it; empty for Llama's. */
  readonly suffix: string;
  /** Whether attention and feed-forward stand side by side, behind one norm. */
  readonly hasOneNorm: boolean;
  /** Keys without the prefix. */
  metadata(architecture: Architecture): Record<string, GgufValue>;
  /** Tensors of the whole model that Llama's has not. */
  tensors(architecture: Architecture, maker: TensorMaker): GgufTensorSource[];
  attention(architecture: Architecture, block: string, maker: TensorMaker): GgufTensorSource[];
}

const count = (value: number): GgufValue => ({ type: 'uint32', value });
const real = (value: number): GgufValue => ({ type: 'float32', value });

const llama: RandomFamily = {
  name: 'llama',
  suffix: '',
  hasOneNorm: false,
  metadata: ({ kvHeads, headWidth }) => ({
    'attention.head_count_kv': count(kvHeads),
    'rope.dimension_count': count(headWidth),
    'attention.layer_norm_rms_epsilon': real(NORM_EPSILON),
  }),
  tensors: () => [],
  attention: ({ width, heads, kvHeads, headWidth }, block, { matrix }) => [
    matrix(`${block}.attn_q.weight`, [width, heads * headWidth], 1.5),
    matrix(`${block}.attn_k.weight`, [width, kvHeads * headWidth], 1.5),
    matrix(`${block}.attn_v.weight`, [width, kvHeads * headWidth], 1),
    matrix(`${block}.attn_output.weight`, [heads * headWidth, width], 1),
  ],
};

/** Cohere 2: three of four layers attend to a sliding window of so many tokens. */
function cohere2(window: number): RandomFamily {
  return {
    ...llama,
    name: 'cohere2',
    suffix: `window${window}`,
    hasOneNorm: true,
    metadata: ({ kvHeads, headWidth }) => ({
      'attention.head_count_kv': count(kvHeads),
      'rope.dimension_count': count(headWidth),
      'attention.layer_norm_epsilon': real(NORM_EPSILON),
      'attention.sliding_window': count(window),
      logit_scale: real(1),
    }),
  };
}

/** Llama with LongRoPE: contexts of more tokens than this have other rotary factors. */
function longRope(originalContext: number): RandomFamily {
  return {
    ...llama,
    suffix: `longrope${originalContext}`,
    metadata: (architecture) => ({
      ...llama.metadata(architecture),
      'rope.scaling.type': { type: 'string', value: 'longrope' },
      'rope.scaling.original_context_length': count(originalContext),
    }),
    tensors: ({ headWidth }, { values }) => [
      values(
        'rope_factors_long.weight',
        Array.from({ length: headWidth / 2 }, (_, index) => 2 + index / 4),
      ),
      values('rope_factors_short.weight', Array<number>(headWidth / 2).fill(1)),
    ],
  };
}

/** Qwen2-VL: rotary positions in sections (M-RoPE), so that a cell of its cache keeps more than a position. */
const qwen2vl: RandomFamily = {
  ...llama,
  name: 'qwen2vl',
  suffix: 'mrope',
  metadata: (architecture) => ({
    ...llama.metadata(architecture),
    'rope.dimension_sections': {
      type: 'array',
      of: 'int32',
      value: [architecture.headWidth / 8, (architecture.headWidth * 3) / 16, (architecture.headWidth * 3) / 16, 0],
    },
  }),
};

/** Numbers of a head that stand for its position, of the others, and of what keys and values share. */
const MLA = { rope: 16, plain: 32, shared: 64 };

/** DeepSeek 2 without experts: multi-head latent attention, whose cache holds keys and no values. */
const deepSeek2: RandomFamily = {
  ...llama,
  name: 'deepseek2',
  suffix: 'mla',
  metadata: ({ layers, feedForward }) => ({
    'attention.head_count_kv': count(1),
    'rope.dimension_count': count(MLA.rope),
    'attention.layer_norm_rms_epsilon': real(NORM_EPSILON),
    leading_dense_block_count: count(layers),
    'attention.q_lora_rank': count(0),
    'attention.kv_lora_rank': count(MLA.shared),
    'attention.key_length': count(MLA.shared + MLA.rope),
    'attention.value_length': count(MLA.shared),
    'attention.key_length_mla': count(MLA.plain + MLA.rope),
    'attention.value_length_mla': count(MLA.plain),
    expert_feed_forward_length: count(feedForward),
    expert_shared_count: count(0),
  }),
  attention: ({ width, heads }, block, { matrix, values }) => [
    matrix(`${block}.attn_q.weight`, [width, heads * (MLA.plain + MLA.rope)], 1.5),
    matrix(`${block}.attn_kv_a_mqa.weight`, [width, MLA.shared + MLA.rope], 1.5),
    values(`${block}.attn_kv_a_norm.weight`, Array<number>(MLA.shared).fill(1)),
    matrix(`${block}.attn_k_b.weight`, [MLA.plain, MLA.shared, heads], 1.5),
    matrix(`${block}.attn_v_b.weight`, [MLA.shared, MLA.plain, heads], 1),
    matrix(`${block}.attn_output.weight`, [heads * MLA.plain, width], 1),
  ],
};

/**
 * Reads what a model's name says of its family: nothing for Llama's, `window<tokens>`, `longrope<tokens>`, `mrope`,
 * `mla`.
 *
 * @returns `undefined` for a family that there is not.
 */
export function readFamily(text: string | undefined): RandomFamily | undefined {
  if (text === undefined) {
    return llama;
  }
  const [, name = '', digits] = /^([a-z]+)(\d*)$/.exec(text.toLowerCase()) ?? [];
  const tokens = Number(digits);
  if (digits === '') {
    return [qwen2vl, deepSeek2].find(({ suffix }) => suffix === name);
  }
  const ofTokens = new Map([
    ['window', cohere2],
    ['longrope', longRope],
  ]);
  return tokens > 0 ? ofTokens.get(name)?.(tokens) : undefined;
}
