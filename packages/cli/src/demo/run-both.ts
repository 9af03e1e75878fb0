import type { MeasuredAnswer } from '../engine-client.js';
import { startProgress } from '../progress.js';
import type { Terminal } from '../terminal.js';
import type { EngineDescription, EngineSource } from './cold-engine.js';
import type { Answers } from './report.js';
import { runStrategy, STRATEGY_NAMES, type StrategyName } from './run-strategy.js';
import type { DemoRequest } from './workload.js';

/** What a comparison is run with. */
export interface ComparisonSettings {
  readonly source: EngineSource;
  /** Names the task in the progress bar. */
  readonly task: string;
  /** Times that each strategy asks all questions, each time on a cold cache; the answers are pooled. */
  readonly repeat: number;
  readonly maxTokens: number;
  readonly terminal: Terminal;
  readonly signal: AbortSignal;
}

/** Both strategies' answers, and the engine that gave them. */
export interface ComparisonRun {
  readonly answers: Answers;
  readonly engine: EngineDescription;
}

/** Runs both strategies on the same requests, one after the other; which goes first alternates with every repetition. */
export async function runBoth(requests: readonly DemoRequest[], settings: ComparisonSettings): Promise<ComparisonRun> {
  const { source, task, repeat, maxTokens, terminal, signal } = settings;
  const answers: Record<StrategyName, MeasuredAnswer[]> = { retrieval: [], arranged: [] };
  let description: EngineDescription | undefined;
  const progress = startProgress(terminal, task, requests.length * STRATEGY_NAMES.length * repeat);
  try {
    for (let repetition = 0; repetition < repeat; repetition++) {
      for (const strategy of repetition % 2 === 0 ? STRATEGY_NAMES : STRATEGY_NAMES.toReversed()) {
        const engine = await source.start(signal);
        description = engine.description;
        try {
          const run = { maxTokens, signal, onAnswer: () => progress.advance() };
          answers[strategy].push(...(await runStrategy(strategy, requests, engine, run)));
        } finally {
          await engine.stop();
        }
      }
    }
  } finally {
    progress.stop();
  }
  return { answers, engine: description! };
}
