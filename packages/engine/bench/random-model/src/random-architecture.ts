/** Dimensions of a llama-architecture model. */
export interface Architecture {
  readonly layers: number;
  /** Width of the residual stream. */
  readonly width: number;
  readonly feedForward: number;
  readonly heads: number;
  /** Heads that keep keys and values (grouped-query attention). */
  readonly kvHeads: number;
  readonly headWidth: number;
  /** Weights in all tensors together; the output shares the embedding's. */
  readonly parameters: number;
}

// Small open models have 20 to 130 channels of width for each layer (SmolLM 135M 19, GPT-2 small 64, Llama 3.2 1B 128).
const WIDTH_PER_LAYER = 64;
const MIN_LAYERS = 2;
const MAX_WIDTH = 4096;
const MAX_LAYERS = 64;
/** How much a relative error in size weighs against a factor in the ratio of width to layers. */
const SIZE_WEIGHT = 20;

/**
 * The architecture with about `parameters` weights whose proportions are nearest to those of real small models.
 * Every width is a multiple of 32, so that rows are made of whole q8_0 blocks. O(widths × layers), some 2 000
 * candidates.
 */
export function chooseArchitecture(parameters: number, vocabulary: number): Architecture {
  let best = architecture(64, MIN_LAYERS, vocabulary);
  let bestCost = Number.POSITIVE_INFINITY;
  for (let width = 64; width <= MAX_WIDTH; width += width < 256 ? 32 : 128) {
    for (let layers = MIN_LAYERS; layers <= MAX_LAYERS; layers++) {
      const candidate = architecture(width, layers, vocabulary);
      const sizeError = Math.abs(candidate.parameters - parameters) / parameters;
      const cost = SIZE_WEIGHT * sizeError + Math.abs(Math.log(width / (layers * WIDTH_PER_LAYER)));
      if (cost < bestCost) {
        best = candidate;
        bestCost = cost;
      }
    }
  }
  return best;
}

function architecture(width: number, layers: number, vocabulary: number): Architecture {
  const headWidth = width < 256 ? 32 : 64;
  const heads = width / headWidth;
  const kvHeads = heads % 2 === 0 ? heads / 2 : heads;
  const feedForward = Math.round((width * 8) / 3 / 32) * 32;
  const attention = 2 * width * width + 2 * width * kvHeads * headWidth;
  const norms = 2 * width;
  const parameters = vocabulary * width + width + layers * (attention + 3 * width * feedForward + norms);
  return { layers, width, feedForward, heads, kvHeads, headWidth, parameters };
}
