import { channel } from 'node:diagnostics_channel';
import type { GenerationResult } from './generation.js';

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

/** How long a request took, in milliseconds. */
export interface RequestTimes {
  /** From arrival to the start of its computation, or to the end if it never started. */
  readonly queueMs: number;
  /** From arrival to the end. */
  readonly totalMs: number;
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
