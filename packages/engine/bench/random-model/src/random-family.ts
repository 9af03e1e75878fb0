import type { GgufValue } from './gguf-format.js';
import type { GgufTensorSource } from './gguf-writer.js';
import type { Architecture } from './random-architecture.js';

const NORM_EPSILON = 1e-5;

/** Makes tensors of random or given weights. */
export interface TensorMaker {
  /** Random weights whose outputs have `gain` times the spread of their inputs; of the model's type unless said. */
  matrix(name: string, shape: readonly number[], gain: number, type?: 'f32'): GgufTensorSource;
  /** Given 32-bit weights; a vector unless a shape is given. */
  values(name: string, values: readonly number[], shape?: readonly number[]): GgufTensorSource;
}

/** What tells the models of one family from Llama's: how llama.cpp calls it, its metadata and its blocks. */
export interface RandomFamily {
  /** `general.architecture`, which also begins the keys of its metadata. */
  readonly name: string;
  /** What the names of its models say of it; empty for Llama's. */
  readonly suffix: string;
  /** Keys without the prefix. */
  metadata(architecture: Architecture): Record<string, GgufValue>;
  /** Keys of its tokenizer that Llama's does not have, or has otherwise; without a prefix too. */
  readonly tokenizer?: Record<string, GgufValue>;
  /** Tensors of the whole model beside the embedding, which is the output's too. */
  tensors(architecture: Architecture, maker: TensorMaker): GgufTensorSource[];
  /** The tensors of a layer, whose names begin with `block`. */
  layer(architecture: Architecture, block: string, maker: TensorMaker): GgufTensorSource[];
}

const count = (value: number): GgufValue => ({ type: 'uint32', value });
const real = (value: number): GgufValue => ({ type: 'float32', value });

const ones = (count: number): number[] => Array<number>(count).fill(1);

function attention(
  { width, heads, kvHeads, headWidth }: Architecture,
  block: string,
  { matrix }: TensorMaker,
): GgufTensorSource[] {
  return [
    matrix(`${block}.attn_q.weight`, [width, heads * headWidth], 1.5),
    matrix(`${block}.attn_k.weight`, [width, kvHeads * headWidth], 1.5),
    matrix(`${block}.attn_v.weight`, [width, kvHeads * headWidth], 1),
    matrix(`${block}.attn_output.weight`, [heads * headWidth, width], 1),
  ];
}

function feedForward({ width, feedForward: inner }: Architecture, block: string, { matrix }: TensorMaker) {
  return [
    matrix(`${block}.ffn_gate.weight`, [width, inner], 1),
    matrix(`${block}.ffn_up.weight`, [width, inner], 1),
    matrix(`${block}.ffn_down.weight`, [inner, width], 1),
  ];
}

/** A layer of most families: something that looks at other tokens, then a feed-forward part, each behind a norm. */
function layerOf(mixer: RandomFamily['layer']): RandomFamily['layer'] {
  return (architecture, block, maker) => [
    maker.values(`${block}.attn_norm.weight`, ones(architecture.width)),
    ...mixer(architecture, block, maker),
    maker.values(`${block}.ffn_norm.weight`, ones(architecture.width)),
    ...feedForward(architecture, block, maker),
  ];
}

const llama: RandomFamily = {
  name: 'llama',
  suffix: '',
  metadata: ({ kvHeads, headWidth }) => ({
    'attention.head_count_kv': count(kvHeads),
    'rope.dimension_count': count(headWidth),
    'attention.layer_norm_rms_epsilon': real(NORM_EPSILON),
  }),
  tensors: ({ width }, { values }) => [values('output_norm.weight', ones(width))],
  layer: layerOf(attention),
};

/** Llama for embeddings: the mean of a text's tokens. */
const embedding: RandomFamily = {
  ...llama,
  suffix: 'embedding',
  metadata: (architecture) => ({ ...llama.metadata(architecture), pooling_type: count(1) }),
};

const TOKEN_TYPES = 2;

/** Nomic BERT: every token attends to all, and nothing is generated. */
const encoder: RandomFamily = {
  name: 'nomic-bert',
  suffix: 'encoder',
  metadata: ({ headWidth }) => ({
    'attention.causal': { type: 'bool', value: false },
    'attention.layer_norm_epsilon': real(NORM_EPSILON),
    'rope.dimension_count': count(headWidth),
    pooling_type: count(1),
  }),
  tokenizer: { token_type_count: count(TOKEN_TYPES), add_eos_token: { type: 'bool', value: true } },
  tensors: ({ width }, { values, matrix }) => [
    matrix('token_types.weight', [width, TOKEN_TYPES], 1, 'f32'),
    ...layerNorm('token_embd_norm', width, values),
  ],
  layer: (architecture, block, maker) => [
    ...attention({ ...architecture, kvHeads: architecture.heads }, block, maker),
    ...layerNorm(`${block}.attn_output_norm`, architecture.width, maker.values),
    ...feedForward(architecture, block, maker),
    ...layerNorm(`${block}.layer_output_norm`, architecture.width, maker.values),
  ],
};

function layerNorm(name: string, width: number, values: TensorMaker['values']): GgufTensorSource[] {
  return [values(`${name}.weight`, ones(width)), values(`${name}.bias`, Array<number>(width).fill(0))];
}

/** Cohere 2: three of four layers attend to a sliding window of so many tokens. */
function cohere2(window: number): RandomFamily {
  return {
    ...llama,
    name: 'cohere2',
    suffix: `window${window}`,
    metadata: ({ kvHeads, headWidth }) => ({
      'attention.head_count_kv': count(kvHeads),
      'rope.dimension_count': count(headWidth),
      'attention.layer_norm_epsilon': real(NORM_EPSILON),
      'attention.sliding_window': count(window),
      logit_scale: real(1),
    }),
    // Attention and feed-forward stand side by side, behind one norm.
    layer: (architecture, block, maker) => [
      maker.values(`${block}.attn_norm.weight`, ones(architecture.width)),
      ...attention(architecture, block, maker),
      ...feedForward(architecture, block, maker),
    ],
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
    tensors: (architecture, maker) => {
      const pairs = architecture.headWidth / 2;
      const long = Array.from({ length: pairs }, (_, index) => 2 + index / 4);
      return [
        ...llama.tensors(architecture, maker),
        maker.values('rope_factors_long.weight', long),
        maker.values('rope_factors_short.weight', ones(pairs)),
      ];
    },
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
  layer: layerOf(({ width, heads }, block, { matrix, values }) => [
    matrix(`${block}.attn_q.weight`, [width, heads * (MLA.plain + MLA.rope)], 1.5),
    matrix(`${block}.attn_kv_a_mqa.weight`, [width, MLA.shared + MLA.rope], 1.5),
    values(`${block}.attn_kv_a_norm.weight`, ones(MLA.shared)),
    matrix(`${block}.attn_k_b.weight`, [MLA.plain, MLA.shared, heads], 1.5),
    matrix(`${block}.attn_v_b.weight`, [MLA.shared, MLA.plain, heads], 1),
    matrix(`${block}.attn_output.weight`, [heads * MLA.plain, width], 1),
  ]),
};

/** Numbers of a state-space layer: tokens that it convolves, numbers of a channel's state, and of its time step. */
const SSM = { kernel: 4, state: 16, timeStep: 32 };

/** Mamba: a state in place of a cache, which says nothing of the tokens before its last. */
const mamba: RandomFamily = {
  ...llama,
  name: 'mamba',
  suffix: 'recurrent',
  metadata: ({ width }) => ({
    'attention.head_count': count(0),
    'attention.layer_norm_rms_epsilon': real(NORM_EPSILON),
    feed_forward_length: count(0),
    'ssm.conv_kernel': count(SSM.kernel),
    'ssm.inner_size': count(2 * width),
    'ssm.state_size': count(SSM.state),
    'ssm.time_step_rank': count(SSM.timeStep),
  }),
  layer: ({ width }, block, { matrix, values }) => {
    const inner = 2 * width;
    const decay = Array.from({ length: SSM.state * inner }, (_, index) => -1 - (index % SSM.state));
    return [
      values(`${block}.attn_norm.weight`, ones(width)),
      matrix(`${block}.ssm_in.weight`, [width, 2 * inner], 1),
      matrix(`${block}.ssm_conv1d.weight`, [SSM.kernel, inner], 1, 'f32'),
      values(`${block}.ssm_conv1d.bias`, Array<number>(inner).fill(0)),
      matrix(`${block}.ssm_x.weight`, [inner, SSM.timeStep + 2 * SSM.state], 1),
      matrix(`${block}.ssm_dt.weight`, [SSM.timeStep, inner], 1),
      values(`${block}.ssm_dt.bias`, Array<number>(inner).fill(-2)),
      values(`${block}.ssm_a`, decay, [SSM.state, inner]),
      values(`${block}.ssm_d`, ones(inner)),
      matrix(`${block}.ssm_out.weight`, [inner, width], 1),
    ];
  },
};

/** Tokens that a short convolution looks back at, its own included. */
const SHORT_CONVOLUTION = 3;

/** LFM 2: every other layer a short convolution with a state, the others attention with a cache. */
const lfm2: RandomFamily = {
  ...llama,
  name: 'lfm2',
  suffix: 'hybrid',
  metadata: (architecture) => ({
    ...llama.metadata(architecture),
    'attention.head_count_kv': {
      type: 'array',
      of: 'int32',
      value: Array.from({ length: architecture.layers }, (_, layer) => (layer % 2 === 0 ? 0 : architecture.kvHeads)),
    },
    'shortconv.l_cache': count(SHORT_CONVOLUTION),
  }),
  tensors: ({ width }, { values }) => [values('token_embd_norm.weight', ones(width))],
  layer: layerOf((architecture, block, maker) => {
    const { width, headWidth } = architecture;
    const isAttention = Number(block.split('.')[1]) % 2 === 1;
    return isAttention
      ? [
          ...attention(architecture, block, maker),
          maker.values(`${block}.attn_q_norm.weight`, ones(headWidth)),
          maker.values(`${block}.attn_k_norm.weight`, ones(headWidth)),
        ]
      : [
          maker.matrix(`${block}.shortconv.conv.weight`, [SHORT_CONVOLUTION, width], 1, 'f32'),
          maker.matrix(`${block}.shortconv.in_proj.weight`, [width, 3 * width], 1),
          maker.matrix(`${block}.shortconv.out_proj.weight`, [width, width], 1),
        ];
  }),
};

/**
 * Reads what a model's name says of its family: nothing for Llama's, `window<tokens>`, `longrope<tokens>`, `mrope`,
 * `mla`, `recurrent`, `hybrid`, `embedding`, `encoder`.
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
    return [qwen2vl, deepSeek2, mamba, lfm2, embedding, encoder].find(({ suffix }) => suffix === name);
  }
  const ofTokens = new Map([
    ['window', cohere2],
    ['longrope', longRope],
  ]);
  return tokens > 0 ? ofTokens.get(name)?.(tokens) : undefined;
}
