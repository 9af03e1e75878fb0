import {
  type Arrangement,
  answerHash,
  arrange,
  type ChatMessage,
  ConversationLog,
  type ConversationLogOptions,
  chatPreamble,
  type DocumentInput,
  estimateTokens,
  type LayoutName,
  observe,
  type PolicyName,
  prepareRequest,
  recallConversation,
  renderChat,
  renderCompletion,
  renderHint,
  renderTurn,
  ServedHistory,
  type ServedHistoryOptions,
  suppliedHash,
  type TemplateName,
  type TokenCounter,
  turnPreamble,
} from '@warmpath/core';
import { fingerprint } from '@warmpath/core/internal';
import type { ArrangedContext, Arranger, ContextRequest, EngineUsage, Feedback, OrderSwitches } from './arranger.js';

export interface LocalWarmpathOptions extends OrderSwitches {
  /** How a document is written. Default `xml`. */
  readonly template?: TemplateName;
  /** Where documents stand in a chat. Default `question`. */
  readonly layout?: LayoutName;
  /** Counts tokens as the engine does. Default: core's estimate. */
  readonly countTokens?: TokenCounter;
  /** Bounds on what is remembered. */
  readonly history?: ServedHistoryOptions;
  /** Bounds on what is remembered of conversations. */
  readonly sessions?: ConversationLogOptions;
  /** A monotonic clock in milliseconds. Default: `performance.now`. */
  readonly now?: () => number;
}

/** A chat to arrange, by callers that send it to an engine themselves. */
export interface LocalChatRequest<Message extends object = ChatMessage> extends OrderSwitches {
  readonly messages: readonly Message[];
  /** In retrieval order. */
  readonly documents: readonly DocumentInput[];
  /** Whatever else decides how the prompt begins: model, tools. */
  readonly scope?: string;
  /**
   * Names the conversation that the messages are the history of: what earlier turns were sent as is repeated to the
   * byte, and a document that still stands there becomes a reference. Messages must survive JSON. Without a name, every
   * chat is by itself.
   */
  readonly session?: string;
  /** The end user whose conversation it is: the same name of another one is another conversation. */
  readonly user?: string;
}

/** One instance serves one tenant. */
const TENANT = '';

/** A chat with its documents in place. */
export interface ArrangedChat<Message extends object = ChatMessage> extends Feedback {
  readonly messages: readonly Message[];
  readonly arrangement: Arrangement;
  /**
   * Whether the messages hold an answer to a turn of the conversation that is not known: what was put into that turn is
   * missing from this prompt. Send those documents again, or ask without them.
   */
  readonly isForgotten: boolean;
  /**
   * Says what the model answered, as it will stand in the next turn. Needed only where the same messages may go out
   * with other documents, as when an answer is asked for again: the next turn then continues the one with its answer.
   */
  answered(message: Message): void;
}

/**
 * Warmpath without a gateway: orders documents for one engine by what this process sent it. One instance per engine
 * replica and tenant, for their caches are never shared. Nothing leaves the process.
 *
 * It knows only what goes through it: behind several processes, a gateway in front of the engine knows more.
 */
export class LocalWarmpath implements Arranger {
  /** What the engine is believed to hold. */
  readonly history: ServedHistory;
  readonly #sessions: ConversationLog;
  readonly #options: LocalWarmpathOptions;
  readonly #style: {
    readonly template: TemplateName;
    readonly layout: LayoutName;
    readonly countTokens?: TokenCounter;
  };
  readonly #now: () => number;

  constructor(options: LocalWarmpathOptions = {}) {
    this.#options = options;
    const { template = 'xml', layout = 'question', countTokens } = options;
    this.#style = { template, layout, ...(countTokens !== undefined && { countTokens }) };
    this.#now = options.now ?? (() => performance.now());
    this.history = new ServedHistory(options.history);
    this.#sessions = new ConversationLog(options.sessions);
  }

  /**
   * The order of a context. Errors: those of core's `prepareRequest`. Cost: that of core's `arrange`, and O(length).
   */
  async arrange(request: ContextRequest): Promise<ArrangedContext> {
    const scope = fingerprint([request.model ?? '', request.preamble ?? '']);
    const { countTokens = estimateTokens } = this.#style;
    const text = request.preamble ?? '';
    const preamble = { key: `text#${scope}`, tokens: text === '' ? 0 : Math.ceil(countTokens(text)) };
    const prepared = this.#prepare(request);
    const arrangement = arrange({ ...prepared, preamble }, this.history, this.#now());
    const { hint } = arrangement;
    return {
      documents: arrangement.documents.map(({ id, label, tokens }, place) => {
        const rank = arrangement.order[place]!;
        return { id, label, tokens, rank, source: prepared.sources![rank]! };
      }),
      hint:
        hint === undefined ? undefined : { labels: hint.labels, text: renderHint(arrangement, this.#style.template) },
      text: renderCompletion('', arrangement, this.#style),
      predictedCachedTokens: arrangement.predictedCachedTokens,
      warnings: arrangement.trace.warnings,
      ...this.#dispatch(arrangement),
    };
  }

  /**
   * A chat with its documents in front of the question. Messages that are not added to stay the very objects they were.
   * Errors: those of core's `prepareRequest` and `renderChat`. Cost: that of core's `arrange`, and O(length).
   */
  arrangeChat<Message extends object = ChatMessage>(request: LocalChatRequest<Message>): ArrangedChat<Message> {
    // What a message has beside role and content is no concern of the order.
    const messages = request.messages as readonly object[] as readonly ChatMessage[];
    const { arrangement, rendered, isForgotten, answered } =
      request.session === undefined
        ? this.#alone(messages, request)
        : this.#turn(messages, { ...request, session: request.session });
    return {
      messages: rendered as readonly object[] as readonly Message[],
      arrangement,
      isForgotten,
      answered: (message) => answered(message as object as ChatMessage),
      ...this.#dispatch(arrangement),
    };
  }

  #alone(
    messages: readonly ChatMessage[],
    request: Pick<LocalChatRequest, 'documents' | 'scope'> & OrderSwitches,
  ): RenderedChat {
    const preamble = chatPreamble(messages, request.scope ?? '', this.#style);
    const arrangement = arrange({ ...this.#prepare(request), preamble }, this.history, this.#now());
    const rendered = renderChat(messages, arrangement, this.#style);
    return { arrangement, rendered, isForgotten: false, answered: () => undefined };
  }

  #turn(
    messages: readonly ChatMessage[],
    {
      session,
      user,
      scope = '',
      ...request
    }: Pick<LocalChatRequest, 'documents' | 'scope' | 'user'> & OrderSwitches & { readonly session: string },
  ): RenderedChat {
    const now = this.#now();
    const name = { tenant: TENANT, user, session };
    const history = recallConversation({ ...name, messages }, this.#sessions.lookup(name, now));
    const asked = { ...this.#prepare(request), visible: history.visible };
    const preamble = turnPreamble(history, messages, scope, this.#style);
    const arrangement = arrange({ ...asked, preamble }, this.history, now);
    const supplied = suppliedHash(asked, this.#style);
    const rendered = renderTurn({ history, messages, arrangement, supplied }, this.#style);
    this.#sessions.sent(name, rendered.turn, now);
    const answered = (message: ChatMessage): void => {
      const hash = answerHash(message);
      if (hash !== undefined) this.#sessions.answered(name, rendered.turn, hash, this.#now());
    };
    return { arrangement, rendered: rendered.messages, isForgotten: history.isForgotten, answered };
  }

  #prepare({ documents, ...asked }: OrderSwitches & { readonly documents: readonly DocumentInput[] }) {
    const { template, countTokens } = this.#style;
    const switches = { ...definedSwitches(this.#options), ...definedSwitches(asked) };
    return prepareRequest({ documents, ...switches }, { template, ...(countTokens !== undefined && { countTokens }) });
  }

  #dispatch(arrangement: Arrangement): Feedback {
    const { history } = this;
    observe({ kind: 'dispatched', arrangement, now: this.#now() }, history);
    let isOpen = true;
    const once = (report: () => void): Promise<void> => {
      if (isOpen) report();
      isOpen = false;
      return Promise.resolve();
    };
    return {
      completed: ({ promptTokens, cachedTokens }: EngineUsage = {}) =>
        once(() => {
          const usage = {
            ...(promptTokens !== undefined && { promptTokens }),
            ...(cachedTokens !== undefined && { cachedTokens }),
          };
          observe({ kind: 'completed', arrangement, now: this.#now(), ...usage }, history);
        }),
      failed: () => once(() => observe({ kind: 'failed', arrangement, now: this.#now() }, history)),
    };
  }
}

/** A chat that is ready to go. */
interface RenderedChat {
  readonly arrangement: Arrangement;
  readonly rendered: readonly ChatMessage[];
  readonly isForgotten: boolean;
  readonly answered: (message: ChatMessage) => void;
}

function definedSwitches({ policy, maxShift, shiftPrice, pin, hints }: OrderSwitches): OrderSwitches {
  return {
    ...(policy !== undefined && { policy: policy as PolicyName }),
    ...(maxShift !== undefined && { maxShift }),
    ...(shiftPrice !== undefined && { shiftPrice }),
    ...(pin !== undefined && { pin }),
    ...(hints !== undefined && { hints }),
  };
}
