import { WarmpathError } from '@warmpath/core';
import type {
  AnsweredQuestion,
  EvaluationOutcomes,
  EvaluationQuestion,
  EvaluationStrategy,
  FailedQuestion,
} from '@warmpath/lab';
import type { Journal } from '../../files/journal.js';
import type { Progress } from '../../progress.js';
import type { StrategyLane } from './strategy-lane.js';

export type StrategyLanes = ReadonlyMap<EvaluationStrategy, StrategyLane>;

/** What an evaluation is run with. */
export interface EvaluationRun {
  readonly questions: readonly EvaluationQuestion[];
  readonly lanes: StrategyLanes;
  /** Requests under way at a time. */
  readonly concurrency: number;
  readonly journal: Journal<AnsweredQuestion> | undefined;
  readonly startProgress: (total: number, before: number) => Progress;
  readonly signal: AbortSignal;
}

interface Task {
  readonly question: EvaluationQuestion;
  readonly strategy: EvaluationStrategy;
}

/** If so many requests fail before the first answer, the engine is not what was meant, and the last error says why. */
const FAILURES_BEFORE_AN_ANSWER = 10;

/**
 * Asks every question with every strategy. They take turns question by question, and who goes first changes, so that
 * whatever else the engine does meets all alike. What the journal holds is not asked again. Failed requests are
 * collected; an interruption ends the run with what is done. Errors: that of the engine if nothing but failures comes
 * from it; those of the journal.
 */
export async function runEvaluation(run: EvaluationRun): Promise<EvaluationOutcomes> {
  const tasks = tasksOf(run);
  const { answered, rest } = recall(tasks, run);
  const failed: FailedQuestion[] = [];
  const progress = run.startProgress(tasks.length, answered.length);
  const stop = new AbortController();
  const signal = AbortSignal.any([run.signal, stop.signal]);
  let next = 0;
  const work = async () => {
    while (next < rest.length && !signal.aborted) {
      const task = rest[next++]!;
      const outcome = await attempt(task, run.lanes, signal);
      if (outcome === undefined) return;
      if ('error' in outcome) {
        failed.push({ question: task.question.id, strategy: task.strategy, code: outcome.error.code });
        if (answered.length === 0 && failed.length >= FAILURES_BEFORE_AN_ANSWER) throw outcome.error;
      } else {
        answered.push(outcome.answer);
        await run.journal?.append(outcome.answer);
      }
      progress.advance();
    }
  };
  try {
    const workers = Array.from({ length: run.concurrency }, () =>
      work().catch((error: unknown) => {
        stop.abort();
        throw error;
      }),
    );
    for (const worker of await Promise.allSettled(workers)) if (worker.status === 'rejected') throw worker.reason;
  } finally {
    progress.stop();
  }
  return { answered, failed, questions: run.questions };
}

/** An answer, a failure that is the engine's, or `undefined` if the run ends; anything else is thrown. */
async function attempt(
  { question, strategy }: Task,
  lanes: StrategyLanes,
  signal: AbortSignal,
): Promise<{ readonly answer: AnsweredQuestion } | { readonly error: WarmpathError } | undefined> {
  try {
    return { answer: await lanes.get(strategy)!.ask(question, signal) };
  } catch (error) {
    if (signal.aborted) return undefined;
    if (WarmpathError.isInstance(error)) return { error };
    throw error;
  }
}

function tasksOf({ questions, lanes }: EvaluationRun): Task[] {
  const strategies = [...lanes.keys()];
  return questions.flatMap((question, turn) =>
    strategies.map((_, i) => ({ question, strategy: strategies[(turn + i) % strategies.length]! })),
  );
}

/** What the journal holds, taken into the lanes' histories in the order of the tasks; and the tasks that are left. */
function recall(
  tasks: readonly Task[],
  { journal, lanes }: EvaluationRun,
): { answered: AnsweredQuestion[]; rest: Task[] } {
  const key = (question: string, strategy: EvaluationStrategy) => `${strategy} ${question}`;
  const known = new Map(journal?.before.map((answer) => [key(answer.question, answer.strategy), answer]));
  const answered: AnsweredQuestion[] = [];
  const rest: Task[] = [];
  for (const task of tasks) {
    const answer = known.get(key(task.question.id, task.strategy));
    if (answer === undefined) {
      rest.push(task);
    } else {
      lanes.get(task.strategy)!.recall(task.question, answer);
      answered.push(answer);
    }
  }
  return { answered, rest };
}
