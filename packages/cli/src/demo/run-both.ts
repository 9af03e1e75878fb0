import type { MeasuredAnswer } from '../engine-client.js';
import { startProgress } from '../progress.js';
import type { Terminal } from '../terminal.js';
import type { EngineDescription, EngineSource } from './cold-engine.js';
import type { Answers } from './report.js';
import { STRATEGY_NAMES, type StrategyName, StrategyRun } from './strategy-run.js';
import type { DemoRequest } from './workload.js';

/** What a comparison is run with. */
export interface ComparisonSettings {
  readonly source: EngineSource;
  /** Names the task in the progress bar. */
  readonly task: string;
  /** Times that each strategy asks all questions, each time on a cold cache; the answers are pooled. */
  readonly repeat: number;
  /** Tokens of an answer, at most. */
  readonly maxTokens: number;
  readonly terminal: Terminal;
  readonly signal: AbortSignal;
}

/** Both strategies' answers, and the engine that gave them. */
export interface ComparisonRun {
  readonly answers: Answers;
  readonly engine: EngineDescription;
}

/** What one repetition adds to. */
interface Tally {
  readonly answers: Readonly<Record<StrategyName, MeasuredAnswer[]>>;
  engine: EngineDescription | undefined;
  readonly onAnswer: () => void;
}

/**
 * Runs both strategies on the same requests, never two requests at a time. They take turns question by question, and
 * who goes first alternates, so that whatever else the machine does, and how full the engine's cache is, meets both
 * alike.
 */
export async function runBoth(requests: readonly DemoRequest[], settings: ComparisonSettings): Promise<ComparisonRun> {
  const { task, repeat, terminal } = settings;
  const progress = startProgress(terminal, task, requests.length * STRATEGY_NAMES.length * repeat);
  const tally: Tally = {
    answers: { retrieval: [], arranged: [] },
    engine: undefined,
    onAnswer: () => progress.advance(figuresSoFar(tally.answers)),
  };
  try {
    for (let repetition = 0; repetition < repeat; repetition++) {
      await takeTurns(requests, settings, tally);
    }
  } finally {
    progress.stop();
  }
  return { answers: tally.answers, engine: tally.engine! };
}

/** Mean TTFT of both orders so far. */
function figuresSoFar({ retrieval, arranged }: Answers): string {
  const mean = (answers: readonly MeasuredAnswer[]) =>
    (answers.reduce((sum, { ttftMs }) => sum + ttftMs, 0) / Math.max(1, answers.length)).toFixed(0);
  return `TTFT ${mean(retrieval)} → ${mean(arranged)} ms`;
}

async function takeTurns(requests: readonly DemoRequest[], settings: ComparisonSettings, tally: Tally): Promise<void> {
  const retrieval = await StrategyRun.open('retrieval', settings.source, settings);
  try {
    const arranged = await StrategyRun.open('arranged', settings.source, settings);
    try {
      const runs = { retrieval, arranged };
      for (const [turn, request] of requests.entries()) {
        for (const strategy of startingWith(turn)) {
          tally.answers[strategy].push(await runs[strategy].ask(request));
          tally.onAnswer();
        }
      }
    } finally {
      await arranged.close();
    }
  } finally {
    await retrieval.close();
  }
  tally.engine = retrieval.engine;
}

function startingWith(turn: number): readonly StrategyName[] {
  return turn % 2 === 0 ? STRATEGY_NAMES : STRATEGY_NAMES.toReversed();
}
