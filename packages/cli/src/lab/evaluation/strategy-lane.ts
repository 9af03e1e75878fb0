import type { PolicyName } from '@warmpath/core';
import {
  type AnsweredQuestion,
  type EvaluationQuestion,
  type EvaluationStrategy,
  scoreAnswer,
  shiftPriceOf,
} from '@warmpath/lab';
import type { EngineClient } from '../../engine-client.js';
import { ArrangedPrompts } from './arranged-prompts.js';
import { ClientPrompts } from './client-prompts.js';
import type { PromptSettings, PromptSource } from './prompt-source.js';

/** What all strategies have in common. */
export interface LaneSettings {
  readonly client: EngineClient;
  readonly model: string;
  readonly policy: PolicyName;
  readonly systemPrompt: string;
  /** Whether the engine takes `cache_salt`. */
  readonly isSalted: boolean;
  /** Tokens of an answer, at most. */
  readonly maxTokens: number;
}

/**
 * One strategy on one engine. Its requests have a mark of their own, as cache salt or else before the system prompt, so
 * that nothing they are served from the cache was left there by another strategy; its history knows of its own requests
 * only.
 */
export class StrategyLane {
  readonly #strategy: EvaluationStrategy;
  readonly #prompts: PromptSource;
  readonly #settings: LaneSettings;
  readonly #salt: { readonly cache_salt?: string };

  constructor(strategy: EvaluationStrategy, mark: string, settings: LaneSettings) {
    this.#strategy = strategy;
    this.#settings = settings;
    const { model, policy, systemPrompt, isSalted } = settings;
    this.#salt = isSalted ? { cache_salt: mark } : {};
    this.#prompts = promptsOf(strategy, { model, system: isSalted ? systemPrompt : `${mark} ${systemPrompt}` }, policy);
  }

  /**
   * Asks one question. Errors: those of the client, and whatever made the policy fall back, which a comparison must not
   * hide.
   */
  async ask(question: EvaluationQuestion, signal: AbortSignal): Promise<AnsweredQuestion> {
    const { client, model, maxTokens } = this.#settings;
    const prompt = this.#prompts.send(question);
    const { messages, placesMoved } = prompt;
    try {
      const body = { model, max_tokens: maxTokens, temperature: 0, messages, ...this.#salt };
      const answer = await client.measureChat(body, signal);
      const { promptTokens = null, cachedTokens = null, ttftMs } = answer;
      prompt.answered({ promptTokens, cachedTokens });
      const score = scoreAnswer(answer.text, question.gold);
      return {
        question: question.id,
        strategy: this.#strategy,
        answer: answer.text,
        score,
        ttftMs,
        promptTokens,
        cachedTokens,
        placesMoved,
      };
    } catch (error) {
      prompt.failed();
      throw error;
    }
  }

  /** Takes an answer of an earlier run into the history, as if it had been asked now. */
  recall(question: EvaluationQuestion, answered: AnsweredQuestion): void {
    this.#prompts.send(question).answered(answered);
  }
}

function promptsOf(strategy: EvaluationStrategy, settings: PromptSettings, policy: PolicyName): PromptSource {
  const shiftPrice = shiftPriceOf(strategy) ?? 0;
  const arranged = { ...settings, policy, shiftPrice };
  switch (strategy) {
    case 'forwarded':
      return new ClientPrompts({ ...settings, keepsDocuments: false, recognisedBy: undefined });
    case 'in-place':
      return new ClientPrompts({ ...settings, keepsDocuments: true, recognisedBy: policy });
    case 'retrieval':
    case 'repeated':
      return new ArrangedPrompts({ ...arranged, policy: 'retrieval', hints: false, deduplicates: false });
    case 'shuffled':
    case 'shuffled-hints':
      return new ArrangedPrompts({
        ...arranged,
        policy: 'shuffled',
        hints: strategy === 'shuffled-hints',
        deduplicates: false,
      });
    case 'deduplicated':
    case 'deduplicated-hints':
      return new ArrangedPrompts({ ...arranged, hints: strategy === 'deduplicated-hints', deduplicates: true });
    default:
      return new ArrangedPrompts({ ...arranged, hints: strategy !== 'arranged', deduplicates: false });
  }
}
