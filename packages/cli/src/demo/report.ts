import type { MeasuredAnswer } from '../engine-client.js';
import { isExactAnswer } from './almanac.js';
import { type DurationSummary, summarise } from './statistics.js';
import { STRATEGY_NAMES, type StrategyName } from './strategy-run.js';
import type { DemoRequest } from './workload.js';

/** One strategy's figures, over all requests. */
export interface StrategyReport {
  readonly ttftMs: DurationSummary;
  /** Tokens of all prompts; `null` if the engine does not report usage. */
  readonly promptTokens: number | null;
  /** Tokens that the engine had in its cache; `null` if it does not say. */
  readonly cachedTokens: number | null;
  /** `cachedTokens / promptTokens`. */
  readonly cachedShare: number | null;
}

/** Arranged divided by retrieval order: below 1, arranging won. */
interface RatioReport {
  readonly ttftP50: number;
  readonly ttftMean: number;
  readonly uncachedTokens: number | null;
}

/** Two strategies on the same requests. */
export interface Comparison<Report extends StrategyReport = StrategyReport> {
  /** Requests measured for each strategy. */
  readonly requests: number;
  readonly strategies: Readonly<Record<StrategyName, Report>>;
  readonly ratio: RatioReport;
}

/** A strategy's figures on questions that have one right answer. */
export interface GradedReport extends StrategyReport {
  /** Answers that are right word for word. */
  readonly exactAnswers: number;
}

/** What `warmpath demo --json` prints. */
export interface DemoReport extends Comparison {
  /** `embedded`, or the URL. */
  readonly engine: string;
  readonly model: string;
  /** On the almanac, if it was asked. */
  readonly almanac?: Comparison<GradedReport>;
}

/** Every strategy's answers to the same requests, in the same order. */
export type Answers = Readonly<Record<StrategyName, readonly MeasuredAnswer[]>>;

/** Summarises both strategies. */
export function compare(answers: Answers): Comparison {
  return compareReports(answers, { retrieval: summary(answers.retrieval), arranged: summary(answers.arranged) });
}

/**
 * Summarises both strategies on questions with one right answer; `requests` are the ones answered, in the same order.
 */
export function compareGraded(answers: Answers, requests: readonly DemoRequest[]): Comparison<GradedReport> {
  const graded = (strategy: StrategyName): GradedReport => ({
    ...summary(answers[strategy]),
    exactAnswers: answers[strategy].filter(({ text }, i) => isExactAnswer(text, requests[i]!.answer!)).length,
  });
  return compareReports(answers, { retrieval: graded('retrieval'), arranged: graded('arranged') });
}

function compareReports<Report extends StrategyReport>(
  answers: Answers,
  strategies: Readonly<Record<StrategyName, Report>>,
): Comparison<Report> {
  const [retrieval, arranged] = STRATEGY_NAMES.map((name) => strategies[name]) as [Report, Report];
  const uncached = [uncachedTokens(retrieval), uncachedTokens(arranged)] as const;
  return {
    requests: answers.retrieval.length,
    strategies,
    ratio: {
      ttftP50: round(arranged.ttftMs.p50 / retrieval.ttftMs.p50, 4),
      ttftMean: round(arranged.ttftMs.mean / retrieval.ttftMs.mean, 4),
      uncachedTokens: uncached[0] === null || uncached[1] === null ? null : round(uncached[1] / uncached[0], 4),
    },
  };
}

/** Tokens that the engine had to prefill; `null` if it does not say. */
export function uncachedTokens({ promptTokens, cachedTokens }: StrategyReport): number | null {
  return promptTokens === null || cachedTokens === null ? null : promptTokens - cachedTokens;
}

function summary(answers: readonly MeasuredAnswer[]): StrategyReport {
  const { p50, p95, mean } = summarise(answers.map(({ ttftMs }) => ttftMs));
  const promptTokens = sum(answers.map((answer) => answer.promptTokens));
  const cachedTokens = sum(answers.map((answer) => answer.cachedTokens));
  const known = promptTokens !== null && cachedTokens !== null;
  return {
    ttftMs: { p50: round(p50, 2), p95: round(p95, 2), mean: round(mean, 2) },
    promptTokens,
    cachedTokens,
    cachedShare: known ? round(cachedTokens / promptTokens, 4) : null,
  };
}

/** Some engines leave a count out when it is 0; one that never gives it does not know it. */
function sum(counts: readonly (number | undefined)[]): number | null {
  if (counts.every((count) => count === undefined)) return null;
  return counts.reduce<number>((total, count) => total + (count ?? 0), 0);
}

function round(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
