import type { TypeObject } from 'koffi';
import { ffi } from './ffi.js';

/** An address in native memory; 0n and `null` both mean NULL. */
export type NativePointer = bigint;

/** `enum llama_flash_attn_type`. */
export const FLASH_ATTENTION_ENABLED = 1;

/**
 * Rows from which llama.cpp's CPU attention works in tiles (`GGML_FA_TILE_Q` in ggml/src/ggml-cpu/common.h). A batch of
 * fewer goes row by row, which sums the values up in 16-bit numbers; tiles sum in 32 bits.
 */
export const TILE_ROWS = 64;

/** How keys and values can stand in the cells, with llama.cpp's numbers (`enum ggml_type`). */
export const KV_TYPES = { f16: 1, q8_0: 8 } as const;
export type KvType = keyof typeof KV_TYPES;

/** `struct llama_batch`: parallel arrays of `n_tokens` entries in native memory. */
export interface BatchStruct {
  n_tokens: number;
  token: NativePointer;
  embd: NativePointer | null;
  pos: NativePointer;
  n_seq_id: NativePointer;
  seq_id: NativePointer;
  logits: NativePointer;
}

/** `struct llama_token_data`: its size in bytes, and where its fields stand, counted in fields of four bytes. */
export const TOKEN_DATA = { bytes: 12, id: 0, logit: 1 } as const;

/** `struct llama_token_data_array`: its size, and where its fields stand, in bytes. */
export const TOKEN_DATA_ARRAY = { bytes: 32, data: 0, size: 8, selected: 16, sorted: 24 } as const;

/** A field: its C type, and the value that the library's own defaults must have. */
type Field =
  | readonly [type: 'int32' | 'uint32' | 'float' | 'size_t', defaultValue: number]
  | readonly [type: 'bool', defaultValue: boolean]
  | readonly [type: 'void *', defaultValue: null];

/** One row a field, in the header's order. */
type Layout = Readonly<Record<string, Field>>;

/** What a struct of a layout holds. */
type Struct<T extends Layout> = {
  [Name in keyof T]: T[Name][0] extends 'bool' ? boolean : T[Name][0] extends 'void *' ? NativePointer | null : number;
};

/**
 * `struct llama_model_params` of llama.cpp 0.5.0 with the defaults of `llama_model_default_params()`
 * (src/llama-model.cpp).
 */
export const MODEL_PARAMS_LAYOUT = {
  devices: ['void *', null],
  tensor_buft_overrides: ['void *', null],
  n_gpu_layers: ['int32', -1],
  split_mode: ['int32', 1],
  load_mode: ['int32', -1],
  lazy_mode: ['int32', 1],
  main_gpu: ['int32', 0],
  tensor_split: ['void *', null],
  progress_callback: ['void *', null],
  progress_callback_user_data: ['void *', null],
  kv_overrides: ['void *', null],
  vocab_only: ['bool', false],
  check_tensors: ['bool', false],
  use_extra_bufts: ['bool', true],
  no_host: ['bool', false],
  no_alloc: ['bool', false],
  load_mtp: ['bool', false],
} as const satisfies Layout;
export type ModelParams = Struct<typeof MODEL_PARAMS_LAYOUT>;

/** `struct llama_context_params`, likewise (src/llama-context.cpp). */
export const CONTEXT_PARAMS_LAYOUT = {
  n_ctx: ['uint32', 512],
  n_batch: ['uint32', 2048],
  n_ubatch: ['uint32', 512],
  n_seq_max: ['uint32', 1],
  n_rs_seq: ['uint32', 0],
  n_outputs_max: ['uint32', 0],
  n_outputs_max_per_seq: ['uint32', 1],
  n_threads: ['int32', 4],
  n_threads_batch: ['int32', 4],
  ctx_type: ['int32', 0],
  rope_scaling_type: ['int32', -1],
  pooling_type: ['int32', -1],
  attention_type: ['int32', -1],
  flash_attn_type: ['int32', -1],
  rope_freq_base: ['float', 0],
  rope_freq_scale: ['float', 0],
  yarn_ext_factor: ['float', -1],
  yarn_attn_factor: ['float', -1],
  yarn_beta_fast: ['float', -1],
  yarn_beta_slow: ['float', -1],
  yarn_orig_ctx: ['uint32', 0],
  defrag_thold: ['float', -1],
  cb_eval: ['void *', null],
  cb_eval_user_data: ['void *', null],
  type_k: ['int32', KV_TYPES.f16],
  type_v: ['int32', KV_TYPES.f16],
  abort_callback: ['void *', null],
  abort_callback_data: ['void *', null],
  embeddings: ['bool', false],
  offload_kqv: ['bool', true],
  no_perf: ['bool', true],
  op_offload: ['bool', true],
  swa_full: ['bool', true],
  kv_unified: ['bool', false],
  samplers: ['void *', null],
  n_samplers: ['size_t', 0],
  ctx_other: ['void *', null],
} as const satisfies Layout;
export type ContextParams = Struct<typeof CONTEXT_PARAMS_LAYOUT>;

function structOf(layout: Layout): TypeObject {
  return ffi().struct(Object.fromEntries(Object.entries(layout).map(([name, [type]]) => [name, type])));
}

/** FFI types of the structs that cross the boundary by value. */
export function structTypes(): Readonly<Record<'modelParams' | 'contextParams' | 'batch', TypeObject>> {
  const batch = ffi().struct({
    n_tokens: 'int32',
    token: 'void *',
    embd: 'void *',
    pos: 'void *',
    n_seq_id: 'void *',
    seq_id: 'void *',
    logits: 'void *',
  });
  return { modelParams: structOf(MODEL_PARAMS_LAYOUT), contextParams: structOf(CONTEXT_PARAMS_LAYOUT), batch };
}

/** The fields whose value is not the documented default: in a library with another layout, other values stand there. */
export function fieldsThatDiffer<T extends Layout>(layout: T, actual: Struct<T>): string[] {
  return Object.keys(layout).filter((name) => actual[name] !== layout[name]![1]);
}
