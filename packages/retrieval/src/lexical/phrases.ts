import type { ScoredDocument } from '../staged-retriever.js';
import { wordsOf } from './analyse.js';
import { foldWord } from './fold.js';

/** What stands between quotation marks, on one line. */
const QUOTED = /"([^"\n]+)"|[“„«「]([^”“»」\n]+)[”“»」]/gu;
/** Phrases of a question, at most. */
const MAX_PHRASES = 8;
/** A letter of a script that is written without spaces: a phrase may begin or end within a run of those. */
const UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

/** The phrases of a question that stand in quotation marks. */
export function phrasesIn(text: string): string[] {
  const phrases = [...text.matchAll(QUOTED)].map(([, plain, other]) => plain ?? other!);
  return phrases.filter((phrase) => wordsOf(phrase).length > 0).slice(0, MAX_PHRASES);
}

/** Passages that have all these phrases come first; their scores say so. */
export function phrasesFirst(candidates: readonly ScoredDocument[], phrases: readonly string[]): ScoredDocument[] {
  if (phrases.length === 0) return [...candidates];
  const most = candidates[0]?.score ?? 0;
  const ranked = candidates.map((candidate) => {
    const { title = '', content, score } = candidate;
    return hasPhrases(`${title}\n${content}`, phrases) ? { ...candidate, score: score + most } : candidate;
  });
  return ranked.sort((a, b) => b.score - a.score);
}

/** Whether a text has all these phrases word for word, whatever the case and accents. O(length). */
function hasPhrases(text: string, phrases: readonly string[]): boolean {
  const words = spaced(text);
  return phrases.every((phrase) => {
    const sought = spaced(phrase);
    const from = UNSPACED.test(sought[1]!) ? 1 : 0;
    const to = UNSPACED.test(sought.at(-2)!) ? -1 : sought.length;
    return words.includes(sought.slice(from, to));
  });
}

function spaced(text: string): string {
  return ` ${wordsOf(text).map(foldWord).join(' ')} `;
}
