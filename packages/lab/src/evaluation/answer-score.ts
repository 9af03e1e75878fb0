import type { GoldAnswers } from '../data/requests.js';

/** How good one answer is; each figure is from 0 to 1. */
export interface AnswerScore {
  /** 1 if the answer is a right one, word for word after normalisation. */
  readonly exact: number;
  /** 1 if the answer contains a right one as whole words: fair to models that answer in sentences. */
  readonly contains: number;
  /** Harmonic mean of precision and recall over words, for the right answer that it is best for. */
  readonly f1: number;
}

export const SCORE_NAMES = ['exact', 'contains', 'f1'] as const satisfies readonly (keyof AnswerScore)[];

/** What a model is asked to say where the documents hold no answer. */
export const REFUSAL = 'unanswerable';

/** ASCII punctuation, which SQuAD's script deletes; it does not become a space. */
const PUNCTUATION = /[!"#$%&'()*+,\-./:;<=>?@[\\\]^_`{|}~]/g;
/** Articles as whole words, of any script's letters. */
const ARTICLES = /(?<![\p{L}\p{N}_])(?:a|an|the)(?![\p{L}\p{N}_])/gu;

/**
 * The words of an answer as SQuAD's evaluation compares them (Rajpurkar et al. 2016): lower case, without punctuation
 * and without articles, parted by white space. O(length).
 */
export function normalisedWords(text: string): readonly string[] {
  const plain = text.toLowerCase().replace(PUNCTUATION, '').replace(ARTICLES, ' ').trim();
  return plain === '' ? [] : plain.split(/\s+/);
}

/**
 * Scores an answer. For a question without an answer (SQuAD 2.0) all three are 1 if the model refuses, with the word
 * `unanswerable` or with nothing, and 0 if it does not; `contains` forgives words around the refusal. O(length × right
 * answers).
 */
export function scoreAnswer(answer: string, { answers }: GoldAnswers): AnswerScore {
  const words = normalisedWords(answer);
  if (answers.length === 0) {
    const refuses = words.length === 0 || (words.length === 1 && words[0] === REFUSAL) ? 1 : 0;
    return { exact: refuses, contains: words.includes(REFUSAL) ? 1 : refuses, f1: refuses };
  }
  const scores = answers.map((gold) => scoreAgainst(words, normalisedWords(gold)));
  const best = (name: keyof AnswerScore) => Math.max(...scores.map((score) => score[name]));
  return { exact: best('exact'), contains: best('contains'), f1: best('f1') };
}

function scoreAgainst(words: readonly string[], gold: readonly string[]): AnswerScore {
  const exact = words.length === gold.length && words.every((word, i) => word === gold[i]) ? 1 : 0;
  // A right answer of nothing but articles and punctuation has no words to compare.
  if (words.length === 0 || gold.length === 0) return { exact, contains: exact, f1: exact };
  return { exact, contains: containsRun(words, gold) ? 1 : 0, f1: wordF1(words, gold) };
}

function containsRun(words: readonly string[], run: readonly string[]): boolean {
  for (let start = 0; start + run.length <= words.length; start++) {
    if (run.every((word, i) => word === words[start + i])) return true;
  }
  return false;
}

function wordF1(words: readonly string[], gold: readonly string[]): number {
  const left = new Map<string, number>();
  for (const word of gold) left.set(word, (left.get(word) ?? 0) + 1);
  let common = 0;
  for (const word of words) {
    const count = left.get(word) ?? 0;
    if (count === 0) continue;
    left.set(word, count - 1);
    common++;
  }
  return (2 * common) / (words.length + gold.length);
}
