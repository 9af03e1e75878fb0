import type { Passage } from '../data/passages.js';
import type { GoldAnswers } from '../data/requests.js';

/** A question with its right answers and the passages that retrieval found for it. */
export interface EvaluationQuestion {
  readonly id: string;
  readonly text: string;
  readonly gold: GoldAnswers;
  /** In retrieval order. */
  readonly passages: readonly Passage[];
  /** A random order of them: `shuffled[place]` is a rank. */
  readonly shuffled?: readonly number[];
  /** What it is asked about once more, in another round: both count as one in intervals and tests. */
  readonly unit?: string;
  /** The conversation that it is a turn of. */
  readonly conversation?: { readonly id: string; readonly before: readonly AnsweredTurn[] };
  /** What sort of question it is, where that is known; figures are also given sort by sort. */
  readonly kind?: string;
}

/** An earlier turn of a conversation, with the answer of the data. */
export interface AnsweredTurn {
  readonly question: string;
  readonly answer: string;
  /** What retrieval found for it, in its order. */
  readonly passages: readonly Passage[];
}
