import type { CharSet } from 'refa';

/** Characters that JSON writes with an escape of two. */
const ESCAPES: ReadonlyMap<number, string> = new Map([
  [0x22, '"'],
  [0x5c, '\\'],
  [0x08, 'b'],
  [0x09, 't'],
  [0x0a, 'n'],
  [0x0c, 'f'],
  [0x0d, 'r'],
]);

/** A text as a literal of the grammar; what is not plain ASCII is escaped. */
export function literal(text: string): string {
  const characters = Array.from(text, (character) => {
    const code = character.codePointAt(0)!;
    const isPlain = code >= 0x20 && code < 0x7f && character !== '"' && character !== '\\';
    return isPlain ? character : hex(code);
  });
  return `"${characters.join('')}"`;
}

/**
 * The characters of a set as JSON writes them inside of a string: by themselves, or as an escape of two characters. The
 * other control characters are written only where nothing else may stand.
 */
export function charactersOf(set: CharSet): string {
  const plain = set.without({ min: 0, max: 0x1f }).without({ min: 0x22, max: 0x22 }).without({ min: 0x5c, max: 0x5c });
  const escaped = [...ESCAPES].filter(([code]) => set.has(code)).map(([, letter]) => literal(letter).slice(1, -1));
  const parts = [
    ...(plain.isEmpty ? [] : [`[${plain.ranges.map(({ min, max }) => rangeOf(min, max)).join('')}]`]),
    ...(escaped.length === 0 ? [] : [`"\\\\" (${escaped.map((each) => `"${each}"`).join(' | ')})`]),
  ];
  const controls = Array.from({ length: 0x20 }, (_, code) => code).filter((code) => set.has(code));
  const spelled =
    parts.length > 0 ? parts : controls.map((code) => literal(`\\u${code.toString(16).padStart(4, '0')}`));
  return spelled.length === 1 ? spelled[0]! : `(${spelled.join(' | ')})`;
}

function rangeOf(min: number, max: number): string {
  return min === max ? hex(min) : `${hex(min)}-${hex(max)}`;
}

function hex(code: number): string {
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\U${code.toString(16).padStart(8, '0')}`;
}
