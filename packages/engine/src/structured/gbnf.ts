import type { DFA } from 'refa';
import { charactersOf, literal } from './grammar-text.js';
import { leavesOf, type ObjectNode, refuse, type SchemaNode } from './schema-node.js';
import type { TextLanguage } from './text-language.js';

/** Largest weight of a grammar: 1 for a character of its text, and the cost of repetitions in llama.cpp. */
const MAX_WEIGHT = 1 << 19;
const REPETITION_WEIGHT = 32;

/** One character of a JSON string. Escaped surrogates are left out: a length counts them differently. */
const CHARACTER =
  '[^"\\\\\\x00-\\x1F] | "\\\\" (["\\\\/bfnrt] | "u" ([0-9a-cA-CeEfF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))';

/**
 * Writes a node as a grammar of llama.cpp (GBNF) with the start `root`. Answers have one line and at most one space
 * after a comma or colon: a model cannot write white space without end.
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
    for (let next = this.#open.pop(); next !== undefined; next = this.#open.pop()) next();
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

  /** The name of a rule. Its body is written once and later, because rules may refer to each other. */
  #rule(key: object | string, body: () => string): string {
    const known = this.#names.get(key);
    if (known !== undefined) return known;
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
      case 'language':
        return this.#language(node.language, node.isNumber);
      case 'array':
        return this.#array(node);
      case 'object':
        return this.#object(node);
      default:
        throw new Error(`A ${node.kind} is no leaf`);
    }
  }

  /** Alternatives of texts, with common beginnings written once. */
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
        if (group.length === 1) return literal(text!);
        const length = commonLength(group);
        const rests = group.map((each) => each.slice(length));
        return `${literal(text!.slice(0, length))} ${this.#rule(rests, () => this.#texts(rests))}`;
      })
      .join(' | ');
  }

  #characters(min: number, max: number | undefined): string {
    const character = this.#rule('character', () => CHARACTER);
    return this.#rule(`${min} to ${max}`, () => `${character}${times(min, max)}`);
  }

  /** A rule for each state: a character and the next state, or the end. */
  #language(language: TextLanguage, isNumber: boolean): string {
    const { getOut, isFinal } = language.transitionIterator();
    const end = isNumber ? '""' : '"\\""';
    const state = (node: DFA.ReadonlyNode): string =>
      this.#rule(node, () => {
        const steps = Array.from(getOut(node), ([next, characters]) => `${charactersOf(characters)} ${state(next)}`);
        return [...steps, ...(isFinal(node) ? [end] : [])].join(' | ');
      });
    return isNumber ? state(language.initial) : `"\\"" ${state(language.initial)}`;
  }

  #array({ first, items, min, max }: Extract<SchemaNode, { kind: 'array' }>): string {
    const next = (item: SchemaNode): string => {
      const value = this.#value(item);
      return this.#rule(`next ${value}`, () => `"," " "? ${value}`);
    };
    const most = max === undefined ? undefined : max - first.length;
    const [head, ...others] = first;
    if (head !== undefined) {
      const rest = items === undefined ? '' : ` ${next(items)}${times(Math.max(0, min - first.length), most)}`;
      return `"[" ${[this.#value(head), ...others.map(next)].join(' ')}${rest} "]"`;
    }
    if (items === undefined || max === 0) return '"[]"';
    const filled = `${this.#value(items)} ${next(items)}${times(Math.max(0, min - 1), max === undefined ? max : max - 1)} "]"`;
    return min > 0 ? `"[" ${filled}` : `"[" ("]" | ${filled})`;
  }

  /** Properties in their order, optional ones possibly left out, then others. */
  #object(node: ObjectNode): string {
    const { properties, others } = node;
    const lastRequired = properties.findLastIndex(({ isRequired }) => isRequired);
    const id = this.#names.get(node)!;
    const hasOthers = others.length > 0;
    const other = (): string =>
      this.#rule(`other ${id}`, () => others.map((each) => this.#otherEntry(each)).join(' | '));
    const nextOthers = (): string => `${this.#rule(`next other ${id}`, () => `"," " "? ${other()}`)}*`;
    const end = (): string => (hasOthers ? `${nextOthers()} "}"` : '"}"');
    const rest = (index: number): string =>
      this.#rule(`rest ${id} ${index}`, () => {
        const ends = index > lastRequired ? [end()] : [];
        return [...(index < properties.length ? [`"," " "? ${entry(index)}`] : []), ...ends].join(' | ');
      });
    // Any optional property may be the first one, and the first required one.
    const entry = (index: number): string =>
      this.#rule(`entry ${id} ${index}`, () => {
        const { key, value, isRequired } = properties[index]!;
        const own = `${literal(`${JSON.stringify(key)}:`)} " "? ${this.#value(value)} ${rest(index + 1)}`;
        return isRequired || index + 1 === properties.length ? own : `${own} | ${entry(index + 1)}`;
      });
    const starts = properties.length > 0 ? [entry(0)] : [];
    if (lastRequired < 0) starts.unshift('"}"', ...(hasOthers ? [`${other()} ${nextOthers()} "}"`] : []));
    return `"{" (${starts.join(' | ')})`;
  }

  #otherEntry({ keys, value }: ObjectNode['others'][number]): string {
    const key = keys === undefined ? `"\\"" ${this.#characters(0, undefined)} "\\""` : this.#language(keys, false);
    return `${key} ":" " "? ${this.#value(value)}`;
  }
}

function times(min: number, max: number | undefined): string {
  return `{${min},${max ?? ''}}`;
}

/** Length of the common beginning, in whole characters. */
function commonLength(texts: readonly string[]): number {
  const [first, ...others] = texts as readonly [string, ...string[]];
  let length = 0;
  for (const character of first) {
    const end = length + character.length;
    if (!others.every((other) => other.startsWith(character, length))) break;
    length = end;
  }
  return length;
}
