import { type DocumentInput, type OrderSwitches, WarmpathError } from '@warmpath/core';
import { readUsage } from '@warmpath/core/internal';
import type { EngineUsage } from './arranger.js';
import { readServerSentEvents } from './server-sent-events.js';
import { readSummary } from './summary.js';
import { toError } from './transport.js';

/** The gateway's switches beside a chat. */
export interface ChatSwitches extends OrderSwitches {
  /** Names the conversation; the client's own without it. */
  readonly session?: string;
  /**
   * What becomes of a turn whose earlier turns the gateway does not know: an error, `WARMPATH_CONVERSATION_FORGOTTEN`
   * (default), or an answer without their documents, with `conversation: 'forgotten'` in its report.
   */
  readonly forgotten?: 'refuse' | 'mark';
  /** `false`: sends documents that the conversation shows again. `true`: also refers to those in results of tools. */
  readonly deduplicate?: boolean;
  /** Sends the request on as it is. */
  readonly bypass?: boolean;
}

/** A chat completion as OpenAI's API has it, with documents beside the messages. Unknown fields go to the engine. */
export interface ChatRequest {
  readonly messages: readonly object[];
  /** In retrieval order. */
  readonly documents?: readonly DocumentInput[];
  readonly model?: string;
  readonly warmpath?: ChatSwitches;
  readonly [field: string]: unknown;
}

/** What the gateway says of a request beside the engine's answer. */
export interface GatewayReport {
  readonly requestId: string | undefined;
  /** The ordering policy that decided; undefined if nothing was arranged. */
  readonly policy: string | undefined;
  readonly predictedCachedTokens: number | undefined;
  /** What was mended, as the gateway wrote it. */
  readonly warnings: string | undefined;
  /** Set after a defect in the gateway: what went out instead of an arranged prompt. */
  readonly fallback: string | undefined;
  /** What the gateway knows of the conversation that the request names: `new`, `known`, `forgotten` or `ignored`. */
  readonly conversation: string | undefined;
}

/** An answer of the engine. */
export interface ChatAnswer {
  /** Text of the first choice; empty if there is none, as in a tool call. */
  readonly text: string;
  readonly usage: EngineUsage;
  readonly gateway: GatewayReport;
  /** The engine's answer, parsed and otherwise untouched. */
  readonly body: Readonly<Record<string, unknown>>;
}

/** A piece of a streamed answer. */
export interface ChatPiece {
  /** Text of the first choice that this piece adds; often empty. */
  readonly text: string;
  /** The chunk, parsed and otherwise untouched. */
  readonly body: Readonly<Record<string, unknown>>;
}

interface Choice {
  readonly message?: { readonly content?: unknown } | null;
  readonly delta?: { readonly content?: unknown } | null;
}

function reportOf({ headers }: Response): GatewayReport {
  const { policy, predicted, warnings, fallback, conversation } = readSummary(headers.get('x-warmpath'));
  return {
    requestId: headers.get('x-request-id') ?? undefined,
    policy,
    predictedCachedTokens: predicted === undefined ? undefined : Number(predicted),
    warnings,
    fallback,
    conversation,
  };
}

export function answerOf(body: Readonly<Record<string, unknown>>, response: Response): ChatAnswer {
  const content = choiceOf(body)?.message?.content;
  return {
    text: typeof content === 'string' ? content : '',
    usage: readUsage(body),
    gateway: reportOf(response),
    body,
  };
}

/**
 * A streamed answer, to be read once: `for await (const { text } of stream)`. Leaving the loop early ends the request,
 * in the engine too. Errors while reading: the one that the gateway or the engine sent; `WARMPATH_UPSTREAM_CUT` if the
 * stream broke.
 */
export class ChatStream implements AsyncIterable<ChatPiece> {
  readonly gateway: GatewayReport;
  readonly #response: Response;
  readonly #signal: AbortSignal | undefined;
  #usage: EngineUsage = {};

  constructor(response: Response, signal: AbortSignal | undefined) {
    this.gateway = reportOf(response);
    this.#response = response;
    this.#signal = signal;
  }

  /** Known when the stream has been read to its end. */
  get usage(): EngineUsage {
    return this.#usage;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ChatPiece, void, undefined> {
    const path = '/v1/chat/completions';
    let isComplete = false;
    try {
      for await (const data of readServerSentEvents(chunksOf(this.#response))) {
        if (data === '[DONE]') {
          isComplete = true;
          continue;
        }
        const body = JSON.parse(data) as Readonly<Record<string, unknown>>;
        if (body['error'] !== undefined) throw toError(body, path);
        if (body['usage'] != null) this.#usage = readUsage(body);
        const content = choiceOf(body)?.delta?.content;
        yield { text: typeof content === 'string' ? content : '', body };
      }
    } catch (cause) {
      if (this.#signal?.aborted) throw this.#signal.reason;
      if (WarmpathError.isInstance(cause)) throw cause;
      throw new WarmpathError('WARMPATH_UPSTREAM_CUT', { path, cause });
    }
    if (!isComplete) throw new WarmpathError('WARMPATH_UPSTREAM_CUT', { path });
  }
}

/** Not every browser can iterate over a stream. */
async function* chunksOf(response: Response): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = response.body?.getReader();
  if (reader === undefined) return;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    // Of a stream that ended or broke, there is nothing left to cancel.
    await reader.cancel().catch(() => undefined);
  }
}

function choiceOf(body: Readonly<Record<string, unknown>>): Choice | undefined {
  return (body['choices'] as readonly Choice[] | undefined)?.[0];
}
