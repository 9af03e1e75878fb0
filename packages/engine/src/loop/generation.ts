import { WarmpathError } from '@warmpath/core';
import type { TokensByTier } from '../cache/tokens-by-tier.js';
import type { SamplingOptions } from './sampler.js';

/** One thing to generate: a prompt in tokens and how to go on from it. */
export interface GenerationRequest {
  /** Name in events and logs; holds nothing of the prompt. */
  readonly id: string;
  readonly prompt: readonly number[];
  /** Positions at which documents end, ascending: the cache keeps, moves and replaces a document as a whole. */
  readonly boundaries?: readonly number[];
  /** Prompts share cached tokens with prompts of the same salt only; those without one share among themselves. */
  readonly salt?: string;
  /** Lower numbers go first; 0 when left out. What only numbers above 0 have used leaves the cache first. */
  readonly priority?: number;
  /** Most tokens to generate; 0 computes the prompt for the cache and nothing else. */
  readonly maxTokens: number;
  /** Whether a client reads its tokens as they come, so that no step may keep it waiting for long. */
  readonly isStreamed?: boolean;
  readonly sampling: SamplingOptions;
  /** What the answer must follow: a grammar that `writeGrammar` made. */
  readonly grammar?: string;
  /** Say how likely each token was, and so many of the likeliest in its place. */
  readonly topLogprobs?: number;
  /** Seed of the random numbers; the same seed, prompt and options give the same text. */
  readonly seed: number;
  readonly stops: readonly string[];
  /** Control tokens that stand in the answer as text, so that its reader sees where its parts begin. */
  readonly shownTokens?: ReadonlySet<number>;
  /** Go on after an end-of-generation token, for measurements. */
  readonly ignoreEndOfGeneration: boolean;
}

/** Why a generation ended: an end token or a stop string, or the limit of tokens. */
export type FinishReason = 'stop' | 'length';

/** Durations of one request, in milliseconds, and the tokens that they were spent on. */
export interface GenerationTimings {
  /** From the start of the prompt's computation to the first token, or to its end where nothing was to be generated. */
  readonly prompt_ms: number;
  /** Prompt tokens that were cached, in all and by tier. */
  readonly cached: number;
  readonly cached_device: number;
  readonly cached_host: number;
  readonly cached_disk: number;
  /** Prompt tokens that were computed. */
  readonly prompt_n: number;
  /** From the first token to the last. */
  readonly predicted_ms: number;
  readonly predicted_n: number;
}

/** How long a request took, in milliseconds. */
export interface RequestTimes {
  /** From arrival to the start of its computation, or to the end if it never started. */
  readonly queueMs: number;
  /** From arrival to the end. */
  readonly totalMs: number;
}

export interface GenerationResult {
  readonly finishReason: FinishReason;
  /** The stop string that ended it, if one did. */
  readonly stopString: string | undefined;
  readonly promptTokens: number;
  /** Prompt tokens taken from the prefix cache: at most `promptTokens - 1`, unless nothing was to be generated. */
  readonly cachedTokens: number;
  /** The same by where they were found. */
  readonly cachedByTier: TokensByTier;
  readonly completionTokens: number;
  readonly timings: GenerationTimings;
}

/** A token and the logarithm of its probability, before anything changed the logits. */
export interface TokenChance {
  /** What the token stands for, control tokens as their text. */
  readonly bytes: Uint8Array;
  readonly logprob: number;
}

/** A token of an answer. */
export interface ChosenToken extends TokenChance {
  /** The likeliest tokens in its place, likeliest first. */
  readonly top: readonly TokenChance[];
}

/**
 * Hears how a generation goes. The loop calls it between two decodes: it must return at once. One that throws
 * ends its own request.
 * After `onFinish` or `onError` nothing more comes, nor after an abort.
 */
export interface GenerationListener {
  /**
   * Some text: whole characters without a beginning of a stop string, at most once a token. With `topLogprobs`, also
   * the tokens since the text before; then the last text may be empty.
   */
  onText(text: string, tokens?: readonly ChosenToken[]): void;
  onFinish(result: GenerationResult): void;
  onError(error: WarmpathError): void;
}

/** A generation that was handed in. */
export interface GenerationHandle {
  /** Ends it after the current decode, wherever it is; what it has prefilled stays cached. Later calls do nothing. */
  abort(): void;
}

/**
 * A listener whose exceptions cost its own request only: it receives the failure once, then nothing more.
 *
 * @param onBroken Called once, with what the listener threw.
 */
export function isolatedListener(listener: GenerationListener, onBroken: (cause: unknown) => void): GenerationListener {
  let isBroken = false;
  const guarded = (call: () => void): void => {
    if (isBroken) return;
    try {
      call();
    } catch (cause) {
      isBroken = true;
      onBroken(cause);
      try {
        listener.onError(new WarmpathError('WARMPATH_INTERNAL', { cause }));
      } catch {
        // It cannot be sent; its request ends all the same.
      }
    }
  };
  return {
    onText: (text, tokens) => guarded(() => listener.onText(text, tokens)),
    onFinish: (result) => guarded(() => listener.onFinish(result)),
    onError: (error) => guarded(() => listener.onError(error)),
  };
}
