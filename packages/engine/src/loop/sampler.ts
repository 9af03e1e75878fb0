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
  if (presencePenalty !== 0) for (const token of new Set(generated)) logits[token]! -= presencePenalty;
  if (frequencyPenalty !== 0) for (const token of generated) logits[token]! -= frequencyPenalty;
  for (const [token, bias] of logitBias ?? []) logits[token]! += bias;
}

/** @returns The tokens of the `count` largest logits, largest first, of equal ones the first. */
export function likeliestTokens(logits: Float32Array, count: number): number[] {
  const { weights } = softmaxWeights(logits, 1);
  return heaviestTokens(weights, (tokens) => tokens >= count).slice(0, count);
}

/** @returns The index of the largest logit; the lowest such index on a tie, so that the choice is deterministic. */
export function greedyToken(logits: Float32Array): number {
  let best = 0;
  for (let token = 1; token < logits.length; token++) {
    if (logits[token]! > logits[best]!) best = token;
  }
  return best;
}

/** log Σ exp(logit): what to take from a logit for the logarithm of its probability. O(vocabulary). */
export function logOfMass(logits: Float32Array): number {
  const { max, total } = softmaxWeights(logits, 1);
  return max + Math.log(total);
}

/**
 * Chooses the next token. O(vocabulary), and with `topP` or `topK` the sorting of few more tokens than are kept.
 *
 * @param random Numbers in [0, 1); called once, and never when the temperature is 0.
 */
export function sampleToken(logits: Float32Array, options: SamplingOptions, random: () => number): number {
  const { temperature, topP, topK = logits.length, minP = 0 } = options;
  if (temperature === 0) return greedyToken(logits);
  const { weights, total } = softmaxWeights(logits, temperature);
  let left = total;
  if (topK < logits.length) {
    const kept = new Set(likeliestTokens(logits, topK));
    left = keepWeights(weights, (token) => kept.has(token));
  }
  if (minP > 0) left = keepWeights(weights, (token) => weights[token]! >= minP);
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
  if (grammar.allows([token])[0]!) return token;
  const allowed = Float32Array.from(logits, () => Number.NEGATIVE_INFINITY);
  for (const each of grammar.allowed()) allowed[each] = logits[each]!;
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
    if (isKept(token)) total += weights[token]!;
    else weights[token] = 0;
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
      if (rest < 0) return token;
    }
  }
  // Rounding can leave a crumb of `target` behind the last token.
  return last;
}

/** Takes tokens, most likely first, until they hold `topP` of the mass, then draws among them. */
function drawFromNucleus(weights: Float64Array, total: number, topP: number, draw: number): number {
  const nucleus: number[] = [];
  let mass = 0;
  for (const token of heaviestTokens(weights, (_, held) => held >= topP * total)) {
    if (nucleus.length > 0 && mass >= topP * total) break;
    nucleus.push(token);
    mass += weights[token]!;
  }
  let rest = draw * mass;
  for (const token of nucleus) {
    rest -= weights[token]!;
    if (rest < 0) return token;
  }
  return nucleus.at(-1)!;
}

/** How many times smaller the weights may be that are looked at next, when those so far are not enough. */
const THRESHOLD_STEP = 16;

/** Below this, the next step takes every token. */
const MIN_THRESHOLD = 1e-9;

/**
 * The tokens of the largest weights, heaviest first, of equal ones the first: enough of them, and often some more. Of a
 * trained model these are few, and only they are sorted. Cost: O(vocabulary), at most nine times.
 */
function heaviestTokens(weights: Float64Array, isEnough: (tokens: number, mass: number) => boolean): number[] {
  for (let threshold = 1 / THRESHOLD_STEP; ; threshold /= THRESHOLD_STEP) {
    const least = threshold < MIN_THRESHOLD ? 0 : threshold;
    const tokens: number[] = [];
    let mass = 0;
    for (let token = 0; token < weights.length; token++) {
      if (weights[token]! >= least) {
        tokens.push(token);
        mass += weights[token]!;
      }
    }
    if (least === 0 || isEnough(tokens.length, mass)) return tokens.sort((a, b) => weights[b]! - weights[a]! || a - b);
  }
}

/**
 * A seeded source of numbers in [0, 1): sfc32 (Chris Doty-Humphrey's PractRand), 128 bits of state, period ≥ 2³².
 * The same seed gives the same numbers on every machine.
 */
export function seededRandom(seed: number): () => number {
  let a = seed >>> 0;
  let b = Math.floor(seed / 0x1_0000_0000) >>> 0;
  let c = 0x9e37_79b9;
  let counter = 1;
  const next = (): number => {
    const sum = (((a + b) | 0) + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (c << 21) | (c >>> 11);
    c = (c + sum) | 0;
    return (sum >>> 0) / 0x1_0000_0000;
  };
  // The first outputs of neighbouring seeds resemble each other.
  for (let round = 0; round < 15; round++) next();
  return next;
}
