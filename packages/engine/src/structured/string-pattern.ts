/** A form of a string's content, as a part of a grammar. */
export interface StringPattern {
  readonly grammar: string;
  /** In how many ways a beginning of it can be read at most. */
  readonly readings: number;
}

const DATE =
  '[0-9]{4} "-" ("02-" ("0" [1-9] | "1" [0-9] | "2" [0-8]) | ("04" | "06" | "09" | "11") "-" ' +
  '("0" [1-9] | [12] [0-9] | "30") | ("01" | "03" | "05" | "07" | "08" | "10" | "12") "-" ' +
  '("0" [1-9] | [12] [0-9] | "3" [01]))';
const HOUR_AND_MINUTE = '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]';
const TIME = `${HOUR_AND_MINUTE} ":" [0-5] [0-9] ("." [0-9]{1,3})? ("Z" | [+-] ${HOUR_AND_MINUTE})`;
const FORMAT_READINGS = 16;

/** The values of `format` that an answer is held to (RFC 3339, RFC 9562); 29 February is never made. */
export const STRING_FORMATS: ReadonlyMap<string, StringPattern> = new Map([
  ['date', { grammar: DATE, readings: FORMAT_READINGS }],
  ['time', { grammar: TIME, readings: FORMAT_READINGS }],
  ['date-time', { grammar: `${DATE} "T" ${TIME}`, readings: FORMAT_READINGS }],
  ['uuid', { grammar: '[0-9a-f]{8} ("-" [0-9a-f]{4}){3} "-" [0-9a-f]{12}', readings: 1 }],
]);

/** Most characters of a pattern. */
const MAX_PATTERN = 512;

/** A single character, a class of them or one of the usual escapes; then how often. */
const ITEM =
  /(?<class>\[(?!\^)(?:[^\\[\]"]|\\[dw.\-^$/+*?()|{}[\]])+\])|\\(?<escaped>[dw.\-^$/+*?()|{}[\]])|(?<plain>[^\\[\](){}|^$.*+?"])/y;
const TIMES = /\?|\*|\+|\{(?<min>\d{1,3})(?<more>,(?<max>\d{1,3})?)?\}/y;

const CLASSES: Readonly<Record<string, string>> = { d: '0-9', w: '0-9A-Za-z_' };

/**
 * Reads a regular expression that is a row of characters and classes, each with how often it comes, from `^` to `$`:
 * `^[A-Z]{2}-\d+$`. In printable ASCII, without quotes and backslashes, which JSON would write otherwise.
 *
 * @returns `undefined` for every other. Cost: O(pattern).
 */
export function readPattern(pattern: string): StringPattern | undefined {
  const isPlain = pattern.length <= MAX_PATTERN && /^\^[\x20-\x7e]*\$$/.test(pattern);
  const source = pattern.slice(1, -1);
  const parts: string[] = [];
  let readings = 1;
  for (let at = 0; isPlain && at < source.length; ) {
    ITEM.lastIndex = at;
    const item = ITEM.exec(source);
    const characters = item === null ? undefined : classOf(item.groups!);
    if (item === null || characters === undefined) {
      return undefined;
    }
    at += item[0].length;
    TIMES.lastIndex = at;
    const times = TIMES.exec(source);
    at += times?.[0].length ?? 0;
    const { min = '0', more, max } = times?.groups ?? {};
    if (max !== undefined && Number(max) < Number(min)) {
      return undefined;
    }
    // An item may be over, or come once more: each place in it where it may be over is a reading.
    readings += times === null || (times.groups!.min !== undefined && more === undefined) ? 0 : Number(max ?? 1) + 1;
    parts.push(`[${characters}]${times?.[0] ?? ''}`);
  }
  return isPlain ? { grammar: parts.join(' ') || '""', readings } : undefined;
}

/** The characters of an item as a class of a grammar. */
function classOf({ class: given, escaped: named, plain }: Partial<Record<string, string>>): string | undefined {
  if (given === undefined) {
    return plain === undefined ? (CLASSES[named!] ?? hex(named!)) : hex(plain);
  }
  const ranges: string[] = [];
  const inside = given.slice(1, -1);
  const members = /\\?(?<character>.)/y;
  const next = (): { readonly text: string; readonly isClass: boolean } | undefined => {
    const match = members.exec(inside);
    if (match === null) {
      return undefined;
    }
    const character = match.groups!['character']!;
    const known = match[0] === character ? undefined : CLASSES[character];
    return { text: known ?? hex(character), isClass: known !== undefined };
  };
  for (let member = next(); member !== undefined; member = next()) {
    const isDash = inside[members.lastIndex] === '-' && members.lastIndex + 1 < inside.length;
    if (!isDash) {
      ranges.push(member.text);
      continue;
    }
    members.lastIndex++;
    const end = next()!;
    if (member.isClass || end.isClass || end.text < member.text) {
      return undefined;
    }
    ranges.push(`${member.text}-${end.text}`);
  }
  // A range may pass the two characters that JSON writes otherwise.
  const regular = new RegExp(given, 'u');
  return regular.test('"') || regular.test('\\') ? undefined : ranges.join('');
}

function hex(character: string): string {
  return `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`;
}
