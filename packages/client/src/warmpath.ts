import type { Warning } from '@warmpath/core';
import { readUsage } from '@warmpath/core/internal';
import type {
  ArrangedContext,
  ArrangedDocument,
  Arranger,
  CallOptions,
  ContextHint,
  ContextRequest,
} from './arranger.js';
import { answerOf, type ChatAnswer, type ChatRequest, ChatStream } from './chat.js';
import { Transport, type TransportOptions } from './transport.js';

export interface WarmpathOptions extends TransportOptions {
  /** Model of requests that name none. */
  readonly model?: string;
  /** Conversation of chats that name none. */
  readonly session?: string;
  /**
   * End user of chats that name none, sent as OpenAI's `user`: conversations of different end users are kept apart,
   * even under one name.
   */
  readonly user?: string;
}

/** A batch whose requests are known together. */
export interface PlanRequest {
  /** Ids in retrieval order, with token counts if all are known. */
  readonly contexts: readonly (readonly (string | { readonly id: string; readonly tokens?: number })[])[];
  /** What the engine's prefix cache holds, in tokens (documents, if tokens are not known). */
  readonly capacity?: number;
}

/** A request of a planned batch. */
export interface PlannedRequest {
  /** Which context. */
  readonly index: number;
  /** Ids in prompt order. */
  readonly documents: readonly string[];
  /** Leading documents that earlier steps leave in the cache. */
  readonly sharedDocuments: number;
}

/** A planned batch, in the order in which to send it; further figures as the gateway wrote them. */
export interface Plan {
  readonly steps: readonly PlannedRequest[];
  readonly reuse: number;
  readonly [figure: string]: unknown;
}

/** What will be sent, without documents: everything before them is prefilled. */
export interface WarmupRequest {
  readonly messages: readonly object[];
  readonly model?: string;
  readonly [field: string]: unknown;
}

/**
 * A client of one gateway. Cheap to make; holds no connection and no state. Errors of every call: the gateway's own
 * (`WarmpathError`, match on `code`), `WARMPATH_GATEWAY_UNREACHABLE`, `WARMPATH_UPSTREAM_ERROR`; a call that was
 * aborted rejects with its signal's reason.
 */
export class Warmpath implements Arranger {
  readonly #options: WarmpathOptions;
  readonly #transport: Transport;

  /** Error: `WARMPATH_INVALID_REQUEST` if `baseURL` is no URL. */
  constructor(options: WarmpathOptions) {
    this.#options = options;
    this.#transport = new Transport(options);
  }

  /** The same client, with all its chats in one conversation, of one end user where it is named. */
  session(name: string, user = this.#options.user): Warmpath {
    return new Warmpath({ ...this.#options, session: name, ...(user !== undefined && { user }) });
  }

  /** `POST /v1/arrange`: the order alone. */
  async arrange(request: ContextRequest, { signal }: CallOptions = {}): Promise<ArrangedContext> {
    const { value } = await this.#transport.postJson('/v1/arrange', this.#named(request), signal);
    return this.#context(value as unknown as ArrangeAnswer);
  }

  /** `POST /v1/chat/completions`, answered as a whole. */
  async chat(request: ChatRequest, { signal }: CallOptions = {}): Promise<ChatAnswer> {
    const { value, response } = await this.#transport.postJson(
      '/v1/chat/completions',
      { ...this.#chat(request), stream: false },
      signal,
    );
    return answerOf(value, response);
  }

  /** `POST /v1/chat/completions`, answered piece by piece; usage is asked for. Resolves when the answer begins. */
  async stream(request: ChatRequest, { signal }: CallOptions = {}): Promise<ChatStream> {
    const body = { ...this.#chat(request), stream: true, stream_options: { include_usage: true } };
    return new ChatStream(await this.#transport.post('/v1/chat/completions', body, signal), signal);
  }

  /** `POST /v1/plan`: the orders of a whole batch, and in which order to send it. */
  async plan(request: PlanRequest, { signal }: CallOptions = {}): Promise<Plan> {
    const { value } = await this.#transport.postJson('/v1/plan', request, signal);
    return value as Plan;
  }

  /** `POST /v1/warmup`: prefills what will stand before the documents, while retrieval runs. */
  async warmup(request: WarmupRequest, { signal }: CallOptions = {}): Promise<'warming' | 'warm'> {
    const { value } = await this.#transport.postJson('/v1/warmup', this.#named(request), signal);
    return value['state'] as 'warming' | 'warm';
  }

  #named<Request extends { readonly model?: string }>(request: Request): Request {
    const model = request.model ?? this.#options.model;
    return model === undefined ? request : { ...request, model };
  }

  #chat(request: ChatRequest): object {
    const { warmpath, ...rest } = this.#named(request);
    const session = warmpath?.session ?? this.#options.session;
    const user = rest['user'] ?? this.#options.user;
    const switches = { ...warmpath, ...(session !== undefined && { session }) };
    return {
      ...rest,
      ...(user !== undefined && { user }),
      ...(Object.keys(switches).length > 0 && { warmpath: switches }),
    };
  }

  #context(answer: ArrangeAnswer): ArrangedContext {
    const { documents, hint, text, predictedCachedTokens, trace } = answer;
    let isOpen = true;
    const tell = async (outcome: object): Promise<void> => {
      if (!isOpen || answer.id === undefined) return;
      isOpen = false;
      await this.#transport.postJson('/v1/observe', { id: answer.id, ...outcome }, undefined);
    };
    return {
      documents,
      hint: hint ?? undefined,
      text,
      predictedCachedTokens,
      warnings: trace.warnings,
      completed: (usage) => tell({ outcome: 'completed', ...readUsage(usage) }),
      failed: () => tell({ outcome: 'failed' }),
    };
  }
}

/** The gateway's answer to `POST /v1/arrange`. */
interface ArrangeAnswer {
  readonly id?: string;
  readonly documents: readonly ArrangedDocument[];
  readonly hint: ContextHint | null;
  readonly text: string;
  readonly predictedCachedTokens: number;
  readonly trace: { readonly warnings: readonly Warning[] };
}
