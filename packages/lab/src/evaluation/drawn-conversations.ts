import { WarmpathError } from '@warmpath/core';
import { type Passage, Retriever } from '../data/passages.js';
import { MersenneTwister } from '../workloads/mersenne-twister.js';
import type { AnsweredTurn, EvaluationQuestion } from './questions.js';

/** A question that stands alone, its one right answer, and the passage that holds it. */
export interface SourcedQuestion {
  readonly text: string;
  readonly answer: string;
  /** Id of the passage. */
  readonly source: string;
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
 * one, so it brings again what it brought before. Two of three questions behind the first are about a passage that an
 * earlier turn showed, the others about one that is new; retrieval finds it anew in either case, and nothing that was
 * said gives an answer away. All questions are used equally often. Error: `WARMPATH_INVALID_REQUEST` if there are too
 * few. Deterministic. O(conversations × turns × a search).
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
      const candidates = byUses(questions, used, random).filter(
        ({ source, answer, text }) =>
          shownAt.has(source) === aboutShown &&
          before.every((earlier) => earlier.answer !== answer && earlier.question !== text),
      );
      const last = before.at(-1)?.question ?? '';
      const found = firstFound(candidates, (text) => retriever.search(`${last} ${text}`.trim(), options.topK));
      if (found === undefined) throw tooFew(id, turn);
      const { question, passages: context } = found;
      used.set(question, (used.get(question) ?? 0) + 1);
      drawn.push({
        id: `${id}, turn ${turn + 1}`,
        text: question.text,
        gold: { answers: [question.answer] },
        passages: context,
        conversation: { id, before: [...before] },
        kind: kindOf(turn, shownAt.get(question.source)),
      });
      for (const { id: passage } of context) if (!shownAt.has(passage)) shownAt.set(passage, turn);
      before.push({ question: question.text, answer: question.answer, passages: context });
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

/** The first question whose own passage is among those that retrieval finds. */
function firstFound(
  candidates: readonly SourcedQuestion[],
  search: (question: string) => readonly Passage[],
): { readonly question: SourcedQuestion; readonly passages: readonly Passage[] } | undefined {
  for (const question of candidates) {
    const passages = search(question.text);
    if (passages.some(({ id }) => id === question.source)) return { question, passages };
  }
  return undefined;
}

function kindOf(turn: number, shownAt: number | undefined): string {
  if (turn === 0) return 'first turn';
  if (shownAt === undefined) return 'document new';
  const back = turn - shownAt;
  return `document shown ${back} ${back === 1 ? 'turn' : 'turns'} before`;
}

function tooFew(conversation: string, turn: number): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', {
    path: `${conversation}, turn ${turn + 1}`,
    detail: 'no question is left whose passage retrieval finds: fewer turns, or more passages a turn',
  });
}
