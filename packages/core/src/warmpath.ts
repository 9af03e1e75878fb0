import { arrange, observe } from './arrange.js';
import type { Arrangement } from './arrangement.js';
import { renderTurn, repeatedOrder, repeatedTurn, suppliedHash, turnPreamble } from './conversation.js';
import type { TokenCounter } from './document.js';
import { WarmpathError, type Warning } from './errors.js';
import { fingerprint } from './fingerprint.js';
import { DEFAULT_POLICY, type PolicyName } from './ordering/policy.js';
import type { Preamble } from './preamble.js';
import { prepareRequest } from './prepare-request.js';
import { readUsage } from './read-usage.js';
import { chatPreamble, renderChat, renderCompletion, renderHint } from './render/layout.js';
import type { ChatMessage, LayoutName, RenderOptions, TemplateName } from './render/prompt.js';
import { ServedHistory } from './residency/history.js';
import { ConversationLog } from './session/conversation-log.js';
import { answerHash, type ConversationName, recallConversation, type SentTurn } from './session/recall.js';
import { estimateTokens } from './token-estimate.js';

/** How the documents of one request may be ordered. */
export interface OrderSwitches {
  /** Default `foresight`. */
  readonly policy?: PolicyName;
  /** Places that a document may move from its retrieval rank. */
  readonly maxShift?: number;
  /** Price in tokens of each place that a document moves. Default 0. */
  readonly shiftPrice?: number;
  /** Ids of documents that keep their place. */
  readonly pin?: readonly string[];
  /** Whether to state the retrieval order when it changed. Default true. */
  readonly hints?: boolean;
}

export interface WarmpathOptions extends OrderSwitches {
  /** How a document is written. Default `xml`. */
  readonly template?: TemplateName;
  /** Where documents stand in a chat. Default `question`. */
  readonly layout?: LayoutName;
  /** Counts tokens as the engine does. Default: an estimate. */
  readonly countTokens?: TokenCounter;
  /** Estimated bytes of what is remembered. Default 128 MiB, at least 16 MiB. */
  readonly maxBytes?: number;
  /** Milliseconds after which the engine has dropped an unused prompt. Needs `now`. Default: never. */
  readonly maxAgeMs?: number;
  /** A monotonic clock in milliseconds. Default: a counter of calls, by which nothing grows old. */
  readonly now?: () => number;
}

/** Documents to arrange, and what the prompt has before them. */
export interface PromptRequest<Retrieved, Message extends object> extends OrderSwitches {
  /** In retrieval order, in any form of `DocumentInput`. */
  readonly documents: readonly Retrieved[];
  /** The chat that the documents are put into. */
  readonly messages?: readonly Message[] | undefined;
  /** Without `messages`: the text that the prompt has before its documents. */
  readonly preamble?: string | undefined;
  /** All else that decides how the prompt begins: model, tools. */
  readonly scope?: string | undefined;
  /**
   * Name of the conversation of `messages`. Its earlier turns are sent as they were, and a document that they show
   * becomes a reference. Messages must survive JSON.
   */
  readonly conversation?: string | undefined;
  /** The end user of the conversation. Another end user's conversation of the same name is another one. */
  readonly user?: string | undefined;
}

/** A prompt in the order that the engine can reuse. */
export interface ArrangedPrompt<Retrieved = unknown, Message extends object = ChatMessage> {
  /** The caller's own objects in prompt order. Empty ones, repetitions and references are left out. */
  readonly documents: readonly Retrieved[];
  /** Position of each of `documents` in the caller's list. */
  readonly sources: readonly number[];
  /** What the prompt calls each of `documents`. */
  readonly labels: readonly string[];
  /** Documents that the conversation shows already, in retrieval order. */
  readonly references: readonly Retrieved[];
  /** The line that states the retrieval order. Empty if the order stayed. */
  readonly hint: string;
  /** Documents and hint, to be put before the question. */
  readonly text: string;
  /** The messages with the documents in place. Messages that nothing is added to stay the same objects. */
  readonly messages: readonly Message[];
  /** Whether the messages hold an answer to an unknown turn. The documents of that turn are missing. */
  readonly isForgotten: boolean;
  /** What was left out or changed. */
  readonly warnings: readonly Warning[];
  /** The decision, with its reasons. */
  readonly arrangement: Arrangement;
}

const DEFAULT_MAX_BYTES = 128 * 1024 * 1024;
const MIN_MAX_BYTES = 16 * 1024 * 1024;
/** Estimated bytes for each document with statistics: its own, and its share of recent requests. */
const STATISTICS_BYTES = 512;
/** One instance serves one tenant. */
const TENANT = '';

/** What is kept of an arranged prompt until its report. */
interface SentPrompt {
  readonly arrangement: Arrangement;
  readonly turn: { readonly name: ConversationName; readonly sent: SentTurn } | undefined;
  isReported: boolean;
}

/**
 * Orders the documents of prompts so that an engine can reuse what it has cached. It remembers what it arranged. One
 * instance per engine replica and tenant, because their caches are separate. Bounded in bytes.
 */
export class Warmpath {
  /** What the engine is believed to hold. */
  readonly history: ServedHistory;
  readonly #conversations: ConversationLog;
  readonly #switches: OrderSwitches;
  readonly #style: RenderOptions & { readonly countTokens?: TokenCounter };
  readonly #now: () => number;
  readonly #sent = new WeakMap<object, SentPrompt>();
  #latest: SentPrompt | undefined;

  constructor(options: WarmpathOptions = {}) {
    const {
      template = 'xml',
      layout = 'question',
      countTokens,
      maxAgeMs,
      policy,
      maxShift,
      shiftPrice,
      pin,
      hints,
    } = options;
    this.#switches = defined({ policy, maxShift, shiftPrice, pin, hints });
    this.#style = { template, layout, ...(countTokens !== undefined && { countTokens }) };
    let calls = 0;
    this.#now = options.now ?? (() => ++calls);
    const eighth = Math.max(MIN_MAX_BYTES, options.maxBytes ?? DEFAULT_MAX_BYTES) / 8;
    this.history = new ServedHistory({
      tree: { maxBytes: 4 * eighth },
      hotness: { maxDocuments: Math.floor(eighth / STATISTICS_BYTES) },
      ...(maxAgeMs !== undefined && { maxAgeMs }),
    });
    this.#conversations = new ConversationLog({ maxBytes: 3 * eighth });
  }

  /** Estimated bytes of what is remembered. */
  get bytes(): number {
    return this.history.bytes + this.#conversations.bytes;
  }

  /**
   * Puts documents in order, and into the messages. The prompt counts as sent to the engine: `report` or `failed` says
   * what became of it. Cost: that of core's `arrange`, and O(length).
   *
   * @throws the errors of `prepareRequest` and `renderChat`
   */
  arrange<Retrieved, Message extends object = ChatMessage>(
    request: PromptRequest<Retrieved, Message>,
  ): ArrangedPrompt<Retrieved, Message> {
    const { documents, policy, maxShift, shiftPrice, pin, hints } = request;
    const switches = { ...this.#switches, ...defined({ policy, maxShift, shiftPrice, pin, hints }) };
    const { template, countTokens } = this.#style;
    const prepared = prepareRequest(
      { documents, ...switches },
      { template, ...(countTokens !== undefined && { countTokens }) },
    );
    const messages = readMessages(request);
    const now = this.#now();
    const { arrangement, rendered, turn, isForgotten } =
      messages !== undefined && request.conversation !== undefined
        ? this.#turn({ ...request, conversation: request.conversation }, messages, prepared, now)
        : this.#alone(request, messages, prepared, now);
    observe({ kind: 'dispatched', arrangement, now }, this.history);

    const referenced = new Set(arrangement.references.map(({ rank }) => rank));
    const ranks = prepared.documents.map((_, rank) => rank).filter((rank) => !referenced.has(rank));
    const sourceOf = (rank: number): number => prepared.sources![rank]!;
    const sources = arrangement.order.map((rank) => sourceOf(ranks[rank]!));
    const arranged: ArrangedPrompt<Retrieved, Message> = {
      documents: sources.map((source) => documents[source]!),
      sources,
      labels: arrangement.documents.map(({ label }) => label),
      references: arrangement.references.map(({ rank }) => documents[sourceOf(rank)]!),
      hint: renderHint(arrangement, template),
      text: renderCompletion('', arrangement, this.#style),
      messages: rendered as readonly object[] as readonly Message[],
      isForgotten,
      warnings: prepared.warnings ?? [],
      arrangement,
    };
    this.#latest = { arrangement, turn, isReported: false };
    this.#sent.set(arranged, this.#latest);
    return arranged;
  }

  /**
   * The engine has read the prompt. Only the first report about a prompt counts.
   *
   * @param usage as the API or SDK reports it, or its whole answer; nothing if it reports none
   * @param prompt the result of `arrange`. Default: the latest one. Name it where requests run at the same time.
   */
  report(usage?: unknown, prompt?: ArrangedPrompt<unknown, object>): void {
    const sent = this.#open(prompt);
    if (sent === undefined) return;
    observe({ kind: 'completed', arrangement: sent.arrangement, now: this.#now(), ...readUsage(usage) }, this.history);
  }

  /** The prompt never reached the engine. `prompt` as in `report`. */
  failed(prompt?: ArrangedPrompt<unknown, object>): void {
    const sent = this.#open(prompt);
    if (sent !== undefined) observe({ kind: 'failed', arrangement: sent.arrangement, now: this.#now() }, this.history);
  }

  /**
   * The message that the model answered, as the next turn of the conversation will have it. Only needed where the same
   * messages may be sent with other documents: the next turn then continues the one with its answer.
   */
  answered(message: object, prompt: ArrangedPrompt<unknown, object>): void {
    const turn = this.#sent.get(prompt)?.turn;
    const hash = answerHash(message as ChatMessage);
    if (turn !== undefined && hash !== undefined) {
      this.#conversations.answered(turn.name, turn.sent, hash, this.#now());
    }
  }

  /** A prompt alone: a chat without a name, or documents for a prompt that the caller writes. */
  #alone(
    { preamble: text = '', scope = '' }: PromptRequest<unknown, object>,
    messages: readonly ChatMessage[] | undefined,
    prepared: ReturnType<typeof prepareRequest>,
    now: number,
  ) {
    const preamble =
      messages === undefined ? this.#textPreamble(text, scope) : chatPreamble(messages, scope, this.#style);
    const arrangement = arrange({ ...prepared, preamble }, this.history, now);
    const rendered = messages === undefined ? [] : renderChat(messages, arrangement, this.#style);
    return { arrangement, rendered, turn: undefined, isForgotten: false };
  }

  #textPreamble(text: string, scope: string): Preamble {
    const { countTokens = estimateTokens } = this.#style;
    return { key: `text#${fingerprint([scope, text])}`, tokens: text === '' ? 0 : Math.ceil(countTokens(text)) };
  }

  #turn(
    { conversation, user, scope = '' }: PromptRequest<unknown, object> & { readonly conversation: string },
    messages: readonly ChatMessage[],
    prepared: ReturnType<typeof prepareRequest>,
    now: number,
  ) {
    const name = { tenant: TENANT, user, session: conversation };
    const recalled = recallConversation({ ...name, messages }, this.#conversations.lookup(name, now));
    const asked = {
      ...prepared,
      visible: recalled.visible,
      preamble: turnPreamble(recalled, messages, scope, this.#style),
    };
    const supplied = suppliedHash(asked, this.#style, scope);
    // A request that is sent again gets the bytes that it had.
    const repeated = repeatedTurn(recalled, supplied);
    const policy =
      repeated === undefined ? asked.policy : repeatedOrder(repeated, this.#switches.policy ?? DEFAULT_POLICY);
    const arrangement = arrange({ ...asked, policy }, this.history, now);
    const { messages: rendered, turn: sent } = renderTurn(
      { history: recalled, messages, arrangement, supplied },
      this.#style,
    );
    this.#conversations.sent(name, sent, now);
    return { arrangement, rendered, turn: { name, sent }, isForgotten: recalled.isForgotten };
  }

  #open(prompt: object | undefined): SentPrompt | undefined {
    const sent = prompt === undefined ? this.#latest : this.#sent.get(prompt);
    if (sent === undefined || sent.isReported) return undefined;
    sent.isReported = true;
    return sent;
  }
}

/** What a message has beside role and content is no concern of the order. */
function readMessages({ messages, conversation }: PromptRequest<unknown, object>): readonly ChatMessage[] | undefined {
  if (messages === undefined && conversation === undefined) return undefined;
  if (Array.isArray(messages)) return messages as readonly ChatMessage[];
  const detail = 'An array of messages was expected. A conversation needs its messages.';
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'messages', detail });
}

type Defined<Fields> = { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> };

function defined<Fields extends object>(fields: Fields): Defined<Fields> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Defined<Fields>;
}
