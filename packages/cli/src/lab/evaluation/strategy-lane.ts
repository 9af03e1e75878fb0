import type { PolicyName, RenderOptions } from '@warmpath/core';
import {
  type Arrangement,
  arrange,
  chatPreamble,
  observe,
  prepareDocuments,
  renderChat,
  ServedHistory,
  WarmpathError,
} from '@warmpath/core';
import { type AnsweredQuestion, type EvaluationQuestion, type EvaluationStrategy, scoreAnswer } from '@warmpath/lab';
import type { EngineClient } from '../../engine-client.js';

/** What all strategies have in common. */
export interface LaneSettings {
  readonly client: EngineClient;
  readonly model: string;
  readonly policy: PolicyName;
  readonly systemPrompt: string;
  /** Tokens of an answer, at most. */
  readonly maxTokens: number;
}

const RENDER: RenderOptions = { template: 'xml', layout: 'question' };

/**
 * One strategy on one engine. Its system prompt begins with a mark of its own, so that nothing it is served from the cache was
 * left there by another strategy; its history knows of its own requests only.
 */
export class StrategyLane {
  readonly #strategy: EvaluationStrategy;
  readonly #mark: string;
  readonly #settings: LaneSettings;
  readonly #history = new ServedHistory();
  /** Requests so far: the history's clock. */
  #now = 0;

  constructor(strategy: EvaluationStrategy, mark: string, settings: LaneSettings) {
    this.#strategy = strategy;
    this.#mark = mark;
    this.#settings = settings;
  }

  /** Asks one question. Errors: those of the client, and whatever made the policy fall back, which a comparison must not hide. */
  async ask(question: EvaluationQuestion, signal: AbortSignal): Promise<AnsweredQuestion> {
    const { client, model, maxTokens } = this.#settings;
    const arrangement = this.#arrange(question);
    const messages = renderChat(this.#messages(question), arrangement, RENDER);
    observe({ kind: 'dispatched', arrangement, now: this.#now }, this.#history);
    try {
      const answer = await client.measureChat({ model, max_tokens: maxTokens, temperature: 0, messages }, signal);
      const answered: AnsweredQuestion = {
        question: question.id,
        strategy: this.#strategy,
        score: scoreAnswer(answer.text, question.gold),
        ttftMs: answer.ttftMs,
        promptTokens: answer.promptTokens ?? null,
        cachedTokens: answer.cachedTokens ?? null,
        moved: arrangement.order.some((rank, place) => rank !== place),
      };
      this.#complete(arrangement, answered);
      return answered;
    } catch (error) {
      observe({ kind: 'failed', arrangement, now: this.#now }, this.#history);
      throw error;
    }
  }

  /** Takes an answer of an earlier run into the history, as if it had been asked now. */
  recall(question: EvaluationQuestion, answered: AnsweredQuestion): void {
    const arrangement = this.#arrange(question);
    observe({ kind: 'dispatched', arrangement, now: this.#now }, this.#history);
    this.#complete(arrangement, answered);
  }

  #arrange(question: EvaluationQuestion): Arrangement {
    const passages = question.passages.map(({ id, title, content }) => ({
      id,
      content,
      ...(title !== '' && { title }),
    }));
    const { documents } = prepareDocuments(passages);
    const preamble = chatPreamble(this.#messages(question), this.#settings.model, RENDER);
    const isArranged = this.#strategy !== 'retrieval';
    const policy = isArranged ? this.#settings.policy : 'retrieval';
    const hints = this.#strategy === 'arranged-hints';
    this.#now++;
    const arrangement = arrange({ documents, preamble, policy, hints }, this.#history, this.#now);
    const { fellBack } = arrangement.trace;
    if (fellBack !== undefined) throw new WarmpathError(fellBack, { path: question.id });
    return arrangement;
  }

  #messages({ text }: EvaluationQuestion) {
    return [
      { role: 'system', content: `${this.#mark} ${this.#settings.systemPrompt}` },
      { role: 'user', content: text },
    ];
  }

  #complete(arrangement: Arrangement, { promptTokens, cachedTokens }: AnsweredQuestion): void {
    const usage = promptTokens === null || cachedTokens === null ? {} : { promptTokens, cachedTokens };
    observe({ kind: 'completed', arrangement, now: this.#now, ...usage }, this.#history);
  }
}
