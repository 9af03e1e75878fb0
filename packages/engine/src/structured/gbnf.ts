import { leavesOf, type NumberBounds, refuse, type SchemaNode } from './schema-node.js';

/** What a grammar may weigh: a character of its text 1, a repetition what llama.cpp makes of it. */
const MAX_WEIGHT = 1 << 19;
const REPETITION_WEIGHT = 32;

/** Characters of a string that are counted in one go: llama.cpp keeps a rule for each. */
const BLOCK = 256;

/** Digits of a whole number without bounds, and behind the point. */
const DIGITS = 15;
const BOUNDED_FRACTION_DIGITS = 6;

/** The greatest number of bounds that leave one end open. */
const LARGEST = Number.MAX_SAFE_INTEGER;

/** One character of a JSON string: no half of a surrogate pair, so that it is one character for a length too. */
const CHARACTER =
  '[^"\\\\\\x00-\\x1F] | "\\\\" (["\\\\/bfnrt] | "u" ([0-9a-cA-CeEfF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))';

/**
 * Writes what a place may hold as a grammar of llama.cpp (GBNF), with `root` as its start. Its texts stand on one
 * line, with at most a space after a comma or a colon, so that an answer cannot end in white space for ever.
 *
 * @param path Where the schema stands in the request, for errors.
 * @throws WARMPATH_INVALID_REQUEST when the grammar would be too large. Cost: O(grammar), which is bounded.
 */
export function writeGrammar(root: SchemaNode, path: string): string {
  return new GrammarWriter(path).write(root);
}

class GrammarWriter {
  readonly #path: string;
  readonly #rules: string[] = [];
  readonly #names = new Map<object | string, string>();
  readonly #open: (() => void)[] = [];
  #weight = 0;

  constructor(path: string) {
    this.#path = path;
  }

  write(root: SchemaNode): string {
    this.#add('root', this.#value(root));
    for (let next = this.#open.pop(); next !== undefined; next = this.#open.pop()) {
      next();
    }
    return this.#rules.join('\n');
  }

  #add(name: string, body: string): void {
    const rule = `${name} ::= ${body}`;
    this.#weight += rule.length;
    for (const [, min, max] of body.matchAll(/\{(\d+)(?:,(\d*))?\}/g)) {
      this.#weight += REPETITION_WEIGHT * Math.max(Number(min), Number(max ?? 0));
    }
    if (this.#weight > MAX_WEIGHT) {
      throw refuse(this.#path, 'This schema is too large, or asks for too many items and characters');
    }
    this.#rules.push(rule);
  }

  /** The name of a rule that is written once; its body comes later, so that rules may name each other. */
  #rule(key: object | string, body: () => string): string {
    const known = this.#names.get(key);
    if (known !== undefined) {
      return known;
    }
    const name = `r${this.#names.size}`;
    this.#names.set(key, name);
    this.#open.push(() => this.#add(name, body()));
    return name;
  }

  #value(node: SchemaNode): string {
    return this.#rule(node, () => {
      const leaves = [...leavesOf(node)];
      const [only] = leaves;
      return leaves.length === 1 && only === node
        ? this.#leaf(node)
        : leaves.map((leaf) => this.#value(leaf)).join(' | ');
    });
  }

  #leaf(node: SchemaNode): string {
    switch (node.kind) {
      case 'texts':
        return this.#texts(node.texts);
      case 'string':
        return `"\\"" ${this.#characters(node.min, node.max)} "\\""`;
      case 'pattern':
        return `"\\"" ${node.pattern.grammar} "\\""`;
      case 'number':
        return numberText(node.isInteger, node.bounds);
      case 'array':
        return this.#array(node);
      case 'map':
        return this.#map(node.values);
      case 'object':
        return this.#object(node);
      default:
        throw new Error(`A ${node.kind} is no leaf`);
    }
  }

  /** Texts, none of them the beginning of another but for numbers, with what they begin with written once. */
  #texts(texts: readonly string[]): string {
    const groups = new Map<string, string[]>();
    for (const text of texts) {
      const first = String.fromCodePoint(text.codePointAt(0) ?? 0);
      const group = groups.get(text === '' ? '' : first) ?? [];
      group.push(text);
      groups.set(text === '' ? '' : first, group);
    }
    return [...groups.values()]
      .map((group) => {
        const [text] = group;
        if (group.length === 1) {
          return literal(text!);
        }
        const length = commonLength(group);
        const rests = group.map((each) => each.slice(length));
        return `${literal(text!.slice(0, length))} ${this.#rule(rests, () => this.#texts(rests))}`;
      })
      .join(' | ');
  }

  #characters(min: number, max: number | undefined): string {
    const character = this.#rule('character', () => CHARACTER);
    if (max === undefined && min <= BLOCK) {
      return `${character}{${min},}`;
    }
    const block = this.#rule('block', () => `${character}{${BLOCK}}`);
    const blocks = Array.from({ length: Math.floor(min / BLOCK) }, () => block);
    const rest = min % BLOCK === 0 ? [] : [`${character}{${min % BLOCK}}`];
    const more = max === undefined ? `${character}*` : this.#atMost(max - min);
    return [...blocks, ...rest, more].join(' ');
  }

  /** Up to so many characters: block after block, then a part of one; at no place more than two ways to read them. */
  #atMost(count: number): string {
    const character = this.#rule('character', () => CHARACTER);
    if (count < BLOCK) {
      return count === 0 ? '""' : this.#rule(`part ${count}`, () => `${character}{0,${count}}`);
    }
    const block = this.#rule('block', () => `${character}{${BLOCK}}`);
    const part = this.#rule(`part ${BLOCK - 1}`, () => `${character}{0,${BLOCK - 1}}`);
    return this.#rule(`most ${count}`, () => `${block} ${this.#atMost(count - BLOCK)} | ${part}`);
  }

  #array({ items, min, max }: Extract<SchemaNode, { kind: 'array' }>): string {
    if (max === 0) {
      return '"[]"';
    }
    const item = this.#value(items);
    const next = this.#rule(`next ${item}`, () => `"," " "? ${item}`);
    const least = Math.max(0, min - 1);
    const filled = `${item} ${next}{${least},${max === undefined ? '' : max - 1}} "]"`;
    return min > 0 ? `"[" ${filled}` : `"[" ("]" | ${filled})`;
  }

  #map(values: SchemaNode): string {
    const value = this.#value(values);
    const entry = this.#rule(`entry ${value}`, () => `"\\"" ${this.#characters(0, undefined)} "\\":" " "? ${value}`);
    const next = this.#rule(`next ${entry}`, () => `"," " "? ${entry}`);
    return `"{" ("}" | ${entry} ${next}* "}")`;
  }

  /** Properties in their order; those that are not required may be left out. */
  #object(node: Extract<SchemaNode, { kind: 'object' }>): string {
    const { properties } = node;
    const lastRequired = properties.findLastIndex(({ isRequired }) => isRequired);
    const id = this.#names.get(node)!;
    const rest = (index: number): string =>
      this.#rule(`rest ${id} ${index}`, () => {
        const ends = index > lastRequired ? ['"}"'] : [];
        return [...(index < properties.length ? [`"," " "? ${entry(index)}`] : []), ...ends].join(' | ');
      });
    const entry = (index: number): string =>
      this.#rule(`entry ${id} ${index}`, () => {
        const { key, value, isRequired } = properties[index]!;
        const own = `${literal(`${JSON.stringify(key)}:`)} " "? ${this.#value(value)} ${rest(index + 1)}`;
        return isRequired || index + 1 === properties.length ? own : `${own} | ${entry(index + 1)}`;
      });
    if (properties.length === 0) {
      return '"{}"';
    }
    return lastRequired < 0 ? `"{" ("}" | ${entry(0)})` : `"{" ${entry(0)}`;
  }
}

/** Length of what all begin with, never half a surrogate pair. */
function commonLength(texts: readonly string[]): number {
  const [first, ...others] = texts as readonly [string, ...string[]];
  let length = 0;
  for (const character of first) {
    const end = length + character.length;
    if (!others.every((other) => other.startsWith(character, length))) {
      break;
    }
    length = end;
  }
  return length;
}

/** A text as a literal of the grammar; what is not plain ASCII is escaped. */
function literal(text: string): string {
  const characters = Array.from(text, (character) => {
    const code = character.codePointAt(0)!;
    const isPlain = code >= 0x20 && code < 0x7f && character !== '"' && character !== '\\';
    return isPlain ? character : `\\U${code.toString(16).padStart(8, '0')}`;
  });
  return `"${characters.join('')}"`;
}

function numberText(isInteger: boolean, bounds: NumberBounds): string {
  const { min, max } = bounds;
  if (min === undefined && max === undefined) {
    const whole = `"-"? ("0" | [1-9] [0-9]{0,${DIGITS - 1}})`;
    return isInteger ? whole : `${whole} ("." [0-9]{1,${DIGITS}})? ([eE] [+-]? [0-9]{1,2})?`;
  }
  const most = isInteger ? LARGEST : 10 ** DIGITS;
  const low = { value: min ?? -most, isOpen: bounds.isMinOpen === true };
  const high = { value: max ?? most, isOpen: bounds.isMaxOpen === true };
  const side = isInteger ? wholeSide : fractionSide;
  const positive = side(low, high);
  const below = low.value >= 0 ? [] : side({ ...high, value: -high.value }, { ...low, value: -low.value });
  const negative = below.map((text) => `"-" ${text}`);
  return [...negative, ...positive].join(' | ');
}

interface End {
  readonly value: number;
  readonly isOpen: boolean;
}

function wholeSide(low: End, high: End): string[] {
  return high.value < 0 ? [] : [between(Math.max(0, low.value), high.value)];
}

/** The numbers of 0 and above within the bounds: their whole parts, with any fraction but at the ends. */
function fractionSide(low: End, high: End): string[] {
  if (high.value < 0) {
    return [];
  }
  const texts: string[] = [];
  const fraction = `("." [0-9]{1,${BOUNDED_FRACTION_DIGITS}})?`;
  const isLowOpen = low.isOpen && low.value >= 0;
  const first = Math.max(0, low.value);
  if (isLowOpen && first < high.value) {
    texts.push(`${between(first, first)} "." [0-9]{0,${BOUNDED_FRACTION_DIGITS - 1}} [1-9]`);
  }
  const from = first + (isLowOpen ? 1 : 0);
  if (from < high.value) {
    texts.push(`${between(from, high.value - 1)} ${fraction}`);
  }
  if (!high.isOpen && high.value >= from) {
    texts.push(between(high.value, high.value));
  }
  return texts;
}

/** The whole numbers from one to another, both of 0 or above, without zeros in front. */
function between(low: number, high: number): string {
  const parts: string[] = [];
  for (let length = String(low).length; length <= String(high).length; length++) {
    const from = String(Math.max(low, length === 1 ? 0 : 10 ** (length - 1)));
    const to = String(Math.min(high, 10 ** length - 1));
    let last = length;
    if (length > 1 && isFirst(from) && /^9+$/.test(to)) {
      // Whole lengths together, so that an answer's first digits can be read in one way.
      while (last < String(high).length && high >= 10 ** (last + 1) - 1) {
        last++;
      }
      parts.push(`[1-9] [0-9]{${length - 1},${last - 1}}`);
      length = last;
    } else {
      parts.push(sameLength(from, to));
    }
  }
  return `(${parts.join(' | ')})`;
}

function isFirst(digits: string): boolean {
  return /^10*$/.test(digits);
}

/** The digits from `low` to `high`, which are as many. */
function sameLength(low: string, high: string): string {
  const count = low.length;
  if (/^0*$/.test(low) && /^9*$/.test(high)) {
    return count === 0 ? '""' : `[0-9]{${count}}`;
  }
  const [a, b] = [Number(low[0]), Number(high[0])];
  const [lowRest, highRest] = [low.slice(1), high.slice(1)];
  if (a === b) {
    return `"${a}" ${sameLength(lowRest, highRest)}`;
  }
  const isLowWhole = /^0*$/.test(lowRest);
  const isHighWhole = /^9*$/.test(highRest);
  const [from, to] = [isLowWhole ? a : a + 1, isHighWhole ? b : b - 1];
  const middle = from <= to ? [`[${from}-${to}] ${sameLength('0'.repeat(count - 1), '9'.repeat(count - 1))}`] : [];
  const first = isLowWhole ? [] : [`"${a}" ${sameLength(lowRest, '9'.repeat(count - 1))}`];
  const last = isHighWhole ? [] : [`"${b}" ${sameLength('0'.repeat(count - 1), highRest)}`];
  return `(${[...first, ...middle, ...last].join(' | ')})`;
}
