import { WarmpathError } from '@warmpath/core';
import type { TokenGrammar } from '../native/grammar.js';

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
 * Chooses the next token.
 *
 * @param random Numbers in [0, 1); called exactly once per sampled token and never when the temperature is 0.
 * Cost: O(vocabulary) and, with `topP` < 1, O(k log k) for the k tokens not much less likely than the nucleus; with
 *   `topK`, O(vocabulary × log topK).
 */
export function sampleToken(logits: Float32Array, options: SamplingOptions, random: () => number): number {
  const { temperature, topP, topK = logits.length, minP = 0 } = options;
  if (temperature === 0) {
    return greedyToken(logits);
  }
  const { weights, total } = softmaxWeights(logits, temperature);
  let left = total;
  if (topK < logits.length) {
    const kept = new Set(likeliestTokens(logits, topK));
    left = keepWeights(weights, (token) => kept.has(token));
  }
  if (minP > 0) {
    left = keepWeights(weights, (token) => weights[token]! >= minP);
  }
  const draw = random();
  return topP >= 1 ? drawFromAll(weights, draw * left) : drawFromNucleus(weights, left, topP, draw);
}

/**
 * Chooses the next token among those that a grammar allows. Most answers follow their grammar by themselves, so one
 * token is chosen and checked; only a forbidden one is chosen anew, with all forbidden tokens taken away. Without
 * `topK`, `topP` and `minP`, each token has the chance that it has among the allowed ones.
 *
 * @param random Called once or twice; never when the temperature is 0.
 * @throws WARMPATH_ENGINE_FAILED when no token of the vocabulary continues the answer.
 */
export function sampleWithGrammar(
  logits: Float32Array,
  options: SamplingOptions,
  grammar: TokenGrammar,
  random: () => number,
): number {
  const token = sampleToken(logits, options, random);
  if (grammar.allows([token])[0]!) {
    return token;
  }
  const allowed = Float32Array.from(logits, () => Number.NEGATIVE_INFINITY);
  for (const each of grammar.allowed()) {
    allowed[each] = logits[each]!;
  }
  if (!allowed.some((logit) => logit > Number.NEGATIVE_INFINITY)) {
    throw new WarmpathError('WARMPATH_ENGINE_FAILED', {
      detail: 'No token of this model continues an answer of the form that was asked for.',
    });
  }
  return sampleToken(allowed, options, random);
}

/** Takes the chance of all other tokens away. @returns What is left in all. O(vocabulary). */
function keepWeights(weights: Float64Array, isKept: (token: number) => boolean): number {
  let total = 0;
  for (let token = 0; token < weights.length; token++) {
    if (isKept(token)) {
      total += weights[token]!;
    } else {
      weights[token] = 0;
    }
  }
  return total;
}

/** exp((logit - max) / temperature): unnormalised probabilities, the largest of them 1; and the largest logit. */
function softmaxWeights(
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
