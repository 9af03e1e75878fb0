/** Where a value ends in a text, and its JSON. */
export interface ReadValue {
  readonly json: string;
  readonly end: number;
}

/** What texts are enclosed in: JSON's and Python's quotes, and the special tokens of Gemma 4 and FunctionGemma. */
const QUOTES = ['<|"|>', '<escape>', '"', "'"];

const WORDS: Record<string, string> = {
  True: 'true',
  False: 'false',
  None: 'null',
  true: 'true',
  false: 'false',
  null: 'null',
};

/** Deepest nesting of a value. */
const MAX_DEPTH = 64;

/**
 * Reads a value as models write one: JSON, a Python literal, or an object of Gemma's with keys without quotes.
 *
 * @returns `undefined` where none begins, or where it has no end.
 */
export function readValue(text: string, start: number, depth = 0): ReadValue | undefined {
  const from = skipSpace(text, start);
  const quote = QUOTES.find((each) => text.startsWith(each, from));
  if (quote !== undefined) {
    return readQuoted(text, from, quote);
  }
  const open = text[from];
  if ((open === '{' || open === '[' || open === '(') && depth < MAX_DEPTH) {
    return readItems(text, from, open, depth);
  }
  const [word] = /^[-+\w.]+/.exec(text.slice(from, from + 64)) ?? [];
  const json = word === undefined ? undefined : (WORDS[word] ?? numberOf(word));
  return json === undefined ? undefined : { json, end: from + word!.length };
}

/** `key=value` pairs, as Python passes arguments, up to a closing parenthesis. */
export function readKeywords(text: string, start: number): ReadValue | undefined {
  return readMembers(text, start, ')', '=', 0);
}

export function skipSpace(text: string, from: number): number {
  let end = from;
  while (/\s/.test(text.charAt(end))) {
    end++;
  }
  return end;
}

function readQuoted(text: string, from: number, quote: string): ReadValue | undefined {
  const start = from + quote.length;
  if (quote.length > 1) {
    const end = text.indexOf(quote, start);
    return end < 0 ? undefined : { json: JSON.stringify(text.slice(start, end)), end: end + quote.length };
  }
  let end = start;
  while (text[end] !== quote) {
    if (end >= text.length) {
      return undefined;
    }
    end += text[end] === '\\' ? 2 : 1;
  }
  const inner = text.slice(start, end);
  const value = quote === '"' ? (parseText(`"${inner}"`) ?? unescaped(inner)) : unescaped(inner);
  return { json: JSON.stringify(value), end: end + 1 };
}

function parseText(json: string): string | undefined {
  try {
    return JSON.parse(json) as string;
  } catch {
    return undefined;
  }
}

/** A text with the escapes of Python in it; a line break may stand as it is. */
function unescaped(text: string): string {
  return text.replace(/\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([\s\S]))/g, (whole, wide, narrow, letter: string) => {
    const code: string | undefined = wide ?? narrow;
    if (code !== undefined) {
      return String.fromCharCode(Number.parseInt(code, 16));
    }
    const meanings: Record<string, string> = { n: '\n', t: '\t', r: '\r', b: '\b', f: '\f', '\n': '' };
    return meanings[letter] ?? (/[\\'"/]/.test(letter) ? letter : whole);
  });
}

function readItems(text: string, from: number, open: '{' | '[' | '(', depth: number): ReadValue | undefined {
  if (open === '{') {
    return readMembers(text, from + 1, '}', ':', depth + 1);
  }
  const close = open === '[' ? ']' : ')';
  const items: string[] = [];
  let at = skipSpace(text, from + 1);
  while (text[at] !== close) {
    const item = readValue(text, at, depth + 1);
    if (item === undefined) {
      return undefined;
    }
    items.push(item.json);
    at = nextItem(text, item.end, close);
    if (at < 0) {
      return undefined;
    }
  }
  return { json: `[${items.join(', ')}]`, end: at + 1 };
}

function readMembers(
  text: string,
  start: number,
  close: string,
  separator: string,
  depth: number,
): ReadValue | undefined {
  const members: string[] = [];
  let at = skipSpace(text, start);
  while (text[at] !== close) {
    const key = readKey(text, at);
    const colon = key === undefined ? -1 : skipSpace(text, key.end);
    const value = text[colon] === separator ? readValue(text, colon + 1, depth) : undefined;
    if (value === undefined) {
      return undefined;
    }
    members.push(`${key!.json}: ${value.json}`);
    at = nextItem(text, value.end, close);
    if (at < 0) {
      return undefined;
    }
  }
  return { json: `{${members.join(', ')}}`, end: at + 1 };
}

function readKey(text: string, at: number): ReadValue | undefined {
  const quote = QUOTES.find((each) => text.startsWith(each, at));
  if (quote !== undefined) {
    return readQuoted(text, at, quote);
  }
  const match = /[^\s:={}[\](),"']+/y;
  match.lastIndex = at;
  const [key] = match.exec(text) ?? [];
  return key === undefined ? undefined : { json: JSON.stringify(key), end: at + key.length };
}

/** The place behind a comma, or of the closing bracket; -1 where neither stands. */
function nextItem(text: string, from: number, close: string): number {
  const at = skipSpace(text, from);
  return text[at] === ',' ? skipSpace(text, at + 1) : text[at] === close ? at : -1;
}

/** A number with the digits that it was written with, or `undefined`. */
function numberOf(word: string): string | undefined {
  if (/^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$/.test(word)) {
    return word;
  }
  const value = /^[-+.\d][-+.\deE_]*$/.test(word) ? Number(word.replaceAll('_', '')) : Number.NaN;
  return Number.isFinite(value) ? String(value) : undefined;
}
