import {
  type ArrangedPrompt,
  type Arrangement,
  type ChatMessage,
  type OrderSwitches,
  Warmpath,
  type WarmpathOptions,
} from '@warmpath/core';
import type { ArrangedContext, Arranger, ContextRequest, Feedback } from './arranger.js';

/** A chat to arrange, by callers that send it to an engine themselves. */
export interface LocalChatRequest<Message extends object = ChatMessage> extends OrderSwitches {
  readonly messages: readonly Message[];
  /** In retrieval order. */
  readonly documents: ContextRequest['documents'];
  /** Whatever else decides how the prompt begins: model, tools. */
  readonly scope?: string;
  /** Names the conversation of the messages, as in core's `Warmpath`. Without a name, every chat is by itself. */
  readonly session?: string;
  /** The end user of the conversation. */
  readonly user?: string;
}

/** A chat with its documents in place. */
export interface ArrangedChat<Message extends object = ChatMessage> extends Feedback {
  readonly messages: readonly Message[];
  readonly arrangement: Arrangement;
  /** Whether the messages hold an answer to an unknown turn. The documents of that turn are missing. */
  readonly isForgotten: boolean;
  /** Says what the model answered. Only needed where the same messages may be sent with other documents. */
  answered(message: Message): void;
}

/**
 * Core's `Warmpath` as an `Arranger`, for adapters that also work with a gateway. Nothing leaves the process. Behind
 * several processes, a gateway knows more.
 */
export class LocalWarmpath implements Arranger {
  readonly #warmpath: Warmpath;

  /** @param options a clock is set where they have none */
  constructor(options: WarmpathOptions = {}) {
    this.#warmpath = new Warmpath({ now: () => performance.now(), ...options });
  }

  /** What the engine is believed to hold. */
  get history(): Warmpath['history'] {
    return this.#warmpath.history;
  }

  /** The order of a context. Errors and cost: those of `Warmpath.arrange`. */
  async arrange({ model = '', ...request }: ContextRequest): Promise<ArrangedContext> {
    const prompt = this.#warmpath.arrange({ ...request, scope: model });
    const { arrangement, sources, hint, text, warnings } = prompt;
    return {
      documents: arrangement.documents.map(({ id, label, tokens }, place) => {
        return { id, label, tokens, rank: arrangement.order[place]!, source: sources[place]! };
      }),
      hint: arrangement.hint === undefined ? undefined : { labels: arrangement.hint.labels, text: hint },
      text,
      predictedCachedTokens: arrangement.predictedCachedTokens,
      warnings,
      ...this.#feedback(prompt),
    };
  }

  /** A chat with its documents in front of the question. Errors and cost: those of `Warmpath.arrange`. */
  arrangeChat<Message extends object = ChatMessage>({
    session,
    ...request
  }: LocalChatRequest<Message>): ArrangedChat<Message> {
    const prompt = this.#warmpath.arrange({ ...request, conversation: session });
    const { messages, arrangement, isForgotten } = prompt;
    const answered = (message: Message) => this.#warmpath.answered(message, prompt);
    return { messages, arrangement, isForgotten, answered, ...this.#feedback(prompt) };
  }

  #feedback(prompt: ArrangedPrompt<unknown, object>): Feedback {
    return {
      completed: async (usage) => this.#warmpath.report(usage, prompt),
      failed: async () => this.#warmpath.failed(prompt),
    };
  }
}
