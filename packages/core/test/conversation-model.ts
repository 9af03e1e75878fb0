import { conversationEdits } from '../src/conversation.js';
import {
  arrange,
  type ChatMessage,
  type LayoutName,
  observe,
  prepareRequest,
  type RenderOptions,
  ServedHistory,
} from '../src/index.js';
import {
  answerHash,
  ConversationLog,
  type ConversationLogOptions,
  type ConversationName,
  plainTurn,
  recallConversation,
  renderTurn,
  type SentTurn,
  shownSegments,
  suppliedHash,
  turnPreamble,
} from '../src/internal.js';
import { applyEdits } from '../src/render/layout.js';

export interface Passage {
  readonly id: string;
  readonly content: string;
}

/** One request of a client, and what the model saw. */
export interface Served {
  readonly prompt: readonly ChatMessage[];
  readonly supplied: readonly Passage[];
  readonly references: number;
  readonly isForgotten: boolean;
}

/** The way of a chat through Warmpath, as a client in the same process would go it. */
export class Pipeline {
  readonly memory: ConversationLog;
  readonly history = new ServedHistory();
  readonly options: RenderOptions;
  now = 0;

  /** Whether parts that documents have in common are referred to. */
  readonly blocks: boolean;
  /** Whether documents that the conversation shows are referred to, or sent again. */
  deduplicate = true;

  constructor({
    layout = 'question',
    limits = {},
    blocks = false,
  }: { readonly layout?: LayoutName; readonly limits?: ConversationLogOptions; readonly blocks?: boolean } = {}) {
    this.memory = new ConversationLog(limits);
    this.options = { template: 'xml', layout };
    this.blocks = blocks;
  }

  /** Serves one request; `answer` is what the model will have said to it, or `undefined` for a request that failed. */
  serve(
    name: ConversationName,
    messages: readonly ChatMessage[],
    documents: readonly Passage[],
    answer: ChatMessage | undefined,
  ): Served {
    this.now++;
    const recalled = recallConversation({ ...name, messages }, this.memory.lookup(name, this.now));
    const { isForgotten } = recalled;
    // There are two ways to send a turn that adds nothing. Both must come to the same.
    if (documents.length === 0 && this.now % 2 === 0) {
      this.remember(name, plainTurn(recalled), answer);
      const prompt = applyEdits(messages, conversationEdits(recalled.turns));
      return { prompt, supplied: documents, references: 0, isForgotten };
    }
    const shown = this.blocks ? shownSegments(recalled, messages, this.options) : undefined;
    const request = {
      ...prepareRequest({ documents }),
      visible: recalled.visible,
      deduplicate: this.deduplicate,
      ...(shown && { shown }),
    };
    const preamble = turnPreamble(recalled, messages, 'model', this.options);
    const arrangement = arrange({ ...request, preamble }, this.history, this.now);
    const supplied = suppliedHash(request, this.options);
    const rendered = renderTurn({ history: recalled, messages, arrangement, supplied }, this.options);
    this.remember(name, rendered.turn, answer);
    observe({ kind: 'dispatched', arrangement, now: this.now }, this.history);
    observe({ kind: answer === undefined ? 'failed' : 'completed', arrangement, now: this.now }, this.history);
    return { prompt: rendered.messages, supplied: documents, references: arrangement.references.length, isForgotten };
  }

  private remember(name: ConversationName, turn: SentTurn, answer: ChatMessage | undefined): void {
    this.memory.sent(name, turn, this.now);
    const hash = answer && answerHash(answer);
    if (hash !== undefined) this.memory.answered(name, turn, hash, this.now);
  }
}

/** How often the full text of a passage stands in a prompt. */
export function copies({ prompt }: Pick<Served, 'prompt'>, passage: Passage): number {
  const text = `\n${passage.content}\n</document>`;
  return prompt.reduce(
    (sum, { content }) => sum + (typeof content === 'string' ? content.split(text).length - 1 : 0),
    0,
  );
}

/** Labels of the documents in a prompt, in their order. */
export function labelsIn(prompt: readonly ChatMessage[]): string[] {
  return prompt.flatMap(({ content }) =>
    [...String(content ?? '').matchAll(/<document id="([^"]+)"/g)].map(([, label]) => label!),
  );
}

/** The labels that location hints of a prompt name, each with the number of messages up to and including the hint's. */
export function hintedLabels(prompt: readonly ChatMessage[]): { label: string; messages: number }[] {
  return prompt.flatMap(({ content }, place) =>
    [...String(content ?? '').matchAll(/^Given earlier in this conversation: (.*)\.$/gm)].flatMap(([, names]) =>
      [...names!.matchAll(/\[([^\]«]+)\]/g)].map(([, label]) => ({ label: label!, messages: place + 1 })),
    ),
  );
}

/** A passage of a pool: the same id has several contents, and one content stands under two ids. */
export function passage(number: number): Passage {
  const id = `p${number % 7}`;
  const version = Math.floor(number / 7);
  if (number === 20) return { id: 'twin', content: passage(0).content };
  return { id, content: `Passage ${id} in version ${version}.` };
}

export const PASSAGES = 21;
