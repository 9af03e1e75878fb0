import { mean } from '../statistics.js';
import { type AnswerScore, SCORE_NAMES } from './answer-score.js';
import type { EvaluationQuestion } from './evaluation-question.js';
import {
  type BootstrapMean,
  bootstrapMeans,
  type PairedTest,
  pairedTTest,
  signFlipTest,
  unitSums,
} from './paired-statistics.js';
import {
  fitShiftPrice,
  type PricedAnswers,
  type PricedStrategy,
  type ShiftPriceFit,
  shiftPriceOf,
} from './shift-price.js';

/** Strategies for questions outside of conversations; the others are compared with the first. */
export const EVALUATION_STRATEGIES = [
  'retrieval',
  'repeated',
  'shuffled',
  'shuffled-hints',
  'arranged',
  'arranged-hints',
] as const;
/**
 * The same for the turns of conversations. Arranging alone is none: behind a history of its own, no order is in the
 * cache.
 */
export const CONVERSATION_STRATEGIES = [
  'retrieval',
  'forwarded',
  'deduplicated',
  'deduplicated-hints',
  'in-place',
] as const;
/**
 * How documents are put into the prompt. `retrieval`: in retrieval order, and in a conversation all of them again,
 * behind earlier turns with theirs. `repeated`: the same once more, which tells how much an answer changes by itself.
 * `shuffled`: in random order, the most that an order can change. `arranged`: in the order of the policy. `-hints`:
 * with a hint that states the retrieval order. `deduplicated`: arranged, and what the conversation still shows left
 * out; with hints, which also say where that stands. `forwarded`: in retrieval order, behind earlier turns without
 * documents. `price-4`: arranged with hints, where a place moved costs four tokens. `in-place`: the prompt of
 * `retrieval`, in which a gateway recognises the documents, and writes where they stand in the place of those that it
 * shows already.
 */
export type EvaluationStrategy =
  | (typeof EVALUATION_STRATEGIES)[number]
  | (typeof CONVERSATION_STRATEGIES)[number]
  | PricedStrategy;

/** One answered question. Plain data. */
export interface AnsweredQuestion {
  readonly question: string;
  readonly strategy: EvaluationStrategy;
  /** The answer's text. */
  readonly answer: string;
  readonly score: AnswerScore;
  /** Milliseconds from sending the request to the first chunk with content. */
  readonly ttftMs: number;
  /** `null` where the engine does not say. */
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  /** Places that the documents stood away from their retrieval ranks, of all together. */
  readonly placesMoved: number;
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
  /** Where they come from, and in which order. */
  readonly passages: string;
  /** Requests under way at a time. */
  readonly concurrency: number;
  /**
   * Of the bootstrap, of what keeps the strategies' cached prompts apart, of random orders, and of conversations that
   * are drawn.
   */
  readonly seed: number;
  /** What prompt and answer must fit in; `null` where the engine does not say. */
  readonly contextTokens: number | null;
  /** Where prices of moving documents are tried: token F1 that the suggested one may lose. */
  readonly tolerance?: number;
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
  /** Places that documents stood away from their retrieval ranks, a question. */
  readonly placesMoved: number;
  /** Requests without an answer, by code of the error table; they are in no figure. */
  readonly failures: Readonly<Record<string, number>>;
}

/** One figure of a strategy against another, question by question. */
export type ScoreDifference = BootstrapMean & PairedTest;

/** A strategy against another on the same questions: retrieval order, or the same strategy without hints. */
export interface StrategyDifference {
  readonly strategy: EvaluationStrategy;
  readonly baseline: EvaluationStrategy;
  readonly exact: ScoreDifference;
  readonly contains: ScoreDifference;
  readonly f1: ScoreDifference;
  readonly answers: ChangedAnswers;
}

/** Answers that a strategy changed against its baseline. */
export interface ChangedAnswers {
  /** Answers with another text. */
  readonly changed: number;
  /** Exact answers of the baseline that are wrong here. */
  readonly lost: number;
  /** Exact answers here that are wrong in the baseline. */
  readonly gained: number;
  /** Of `signFlipTest` over conversations; over questions that stand alone, it is McNemar's exact test. */
  readonly p: number;
}

/** The answers to questions of one kind. */
export interface KindFigures {
  readonly kind: string;
  /** Of those that all strategies answered. */
  readonly questions: number;
  /** In the order of the strategies. */
  readonly strategies: readonly {
    readonly strategy: EvaluationStrategy;
    /** Means. */
    readonly exact: number;
    readonly f1: number;
  }[];
}

/** What an evaluation amounts to. */
export interface EvaluationReport extends Omit<EvaluationSettings, 'strategies' | 'tolerance'> {
  readonly questions: {
    /** Questions that were asked with at least one strategy. */
    readonly asked: number;
    /** Questions that all strategies answered: what the figures are over. */
    readonly scored: number;
    /** Those of them that have no answer in the documents. */
    readonly unanswerable: number;
    /** Those whose prompt, with some strategy, did not fit the model's context. */
    readonly tooLong: number;
    /** Conversations that the scored questions are turns of. */
    readonly conversations: number;
  };
  /** Whether a strategy's first prompt was in the cache already, as after an earlier run with the same seed. */
  readonly startedWarm: boolean;
  readonly strategies: readonly StrategyFigures[];
  /** Empty for fewer than two questions. */
  readonly differences: readonly StrategyDifference[];
  /** By name; empty where the data tell no kinds apart. */
  readonly kinds: readonly KindFigures[];
  /** Present where prices of moving documents were tried, on two questions at least. */
  readonly shiftPrices?: ShiftPriceFit;
}

/** What an evaluation has come to so far. */
export interface EvaluationOutcomes {
  readonly answered: readonly AnsweredQuestion[];
  readonly failed: readonly FailedQuestion[];
  /** All that were to be asked. */
  readonly questions: readonly Pick<EvaluationQuestion, 'id' | 'gold' | 'kind' | 'conversation' | 'unit'>[];
}

const TOO_LONG = 'WARMPATH_CONTEXT_TOO_LONG';

/** How the name of a strategy with hints ends. */
const HINTS = /-hints$/;

/**
 * Sums an evaluation up; `undefined` while no question is answered by all strategies. The turns of a conversation, and
 * the rounds of a question, count as one in intervals and tests: they share most of their prompts. Cost: that of
 * `bootstrapMeans`.
 */
export function evaluationReport(
  { tolerance, ...settings }: EvaluationSettings,
  { answered, failed, questions }: EvaluationOutcomes,
): EvaluationReport | undefined {
  const { strategies } = settings;
  const known = new Map(questions.map((question) => [question.id, question]));
  const scored = [...groupByQuestion(answered)].filter(([, answers]) => answers.length === strategies.length);
  if (scored.length === 0) return undefined;
  const answersOf = strategies.map((strategy) =>
    scored.map(([, answers]) => answers.find((answer) => answer.strategy === strategy)!),
  );
  const units = unitsOf(
    scored.map(([question]) => {
      const { conversation, unit = question } = known.get(question) ?? {};
      return conversation?.id ?? unit;
    }),
  );
  const samples = answersOf.flatMap((answers) => SCORE_NAMES.map((name) => answers.map(({ score }) => score[name])));
  const bootstrap = bootstrapMeans(samples, { seed: settings.seed, units });
  const sampleOf = (strategy: number, name: number) => strategy * SCORE_NAMES.length + name;
  const asked = new Set([...answered, ...failed].map(({ question }) => question));
  const scoreDifference = (s: number, baseline: number, name: number): ScoreDifference => ({
    ...bootstrap.difference(sampleOf(s, name), sampleOf(baseline, name)),
    ...pairedTTest(unitSums(samples[sampleOf(s, name)]!, units), unitSums(samples[sampleOf(baseline, name)]!, units)),
  });
  const difference = (s: number, baseline: number): StrategyDifference => {
    const changes = differencesOf(samples[sampleOf(s, 0)]!, samples[sampleOf(baseline, 0)]!);
    return {
      strategy: strategies[s]!,
      baseline: strategies[baseline]!,
      ...byScore((name) => scoreDifference(s, baseline, name)),
      answers: {
        changed: answersOf[s]!.filter(({ answer }, i) => answer !== answersOf[baseline]![i]!.answer).length,
        lost: changes.filter((change) => change < 0).length,
        gained: changes.filter((change) => change > 0).length,
        p: signFlipTest(unitSums(changes, units)),
      },
    };
  };
  const figures = strategies.map((strategy, s) => ({
    strategy,
    ...byScore((name) => bootstrap.mean(sampleOf(s, name))),
    ...costFigures(answersOf[s]!),
    failures: countCodes(failed.filter((failure) => failure.strategy === strategy)),
  }));
  const withoutHints = strategies.map((strategy) =>
    strategies.indexOf(strategy.replace(HINTS, '') as EvaluationStrategy),
  );
  const differences =
    units.length < 2
      ? []
      : [
          ...strategies.slice(1).map((_, i) => difference(i + 1, 0)),
          ...withoutHints.flatMap((plain, s) => (plain >= 0 && plain !== s ? difference(s, plain) : [])),
        ];
  const priced = differences.flatMap((each) => pricedAnswers(each, figures, scored.length));
  return {
    ...settings,
    questions: {
      asked: asked.size,
      scored: scored.length,
      unanswerable: scored.filter(([question]) => known.get(question)?.gold.answers.length === 0).length,
      conversations: new Set(scored.flatMap(([question]) => known.get(question)?.conversation?.id ?? [])).size,
      tooLong: new Set(failed.flatMap(({ question, code }) => (code === TOO_LONG ? [question] : []))).size,
    },
    startedWarm: strategies.some((strategy) => startedWarm(answered, strategy)),
    strategies: figures,
    differences,
    ...(priced.length > 0 && tolerance !== undefined && { shiftPrices: fitShiftPrice(priced, tolerance) }),
    kinds: kindFigures(
      strategies,
      answersOf,
      scored.map(([question]) => known.get(question)?.kind),
    ),
  };
}

/** What a difference says of a price, if its strategy has one. */
function pricedAnswers(
  { strategy, f1 }: StrategyDifference,
  figures: readonly StrategyFigures[],
  questions: number,
): PricedAnswers[] {
  const price = shiftPriceOf(strategy);
  if (price === undefined) return [];
  const { placesMoved, moved, ...own } = figures.find((each) => each.strategy === strategy)!;
  const [before, after] = [computedTokens(figures[0]!), computedTokens(own)];
  const computed = before === null || after === null || before === 0 ? null : after / before - 1;
  const { mean: change, low, high } = f1;
  return [{ price, questions, moved, placesMoved, f1: { mean: change, low, high }, computed }];
}

function computedTokens({ promptTokens, cachedTokens }: Pick<StrategyFigures, 'promptTokens' | 'cachedTokens'>) {
  return promptTokens === null || cachedTokens === null ? null : promptTokens - cachedTokens;
}

/** The places of each unit, in the order in which units come first. */
function unitsOf(names: readonly string[]): readonly (readonly number[])[] {
  const units = new Map<string, number[]>();
  for (const [place, name] of names.entries()) {
    const unit = units.get(name);
    if (unit === undefined) units.set(name, [place]);
    else unit.push(place);
  }
  return [...units.values()];
}

function differencesOf(sample: readonly number[], baseline: readonly number[]): readonly number[] {
  return sample.map((value, place) => value - baseline[place]!);
}

function kindFigures(
  strategies: readonly EvaluationStrategy[],
  answersOf: readonly (readonly AnsweredQuestion[])[],
  kinds: readonly (string | undefined)[],
): readonly KindFigures[] {
  return [...new Set(kinds)].sort().flatMap((kind) => {
    if (kind === undefined) return [];
    const places = kinds.flatMap((each, place) => (each === kind ? [place] : []));
    return {
      kind,
      questions: places.length,
      strategies: strategies.map((strategy, s) => {
        const scores = places.map((place) => answersOf[s]![place]!.score);
        return { strategy, exact: mean(scores.map(({ exact }) => exact)), f1: mean(scores.map(({ f1 }) => f1)) };
      }),
    };
  });
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
    moved: answers.filter(({ placesMoved }) => placesMoved > 0).length,
    placesMoved: mean(answers.map(({ placesMoved }) => placesMoved)),
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
