import type { OrderingPolicy, PolicyName, RenderOptions } from '@warmpath/core';
import { arrange, observe, prepareDocuments, ServedHistory, WarmpathError, withCachedPrefix } from '@warmpath/core';
import {
  ConversationLog,
  placesMoved,
  recallConversation,
  renderTurn,
  suppliedHash,
  turnPreamble,
} from '@warmpath/core/internal';
import type { EvaluationQuestion } from '@warmpath/lab';
import { type PromptSettings, type PromptSource, plainMessages, type SentPrompt } from './prompt-source.js';

/** What becomes of the documents. */
export interface ArrangedSettings extends PromptSettings {
  /** `shuffled`: in the question's random order. */
  readonly policy: PolicyName | 'shuffled';
  /** Tokens that a place costs by which a document moves. */
  readonly shiftPrice: number;
  /** Whether hints are written: the retrieval order, and where documents stand that are left out. */
  readonly hints: boolean;
  /** Whether what the conversation still shows is left out. */
  readonly deduplicates: boolean;
}

export const RENDER: RenderOptions = { template: 'xml', layout: 'question' };

/**
 * Documents that are given beside the messages, as a gateway puts them into the prompt; what was sent before is sent
 * again to the byte.
 */
export class ArrangedPrompts implements PromptSource {
  readonly #settings: ArrangedSettings;
  readonly #history = new ServedHistory();
  readonly #sessions = new ConversationLog({ maxAgeMs: Number.POSITIVE_INFINITY });
  /** Requests so far: the history's clock. */
  #now = 0;

  constructor(settings: ArrangedSettings) {
    this.#settings = settings;
  }

  /** Error: whatever made the policy fall back, which a comparison must not hide. */
  send(question: EvaluationQuestion): SentPrompt {
    const { policy, shiftPrice, hints, deduplicates, system, model } = this.#settings;
    this.#now++;
    const messages = plainMessages(question, system);
    const name = { tenant: system, session: question.conversation?.id ?? question.id };
    const history = recallConversation({ ...name, messages }, this.#sessions.lookup(name, this.#now));
    const request = {
      ...prepareDocuments(documentsOf(question)),
      preamble: turnPreamble(history, messages, model, RENDER),
      policy: policy === 'shuffled' ? shuffledPolicy(question) : policy,
      shiftPrice,
      hints,
      ...(deduplicates && { visible: history.visible }),
    };
    const arrangement = arrange(request, this.#history, this.#now);
    const { fellBack } = arrangement.trace;
    if (fellBack !== undefined) throw new WarmpathError(fellBack, { path: question.id });
    const supplied = suppliedHash(request, RENDER);
    const rendered = renderTurn({ history, messages, arrangement, supplied }, RENDER);
    this.#sessions.sent(name, rendered.turn, this.#now);
    observe({ kind: 'dispatched', arrangement, now: this.#now }, this.#history);
    return {
      messages: rendered.messages,
      placesMoved: placesMoved(arrangement.order),
      answered: ({ promptTokens, cachedTokens }) => {
        const usage = promptTokens === null || cachedTokens === null ? {} : { promptTokens, cachedTokens };
        observe({ kind: 'completed', arrangement, now: this.#now, ...usage }, this.#history);
      },
      failed: () => observe({ kind: 'failed', arrangement, now: this.#now }, this.#history),
    };
  }
}

function shuffledPolicy({ shuffled = [] }: EvaluationQuestion): OrderingPolicy {
  return { name: 'shuffled', arrange: (context, view) => withCachedPrefix(shuffled, context, view) };
}

/** The passages of a question as documents that are yet to be prepared. */
export function documentsOf({ passages }: Pick<EvaluationQuestion, 'passages'>) {
  return passages.map(({ id, title, content }) => ({ id, content, ...(title !== '' && { title }) }));
}
