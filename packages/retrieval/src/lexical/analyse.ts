import { foldWord, normalise } from './fold.js';
import { type Language, languagesOf, scriptOf } from './languages.js';

/** Longest word that is kept whole. What is longer is no word: its beginning stands for it. */
const LONGEST_WORD = 64;
/** Words that one text has at most; a text of more is searched by its beginning. */
const MAX_WORDS = 1_000_000;
/** Words whose terms an analyser remembers. */
const MAX_KNOWN = 65_536;

/** Words with their signs (`C++`, `C#`, `.NET`), and pictures one by one. */
const WORD =
  /(?:(?<![\p{L}\p{M}\p{N}_.])\.(?=\p{L}))?[\p{L}\p{M}\p{N}_]+(?:\+\+|#(?![\p{L}\p{N}]))?|\p{RI}{2}|\p{Extended_Pictographic}/gu;
/** A name of a few letters that its sign belongs to. */
const SIGNED = /^\p{L}{1,3}(?:\+\+|#)$/u;
const SIGNS = /^\.|(?:\+\+|#)$/g;

/** The words of a text, as they are written. O(length). */
export function wordsOf(text: string): string[] {
  const words: string[] = [];
  for (const [word] of normalise(text).matchAll(WORD)) {
    if (words.push(word.length > LONGEST_WORD ? word.slice(0, LONGEST_WORD) : word) === MAX_WORDS) break;
  }
  return words;
}

/** Scripts without spaces between words, and Hangul, whose words carry their particles. */
const UNSPACED =
  /([\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}々ー]+)|[\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]+/gu;
const MAY_BE_UNSPACED = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u2e80-\uffff]/;
/** Where a part of an identifier begins: `parseHttp`, `HTTPServer`, `snake_case`. */
const HAS_PARTS = /_|\p{Ll}\p{Lu}|\p{Lu}\p{Lu}\p{Ll}/u;
const PART_BORDER = /_+|(?<=\p{Ll})(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})/u;
const HAS_DIGITS = /[\p{N}_]/u;

/**
 * Terms of words for lexical search:
 *
 * - stems of the languages given, in lower case, without accents; words of other languages as they are;
 * - Chinese, Japanese and Korean as characters and pairs of neighbours, Thai and its like as pairs;
 * - identifiers whole and by their parts: `parseHttpHeader` → `parsehttpheader parse http header`.
 */
export class Analyser {
  readonly #languages: readonly Language[];
  readonly #known = new Map<string, readonly string[]>();

  constructor(languages: readonly Language[]) {
    this.#languages = languages;
  }

  /** The terms of a word, each once. */
  termsOf(word: string): readonly string[] {
    let terms = this.#known.get(word);
    if (terms !== undefined) return terms;
    terms = [...new Set(this.#terms(word))].filter((term) => term !== '');
    if (this.#known.size === MAX_KNOWN) this.#known.clear();
    this.#known.set(word, terms);
    return terms;
  }

  #terms(word: string): string[] {
    if (SIGNED.test(word)) return [foldWord(word)];
    const plain = word.replace(SIGNS, '');
    if (word.startsWith('.')) return [`.${foldWord(plain)}`, ...this.#terms(plain)];
    if (MAY_BE_UNSPACED.test(plain)) return this.#mixed(plain);
    const parts = plain.length > 3 && HAS_PARTS.test(plain) ? plain.split(PART_BORDER).filter(Boolean) : [];
    if (parts.length > 1) return [foldWord(parts.join('')), ...parts.flatMap((part) => this.#stems(part))];
    return this.#stems(parts[0] ?? plain);
  }

  /** A run that has letters of unspaced scripts, and words of what stands between them. */
  #mixed(word: string): string[] {
    const terms: string[] = [];
    let from = 0;
    for (const { 0: run, 1: single, index } of word.matchAll(UNSPACED)) {
      if (index > from) terms.push(...this.#stems(word.slice(from, index)));
      const letters = [...run];
      if (single !== undefined || letters.length === 1) terms.push(...letters);
      for (let at = 1; at < letters.length; at++) terms.push(letters[at - 1]! + letters[at]!);
      from = index + run.length;
    }
    if (from < word.length) terms.push(...this.#stems(word.slice(from)));
    return terms;
  }

  /** Stems of a word as it is written, and as it is written without accents. */
  #stems(word: string): string[] {
    const lower = word.toLowerCase();
    const folded = foldWord(word);
    if (HAS_DIGITS.test(lower)) return [folded];
    const script = scriptOf(lower);
    const languages = this.#languages.filter((language) => language.script === script);
    if (languages.length === 0) return [folded];
    const forms = lower === folded ? [folded] : [lower, folded];
    return languages.flatMap(({ stem }) => forms.map((form) => foldWord(stem(form)) || folded));
  }
}

/** Analyses passages by the languages that each is in. */
export class PassageAnalyser {
  readonly #analysers = new Map<string, Analyser>();

  /** Codes of the languages that passages were in so far. */
  readonly languages = new Set<string>();

  /** The terms of a passage, word for word. O(length). */
  *terms(text: string): Generator<string, void> {
    const words = wordsOf(text);
    const languages = languagesOf(words);
    const key = languages.map(({ code }) => code).join();
    let analyser = this.#analysers.get(key);
    if (analyser === undefined) {
      analyser = new Analyser(languages);
      this.#analysers.set(key, analyser);
      for (const { code } of languages) this.languages.add(code);
    }
    for (const word of words) yield* analyser.termsOf(word);
  }
}

/** The terms of a text, word for word and without stems. O(length). */
export function plainTerms(text: string): string[] {
  const analyser = new Analyser([]);
  return wordsOf(text).flatMap((word) => analyser.termsOf(word));
}
