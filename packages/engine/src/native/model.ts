import { WarmpathError } from '@warmpath/core';
import type { LlamaBindings } from './bindings.js';
import type { NativePointer } from './structs.js';
import type { AttentionShape } from './tile-padding.js';
import { Vocabulary } from './vocabulary.js';

/** A model's weights in memory. Free every context of it first, then the model. */
export class NativeModel {
  readonly #bindings: LlamaBindings;
  readonly #model: NativePointer;
  readonly vocabulary: Vocabulary;
  /** Context length that the model was trained for, in tokens. */
  readonly trainedContext: number;
  readonly parameterCount: number;
  /** Whether some layers attend to a window only; a state of their cells leaves out what lies before it. */
  readonly hasSlidingWindow: boolean;
  /** What its attention costs, on a number of threads. */
  readonly attentionShape: Omit<AttentionShape, 'threads'>;
  /** The Jinja chat template of the file's metadata. */
  readonly chatTemplate: string | undefined;

  private constructor(bindings: LlamaBindings, model: NativePointer) {
    this.#bindings = bindings;
    this.#model = model;
    this.vocabulary = new Vocabulary(bindings, bindings.getVocab(model));
    this.trainedContext = bindings.trainedContext(model);
    this.parameterCount = Number(bindings.parameterCount(model));
    this.hasSlidingWindow = bindings.slidingWindow(model) > 0;
    this.attentionShape = attentionShape(bindings, model, this);
    this.chatTemplate = bindings.chatTemplate(model, null) ?? undefined;
  }

  /**
   * Loads a GGUF file without blocking the event loop.
   *
   * @throws WARMPATH_MODEL_FILE when llama.cpp refuses the file, or when the model's memory cannot be cut at any token
   *   (recurrent and hybrid models), which a shared prefix cache needs.
   */
  static async load(bindings: LlamaBindings, path: string): Promise<NativeModel> {
    const params = { ...bindings.modelDefaultParams(), n_gpu_layers: 0 };
    const pointer = await new Promise<NativePointer | null>((resolve, reject) => {
      bindings.modelLoadFromFile.async(path, params, (error: unknown, result) =>
        error === null || error === undefined ? resolve(result) : reject(error),
      );
    });
    if (pointer === null) {
      throw new WarmpathError('WARMPATH_MODEL_FILE', { path: 'model', detail: 'llama.cpp cannot load this GGUF file' });
    }
    const obstacle = [
      bindings.isRecurrent(pointer) && 'is recurrent',
      bindings.isHybrid(pointer) && 'is partly recurrent',
      bindings.isDiffusion(pointer) && 'is a diffusion model',
      bindings.hasEncoder(pointer) && 'has an encoder',
    ].find((reason) => reason !== false);
    if (obstacle !== undefined) {
      bindings.modelFree(pointer);
      throw new WarmpathError('WARMPATH_MODEL_FILE', {
        path: 'model',
        detail: `This model ${obstacle}; the embedded engine runs decoder models whose cache can be cut at any token`,
      });
    }
    return new NativeModel(bindings, pointer);
  }

  /** The native handle, for creating a context. */
  get pointer(): NativePointer {
    return this.#model;
  }

  /** Waits for what is tokenised on a native thread. */
  async free(): Promise<void> {
    await this.vocabulary.settled();
    this.#bindings.modelFree(this.#model);
  }
}

function attentionShape(
  bindings: LlamaBindings,
  model: NativePointer,
  { parameterCount, vocabulary }: Pick<NativeModel, 'parameterCount' | 'vocabulary'>,
): Omit<AttentionShape, 'threads'> {
  const heads = bindings.heads(model);
  const width = bindings.width(model);
  const architecture = metadata(bindings, model, 'general.architecture');
  const keyLength = Number(metadata(bindings, model, `${architecture}.attention.key_length`));
  return {
    layers: bindings.layers(model),
    heads,
    headWidth: keyLength > 0 ? keyLength : Math.round(width / heads),
    // A token is looked up in the embedding, not multiplied with it.
    weights: Math.max(0, parameterCount - vocabulary.size * width),
    wideVectors: / AVX512 = 1 /.test(bindings.systemInfo()),
  };
}

/** A value of the file's metadata; empty when there is none. */
function metadata(bindings: LlamaBindings, model: NativePointer, key: string): string {
  const text = Buffer.alloc(128);
  const length = bindings.metadata(model, key, text, text.length);
  return length > 0 ? text.toString('utf8', 0, Math.min(length, text.length - 1)) : '';
}
