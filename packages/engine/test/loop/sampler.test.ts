import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../../test/suite.js';
import {
  adjustLogits,
  changesLogits,
  greedyToken,
  likeliestTokens,
  logOfMass,
  type SamplingOptions,
  sampleToken,
} from '../../src/loop/sampler.js';

const logitsOf = fc
  .array(fc.integer({ min: -400, max: 400 }), { minLength: 1, maxLength: 60, size: 'max' })
  .map((values) => Float32Array.from(values, (value) => value / 20));
const draw = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

/** Probabilities as the definition says, by sorting everything. */
function naiveNucleus(logits: Float32Array, temperature: number, topP: number): Set<number> {
  const weights = Array.from(logits, (logit) => Math.exp(logit / temperature));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const order = [...weights.keys()].sort((a, b) => weights[b]! - weights[a]! || a - b);
  const kept = new Set<number>();
  let mass = 0;
  for (const token of order) {
    kept.add(token);
    mass += weights[token]! / total;
    // A hair's breadth of tolerance, or rounding decides which of two neighbours is the last.
    if (mass >= topP + 1e-9) {
      break;
    }
  }
  return kept;
}

describe('sampling', () => {
  it('takes the largest logit at temperature 0, the first of equal ones, and draws nothing', () => {
    fc.assert(
      fc.property(logitsOf, (logits) => {
        const token = sampleToken(logits, { temperature: 0, topP: 0.5 }, () => {
          throw new Error('drew a number');
        });
        expect(token).toBe(logits.indexOf(Math.max(...logits)));
        expect(greedyToken(logits)).toBe(token);
      }),
      { seed: 1 },
    );
  });

  it('stays within the nucleus', () => {
    fc.assert(
      fc.property(logitsOf, draw, fc.constantFrom(0.1, 0.5, 0.9, 0.999), (logits, value, topP) => {
        const token = sampleToken(logits, { temperature: 0.8, topP }, () => value);
        expect(naiveNucleus(logits, 0.8, topP).has(token)).toBe(true);
      }),
      { seed: 2, numRuns: runs(500) },
    );
  });

  it('finds a nucleus that reaches far into a large, flat vocabulary', () => {
    // 1/rank: the nucleus of 0.9 is most of 5,000 tokens, and its last ones are thousands of times less likely.
    const logits = Float32Array.from({ length: 5000 }, (_, token) => -Math.log(1 + ((token * 7) % 5000)));
    const nucleus = naiveNucleus(logits, 1, 0.9);
    const drawn = new Set(
      Array.from({ length: 400 }, (_, index) =>
        sampleToken(logits, { temperature: 1, topP: 0.9 }, () => (index + 0.5) / 400),
      ),
    );
    expect([...drawn].every((token) => nucleus.has(token))).toBe(true);
    // The least likely of the nucleus is drawn by the very last numbers only, and is reached.
    const least = [...nucleus].reduce((a, b) => (logits[a]! <= logits[b]! ? a : b));
    const last = sampleToken(logits, { temperature: 1, topP: 0.9 }, () => 1 - 1e-12);
    expect(Math.abs(logits[last]! - logits[least]!)).toBeLessThan(0.01);
  });

  it.each([1, 0.7])('draws tokens as often as they are likely, with top_p %s', (topP) => {
    const weights = [8, 4, 2, 1, 1];
    const logits = Float32Array.from(weights, (weight) => Math.log(weight));
    const counts = new Array<number>(weights.length).fill(0);
    for (let index = 0; index < 1600; index++) {
      const token = sampleToken(logits, { temperature: 1, topP }, () => (index + 0.5) / 1600);
      counts[token] = counts[token]! + 1;
    }
    const kept = topP === 1 ? weights : [8, 4, 0, 0, 0];
    const total = kept.reduce((sum, weight) => sum + weight, 0);
    for (const [token, weight] of kept.entries()) {
      expect(Math.abs(counts[token]! - (1600 * weight) / total)).toBeLessThanOrEqual(1);
    }
  });

  it('grows bolder with temperature', () => {
    const logits = Float32Array.of(2, 1, 0);
    const top = (temperature: number): number =>
      Array.from({ length: 100 }, (_, index) =>
        sampleToken(logits, { temperature, topP: 1 }, () => index / 100),
      ).filter((token) => token === 0).length;
    expect(top(0.2)).toBeGreaterThan(top(1));
    expect(top(1)).toBeGreaterThan(top(5));
  });

  it('always keeps at least one token', () => {
    expect(sampleToken(Float32Array.of(1, 5, 2), { temperature: 1, topP: 1e-9 }, () => 0.999)).toBe(1);
  });

  it('keeps the most likely tokens, the first of equal ones', () => {
    fc.assert(
      fc.property(logitsOf, fc.integer({ min: 1, max: 70 }), draw, (logits, topK, value) => {
        const order = [...logits.keys()].sort((a, b) => logits[b]! - logits[a]! || a - b).slice(0, topK);
        expect(likeliestTokens(logits, topK)).toEqual(order);
        const kept = logits.map((logit, token) => (order.includes(token) ? logit : Number.NEGATIVE_INFINITY));
        const sampling = { temperature: 1, topP: 1 };
        expect(sampleToken(logits, { ...sampling, topK }, () => value)).toBe(sampleToken(kept, sampling, () => value));
      }),
      { seed: 5, numRuns: runs(300) },
    );
  });

  it('penalises what was said and favours what is asked for, as vLLM defines it', () => {
    const tokens = fc.array(fc.nat({ max: 9 }), { maxLength: 12 });
    const options = fc.record({
      logitBias: fc
        .dictionary(fc.nat({ max: 9 }).map(String), fc.integer({ min: -100, max: 100 }))
        .map((biases) => new Map(Object.entries(biases).map(([token, bias]) => [Number(token), bias]))),
      presencePenalty: fc.constantFrom(0, 0.5, -1),
      frequencyPenalty: fc.constantFrom(0, 0.25, -2),
      repetitionPenalty: fc.constantFrom(1, 1.5, 0.5),
    });
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: -8, max: 8 }), { minLength: 10, maxLength: 10 }),
        tokens,
        tokens,
        options,
        (logits, prompt, generated, given) => {
          const adjusted = Float64Array.from(logits) as unknown as Float32Array;
          adjustLogits(adjusted, { temperature: 1, topP: 1, ...given }, { prompt, generated });
          const { logitBias, presencePenalty, frequencyPenalty, repetitionPenalty: factor } = given;
          const expected = logits.map((logit, token) => {
            const count = generated.filter((each) => each === token).length;
            const isSaid = count > 0 || prompt.includes(token);
            const repeated = !isSaid ? logit : logit > 0 ? logit / factor : logit * factor;
            const penalty = (count > 0 ? presencePenalty : 0) + count * frequencyPenalty;
            return repeated - penalty + (logitBias.get(token) ?? 0);
          });
          for (const [token, logit] of expected.entries()) expect(adjusted[token]).toBeCloseTo(logit, 9);
        },
      ),
      { seed: 6, numRuns: runs(300) },
    );
  });

  it('knows the probability of a token', () => {
    fc.assert(
      fc.property(logitsOf, (logits) => {
        const total = logits.reduce((sum, logit) => sum + Math.exp(logit), 0);
        expect(logOfMass(logits)).toBeCloseTo(Math.log(total), 6);
      }),
      { seed: 7 },
    );
  });

  it('changes nothing that nobody asked for', () => {
    const plain: SamplingOptions = { temperature: 1, topP: 0.9, presencePenalty: 0, repetitionPenalty: 1 };
    expect(changesLogits(plain)).toBe(false);
    expect(changesLogits({ ...plain, frequencyPenalty: 0.1 })).toBe(true);
  });
});
