/** How the next token is chosen. */
export interface SamplingOptions {
  /** 0 takes the most likely token; otherwise the logits are divided by it. */
  readonly temperature: number;
  /** Nucleus sampling: only the most likely tokens whose probabilities add up to this; 1 keeps all. */
  readonly topP: number;
}

/** @returns The index of the largest logit; the lowest such index on a tie, so that the choice is deterministic. */
export function greedyToken(logits: Float32Array): number {
  let best = 0;
  for (let token = 1; token < logits.length; token++) {
    if (logits[token]! > logits[best]!) {
      best = token;
    }
  }
  return best;
}

/**
 * Chooses the next token.
 *
 * @param random Numbers in [0, 1); called exactly once per sampled token and never when the temperature is 0.
 * Cost: O(vocabulary) and, with `topP` < 1, O(k log k) for the k tokens not much less likely than the nucleus.
 */
export function sampleToken(logits: Float32Array, options: SamplingOptions, random: () => number): number {
  if (options.temperature === 0) {
    return greedyToken(logits);
  }
  const { weights, total } = softmaxWeights(logits, options.temperature);
  const draw = random();
  return options.topP >= 1 ? drawFromAll(weights, draw * total) : drawFromNucleus(weights, total, options.topP, draw);
}

/** exp((logit - max) / temperature): unnormalised probabilities, the largest of them 1. */
function softmaxWeights(logits: Float32Array, temperature: number): { weights: Float64Array; total: number } {
  const max = logits[greedyToken(logits)]!;
  const weights = new Float64Array(logits.length);
  let total = 0;
  for (let token = 0; token < logits.length; token++) {
    const weight = Math.exp((logits[token]! - max) / temperature);
    weights[token] = weight;
    total += weight;
  }
  return { weights, total };
}

function drawFromAll(weights: Float64Array, target: number): number {
  let rest = target;
  let last = 0;
  for (let token = 0; token < weights.length; token++) {
    const weight = weights[token]!;
    if (weight > 0) {
      rest -= weight;
      last = token;
      if (rest < 0) {
        return token;
      }
    }
  }
  // Rounding can leave a crumb of `target` behind the last token.
  return last;
}

/** Takes tokens from a heap, most likely first, until they hold `topP` of the mass, then draws among them. */
function drawFromNucleus(weights: Float64Array, total: number, topP: number, draw: number): number {
  const heap = likeliest(weights, topP * total);
  const before = (a: number, b: number): boolean => weights[a]! > weights[b]! || (weights[a]! === weights[b]! && a < b);
  let size = heap.length;
  const sink = (start: number): void => {
    let parent = start;
    for (;;) {
      let child = 2 * parent + 1;
      if (child >= size) {
        return;
      }
      if (child + 1 < size && before(heap[child + 1]!, heap[child]!)) {
        child++;
      }
      if (!before(heap[child]!, heap[parent]!)) {
        return;
      }
      const swapped = heap[parent]!;
      heap[parent] = heap[child]!;
      heap[child] = swapped;
      parent = child;
    }
  };
  for (let parent = (size >> 1) - 1; parent >= 0; parent--) {
    sink(parent);
  }
  const nucleus: number[] = [];
  let mass = 0;
  while (size > 0 && (nucleus.length === 0 || mass < topP * total)) {
    const token = heap[0]!;
    nucleus.push(token);
    mass += weights[token]!;
    size--;
    heap[0] = heap[size]!;
    sink(0);
  }
  let rest = draw * mass;
  for (const token of nucleus) {
    rest -= weights[token]!;
    if (rest < 0) {
      return token;
    }
  }
  return nucleus[nucleus.length - 1]!;
}

/** How many times smaller the weights may be that are looked at next, when those so far do not hold the mass. */
const THRESHOLD_STEP = 16;

/** Below this, the next step takes every token. */
const LEAST_THRESHOLD = 1e-9;

/**
 * All tokens whose weight reaches a threshold that is just low enough for them to hold `mass`. In a trained model's
 * distribution these are few of a vocabulary, and only they need be ordered. Cost: O(vocabulary), at most nine times.
 */
function likeliest(weights: Float64Array, mass: number): number[] {
  for (let threshold = 1 / THRESHOLD_STEP; ; threshold /= THRESHOLD_STEP) {
    const least = threshold < LEAST_THRESHOLD ? 0 : threshold;
    const tokens: number[] = [];
    let held = 0;
    for (let token = 0; token < weights.length; token++) {
      const weight = weights[token]!;
      if (weight >= least) {
        tokens.push(token);
        held += weight;
      }
    }
    if (held >= mass || least === 0) {
      return tokens;
    }
  }
}
