import { WarmpathError } from '@warmpath/core';
import type { TokenGrammar } from '../native/grammar.js';
import { keepTokens, likeliestTokens, type SamplingOptions, sampleToken, softmaxWeights } from './sampler.js';

/** How many of the likeliest tokens are checked before the whole vocabulary is. */
const NEAR = 256;

/**
 * Chooses the next token among those that a grammar allows: as if the logits of all others had been taken away first.
 *
 * Most answers follow their grammar by themselves, so few tokens are checked, and the whole vocabulary only where they
 * do not decide. Without `topK` and `topP` one token is drawn and checked; a second draw among the allowed ones gives
 * what was drawn in vain to each in proportion, so that the chances are the same. With them, the likeliest tokens are
 * checked; they decide when they hold `topK` allowed ones, or the whole nucleus whatever the rest may be.
 *
 * @param random Called once or twice; never when the temperature is 0.
 * @throws WARMPATH_ENGINE_FAILED when no token of the vocabulary continues the answer.
 */
export function chooseWithGrammar(
  logits: Float32Array,
  options: SamplingOptions,
  grammar: TokenGrammar,
  random: () => number,
): number {
  if (options.temperature === 0 || (options.topP >= 1 && options.topK === undefined)) {
    const token = sampleToken(logits, options, random);
    if (grammar.allows([token])[0]!) {
      return token;
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
  return sampleToken(logits, options, random);
}

/** The likeliest allowed tokens, where no other token can be drawn nor change their chances. */
function decisiveTokens(
  logits: Float32Array,
  { temperature, topP, topK }: SamplingOptions,
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
