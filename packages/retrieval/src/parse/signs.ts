const signsOf = (shown: string) =>
  new Map(Array.from('0123456789+-−=()', (sign, at) => [sign, Array.from(shown)[at]!]));
export const SUPERSCRIPTS = signsOf('⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾');
export const SUBSCRIPTS = signsOf('₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎');
const RAISED = new Map([...SUPERSCRIPTS, ['n', 'ⁿ'], ['i', 'ⁱ']]);

/** A superscript in signs of its own, so that 10⁶ is not 106; as it is where it has other letters. */
export function raised(text: string): string {
  const signs = Array.from(text.trim(), (sign) => RAISED.get(sign));
  return signs.includes(undefined) ? text : signs.join('');
}
