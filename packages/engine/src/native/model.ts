import { WarmpathError } from '@warmpath/core';
import type { LlamaBindings } from './bindings.js';
import { callBeside } from './ffi.js';
import type { NativePointer } from './structs.js';
import { Vocabulary } from './vocabulary.js';

/** Where what one request computed may serve another: at any token, only where its state was saved, or nowhere. */
export type EngineReuse = 'prefix' | 'checkpoint' | 'none';

/**
 * Architectures whose states cannot be cut or copied by position: compressed cells (DeepSeek 4, dots3.note), transposed
 * values because flash attention is refused (Grok), or more than cells and recurrent states (Qwen 4).
 */
const WITHOUT_REUSE: ReadonlySet<string> = new Set(['deepseek4', 'dots3note', 'grok', 'qwen4exp']);

/** A model's weights in memory. Free every context of it first, then the model. */
export class NativeModel {
  readonly #bindings: LlamaBindings;
  readonly #model: NativePointer;
  readonly vocabulary: Vocabulary;
  /** What its file calls it (`general.name`); empty where it does not say. */
  readonly name: string;
  /** The name of its architecture in llama.cpp, as `qwen3`. */
  readonly architecture: string;
  /** Context length that the model was trained for, in tokens. */
  readonly trainedContext: number;
  readonly parameterCount: number;
  /** Numbers of a token's vector, and how llama.cpp calls the way to one vector a text; 0 without one. */
  readonly width: number;
  readonly layers: number;
  readonly poolingType: number;
  /** Whether it generates text; encoders (BERT) make embeddings alone. */
  readonly generatesText: boolean;
  /** Whether its memory keeps a state for each sequence, which cannot be cut, in place of some or all cells. */
  readonly isRecurrent: boolean;
  /** Buffers of cells that its layers of attention have: two where some attend to a sliding window. */
  readonly attentionBuffers: number;
  /** Tokens that some layers attend to at most; 0 when all attend to all tokens before. */
  readonly slidingWindow: number;
  /** A prefix can be shared where cells are of their own token alone; a recurrent state is of all tokens so far. */
  readonly reuse: EngineReuse;
  /**
   * Tokens of context before it was stretched by LongRoPE: larger contexts compute other keys. Infinite for other
   * models.
   */
  readonly originalContext: number;
  /** The Jinja chat template of the file's metadata. */
  readonly chatTemplate: string | undefined;
  /** Its second one, for requests with tools, of the few models that have two. */
  readonly toolUseTemplate: string | undefined;

  private constructor(
    bindings: LlamaBindings,
    model: NativePointer,
    /** Whether a GPU computes some of its layers. */
    readonly usesGpu: boolean,
  ) {
    this.#bindings = bindings;
    this.#model = model;
    this.vocabulary = new Vocabulary(bindings, bindings.getVocab(model)!);
    this.trainedContext = bindings.trainedContext(model);
    this.parameterCount = Number(bindings.parameterCount(model));
    this.isRecurrent = bindings.isRecurrent(model) || bindings.isHybrid(model);
    this.width = bindings.width(model);
    this.layers = bindings.layers(model);
    this.slidingWindow = Math.max(0, bindings.slidingWindow(model));
    this.attentionBuffers = bindings.isRecurrent(model) ? 0 : this.slidingWindow > 0 ? 2 : 1;
    this.name = metadata(bindings, model, 'general.name');
    const architecture = metadata(bindings, model, 'general.architecture');
    this.poolingType = Number(metadata(bindings, model, `${architecture}.pooling_type`));
    this.architecture = architecture;
    this.generatesText = metadata(bindings, model, `${architecture}.attention.causal`) !== 'false';
    const isShared = this.generatesText && !WITHOUT_REUSE.has(architecture);
    this.reuse = !isShared ? 'none' : this.isRecurrent ? 'checkpoint' : 'prefix';
    const isLongRope = metadata(bindings, model, `${architecture}.rope.scaling.type`) === 'longrope';
    const original = Number(metadata(bindings, model, `${architecture}.rope.scaling.original_context_length`));
    this.originalContext = isLongRope && original > 0 ? original : Number.POSITIVE_INFINITY;
    this.chatTemplate = bindings.chatTemplate(model, null) ?? undefined;
    this.toolUseTemplate = bindings.chatTemplate(model, 'tool_use') ?? undefined;
  }

  /**
   * Loads a GGUF file without blocking the event loop.
   * @throws WARMPATH_ENGINE_FAILED when there is no GPU for its layers; WARMPATH_MODEL_FILE for a damaged file;
   *   WARMPATH_MODEL_UNSUPPORTED when llama.cpp refuses the model, or it is no decoder of text.
   */
  static async load(bindings: LlamaBindings, path: string, gpuLayers = 0): Promise<NativeModel> {
    if (gpuLayers > 0 && !bindings.supportsGpu()) {
      throw new WarmpathError('WARMPATH_ENGINE_FAILED', {
        path: 'gpuLayers',
        detail: 'llama.cpp finds no GPU that it can use here; install its driver, or leave gpuLayers out',
      });
    }
    const params = { ...bindings.modelDefaultParams(), n_gpu_layers: gpuLayers };
    const load = (): Promise<NativePointer | null> => callBeside(bindings.modelLoadFromFile, path, params);
    const pointer = await load();
    if (pointer === null) {
      const reason = await bindings.errorsDuring(load);
      if (/corrupted|failed to read/.test(reason)) {
        throw new WarmpathError('WARMPATH_MODEL_FILE', { path: 'model', detail: reason });
      }
      throw unsupported(reason || 'llama.cpp gives no reason');
    }
    const obstacle = [
      bindings.isDiffusion(pointer) && 'is a diffusion model',
      bindings.hasEncoder(pointer) && 'has an encoder and a decoder',
    ].find((reason) => reason !== false);
    if (obstacle !== undefined) {
      bindings.modelFree(pointer);
      throw unsupported(`This model ${obstacle}; the embedded engine runs models with one of both`);
    }
    return new NativeModel(bindings, pointer, gpuLayers > 0);
  }

  /** The native handle, for creating a context. */
  get pointer(): NativePointer {
    return this.#model;
  }

  /** Waits for what is tokenised on a native thread. */
  async free(): Promise<void> {
    await this.vocabulary.settled();
    this.vocabulary.grammars.free();
    this.#bindings.modelFree(this.#model);
  }
}

function unsupported(detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_MODEL_UNSUPPORTED', { path: 'model', detail });
}

/** A value of the file's metadata; empty when there is none. */
function metadata(bindings: LlamaBindings, model: NativePointer, key: string): string {
  const text = Buffer.alloc(128);
  const length = bindings.metadata(model, key, text, text.length);
  return length > 0 ? text.toString('utf8', 0, Math.min(length, text.length - 1)) : '';
}
