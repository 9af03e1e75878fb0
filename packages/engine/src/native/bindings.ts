import type { KoffiFunc, LibraryHandle, TypeObject } from 'koffi';
import { type CpuVariant, type CpuVariantChoice, loadCpuVariant } from './cpu-variant.js';
import { ffi } from './ffi.js';
import { findLibraryDirectory, LLAMA_RELEASE, loadLibraries, mismatch, type NativeLibraries } from './library.js';
import { type ErrorsDuring, nativeLog } from './native-log.js';
import {
  type BatchStruct,
  CONTEXT_PARAMS_LAYOUT,
  type ContextParams,
  fieldsThatDiffer,
  MODEL_PARAMS_LAYOUT,
  type ModelParams,
  type NativePointer,
  structTypes,
} from './structs.js';

/** What the C types of llama.h are here. */
interface Values {
  void: undefined;
  bool: boolean;
  int32: number;
  uint32: number;
  uint64: number | bigint;
  size_t: number;
  str: string | null;
  'void *': NativePointer | null;
  modelParams: ModelParams;
  contextParams: ContextParams;
  batch: BatchStruct;
}
type CType = keyof Values;
/** Memory of JavaScript may stand for a pointer. */
type Argument<Type extends CType> = Type extends 'void *' ? Values[Type] | Uint8Array | Int32Array : Values[Type];
type NativeFunction<Result extends CType, Parameters extends readonly CType[]> = (
  ...values: { -readonly [Index in keyof Parameters]: Argument<Parameters[Index]> }
) => Values[Result];

/** The functions of llama.h that the engine calls, and what the process has loaded. */
export interface LlamaBindings extends Readonly<ReturnType<typeof bindFunctions>> {
  /** The CPU code that is loaded. */
  readonly cpuVariant: CpuVariant;
  /** Learns from llama.cpp's log why some work fails. */
  readonly errorsDuring: ErrorsDuring;
  readonly threadPools: ThreadPools;
}

/** How the process's llama.cpp is started. */
export interface LlamaSettings extends CpuVariantChoice {
  /** Leave llama.cpp's own log on stderr. */
  readonly nativeLog?: boolean | undefined;
  /** Layers for a GPU: with some, the package that uses one is loaded. */
  readonly gpuLayers?: number | undefined;
}

let bound: LlamaBindings | undefined;

/**
 * The process's llama.cpp, loaded, checked and initialised on the first call, whose settings count: the native library
 * has process-wide state. @throws WARMPATH_NATIVE_MISSING, WARMPATH_NATIVE_MISMATCH.
 */
export function llamaBindings(settings: LlamaSettings = {}): LlamaBindings {
  if (bound === undefined) {
    const libraries = loadLibraries(findLibraryDirectory(settings));
    const functions = bindFunctions(libraries.llama);
    checkAbi(functions);
    bound = { ...functions, ...initialise(libraries, settings), threadPools: threadPools(libraries) };
  }
  return bound;
}

/**
 * Refuses a library of another version or struct layout: other structs would be read as wrong values without an error,
 * so the defaults are compared field by field. @throws WARMPATH_NATIVE_MISMATCH
 */
export function checkAbi(
  bindings: Pick<LlamaBindings, 'version' | 'modelDefaultParams' | 'contextDefaultParams'>,
): void {
  const version = bindings.version();
  // Packaged builds carry a suffix: «0.5.0-dev» is the build of release v0.5.0.
  if (`v${version?.split('-')[0]}` !== LLAMA_RELEASE) {
    throw mismatch(`The library calls itself llama.cpp ${version}`);
  }
  const model = fieldsThatDiffer(MODEL_PARAMS_LAYOUT, bindings.modelDefaultParams());
  if (model.length > 0) {
    throw mismatch(`llama_model_params has another layout (${model.join(', ')})`);
  }
  const context = fieldsThatDiffer(CONTEXT_PARAMS_LAYOUT, bindings.contextDefaultParams());
  if (context.length > 0) {
    throw mismatch(`llama_context_params has another layout (${context.join(', ')})`);
  }
}

function initialise(
  libraries: NativeLibraries,
  settings: LlamaSettings,
): Pick<LlamaBindings, 'errorsDuring' | 'cpuVariant'> {
  const errorsDuring = nativeLog(libraries, settings.nativeLog === true);
  const cpuVariant = loadCpuVariant(libraries, settings);
  libraries.llama.func('llama_backend_init', 'void', [])();
  return { errorsDuring, cpuVariant };
}

/** Names and order are the header's; see it for what each does. */
function bindFunctions(llama: LibraryHandle) {
  const structs: Partial<Record<CType, TypeObject>> = structTypes();
  const bindAsync = <Result extends CType, const Parameters extends readonly CType[]>(
    name: string,
    result: Result,
    parameters: Parameters,
  ) => {
    const [type, ...types] = [result, ...parameters].map((each) => structs[each] ?? each);
    try {
      return llama.func(name, type!, types) as unknown as KoffiFunc<NativeFunction<Result, Parameters>>;
    } catch {
      throw mismatch(`The library has no function ${name}`);
    }
  };
  const bind = <Result extends CType, const Parameters extends readonly CType[]>(
    ...signature: [name: string, result: Result, parameters: Parameters]
  ): NativeFunction<Result, Parameters> => bindAsync(...signature);
  const pointer = 'void *';
  return {
    version: bind('llama_version', 'str', []),
    modelDefaultParams: bind('llama_model_default_params', 'modelParams', []),
    contextDefaultParams: bind('llama_context_default_params', 'contextParams', []),
    modelLoadFromFile: bindAsync('llama_model_load_from_file', pointer, ['str', 'modelParams']),
    modelFree: bind('llama_model_free', 'void', [pointer]),
    initFromModel: bindAsync('llama_init_from_model', pointer, [pointer, 'contextParams']),
    free: bind('llama_free', 'void', [pointer]),
    contextCells: bind('llama_n_ctx', 'uint32', [pointer]),
    getMemory: bind('llama_get_memory', pointer, [pointer]),
    getVocab: bind('llama_model_get_vocab', pointer, [pointer]),
    trainedContext: bind('llama_model_n_ctx_train', 'int32', [pointer]),
    parameterCount: bind('llama_model_n_params', 'uint64', [pointer]),
    slidingWindow: bind('llama_model_n_swa', 'int32', [pointer]),
    layers: bind('llama_model_n_layer', 'int32', [pointer]),
    width: bind('llama_model_n_embd', 'int32', [pointer]),
    /** Writes a value of the file's metadata as text; answers its length, or -1 when there is none. */
    metadata: bind('llama_model_meta_val_str', 'int32', [pointer, 'str', pointer, 'size_t']),
    /** Whether a loaded library computes on a GPU, and there is one. */
    supportsGpu: bind('llama_supports_gpu_offload', 'bool', []),
    /** What the loaded CPU library was compiled to use, as `NAME = 1 | …`. */
    systemInfo: bind('llama_print_system_info', 'str', []),
    isRecurrent: bind('llama_model_is_recurrent', 'bool', [pointer]),
    isHybrid: bind('llama_model_is_hybrid', 'bool', [pointer]),
    isDiffusion: bind('llama_model_is_diffusion', 'bool', [pointer]),
    hasEncoder: bind('llama_model_has_encoder', 'bool', [pointer]),
    chatTemplate: bind('llama_model_chat_template', 'str', [pointer, 'str']),
    vocabSize: bind('llama_vocab_n_tokens', 'int32', [pointer]),
    vocabText: bind('llama_vocab_get_text', 'str', [pointer, 'int32']),
    vocabAttributes: bind('llama_vocab_get_attr', 'int32', [pointer, 'int32']),
    isEndOfGeneration: bind('llama_vocab_is_eog', 'bool', [pointer, 'int32']),
    bosToken: bind('llama_vocab_bos', 'int32', [pointer]),
    eosToken: bind('llama_vocab_eos', 'int32', [pointer]),
    addsBos: bind('llama_vocab_get_add_bos', 'bool', [pointer]),
    tokenize: bindAsync('llama_tokenize', 'int32', [pointer, pointer, 'int32', pointer, 'int32', 'bool', 'bool']),
    tokenToPiece: bind('llama_token_to_piece', 'int32', [pointer, 'int32', pointer, 'int32', 'int32', 'bool']),
    sequenceRemove: bind('llama_memory_seq_rm', 'bool', [pointer, 'int32', 'int32', 'int32']),
    sequenceCopy: bind('llama_memory_seq_cp', 'void', [pointer, 'int32', 'int32', 'int32', 'int32']),
    sequenceLastPosition: bind('llama_memory_seq_pos_max', 'int32', [pointer, 'int32']),
    sequenceStateBytes: bind('llama_state_seq_get_size', 'size_t', [pointer, 'int32']),
    sequenceStateRead: bind('llama_state_seq_get_data', 'size_t', [pointer, pointer, 'size_t', 'int32']),
    sequenceStateWrite: bind('llama_state_seq_set_data', 'size_t', [pointer, pointer, 'size_t', 'int32']),
    attachThreadPool: bind('llama_attach_threadpool', 'void', [pointer, pointer, pointer]),
    decode: bindAsync('llama_decode', 'int32', [pointer, 'batch']),
    synchronize: bindAsync('llama_synchronize', 'void', [pointer]),
    /** The pooled vector of a sequence. */
    sequenceEmbedding: bind('llama_get_embeddings_seq', pointer, [pointer, 'int32']),
    logitsAt: bind('llama_get_logits_ith', pointer, [pointer, 'int32']),
    samplerInitGrammar: bind('llama_sampler_init_grammar', pointer, [pointer, 'str', 'str']),
    /** Takes a `llama_token_data_array`. */
    samplerApply: bind('llama_sampler_apply', 'void', [pointer, pointer]),
    samplerAccept: bind('llama_sampler_accept', 'void', [pointer, 'int32']),
    samplerFree: bind('llama_sampler_free', 'void', [pointer]),
  };
}

/** `struct ggml_threadpool_params` (ggml.h): 512 marks of cores, three numbers and two flags, with room to spare. */
const PARAMS_BYTES = 1024;

/** Threads that compute, and sleep when there is nothing to compute. */
interface ThreadPools {
  /** `undefined` where the library has none to give; then it starts threads for every step. */
  create(threads: number): NativePointer | undefined;
  /** Every context that it was given to must be freed first. */
  free(pool: NativePointer): void;
}

/**
 * The pools of the CPU code that the process has loaded. Without one, llama.cpp starts its threads anew for every
 * graph, and a new thread may begin on the core of the one that waits for it.
 */
function threadPools({ ggml, ggmlBase }: NativeLibraries): ThreadPools {
  const registry = ggml.func('ggml_backend_reg_by_name', 'void *', ['str'])('CPU') as NativePointer | null;
  const address = ggmlBase.func('ggml_backend_reg_get_proc_address', 'void *', ['void *', 'str']);
  const initialise = ggmlBase.func('ggml_threadpool_params_init', 'void', ['void *', 'int']);
  const find = (name: string): NativePointer | null =>
    registry === null ? null : (address(registry, name) as NativePointer | null);
  const [creating, freeing] = [find('ggml_threadpool_new'), find('ggml_threadpool_free')];
  const [creator, freer] = [ffi().proto('void *(void *)'), ffi().proto('void (void *)')];
  return {
    create(threads) {
      if (creating === null || freeing === null || threads < 2) {
        return undefined;
      }
      const params = Buffer.alloc(PARAMS_BYTES);
      initialise(params, threads);
      return (ffi().call(creating, creator, params) as NativePointer | null) ?? undefined;
    },
    free(pool) {
      ffi().call(freeing, freer, pool);
    },
  };
}
