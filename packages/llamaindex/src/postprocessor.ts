import type { Arranger, OrderSwitches } from '@warmpath/client';
import { arrangeOrKeep, type KeepOptions, OpenContexts, type SentContexts } from '@warmpath/client/internal';

export interface PostprocessorOptions extends Pick<KeepOptions, 'onError'> {
  /** What the prompt has before the documents: prompts with different ones share nothing. */
  readonly preamble?: string;
  /** How far documents may move. */
  readonly switches?: OrderSwitches;
}

/** The part of LlamaIndex's `NodeWithScore` that is used. Nothing of LlamaIndex is imported: no version is tied. */
export interface ScoredNode {
  readonly node: { getContent(mode?: string): string };
}

/** What LlamaIndex tells when a call to a model begins, and when it ended. */
export interface CallEvents {
  readonly 'llm-start': {
    readonly id: string;
    readonly messages: readonly { readonly content: string | readonly object[] }[];
  };
  readonly 'llm-end': { readonly id: string; readonly response: { readonly raw: unknown } };
}

/** The part of LlamaIndex's `CallbackManager` that is used. */
export interface CallbackSource {
  on<Name extends keyof CallEvents>(name: Name, handler: CallHandler<Name>): unknown;
  off<Name extends keyof CallEvents>(name: Name, handler: CallHandler<Name>): unknown;
}

type CallHandler<Name extends keyof CallEvents> = (event: { readonly detail: CallEvents[Name] }) => void;

/** How LlamaIndex names the text of a node that goes into prompts. */
const FOR_MODELS = 'LLM';

/** Calls to a model that are remembered while they are under way; of more, the oldest counts as served. */
const MAX_CALLS = 1_024;

/**
 * Orders what a retriever found so that the prompt starts with what the engine holds. Nodes keep their scores and stay
 * the very objects they were; a text that was found twice stays once. No hint is written, for LlamaIndex's prompts do
 * not name documents.
 */
export class WarmpathPostprocessor {
  readonly #arranger: Arranger;
  readonly #options: PostprocessorOptions;
  readonly #open = new OpenContexts();

  constructor(arranger: Arranger, options: PostprocessorOptions = {}) {
    this.#arranger = arranger;
    this.#options = options;
  }

  /** Never fails: without an order, nodes come back as they were, and `onError` hears why. */
  async postprocessNodes<Found extends ScoredNode>(nodes: Found[]): Promise<Found[]> {
    if (nodes.length === 0) return nodes;
    const { preamble, switches, onError } = this.#options;
    // As the prompt will have them. Ids are made up anew with every ingestion; the text is what the engine knows.
    const documents = nodes.map(({ node }) => ({ content: node.getContent(FOR_MODELS) }));
    const request = { ...switches, hints: false, documents, ...(preamble !== undefined && { preamble }) };
    const context = await arrangeOrKeep(this.#arranger, request, { onError });
    if (context === undefined) return nodes;
    const order = context.documents.map(({ source }) => source);
    this.#open.add(
      context,
      order.map((source) => documents[source]!.content.trim()),
      preamble,
    );
    return order.map((source) => nodes[source]!);
  }

  /**
   * Reads back what the engine had cached, from `Settings.callbackManager`: the usage that the model's raw answer has,
   * in OpenAI's form. Returns a function that ends it.
   */
  listen(callbacks: CallbackSource): () => void {
    const calls = new Map<string, SentContexts>();
    const start: CallHandler<'llm-start'> = ({ detail }) => {
      const sent = this.#open.take(detail.messages.map(({ content }) => textOf(content)).join('\n'));
      if (sent.size === 0) return;
      if (calls.size >= MAX_CALLS) calls.delete(calls.keys().next().value!);
      calls.set(detail.id, sent);
    };
    const end: CallHandler<'llm-end'> = ({ detail }) => {
      // A report that does not arrive leaves the context served, which is what it was.
      calls
        .get(detail.id)
        ?.completed(answerOf(detail.response.raw))
        .catch((error: unknown) => this.#options.onError?.(error));
      calls.delete(detail.id);
    };
    callbacks.on('llm-start', start);
    callbacks.on('llm-end', end);
    return () => {
      callbacks.off('llm-start', start);
      callbacks.off('llm-end', end);
    };
  }
}

function textOf(content: string | readonly object[]): string {
  if (typeof content === 'string') return content;
  return content.map((part) => ('text' in part && typeof part.text === 'string' ? part.text : '')).join('');
}

/** The answer that has the usage. A streamed one is the list of its chunks: the last that has any. */
function answerOf(raw: unknown): unknown {
  if (!Array.isArray(raw)) return raw;
  const answers = raw.map((chunk: { readonly raw?: { readonly usage?: unknown } | null }) => chunk.raw);
  return answers.findLast((answer) => answer?.usage);
}
