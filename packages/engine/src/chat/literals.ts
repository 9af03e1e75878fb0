/** A value that stands in a text. */
export interface ReadValue {
  /** Place behind it. */
  readonly end: number;
  /** Numbers have the digits that they were written with. */
  readonly json: string;
  /** What it holds, if it is an object or a list. */
  readonly members?: ReadonlyMap<string, ReadValue>;
  readonly items?: readonly ReadValue[];
}

/** What encloses texts: JSON's and Python's quotes, and the special tokens of Gemma 4 and FunctionGemma. */
const QUOTES = ['<|"|>', '<escape>', '"', "'"];
const ESCAPES: Record<string, string> = { n: '\n', t: '\t', r: '\r', b: '\b', f: '\f', '\n': '' };
const WORDS: Record<string, string> = {
  True: 'true',
  False: 'false',
  None: 'null',
  true: 'true',
  false: 'false',
  null: 'null',
};
const MAX_DEPTH = 64;

/**
 * Reads a value as models write one: JSON, a Python literal, or an object of Gemma's with keys without quotes.
 *
 * @returns `undefined` where none begins, or where it has no end.
 */
export function readValue(text: string, start: number, depth = 0): ReadValue | undefined {
  const from = skipSpace(text, start);
  const open = text[from];
  if (depth < MAX_DEPTH && open === '{') return readMembers(text, from + 1, '}', ':', depth + 1);
  if (depth < MAX_DEPTH && (open === '[' || open === '(')) {
    const items: ReadValue[] = [];
    const end = readEach(text, from + 1, open === '[' ? ']' : ')', (at) => {
      const item = readValue(text, at, depth + 1);
      items.push(...(item === undefined ? [] : [item]));
      return item?.end;
    });
    return end === undefined ? undefined : { end, items, json: `[${items.map(({ json }) => json).join(', ')}]` };
  }
  return readQuoted(text, from) ?? readWord(text, from);
}

/** `key=value` pairs, as Python passes arguments, up to a closing parenthesis. */
export function readKeywords(text: string, start: number): ReadValue | undefined {
  return readMembers(text, start, ')', '=', 0);
}

export function skipSpace(text: string, from: number): number {
  let end = from;
  while (/\s/.test(text.charAt(end))) end++;
  return end;
}

function readMembers(
  text: string,
  from: number,
  close: string,
  separator: string,
  depth: number,
): ReadValue | undefined {
  const members = new Map<string, ReadValue>();
  const end = readEach(text, from, close, (at) => {
    const key = readQuoted(text, at) ?? readKey(text, at);
    const behind = key === undefined ? -1 : skipSpace(text, key.end);
    const value = text[behind] === separator ? readValue(text, behind + 1, depth) : undefined;
    if (value !== undefined) members.set(JSON.parse(key!.json) as string, value);
    return value?.end;
  });
  const json = [...members].map(([key, value]) => `${JSON.stringify(key)}: ${value.json}`).join(', ');
  return end === undefined ? undefined : { end, members, json: `{${json}}` };
}

/**
 * Goes through what stands between commas, up to a closing bracket.
 *
 * @param read Returns the place behind an item.
 * @returns The place behind the bracket.
 */
function readEach(
  text: string,
  from: number,
  close: string,
  read: (at: number) => number | undefined,
): number | undefined {
  let at = skipSpace(text, from);
  while (text[at] !== close) {
    const end = read(at);
    if (end === undefined) return undefined;
    at = skipSpace(text, end);
    if (text[at] === ',') {
      at = skipSpace(text, at + 1);
    } else if (text[at] !== close) {
      return undefined;
    }
  }
  return at + 1;
}

function readQuoted(text: string, from: number): ReadValue | undefined {
  const quote = QUOTES.find((each) => text.startsWith(each, from));
  if (quote === undefined) return undefined;
  const start = from + quote.length;
  const hasEscapes = quote.length === 1;
  let end = start;
  while (end < text.length && !text.startsWith(quote, end)) end += hasEscapes && text[end] === '\\' ? 2 : 1;
  if (end >= text.length) return undefined;
  const inner = text.slice(start, end);
  return { end: end + quote.length, json: JSON.stringify(hasEscapes ? unescaped(inner) : inner) };
}

/** A text with the escapes of JSON and of Python; a line break may stand as it is. */
function unescaped(text: string): string {
  return text.replace(/\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([\s\S]))/g, (whole, wide, narrow, letter: string) => {
    const code: string | undefined = wide ?? narrow;
    return code !== undefined
      ? String.fromCharCode(Number.parseInt(code, 16))
      : (ESCAPES[letter] ?? (/[\\'"/]/.test(letter) ? letter : whole));
  });
}

function readKey(text: string, at: number): ReadValue | undefined {
  const match = /[^\s:={}[\](),"']+/y;
  match.lastIndex = at;
  const [key] = match.exec(text) ?? [];
  return key === undefined ? undefined : { end: at + key.length, json: JSON.stringify(key) };
}

/** A number, or one of {@link WORDS}. */
function readWord(text: string, from: number): ReadValue | undefined {
  const [word = ''] = /^[-+\w.]+/.exec(text.slice(from, from + 64)) ?? [];
  const value = /^[-+.\d][-+.\deE_]*$/.test(word) ? Number(word.replaceAll('_', '')) : Number.NaN;
  const isJson = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$/.test(word);
  const json = WORDS[word] ?? (isJson ? word : Number.isFinite(value) ? String(value) : undefined);
  return json === undefined ? undefined : { end: from + word.length, json };
}
