import { LanguageMaker, type TextLanguage } from './text-language.js';

/** Bounds of a number. Both ends belong to the range unless they are open. */
export interface NumberBounds {
  readonly isInteger: boolean;
  readonly min: number | undefined;
  readonly max: number | undefined;
  readonly isMinOpen: boolean;
  readonly isMaxOpen: boolean;
  readonly multipleOf: readonly number[];
}

/** Most digits before and behind the point; fewer behind it where there are bounds. */
const DIGITS = 15;
const BOUNDED_FRACTION_DIGITS = 6;

/** The greatest number that is written without an exponent. */
const MAX_BOUND = Number.MAX_SAFE_INTEGER;

const WHOLE = `(?:0|[1-9]\\d{0,${DIGITS - 1}})`;

const ANY_INTEGER = new LanguageMaker().pattern(`^-?${WHOLE}$`);

/** Any number of JSON. */
export const ANY_NUMBER = new LanguageMaker().pattern(`^-?${WHOLE}(?:\\.\\d{1,${DIGITS}})?(?:[eE][+-]?\\d{1,2})?$`);

/** The greatest number of 15 digits: a greater bound has no effect. */
const NINES = 10 ** DIGITS - 1;

/**
 * The JSON texts of the numbers within bounds; `undefined` where there is none. Of steps it keeps the number of digits
 * behind the point only.
 */
export function languageOfNumbers(bounds: NumberBounds): TextLanguage | undefined {
  const { isInteger, multipleOf } = bounds;
  const min = bounds.min !== undefined && bounds.min <= -NINES ? undefined : bounds.min;
  const max = bounds.max !== undefined && bounds.max >= NINES ? undefined : bounds.max;
  const isBound = min !== undefined || max !== undefined || multipleOf.length > 0;
  if (!isBound) return isInteger ? ANY_INTEGER : ANY_NUMBER;
  const places = Math.min(BOUNDED_FRACTION_DIGITS, ...multipleOf.map(placesOf));
  const fraction = isInteger || places === 0 ? '' : `(?:\\.\\d{1,${places}})?`;
  const low = { value: Math.max(min ?? -MAX_BOUND, -MAX_BOUND), isOpen: bounds.isMinOpen };
  const high = { value: Math.min(max ?? MAX_BOUND, MAX_BOUND), isOpen: bounds.isMaxOpen };
  const signs = [
    { sign: '', from: low, to: high },
    { sign: '-', from: { ...high, value: -high.value }, to: { ...low, value: -low.value } },
  ];
  const sides = signs
    .filter(({ sign, from, to }) => from.value <= to.value && (sign === '' ? to.value >= 0 : to.value > 0))
    .map(({ sign, from, to }) => {
      const above = from.value < 0 ? [] : [`(?=${atLeast(from)}$)`];
      return `${sign}${above.join('')}(?=(?:${atMost(to)})$)(?:0|[1-9]\\d{0,${DIGITS}})${fraction}`;
    });
  const within = new LanguageMaker().pattern(`^(?:${sides.join('|') || '[]'})$`);
  return within.isEmpty ? undefined : within;
}

interface End {
  readonly value: number;
  readonly isOpen: boolean;
}

/** The decimals of 0 and above that are at least the end. */
function atLeast({ value, isOpen }: End): string {
  const [whole, fraction] = partsOf(value);
  const greater = greaterDigits(fraction).map((digits) => `${digits}\\d*`);
  const same = isOpen ? `${fraction}\\d*[1-9]\\d*` : `${fraction}\\d*`;
  const inside = isOpen || fraction !== '' ? `\\.(?:${[...greater, same].join('|')})` : '(?:\\.\\d+)?';
  const longer = `[1-9]\\d{${whole.length},}`;
  const higher = [longer, ...greaterDigits(whole).map((digits, index) => `${digits}\\d{${restOf(whole, index)}}`)];
  return `(?:(?:${higher.join('|')})(?:\\.\\d+)?|${whole}${inside})`;
}

/** The decimals of 0 and above that are at most the end. */
function atMost({ value, isOpen }: End): string {
  const [whole, fraction] = partsOf(value);
  const shorter = whole.length > 1 ? [`0|[1-9]\\d{0,${whole.length - 2}}`] : [];
  const lower = [...shorter, ...lowerDigits(whole, true)];
  const below = lower.length === 0 ? [] : [`(?:${lower.join('|')})(?:\\.\\d+)?`];
  const same = isOpen ? [] : [`${whole}(?:\\.${fraction}0*)?`];
  // A shorter fraction with the same digits is less.
  const cut =
    fraction === ''
      ? []
      : [whole, ...Array.from(fraction, (_, end) => `${whole}\\.${fraction.slice(0, end)}`).slice(1)];
  const less = lowerDigits(fraction, false).map((digits) => `${whole}\\.${digits}`);
  return [...below, ...same, ...cut, ...less].join('|') || '[]';
}

/** For each place: the digits before it, then a greater digit. */
function greaterDigits(digits: string): string[] {
  return Array.from(digits, (digit, index) =>
    digit === '9' ? '[]' : `${digits.slice(0, index)}[${Number(digit) + 1}-9]`,
  );
}

/** For each place: the digits before it, then a lower digit, then any. */
function lowerDigits(digits: string, isWhole: boolean): string[] {
  return Array.from(digits, (digit, index) => {
    const least = isWhole && index === 0 && digits.length > 1 ? 1 : 0;
    const rest = isWhole ? `\\d{${restOf(digits, index)}}` : '\\d*';
    return Number(digit) <= least ? '[]' : `${digits.slice(0, index)}[${least}-${Number(digit) - 1}]${rest}`;
  });
}

function restOf(digits: string, index: number): number {
  return digits.length - index - 1;
}

/** A number of 0 or above as its digits before and behind the point, without zeros at the end. */
function partsOf(value: number): readonly [whole: string, fraction: string] {
  const text = String(Math.max(0, value));
  const [whole = '0', fraction = ''] = (text.includes('e') ? Number(text).toFixed(DIGITS) : text).split('.');
  return [whole, fraction.replace(/0+$/, '')];
}

/** Digits behind the point that multiples of a step have, at most 6. */
function placesOf(step: number): number {
  const isWhole = (places: number): boolean => {
    const units = step * 10 ** places;
    return Math.abs(units - Math.round(units)) < Number.EPSILON * units;
  };
  let places = 0;
  while (places < BOUNDED_FRACTION_DIGITS && !isWhole(places)) places++;
  return places;
}

/** Whether a number is a multiple of the step where it has no more digits than multiples have: 1, 0.1, 0.01. */
export function isExactStep(step: number): boolean {
  return 10 ** -placesOf(step) === step;
}
