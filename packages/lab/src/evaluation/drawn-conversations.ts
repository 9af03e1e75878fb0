import { WarmpathError } from '@warmpath/core';
import { type Passage, Retriever } from '../data/passages.js';
import type { GoldAnswers } from '../data/requests.js';
import { MersenneTwister } from '../workloads/mersenne-twister.js';
import type { AnsweredTurn, EvaluationQuestion } from './evaluation-question.js';

/** A question that stands alone, with its answers and the passages that hold them. */
export interface SourcedQuestion {
  readonly text: string;
  /** One at least; the first is what the next turn shows as said. */
  readonly gold: GoldAnswers;
  /** Ids of the passages that the answer takes. */
  readonly sources: readonly string[];
}

/** How conversations are drawn. */
export interface DrawOptions {
  readonly seed: number;
  readonly conversations: number;
  /** Questions of each. */
  readonly turns: number;
  /** Passages of each turn. */
  readonly topK: number;
}

/** Share of the questions behind the first whose passage the conversation has shown already. */
const ABOUT_SHOWN = 2 / 3;

/**
 * Conversations out of questions that stand alone. Retrieval is that of a chat: BM25 by the question before and this
 * one, so it brings again what it brought before. Two of three questions behind the first are about passages that
 * earlier turns showed, the others about new ones, where the questions allow it; retrieval finds them anew in either
 * case, and nothing that was said gives an answer away. All questions are used equally often. Error:
 * `WARMPATH_INVALID_REQUEST` if there are too few. Deterministic. O(conversations × turns × questions × a search).
 */
export function drawConversations(
  questions: readonly SourcedQuestion[],
  passages: readonly Passage[],
  options: DrawOptions,
): readonly EvaluationQuestion[] {
  const random = new MersenneTwister(options.seed);
  const retriever = new Retriever(passages);
  const used = new Map<SourcedQuestion, number>();
  const drawn: EvaluationQuestion[] = [];
  for (let conversation = 0; conversation < options.conversations; conversation++) {
    const id = `conversation ${conversation + 1}`;
    const before: AnsweredTurn[] = [];
    /** The turn that showed a passage first. */
    const shownAt = new Map<string, number>();
    for (let turn = 0; turn < options.turns; turn++) {
      const aboutShown = turn > 0 && random.random() < ABOUT_SHOWN;
      const candidates = byUses(questions, used, random).filter(({ gold, text }) =>
        before.every((earlier) => earlier.answer !== gold.answers[0] && earlier.question !== text),
      );
      const isShown = (source: string) => shownAt.has(source);
      const shown = candidates.filter(({ sources }) => sources.every(isShown));
      const fresh = candidates.filter(({ sources }) => !sources.some(isShown));
      const last = before.at(-1)?.question ?? '';
      const search = (text: string) => retriever.search(`${last} ${text}`.trim(), options.topK);
      const [wanted, other] = aboutShown ? [shown, fresh] : [fresh, shown];
      const found = firstFound(wanted, search) ?? firstFound(other, search);
      if (found === undefined) throw tooFew(id, turn);
      const { question, passages: context } = found;
      const answer = question.gold.answers[0]!;
      used.set(question, (used.get(question) ?? 0) + 1);
      drawn.push({
        id: `${id}, turn ${turn + 1}`,
        text: question.text,
        gold: question.gold,
        passages: context,
        conversation: { id, before: [...before] },
        kind: kindOf(
          turn,
          question.sources.map((source) => shownAt.get(source)),
        ),
      });
      for (const { id: passage } of context) if (!shownAt.has(passage)) shownAt.set(passage, turn);
      before.push({ question: question.text, answer, passages: context });
    }
  }
  return drawn;
}

/** Those that were asked least often first, in random order. */
function byUses(
  questions: readonly SourcedQuestion[],
  used: ReadonlyMap<SourcedQuestion, number>,
  random: MersenneTwister,
): readonly SourcedQuestion[] {
  const shuffled = [...questions];
  random.shuffle(shuffled);
  return shuffled.sort((a, b) => (used.get(a) ?? 0) - (used.get(b) ?? 0));
}

/** The first question whose own passages are all among those that retrieval finds. */
function firstFound(
  candidates: readonly SourcedQuestion[],
  search: (question: string) => readonly Passage[],
): { readonly question: SourcedQuestion; readonly passages: readonly Passage[] } | undefined {
  for (const question of candidates) {
    const passages = search(question.text);
    if (question.sources.every((source) => passages.some(({ id }) => id === source))) return { question, passages };
  }
  return undefined;
}

function kindOf(turn: number, shownAt: readonly (number | undefined)[]): string {
  if (turn === 0) return 'first turn';
  const turns = shownAt.filter((shown) => shown !== undefined);
  if (turns.length === 0) return 'document new';
  const back = turn - Math.min(...turns);
  return `document shown ${back} ${back === 1 ? 'turn' : 'turns'} before`;
}

function tooFew(conversation: string, turn: number): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', {
    path: `${conversation}, turn ${turn + 1}`,
    detail: 'no question is left whose passage retrieval finds: fewer turns, or more passages a turn',
  });
}
