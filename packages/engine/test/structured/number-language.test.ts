import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { isExactStep, languageOfNumbers, type NumberBounds } from '../../src/structured/number-language.js';

const FREE: NumberBounds = {
  isInteger: false,
  min: undefined,
  max: undefined,
  isMinOpen: false,
  isMaxOpen: false,
  multipleOf: [],
};

const bound = fc.option(
  fc.oneof(
    fc.integer({ min: -120, max: 120 }),
    fc.integer({ min: -12_000, max: 12_000 }).map((value) => value / 100),
    fc.constantFrom(0, 0.5, -0.001, 9.99, 999_999, -1e9, 1e15),
  ),
  { nil: undefined },
);
const texts = fc.oneof(
  fc.integer({ min: -150, max: 150 }).map(String),
  fc.integer({ min: -15_000, max: 15_000 }).map((value) => String(value / 100)),
  fc.constantFrom('0', '0.0', '1.50', '00', '1.', '.5', '-', '', '1e3', '9.990', '10.000001', '999999', '-0.001'),
);

describe('the texts of numbers', () => {
  it('are those of the numbers within the bounds, and no other', () => {
    fc.assert(
      fc.property(
        fc.record({
          isInteger: fc.boolean(),
          min: bound,
          max: bound,
          isMinOpen: fc.boolean(),
          isMaxOpen: fc.boolean(),
        }),
        fc.array(texts, { minLength: 1, maxLength: 30 }),
        (bounds, candidates) => {
          const language = languageOfNumbers({ ...FREE, ...bounds });
          const { isInteger, min = -1e15, max = 1e15, isMinOpen, isMaxOpen } = bounds;
          const hasBounds = bounds.min !== undefined || bounds.max !== undefined;
          for (const text of [...candidates, String(min), String(max)]) {
            const value = Number(text);
            const shape = isInteger
              ? /^-?(0|[1-9]\d*)$/
              : hasBounds
                ? /^-?(0|[1-9]\d*)(\.\d{1,6})?$/
                : /^-?(0|[1-9]\d{0,14})(\.\d+)?(e\d)?$/;
            const isIn =
              (isMinOpen && bounds.min !== undefined ? value > min : value >= min) &&
              (isMaxOpen && bounds.max !== undefined ? value < max : value <= max);
            const isNegativeZero = /^-0/.test(text) && value === 0;
            if (!isNegativeZero && Math.abs(value) <= 1e14) {
              expect([text, language?.test(Array.from(text, (each) => each.codePointAt(0)!)) ?? false]).toEqual([
                text,
                shape.test(text) && isIn,
              ]);
            }
          }
        },
      ),
      { seed: 1, numRuns: runs(300) },
    );
  });

  it.each<[multipleOf: number, isExact: boolean, right: string[], wrong: string[]]>([
    [1, true, ['0', '-9', '12'], ['3.0', '3.1']],
    [3, false, ['0', '3', '1'], ['3.1']],
    [0.01, true, ['0', '1', '1.5', '-2.25', '0.10'], ['0.001', '1.255']],
    [0.25, false, ['0.25', '-1.75', '2', '0.1'], ['0.255']],
  ])('have no more digits than the multiples of %d', (multipleOf, isExact, right, wrong) => {
    const language = languageOfNumbers({ ...FREE, multipleOf: [multipleOf] })!;
    const holds = (text: string): boolean => language.test(Array.from(text, (each) => each.codePointAt(0)!));
    expect(right.filter((text) => !holds(text))).toEqual([]);
    expect(wrong.filter(holds)).toEqual([]);
    expect(isExactStep(multipleOf)).toBe(isExact);
  });
});
