import { WarmpathError } from '@warmpath/core';
import type { TokenGrammar } from '../native/grammar.js';
import { seededRandom } from './random.js';
import {
  drawFromAll,
  keepTokens,
  likeliestTokens,
  type SamplingOptions,
  sampleToken,
  softmaxWeights,
} from './sampler.js';

/** How many of the likeliest tokens are checked before the whole vocabulary is. */
const NEAR = 256;
/** How many tokens are drawn and checked together when the first draw was in vain. */
const MORE_DRAWS = 16;
/** The sum of what is left is added up anew when it is so small a share that differences say little. */
const LITTLE = 1e-6;

/**
 * Chooses the next token among those that a grammar allows: as if the logits of all others had been taken away first.
 *
 * Most answers follow their grammar by themselves, so few tokens are checked, and the whole vocabulary only where they
 * do not decide. Without `topK`, `topP` and `minP` one token is drawn and checked, then some more among those not drawn
 * yet: the first that is allowed has the chances that it would have among the allowed ones alone. With them, the
 * likeliest tokens are checked; they decide when they hold `topK` allowed ones, or the whole nucleus whatever the rest
 * may be.
 *
 * @param random Called once or twice, the second number being the seed of all further draws; never when the temperature
 *   is 0.
 * @throws WARMPATH_ENGINE_FAILED when no token of the vocabulary continues the answer.
 */
export function chooseWithGrammar(
  logits: Float32Array,
  options: SamplingOptions,
  grammar: TokenGrammar,
  random: () => number,
): number {
  let next = random;
  const keepsAll = options.topP >= 1 && options.topK === undefined && (options.minP ?? 0) === 0;
  if (options.temperature === 0 || keepsAll) {
    const token = sampleToken(logits, options, random);
    if (grammar.allows([token])[0]!) {
      return token;
    }
    next = options.temperature === 0 ? random : seededRandom(Math.floor(random() * 2 ** 47));
    const more =
      options.temperature === 0
        ? likeliestTokens(logits, Math.min(NEAR, logits.length))
        : drawMore(logits, { first: token, temperature: options.temperature }, next);
    const isAllowed = grammar.allows(more);
    const found = more.find((_, index) => isAllowed[index]!);
    if (found !== undefined) {
      return found;
    }
  } else {
    const decisive = decisiveTokens(logits, options, grammar);
    if (decisive !== undefined) {
      keepTokens(logits, decisive);
      return sampleToken(logits, options, random);
    }
  }
  const allowed = grammar.allowed();
  if (!allowed.some((token) => logits[token]! > Number.NEGATIVE_INFINITY)) {
    throw new WarmpathError('WARMPATH_ENGINE_FAILED', {
      detail: 'No token of this model continues an answer of the form that was asked for.',
    });
  }
  keepTokens(logits, allowed);
  return sampleToken(logits, options, next);
}

/** Tokens drawn one after the other, none of them twice, nor the first. Cost: O(vocabulary) for each. */
function drawMore(
  logits: Float32Array,
  { first, temperature }: { readonly first: number; readonly temperature: number },
  random: () => number,
): number[] {
  const { weights, total } = softmaxWeights(logits, temperature);
  const drawn: number[] = [];
  let summed = total;
  let left = total;
  // A token without a chance is drawn only when nothing else is left.
  for (let token = first; weights[token]! > 0; token = drawFromAll(weights, random() * left)) {
    if (token !== first) {
      drawn.push(token);
    }
    if (drawn.length === MORE_DRAWS) {
      break;
    }
    left -= weights[token]!;
    weights[token] = 0;
    if (left < LITTLE * summed) {
      left = weights.reduce((sum, weight) => sum + weight, 0);
      summed = left;
    }
  }
  return drawn;
}

/** The likeliest allowed tokens, where no other token can be drawn nor change their chances. */
function decisiveTokens(
  logits: Float32Array,
  { temperature, topP, topK, minP = 0 }: SamplingOptions,
  grammar: TokenGrammar,
): readonly number[] | undefined {
  if (topK !== undefined && topK > NEAR) {
    return undefined;
  }
  const near = likeliestTokens(logits, Math.min(NEAR, logits.length));
  const isAllowed = grammar.allows(near);
  const allowed = near.filter((_, index) => isAllowed[index]!);
  if (topK !== undefined) {
    return allowed.length >= topK ? allowed.slice(0, topK) : undefined;
  }
  if (minP > 0) {
    // All others are less likely than the last of those.
    const { weights } = softmaxWeights(logits, temperature);
    const least = minP * (weights[allowed[0] ?? 0] ?? 0);
    const isWhole = near.length === logits.length || weights[near.at(-1)!]! < least;
    return allowed.length > 0 && isWhole ? allowed : undefined;
  }
  // What of the rest is allowed adds to the mass of which the nucleus is a share: between nothing and everything.
  const { weights, total } = softmaxWeights(logits, temperature);
  const massOf = (tokens: readonly number[]): number => tokens.reduce((sum, token) => sum + weights[token]!, 0);
  const held = massOf(allowed);
  const rest = Math.max(0, total - massOf(near));
  const count = nucleusSize(allowed, weights, topP * held);
  const isSame = allowed.length > 0 && count === nucleusSize(allowed, weights, topP * (held + rest));
  return isSame ? allowed : undefined;
}

/** How many of the tokens, likeliest first, hold a mass; one more than there are where they do not. */
function nucleusSize(tokens: readonly number[], weights: Float64Array, mass: number): number {
  let held = 0;
  for (const [index, token] of tokens.entries()) {
    held += weights[token]!;
    if (held >= mass) {
      return index + 1;
    }
  }
  return tokens.length + 1;
}
