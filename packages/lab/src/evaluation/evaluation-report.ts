import { mean } from '../statistics.js';
import { type AnswerScore, SCORE_NAMES } from './answer-score.js';
import { type BootstrapMean, bootstrapMeans, type PairedTest, pairedTTest } from './paired-statistics.js';

/** What questions that stand alone are asked with; the first is what the others are compared with. */
export const EVALUATION_STRATEGIES = ['retrieval', 'arranged', 'arranged-hints'] as const;
/** The same for the turns of conversations. */
export const CONVERSATION_STRATEGIES = ['retrieval', 'deduplicated', 'deduplicated-hints'] as const;
/**
 * How documents are put into the prompt: in retrieval order, arranged, or arranged with a hint that states the retrieval order; in
 * a conversation all again, or what it still shows left out, or left out with a hint that says where it stands.
 */
export type EvaluationStrategy = (typeof EVALUATION_STRATEGIES)[number] | (typeof CONVERSATION_STRATEGIES)[number];

/** One answered question. Plain data, without any text of question or answer. */
export interface AnsweredQuestion {
  readonly question: string;
  readonly strategy: EvaluationStrategy;
  readonly score: AnswerScore;
  /** Milliseconds from sending the request to the first chunk with content. */
  readonly ttftMs: number;
  /** `null` where the engine does not say. */
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  /** Whether the documents stood in another order than retrieved. */
  readonly moved: boolean;
}

/** One request that got no answer. */
export interface FailedQuestion {
  readonly question: string;
  readonly strategy: EvaluationStrategy;
  /** Code of the error table. */
  readonly code: string;
}

/** What an evaluation was run with. */
export interface EvaluationSettings {
  /** The data set as it was named. */
  readonly data: string;
  /** URL of the engine, without credentials. */
  readonly engine: string;
  readonly model: string;
  /** What every question is asked with, the baseline first. */
  readonly strategies: readonly EvaluationStrategy[];
  /** Ordering policy of the strategies but the baseline. */
  readonly policy: string;
  /** Documents a question. */
  readonly topK: number;
  /** Requests under way at a time. */
  readonly concurrency: number;
  /** Of the bootstrap, and of the numbers that keep the strategies' cached prompts apart. */
  readonly seed: number;
}

/** One strategy's figures over the questions that all strategies answered. */
export interface StrategyFigures {
  readonly strategy: EvaluationStrategy;
  readonly exact: BootstrapMean;
  readonly contains: BootstrapMean;
  readonly f1: BootstrapMean;
  readonly ttftMs: { readonly mean: number };
  /** Totals; `null` where the engine does not say. */
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  readonly cachedShare: number | null;
  /** Questions whose documents stood in another order than retrieved. */
  readonly moved: number;
  /** Requests without an answer, by code of the error table; they are in no figure. */
  readonly failures: Readonly<Record<string, number>>;
}

/** One figure of a strategy against retrieval order, question by question. */
export type ScoreDifference = BootstrapMean & PairedTest;

/** A strategy against retrieval order on the same questions. */
export interface StrategyDifference {
  readonly strategy: EvaluationStrategy;
  readonly exact: ScoreDifference;
  readonly contains: ScoreDifference;
  readonly f1: ScoreDifference;
}

/** What an evaluation amounts to. */
export interface EvaluationReport extends Omit<EvaluationSettings, 'strategies'> {
  readonly questions: {
    /** Questions that were asked with at least one strategy. */
    readonly asked: number;
    /** Questions that all strategies answered: what the figures are over. */
    readonly scored: number;
    /** Those of them that have no answer in the documents. */
    readonly unanswerable: number;
  };
  /** Whether a strategy's first prompt was in the cache already, as after an earlier run with the same seed. */
  readonly startedWarm: boolean;
  readonly strategies: readonly StrategyFigures[];
  /** Empty for fewer than two questions. */
  readonly differences: readonly StrategyDifference[];
}

/** What an evaluation has come to so far. */
export interface EvaluationOutcomes {
  readonly answered: readonly AnsweredQuestion[];
  readonly failed: readonly FailedQuestion[];
  /** Questions that the documents do not answer. */
  readonly unanswerable: ReadonlySet<string>;
}

/** Sums an evaluation up; `undefined` while no question is answered by all strategies. Cost: that of `bootstrapMeans`. */
export function evaluationReport(
  settings: EvaluationSettings,
  { answered, failed, unanswerable }: EvaluationOutcomes,
): EvaluationReport | undefined {
  const { strategies } = settings;
  const scored = [...groupByQuestion(answered)].filter(([, answers]) => answers.length === strategies.length);
  if (scored.length === 0) return undefined;
  const answersOf = strategies.map((strategy) =>
    scored.map(([, answers]) => answers.find((answer) => answer.strategy === strategy)!),
  );
  const samples = answersOf.flatMap((answers) => SCORE_NAMES.map((name) => answers.map(({ score }) => score[name])));
  const bootstrap = bootstrapMeans(samples, settings);
  const sampleOf = (strategy: number, name: number) => strategy * SCORE_NAMES.length + name;
  const asked = new Set([...answered, ...failed].map(({ question }) => question));
  return {
    ...settings,
    questions: {
      asked: asked.size,
      scored: scored.length,
      unanswerable: scored.filter(([question]) => unanswerable.has(question)).length,
    },
    startedWarm: strategies.some((strategy) => startedWarm(answered, strategy)),
    strategies: strategies.map((strategy, s) => ({
      strategy,
      ...byScore((name) => bootstrap.mean(sampleOf(s, name))),
      ...costFigures(answersOf[s]!),
      failures: countCodes(failed.filter((failure) => failure.strategy === strategy)),
    })),
    differences:
      scored.length < 2
        ? []
        : strategies.slice(1).map((strategy, i) => ({
            strategy,
            ...byScore((name) => ({
              ...bootstrap.difference(sampleOf(i + 1, name), sampleOf(0, name)),
              ...pairedTTest(samples[sampleOf(i + 1, name)]!, samples[sampleOf(0, name)]!),
            })),
          })),
  };
}

function groupByQuestion(answered: readonly AnsweredQuestion[]): ReadonlyMap<string, readonly AnsweredQuestion[]> {
  const groups = new Map<string, AnsweredQuestion[]>();
  for (const answer of answered) {
    const group = groups.get(answer.question);
    if (group === undefined) groups.set(answer.question, [answer]);
    else group.push(answer);
  }
  return groups;
}

/** A cold engine knows little more of the first prompt than what its chat template begins every prompt with. */
function startedWarm(answered: readonly AnsweredQuestion[], strategy: EvaluationStrategy): boolean {
  const first = answered.find((answer) => answer.strategy === strategy);
  return (first?.cachedTokens ?? 0) > (first?.promptTokens ?? 0) / 2;
}

function byScore<Figure>(figure: (name: number) => Figure): Record<keyof AnswerScore, Figure> {
  return { exact: figure(0), contains: figure(1), f1: figure(2) };
}

function costFigures(answers: readonly AnsweredQuestion[]) {
  const promptTokens = total(answers.map((answer) => answer.promptTokens));
  const cachedTokens = total(answers.map((answer) => answer.cachedTokens));
  const isKnown = promptTokens !== null && promptTokens > 0 && cachedTokens !== null;
  return {
    ttftMs: { mean: mean(answers.map(({ ttftMs }) => ttftMs)) },
    promptTokens,
    cachedTokens,
    cachedShare: isKnown ? cachedTokens / promptTokens : null,
    moved: answers.filter(({ moved }) => moved).length,
  };
}

/** Some engines leave a count out when it is 0; one that never gives it does not know it. */
function total(counts: readonly (number | null)[]): number | null {
  if (counts.every((count) => count === null)) return null;
  return counts.reduce<number>((sum, count) => sum + (count ?? 0), 0);
}

function countCodes(failures: readonly FailedQuestion[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { code } of failures) counts[code] = (counts[code] ?? 0) + 1;
  return counts;
}
