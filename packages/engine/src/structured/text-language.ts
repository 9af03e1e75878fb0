import { type Alternation, CharSet, DFA, type Element, JS, NFA, type Quantifier, type TransitionIterable } from 'refa';

/** A set of texts: a deterministic automaton over Unicode characters. */
export type TextLanguage = DFA;

const MAX_SOURCE = 2048;

/** Most states of all automata of one schema, before and after they are made deterministic. */
const MAX_STATES = 3000;
const MAX_DETERMINISTIC_STATES = 1500;

const MAX_CODE = 0x10ffff;
const OPTIONS = { maxCharacter: MAX_CODE };
const ANY = CharSet.all(MAX_CODE);

/** Every character of UTF-8: no surrogates. */
const CHARACTERS = ANY.without({ min: 0xd800, max: 0xdfff });

/** A regular expression that has no automaton, with the reason. */
export class UnreadablePattern extends Error {}

/** Makes automata, up to a total number of states. */
export class LanguageMaker {
  readonly #nfa = new NFA.LimitedNodeFactory(MAX_STATES);
  readonly #dfa = new DFA.LimitedNodeFactory(MAX_DETERMINISTIC_STATES);

  /**
   * Reads a regular expression of JavaScript, and forms of Python and Rust. It matches anywhere in a text, as in a
   * JSON schema, unless `^` and `$` anchor it.
   *
   * @throws UnreadablePattern, as all methods do.
   */
  pattern(source: string): TextLanguage {
    if (source.length > MAX_SOURCE) {
      throw new UnreadablePattern(`Expected a pattern of at most ${MAX_SOURCE} characters`);
    }
    return bounded(() => {
      const { expression } = parserOf(source).parse({ backreferences: 'throw', maxNodes: MAX_STATES });
      return this.#inUtf8(
        this.#union(expression.alternatives.map(({ elements }) => this.#anchored(elements as Element[]))),
      );
    });
  }

  /** Texts with a length in characters within bounds. */
  length(min: number, max: number | undefined): TextLanguage {
    return bounded(() => {
      const one = NFA.fromCharSet(CHARACTERS, this.#nfa);
      one.quantify(min, max ?? Number.POSITIVE_INFINITY, this.#nfa);
      return this.#minimal(one);
    });
  }

  texts(texts: readonly string[]): TextLanguage {
    return bounded(() => this.#minimal(NFA.fromWords(texts.map(codesOf), OPTIONS, this.#nfa)));
  }

  /** The texts of all the languages; `undefined` where there is none. */
  intersection([first, ...others]: readonly TextLanguage[]): TextLanguage | undefined {
    const both = bounded(() => others.reduce((a, b) => this.#minimal(DFA.fromIntersection(a, b, this.#dfa)), first!));
    return both.isEmpty ? undefined : both;
  }

  /** The texts of one language that no other has; `undefined` where there is none. */
  without(language: TextLanguage, others: readonly TextLanguage[]): TextLanguage | undefined {
    return this.intersection([
      language,
      ...others.map((other) => bounded(() => this.#inUtf8(this.#complement(other)))),
    ]);
  }

  #everything(): NFA {
    return NFA.all(OPTIONS, this.#nfa);
  }

  #minimal<Node>(language: TransitionIterable<Node>): DFA {
    const dfa = DFA.fromFA(language, this.#dfa);
    dfa.minimize();
    return dfa;
  }

  #inUtf8<Node>(language: TransitionIterable<Node>): DFA {
    const texts = NFA.fromCharSet(CHARACTERS);
    texts.quantify(0, Number.POSITIVE_INFINITY);
    return this.#minimal(NFA.fromIntersection(language, texts, this.#nfa));
  }

  #complement<Node>(language: TransitionIterable<Node>): DFA {
    const dfa = DFA.fromFA(language, this.#dfa);
    dfa.complement(this.#dfa);
    return dfa;
  }

  #union(languages: readonly NFA[]): NFA {
    const union = NFA.empty(OPTIONS, this.#nfa);
    for (const language of languages) union.union(language, this.#nfa);
    return union;
  }

  /** The texts in which the elements match, at any place unless they begin with `^`. */
  #anchored(elements: readonly Element[]): NFA {
    const [first, ...others] = elements;
    if (first !== undefined && isStart(first)) return this.#sequence(others, this.#everything(), true);
    if (first?.type === 'Alternation' && hasAssertion(first)) {
      return this.#union(first.alternatives.map((each) => this.#anchored([...each.elements, ...others] as Element[])));
    }
    const anywhere = this.#everything();
    anywhere.append(this.#sequence(elements, this.#everything(), false), this.#nfa);
    return anywhere;
  }

  /** The elements, then the rest of the text: a lookahead applies to both. */
  #sequence(elements: readonly Element[], rest: NFA, isAtStart: boolean): NFA {
    const [first, ...others] = elements;
    if (first === undefined) return rest;
    const after = this.#sequence(others, rest, isAtStart && first.type === 'Assertion');
    if (isAtStart && isStart(first)) return after;
    if (!hasAssertion(first)) {
      const language = NFA.fromRegex({ type: 'Concatenation', elements: [first] }, OPTIONS, {}, this.#nfa);
      language.append(after, this.#nfa);
      return language;
    }
    if (first.type === 'Assertion') {
      if (first.kind === 'behind') {
        throw new UnreadablePattern('This engine reads no lookbehinds, and no `^` and `\\b` inside of a pattern');
      }
      const ahead = this.#alternatives(first, this.#everything(), isAtStart);
      return NFA.fromIntersection(after, first.negate ? this.#complement(ahead) : this.#minimal(ahead), this.#nfa);
    }
    if (first.type === 'Quantifier' && first.max > 1) {
      throw new UnreadablePattern('This engine reads no lookaheads and no `$` inside of a repetition');
    }
    const once = this.#alternatives(first as Alternation | Quantifier, after, isAtStart);
    return first.type === 'Quantifier' && first.min === 0 ? this.#union([once, after]) : once;
  }

  #alternatives({ alternatives }: Pick<Alternation, 'alternatives'>, rest: NFA, isAtStart: boolean): NFA {
    return this.#union(alternatives.map(({ elements }) => this.#sequence(elements as Element[], rest, isAtStart)));
  }
}

/** Whether a language holds a text. */
export function holds(language: TextLanguage, text: string): boolean {
  return language.test(codesOf(text));
}

function codesOf(text: string): number[] {
  return Array.from(text, (character) => character.codePointAt(0)!);
}

/** Next states of one state that cost as much as one more parse. */
const STEPS_OF_READING = 4;

/** The cost of a language at its worst state, in parses of an answer. */
export function readingsOf(language: TextLanguage): number {
  const steps = Array.from(language.nodes(), ({ out }) => new Set(out.values()).size);
  return Math.ceil(Math.max(1, ...steps) / STEPS_OF_READING);
}

function bounded<T>(build: () => T): T {
  try {
    return build();
  } catch (cause) {
    if (cause instanceof UnreadablePattern) throw cause;
    throw new UnreadablePattern('This pattern cannot be read, or is too large', { cause });
  }
}

/** Needless escapes are errors in the `u` mode, which JSON Schema asks for: they are removed. */
function parserOf(source: string): JS.Parser {
  const read = (text: string): JS.Parser => JS.Parser.fromLiteral({ source: text, flags: 'u' });
  const javaScript = source
    .replaceAll('(?P<', '(?<')
    .replace(/^\\A/, '^')
    .replace(/\\[Zz]$/, '$');
  try {
    return read(javaScript);
  } catch {
    return read(withoutNeedlessEscapes(javaScript));
  }
}

function withoutNeedlessEscapes(source: string): string {
  let isClass = false;
  return source.replace(/\\(.)|[[\]]/gsu, (match, escaped: string | undefined) => {
    if (escaped === undefined) {
      isClass = match === '[';
      return match;
    }
    return /[a-zA-Z0-9^$\\.*+?()[\]{}|/]/.test(escaped) || (isClass && escaped === '-') ? match : escaped;
  });
}

function hasAssertion(element: Element): boolean {
  return (
    element.type === 'Assertion' ||
    ('alternatives' in element &&
      element.alternatives.some(({ elements }) => elements.some((each) => hasAssertion(each as Element))))
  );
}

/** Whether it is `^`: no character before. */
function isStart(element: Element): boolean {
  const [only, ...others] =
    element.type === 'Assertion' && element.kind === 'behind' && element.negate ? element.alternatives : [];
  const [character, ...more] = only?.elements ?? [];
  return others.length === 0 && more.length === 0 && character?.type === 'CharacterClass' && character.characters.isAll;
}
