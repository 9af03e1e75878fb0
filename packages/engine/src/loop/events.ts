import { channel } from 'node:diagnostics_channel';
import type { TokensByTier } from '../cache/tokens-by-tier.js';
import type { FinishReason, GenerationResult, RequestTimes } from './generation.js';
import type { StepEntry } from './step-plan.js';
import type { GenerationTask } from './task.js';

/** Published on `warmpath:engine:step` after every decode. Counts are tokens. */
export interface StepEvent {
  /** Which loop, when a process has several: the name it was started with. */
  readonly engine: string;
  /** Sequences that generated. */
  readonly generating: number;
  /** Prompt tokens that were computed. */
  readonly promptTokens: number;
  /** Requests whose prompt tokens were in this decode. */
  readonly prompts: readonly string[];
  readonly durationMs: number;
}

/** Published on `warmpath:engine:end` when a request has left the loop and its cells are accounted for. */
export interface EndEvent {
  readonly engine: string;
  readonly request: string;
  readonly outcome: 'finished' | 'aborted' | 'failed';
  /** Present when finished. */
  readonly result?: GenerationResult;
  /** Tokens that were computed or shared for it, prompt and answer. */
  readonly computedTokens: number;
  readonly times: RequestTimes;
}

/**
 * The loop's `diagnostics_channel`s. Nothing is built or published while nobody has subscribed. Subscribers run
 * between two decodes and see no text and no token.
 */
export const stepChannel = channel('warmpath:engine:step');
export const endChannel = channel('warmpath:engine:end');

/** Hears what happens in the loop, for metrics. Called between two decodes; must return at once and not throw. */
export interface LoopObserver {
  /** A prompt is computed and its first token, if any is wanted, chosen. */
  onPrompt(promptTokens: number, cached: TokensByTier, timeToFirstTokenMs: number | undefined): void;
  onEnd(event: EndEvent): void;
  onStep(event: Omit<StepEvent, 'engine' | 'prompts'>): void;
  /** An answer has its next token, so many milliseconds after the one before. */
  onToken(gapMs: number): void;
  /** A running request gave its cells away and waits again. */
  onPreemption(): void;
}

/** Tells the observer and the diagnostics channels what the loop does. */
export class LoopAnnouncer {
  readonly #engine: string;
  readonly #observer: LoopObserver;

  /** @param engine Name in the events. */
  constructor(engine: string, observer: LoopObserver) {
    this.#engine = engine;
    this.#observer = observer;
  }

  /** Call it before the entries' tokens are settled: it tells prompts from answers by what is still to be computed. */
  step(entries: readonly StepEntry[], durationMs: number): void {
    const prompts = entries.filter(({ task }) => !task.isDecoding);
    const promptTokens = prompts.reduce((sum, { count }) => sum + count, 0);
    const figures = { generating: entries.length - prompts.length, promptTokens, durationMs };
    this.#observer.onStep(figures);
    if (stepChannel.hasSubscribers) {
      const event: StepEvent = {
        engine: this.#engine,
        prompts: prompts.map(({ task }) => task.request.id),
        ...figures,
      };
      stepChannel.publish(event);
    }
  }

  /** A prompt is computed. */
  prompt(task: GenerationTask): void {
    const { promptTokens, cachedByTier } = task.result('length');
    this.#observer.onPrompt(promptTokens, cachedByTier, task.timeToFirstTokenMs);
  }

  /** The task has its next token: the first one ends its prompt. */
  token(task: GenerationTask): void {
    if (task.generated === 1) this.prompt(task);
    else this.#observer.onToken(task.tokenGapMs);
  }

  preemption(): void {
    this.#observer.onPreemption();
  }

  end(task: GenerationTask, outcome: EndEvent['outcome'], reason?: FinishReason): void {
    const event: EndEvent = {
      engine: this.#engine,
      request: task.request.id,
      outcome,
      computedTokens: task.computed,
      times: task.times(performance.now()),
      ...(outcome === 'finished' && { result: task.result(reason ?? 'stop') }),
    };
    this.#observer.onEnd(event);
    if (endChannel.hasSubscribers) endChannel.publish(event);
  }
}
