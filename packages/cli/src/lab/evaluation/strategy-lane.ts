import type { Arrangement, ChatMessage, PolicyName, RenderOptions } from '@warmpath/core';
import {
  arrange,
  observe,
  prepareDocuments,
  recallHistory,
  renderTurn,
  ServedHistory,
  SessionMemory,
  suppliedPrint,
  turnPreamble,
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
  readonly #sessions = new SessionMemory({ maxAgeMs: Number.POSITIVE_INFINITY });
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
    const { arrangement, messages } = this.#send(question);
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
    const { arrangement } = this.#send(question);
    this.#complete(arrangement, answered);
  }

  /** The question as a turn of its conversation, with what earlier turns were rendered to; one that stands alone has no turn before. */
  #send(question: EvaluationQuestion): { arrangement: Arrangement; messages: readonly ChatMessage[] } {
    const passages = question.passages.map(({ id, title, content }) => ({
      id,
      content,
      ...(title !== '' && { title }),
    }));
    this.#now++;
    const messages = this.#messages(question);
    const name = { tenant: this.#mark, session: question.conversation?.id ?? question.id };
    const history = recallHistory({ ...name, messages }, this.#sessions.lookup(name, this.#now));
    const request = {
      ...prepareDocuments(passages),
      preamble: turnPreamble(history, messages, this.#settings.model, RENDER),
      policy: this.#strategy === 'retrieval' ? ('retrieval' as const) : this.#settings.policy,
      hints: this.#strategy.endsWith('-hints'),
      ...(this.#strategy.startsWith('deduplicated') && { visible: history.visible }),
    };
    const arrangement = arrange(request, this.#history, this.#now);
    const { fellBack } = arrangement.trace;
    if (fellBack !== undefined) throw new WarmpathError(fellBack, { path: question.id });
    const supplied = suppliedPrint(request, RENDER);
    const rendered = renderTurn({ history, messages, arrangement, supplied }, RENDER);
    this.#sessions.sent(name, rendered.turn, this.#now);
    observe({ kind: 'dispatched', arrangement, now: this.#now }, this.#history);
    return { arrangement, messages: rendered.messages };
  }

  #messages({ text, conversation }: EvaluationQuestion): readonly ChatMessage[] {
    const before = (conversation?.before ?? []).flatMap(({ question, answer }) => [
      { role: 'user', content: question },
      { role: 'assistant', content: answer },
    ]);
    return [
      { role: 'system', content: `${this.#mark} ${this.#settings.systemPrompt}` },
      ...before,
      { role: 'user', content: text },
    ];
  }

  #complete(arrangement: Arrangement, { promptTokens, cachedTokens }: AnsweredQuestion): void {
    const usage = promptTokens === null || cachedTokens === null ? {} : { promptTokens, cachedTokens };
    observe({ kind: 'completed', arrangement, now: this.#now, ...usage }, this.#history);
  }
}
