/** How the next token is chosen. */
export interface SamplingOptions {
  /** 0 takes the most likely token; otherwise the logits are divided by it. */
  readonly temperature: number;
  /** Nucleus sampling: only the most likely tokens whose probabilities add up to this; 1 keeps all. */
  readonly topP: number;
  /** Only so many of the most likely tokens; all when left out. */
  readonly topK?: number;
  /** Only tokens at least so many times as likely as the likeliest, from 0 to 1; all when left out. */
  readonly minP?: number;
  /** Added to the logits of these tokens. */
  readonly logitBias?: ReadonlyMap<number, number>;
  /** Taken from the logit of each token that was generated: once, and for each time. */
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  /** What the logit of each token of prompt and answer is divided by, or multiplied with if it is below 0. */
  readonly repetitionPenalty?: number;
  /** How many of the last tokens it looks at; all when left out. */
  readonly repetitionWindow?: number;
}

/** Whether the options change logits before a token is chosen. */
export function changesLogits(options: SamplingOptions): boolean {
  const { logitBias, presencePenalty = 0, frequencyPenalty = 0, repetitionPenalty = 1 } = options;
  return presencePenalty !== 0 || frequencyPenalty !== 0 || repetitionPenalty !== 1 || logitBias !== undefined;
}

/** Changes the logits as the options say, before a token is chosen. O(tokens). */
export function adjustLogits(
  logits: Float32Array,
  options: SamplingOptions,
  { prompt, generated }: { readonly prompt: readonly number[]; readonly generated: readonly number[] },
): void {
  const { logitBias, presencePenalty = 0, frequencyPenalty = 0, repetitionPenalty = 1 } = options;
  const { repetitionWindow = Number.POSITIVE_INFINITY } = options;
  if (repetitionPenalty !== 1) {
    const tokens = [...prompt, ...generated];
    for (const token of new Set(tokens.slice(Math.max(0, tokens.length - repetitionWindow)))) {
      const logit = logits[token]!;
      logits[token] = logit > 0 ? logit / repetitionPenalty : logit * repetitionPenalty;
    }
  }
  if (presencePenalty !== 0) {
    for (const token of new Set(generated)) {
      logits[token]! -= presencePenalty;
    }
  }
  if (frequencyPenalty !== 0) {
    for (const token of generated) {
      logits[token]! -= frequencyPenalty;
    }
  }
  for (const [token, bias] of logitBias ?? []) {
    logits[token]! += bias;
  }
}

/** @returns The tokens of the `count` largest logits, largest first, of equal ones the first. O(size × log count). */
export function likeliestTokens(logits: Float32Array, count: number): number[] {
  // The smallest of those that are kept stands first; of equal ones, the last.
  const kept: number[] = [];
  const below = (a: number, b: number): boolean => logits[a]! < logits[b]! || (logits[a] === logits[b] && a > b);
  for (let token = 0; token < logits.length; token++) {
    if (kept.length < count) {
      kept.push(token);
      if (kept.length === count) {
        kept.sort((a, b) => (below(a, b) ? -1 : 1));
      }
    } else if (below(kept[0]!, token)) {
      kept[0] = token;
      sink(kept, below);
    }
  }
  return kept.sort((a, b) => (below(a, b) ? 1 : -1));
}

/** Leaves some tokens and no other a chance. */
export function keepTokens(logits: Float32Array, tokens: readonly number[]): void {
  const kept = tokens.map((token) => logits[token]!);
  logits.fill(Number.NEGATIVE_INFINITY);
  for (const [index, token] of tokens.entries()) {
    logits[token] = kept[index]!;
  }
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

/** log Σ exp(logit): what to take from a logit for the logarithm of its probability. O(vocabulary). */
export function logOfMass(logits: Float32Array): number {
  const { max, total } = softmaxWeights(logits, 1);
  return max + Math.log(total);
}

/**
 * Chooses the next token. With `topK`, the logits of all others are gone afterwards.
 *
 * @param random Numbers in [0, 1); called exactly once per sampled token and never when the temperature is 0.
 * Cost: O(vocabulary) and, with `topP` < 1, O(k log k) for the k tokens not much less likely than the nucleus; with
 *   `topK`, O(vocabulary × log topK).
 */
export function sampleToken(logits: Float32Array, options: SamplingOptions, random: () => number): number {
  if (options.temperature === 0) {
    return greedyToken(logits);
  }
  if (options.topK !== undefined && options.topK < logits.length) {
    keepTokens(logits, likeliestTokens(logits, options.topK));
  }
  const { weights, total } = likelyWeights(logits, options);
  const draw = random();
  return options.topP >= 1 ? drawFromAll(weights, draw * total) : drawFromNucleus(weights, total, options.topP, draw);
}

/** The weights without those of tokens that `minP` leaves out. O(vocabulary). */
function likelyWeights(logits: Float32Array, { temperature, minP = 0 }: SamplingOptions) {
  const { weights, total } = softmaxWeights(logits, temperature);
  let left = total;
  for (let token = 0; minP > 0 && token < weights.length; token++) {
    if (weights[token]! < minP) {
      left -= weights[token]!;
      weights[token] = 0;
    }
  }
  return { weights, total: left };
}

/** exp((logit - max) / temperature): unnormalised probabilities, the largest of them 1; and the largest logit. */
export function softmaxWeights(
  logits: Float32Array,
  temperature: number,
): { weights: Float64Array; total: number; max: number } {
  const max = logits[greedyToken(logits)]!;
  const weights = new Float64Array(logits.length);
  let total = 0;
  for (let token = 0; token < logits.length; token++) {
    const weight = Math.exp((logits[token]! - max) / temperature);
    weights[token] = weight;
    total += weight;
  }
  return { weights, total, max };
}

/** The token at which the weights, added up in order, pass a target. O(vocabulary). */
export function drawFromAll(weights: Float64Array, target: number): number {
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

/** Takes tokens, most likely first, until they hold `topP` of the mass, then draws among them. */
function drawFromNucleus(weights: Float64Array, total: number, topP: number, draw: number): number {
  const tokens = likeliest(weights, topP * total).sort((a, b) => weights[b]! - weights[a]! || a - b);
  let size = 0;
  let mass = 0;
  while (size < tokens.length && (size === 0 || mass < topP * total)) {
    mass += weights[tokens[size]!]!;
    size++;
  }
  let rest = draw * mass;
  for (const token of tokens.slice(0, size)) {
    rest -= weights[token]!;
    if (rest < 0) {
      return token;
    }
  }
  return tokens[size - 1]!;
}

/** Moves the first token of a heap down until none below it comes before it. */
function sink(heap: number[], before: (a: number, b: number) => boolean): void {
  for (let parent = 0; ; ) {
    let child = 2 * parent + 1;
    if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) {
      child++;
    }
    if (child >= heap.length || !before(heap[child]!, heap[parent]!)) {
      return;
    }
    const swapped = heap[parent]!;
    heap[parent] = heap[child]!;
    heap[child] = swapped;
    parent = child;
  }
}

/** How many times smaller the weights may be that are looked at next, when those so far do not hold the mass. */
const THRESHOLD_STEP = 16;

/** Below this, the next step takes every token. */
const MIN_THRESHOLD = 1e-9;

/**
 * All tokens whose weight reaches a threshold that is just low enough for them to hold `mass`. In a trained model's
 * distribution these are few of a vocabulary, and only they need be ordered. Cost: O(vocabulary), at most nine times.
 */
function likeliest(weights: Float64Array, mass: number): number[] {
  for (let threshold = 1 / THRESHOLD_STEP; ; threshold /= THRESHOLD_STEP) {
    const least = threshold < MIN_THRESHOLD ? 0 : threshold;
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
