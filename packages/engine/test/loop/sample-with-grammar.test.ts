import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isFull, runs } from '../../../../test/suite.js';
import type { ChosenToken, GenerationRequest } from '../../src/loop/generation.js';
import { type SamplingOptions, sampleToken, sampleWithGrammar, seededRandom } from '../../src/loop/sampler.js';
import { GenerationTask, type TokenPieces } from '../../src/loop/task.js';
import { resolveModel } from '../../src/models/resolve.js';
import { llamaBindings } from '../../src/native/bindings.js';
import type { TokenGrammar } from '../../src/native/grammar.js';
import { NativeModel } from '../../src/native/model.js';
import { writeGrammar } from '../../src/structured/gbnf.js';
import { readJsonSchema } from '../../src/structured/json-schema.js';

/** A grammar that allows the same tokens everywhere, and counts what it is asked. */
class FixedGrammar implements TokenGrammar {
  readonly #allowed: readonly number[];
  checked = 0;
  masks = 0;

  constructor(allowed: readonly number[]) {
    this.#allowed = allowed;
  }

  allows(tokens: readonly number[]): boolean[] {
    this.checked += tokens.length;
    return tokens.map((token) => this.#allowed.includes(token));
  }

  allowed(): readonly number[] {
    this.masks++;
    return this.#allowed;
  }

  accept(): void {}

  free(): void {}
}

/** What the choice is by definition: all others are taken away first. */
function naiveChoice(logits: Float32Array, allowed: readonly number[], options: SamplingOptions, draw: number): number {
  const kept = logits.map((logit, token) => (allowed.includes(token) ? logit : Number.NEGATIVE_INFINITY));
  return sampleToken(kept, options, () => draw);
}

const draws = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

/** Logits of a vocabulary, from flat to peaked, and tokens of it. */
const states = fc
  .record({
    size: fc.integer({ min: 2, max: 700 }),
    spread: fc.constantFrom(0.1, 2, 12),
    seed: fc.nat(),
    share: fc.nat(99),
  })
  .map(({ size, spread, seed, share }) => {
    const random = seededRandom(seed);
    const logits = Float32Array.from({ length: size }, () => (random() ** 3 - 0.5) * spread * 4);
    const allowed = Array.from({ length: size }, (_, token) => token).filter(() => random() * 100 <= share);
    return { logits, allowed: allowed.length === 0 ? [size >> 1] : allowed };
  });

describe('a token chosen with a grammar', () => {
  it('is the likeliest allowed one at temperature 0', () => {
    fc.assert(
      fc.property(states, ({ logits, allowed }) => {
        const options = { temperature: 0, topP: 1 };
        const grammar = new FixedGrammar(allowed);
        const expected = naiveChoice(logits, allowed, options, 0);
        const isLikeliest = logits.indexOf(Math.max(...logits)) === expected;
        expect(sampleWithGrammar(Float32Array.from(logits), options, grammar, () => Number.NaN)).toBe(expected);
        expect([grammar.checked, grammar.masks]).toEqual([1, isLikeliest ? 0 : 1]);
      }),
      { seed: 1, numRuns: runs(400) },
    );
  });

  it('is the one that top_k, top_p and min_p draw, or where it is not allowed, the one that they draw from the allowed ones', () => {
    const options = fc
      .record({
        temperature: fc.constantFrom(0.3, 1, 2),
        topP: fc.constantFrom(0.1, 0.5, 0.95, 1),
        topK: fc.option(fc.integer({ min: 1, max: 400 })),
        minP: fc.constantFrom(0, 0.001, 0.2, 1),
      })
      .filter(({ topP, topK, minP }) => topP < 1 || topK !== null || minP > 0)
      .map(({ topK, ...rest }): SamplingOptions => ({ ...rest, ...(topK !== null && { topK }) }));
    let masks = 0;
    let tokens = 0;
    fc.assert(
      fc.property(states, options, draws, ({ logits, allowed }, sampling, draw) => {
        const grammar = new FixedGrammar(allowed);
        const token = sampleWithGrammar(Float32Array.from(logits), sampling, grammar, () => draw);
        const first = sampleToken(logits, sampling, () => draw);
        const isAllowed = allowed.includes(first);
        expect(token).toBe(isAllowed ? first : naiveChoice(logits, allowed, sampling, draw));
        expect(grammar.masks).toBe(isAllowed ? 0 : 1);
        masks += grammar.masks;
        tokens++;
      }),
      { seed: 2, numRuns: runs(2000) },
    );
    // Both ways were taken.
    expect(masks).toBeGreaterThan(tokens / 10);
    expect(masks).toBeLessThan(tokens - tokens / 10);
  });

  it.each([
    { weights: [8, 4, 2, 1, 1], masked: 9 / 16, name: 'among others' },
    { weights: [1e12, 4, 2, 1, 1], masked: 1, name: 'beside one that is all but certain' },
  ])('is drawn as often as its share of the allowed ones says, $name', ({ weights, masked }) => {
    const logits = Float32Array.from(weights, (weight) => Math.log(weight));
    const random = seededRandom(3);
    const counts = new Map<number, number>();
    const allowed = [1, 2, 4];
    const runs = 20_000;
    let masks = 0;
    for (let run = 0; run < runs; run++) {
      const grammar = new FixedGrammar(allowed);
      const token = sampleWithGrammar(Float32Array.from(logits), { temperature: 1, topP: 1 }, grammar, random);
      counts.set(token, (counts.get(token) ?? 0) + 1);
      masks += grammar.masks;
    }
    for (const [token, share] of [
      [1, 4 / 7],
      [2, 2 / 7],
      [4, 1 / 7],
    ] as const) {
      // Five standard errors.
      expect(Math.abs(counts.get(token)! / runs - share)).toBeLessThan(5 * Math.sqrt((share * (1 - share)) / runs));
    }
    expect(counts.size).toBe(3);
    expect(masks / runs).toBeCloseTo(masked, 1);
  });

  it('is not to be had where the vocabulary has none', () => {
    const choose = (): number =>
      sampleWithGrammar(Float32Array.of(1, 2), { temperature: 0, topP: 1 }, new FixedGrammar([]), () => 0);
    expect(choose).toThrow('No token of this model');
  });
});

const SCHEMA = {
  type: 'object',
  properties: {
    name: { type: 'string', maxLength: 30 },
    counts: { type: 'array', items: { type: 'integer' }, minItems: 2, maxItems: 5 },
  },
  required: ['name', 'counts'],
};

describe('a generation with a grammar', async () => {
  const { path } = await resolveModel('demo', {});
  const model = await NativeModel.load(llamaBindings(), path);
  const { vocabulary } = model;
  const request: GenerationRequest = {
    id: 'test',
    prompt: [1],
    maxTokens: 400,
    sampling: { temperature: 1, topP: 0.9, topK: 40, presencePenalty: 0.5, logitBias: new Map([[5, 3]]) },
    seed: 7,
    stops: [],
    ignoreEndOfGeneration: false,
    grammar: writeGrammar(readJsonSchema(SCHEMA, 's').node, 's'),
  };

  /** Generates from noise; loses its place after every so many tokens. */
  function generate(given: Partial<GenerationRequest>, preemptEvery: number, seed: number) {
    const random = seededRandom(seed);
    let text = '';
    const listener = {
      onText: (piece: string) => {
        text += piece;
      },
      onFinish: () => undefined,
      onError: () => undefined,
    };
    const task = new GenerationTask({ ...request, ...given }, listener, 0);
    let reason: string | undefined;
    for (let step = 1; reason === undefined; step++) {
      const logits = Float32Array.from({ length: vocabulary.size }, () => random() * 8);
      reason = task.advance(logits, vocabulary satisfies TokenPieces, 10_000, step);
      if (step % preemptEvery === 0) {
        task.freeGrammar();
      }
    }
    task.freeGrammar();
    return { text, reason, tokens: task.tokens };
  }

  it('goes on as it was after it lost its grammar, and has none in the end', () => {
    let ended = 0;
    for (let seed = 0; seed < (isFull ? 12 : 6); seed++) {
      const whole = generate({}, Number.POSITIVE_INFINITY, seed);
      expect(generate({}, 1 + (seed % 4), seed)).toEqual(whole);
      expect(vocabulary.grammars.counts.open).toBe(0);
      if (whole.reason === 'stop') {
        ended++;
        expect(Object.keys(JSON.parse(whole.text) as object)).toEqual(['name', 'counts']);
      }
    }
    expect(ended).toBeGreaterThan(isFull ? 2 : 0);
  });

  it('asks about the whole vocabulary only where the model leaves the grammar', () => {
    const { text, tokens } = generate({ sampling: { temperature: 0, topP: 1 } }, Number.POSITIVE_INFINITY, 1);
    // The same answer, now by a model that says it by itself.
    const before = { ...vocabulary.grammars.counts };
    let said = '';
    const listener = {
      onText: (piece: string) => (said += piece),
      onFinish: () => undefined,
      onError: () => undefined,
    };
    const task = new GenerationTask({ ...request, sampling: { temperature: 0, topP: 1 } }, listener, 0);
    for (const token of tokens.slice(1)) {
      const logits = new Float32Array(vocabulary.size);
      logits[token] = 1;
      task.advance(logits, vocabulary, 10_000, 0);
    }
    task.freeGrammar();
    expect(said).toBe(text);
    const { checks, masks } = vocabulary.grammars.counts;
    expect([checks - before.checks, masks - before.masks]).toEqual([tokens.length - 1, 0]);
  });

  it('ends where it must: after its last brace nothing but an end is allowed', () => {
    for (let seed = 0; seed < (isFull ? 6 : 2); seed++) {
      const { text, reason } = generate({ ignoreEndOfGeneration: true, maxTokens: 300 }, 7, seed);
      expect(reason).toBe('length');
      if (text.endsWith(']}')) {
        expect(JSON.parse(text)).toBeTypeOf('object');
      }
    }
  });

  it('says how likely its tokens were before anything changed their chances', () => {
    fc.assert(
      fc.property(fc.nat(), fc.nat({ max: 20 }), fc.boolean(), (seed, topLogprobs, hasGrammar) => {
        const random = seededRandom(seed);
        const { grammar, ...plain } = request;
        const heard: ChosenToken[] = [];
        const listener = {
          onText: (_: string, tokens: readonly ChosenToken[] = []) => heard.push(...tokens),
          onFinish: () => undefined,
          onError: () => undefined,
        };
        const given = { ...plain, ...(hasGrammar && { grammar: grammar! }), topLogprobs, maxTokens: 12 };
        const task = new GenerationTask(given, listener, 0);
        const expected: { logprob: number; top: number[] }[] = [];
        for (let reason: string | undefined; reason === undefined; ) {
          const logits = Float32Array.from({ length: vocabulary.size }, () => random() * 20 - 10);
          const total = logits.reduce((sum, logit) => sum + Math.exp(logit), 0);
          const naive = Array.from(logits, (logit) => Math.log(Math.exp(logit) / total));
          reason = task.advance(logits, vocabulary, 10_000, 0);
          const token = task.tokens.at(-1)!;
          if (!vocabulary.endsGeneration(token)) {
            expected.push({ logprob: naive[token]!, top: naive.sort((a, b) => b - a).slice(0, topLogprobs) });
          }
        }
        task.freeGrammar();
        expect(heard.length).toBe(expected.length);
        for (const [index, { logprob, top }] of expected.entries()) {
          expect(heard[index]!.logprob).toBeCloseTo(logprob, 5);
          expect(heard[index]!.top.length).toBe(top.length);
          for (const [place, value] of top.entries()) {
            expect(heard[index]!.top[place]!.logprob).toBeCloseTo(value, 5);
          }
        }
      }),
      { seed: 4, numRuns: runs(40) },
    );
  });
});
