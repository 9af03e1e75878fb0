import {
  type Arrangement,
  type ArrangeRequest,
  arrange as arrangeByPolicy,
  type ChatMessage,
  chatPreamble,
  completionPreamble,
  type Document,
  type Preamble,
  suppliedHash,
  turnPreamble,
  WarmpathError,
} from '@warmpath/core';
import {
  DEFAULT_POLICY,
  NOTHING_VISIBLE,
  type RecalledConversation,
  repeatedOrder,
  repeatedTurn,
  shownSegments,
  type WorkSteps,
} from '@warmpath/core/internal';
import {
  invalid,
  modelScope,
  type PromptView,
  promptScope,
  type ScopedRequest,
  toolTokens,
  type ViewedMessages,
} from '../apis/prompt-view.js';
import type { GatewayConfig } from '../config/schema.js';
import { mayBeReused } from '../engines/expected-reuse.js';
import type { ParsedRequest } from '../intake/parse-request.js';
import { UNINTERRUPTED_SIZE } from '../limits/event-loop-budget.js';
import { DocumentCache } from '../memory/document-cache.js';
import type { TenantModel } from '../memory/served-histories.js';
import { type ArrangedInsertion, InsertedPrompts, type InsertedRequest } from '../render/inserted-prompts.js';

/** How `arrange` is called; a test puts a failing one in its place. */
export type Arrange = typeof arrangeByPolicy;

const NO_HISTORY: RecalledConversation = {
  tenant: '',
  session: '',
  links: [],
  turns: [],
  sentMessages: 0,
  visible: NOTHING_VISIBLE,
  siblings: [],
  isForgotten: false,
};
const NO_MESSAGES: ViewedMessages = { messages: [], origins: [], sentMessages: 0 };

/** Estimated tokens of a prompt up to the end of its documents: no two requests share more. */
function sharedTokens({ preamble, documents }: ArrangeRequest): number {
  return documents.reduce((sum, { tokens }) => sum + tokens, preamble?.tokens ?? 0);
}

/**
 * Documents that a request brings beside its messages: reads them, decides their order and has them put into the
 * prompt. Pure but for the policy's view and `now`.
 */
export class InsertedDocuments {
  /** Core's `arrange`, or what stands in for it. */
  readonly #arrange: Arrange;
  readonly cache: DocumentCache;
  readonly #config: GatewayConfig;
  readonly #prompts: InsertedPrompts;

  constructor(config: GatewayConfig, cacheBytes: number, arrange: Arrange = arrangeByPolicy) {
    this.#config = config;
    this.#arrange = arrange;
    const { limits } = config;
    this.cache = new DocumentCache({ maxBytes: cacheBytes, template: config.arrange.template, limits });
    this.#prompts = new InsertedPrompts(config, this.cache);
  }

  /**
   * Checks the documents and switches of a request, and fills in the configured defaults.
   *
   * @throws WarmpathError those of core's `prepareRequest`, with paths into the body.
   */
  *readDocuments(
    { body, documents, switches }: Pick<ParsedRequest, 'body' | 'documents' | 'switches'>,
    tenant: string,
  ): WorkSteps<ArrangeRequest> {
    const steps = this.cache.prepare(tenant, body.scan, documents, switches, { switchesPath: 'warmpath' });
    return this.withDefaults(yield* steps);
  }

  /** The request with the configured policy, hints, bound on moves and price of moves where it does not say. */
  withDefaults({ documents, warnings, policy, maxShift, shiftPrice, pin, hints }: ArrangeRequest): ArrangeRequest {
    const { arrange } = this.#config;
    return {
      documents,
      warnings,
      policy: policy ?? arrange.policy,
      maxShift: maxShift ?? arrange.maxShift,
      shiftPrice: shiftPrice ?? arrange.shiftPrice,
      pin,
      hints: hints ?? arrange.hints,
    };
  }

  /**
   * The request as one turn of its conversation, or by itself: documents that the conversation still shows become
   * references, as far as the client or the configuration wants it.
   *
   * @throws WarmpathError `WARMPATH_INVALID_REQUEST` where there is nothing that documents could be put before.
   */
  asTurn(
    parsed: ParsedRequest,
    prompt: PromptView | undefined,
    request: ArrangeRequest,
    history: RecalledConversation | undefined,
  ): InsertedRequest {
    if (prompt === undefined) return this.#asCompletion(parsed, request);
    const { arrange, session } = this.#config;
    const viewed = prompt.view(history?.sentMessages ?? 0);
    const { messages } = viewed;
    const known = { ...(history ?? NO_HISTORY), sentMessages: viewed.sentMessages };
    const deduplicate = parsed.deduplicate ?? session.deduplicate;
    // A part is replaced by a hint, or not at all.
    const looksAtParts =
      deduplicate && request.documents.length > 0 && request.hints !== false && (parsed.blocks ?? session.blocks);
    const shown = looksAtParts ? shownSegments(known, prompt.view(0).messages, arrange) : undefined;
    const { documents, warnings, policy, maxShift, shiftPrice, pin, hints } = request;
    const asked = {
      documents,
      preamble: this.preamble(parsed, messages, known),
      policy,
      maxShift,
      shiftPrice,
      pin,
      hints,
      visible: known.visible,
      deduplicate,
      shown,
      warnings,
    };
    const supplied = history === undefined ? '' : suppliedHash(asked, arrange, promptScope(parsed));
    const repeated = history === undefined ? undefined : repeatedTurn(known, supplied);
    return {
      kind: 'inserted',
      parsed,
      prompt,
      viewed,
      request: repeated === undefined ? asked : { ...asked, policy: repeatedOrder(repeated, nameOf(policy)) },
      history: known,
      isNamed: history !== undefined,
      supplied,
      repeated,
    };
  }

  /**
   * Decides an order for an engine. Where the prompt is too short for it to reuse anything, no order saves anything:
   * the documents stay as they were retrieved.
   *
   * @param promptTokens Estimated tokens of the whole prompt, where documents stand in it already.
   */
  arrange(
    request: ArrangeRequest,
    state: TenantModel,
    now: number,
    promptTokens = () => sharedTokens(request),
  ): Arrangement {
    const isWorthwhile = mayBeReused(state, promptTokens);
    return this.#arrange(isWorthwhile ? request : { ...request, policy: 'retrieval' }, state.history, now);
  }

  /**
   * Decides the order and what changes in the body. A defect in between costs the order, not the answer: the documents
   * go out in retrieval order. Should that fail as well, or the input be bad, this throws.
   */
  decide(
    asked: InsertedRequest,
    request: InsertedRequest['request'],
    state: TenantModel,
    now: number,
  ): ArrangedInsertion {
    try {
      return this.#prompts.render(asked, this.arrange(request, state, now), state);
    } catch (error) {
      if (isBadInput(error)) throw error;
      const anew = { ...asked, repeated: undefined };
      return {
        ...this.#prompts.render(anew, inOrder(request, state), state),
        fallback: 'retrieval' as const,
        defect: error,
      };
    }
  }

  /**
   * Reads and measures what `preamble` would, in steps, where that is long: the messages from `sent` on, and tools.
   * Errors: those of `PromptView.view`.
   */
  *measure(request: ScopedRequest, prompt: PromptView, sent: number): WorkSteps<void> {
    yield* prompt.read(sent);
    const size = request.body.bytes.length / 2;
    if (size < UNINTERRUPTED_SIZE) return;
    promptScope(request);
    yield size;
    toolTokens(request.body);
    yield size;
  }

  /** What stands before the documents. */
  preamble(
    request: ScopedRequest,
    messages: readonly ChatMessage[],
    history: RecalledConversation = NO_HISTORY,
  ): Preamble {
    const scope = promptScope(request);
    const { arrange } = this.#config;
    if (history.turns.length > 0) return turnPreamble(history, messages, scope, arrange);
    const { key, tokens } = chatPreamble(messages, scope, arrange);
    return { key, tokens: tokens + toolTokens(request.body) };
  }

  /**
   * What stands before the documents of a prompt of which only the text before them is known: that of a chat whose
   * system message is that text, or that has none. So both know of each other.
   */
  preambleOfText(text: string, model: string): Preamble {
    const question = { role: 'user', content: '' };
    const messages = text === '' ? [question] : [{ role: 'system', content: text }, question];
    return chatPreamble(messages, modelScope(model), this.#config.arrange);
  }

  /** The body that prefills a path of documents behind a served request's preamble (`InsertedPrompts.prefill`). */
  prefill(parsed: ParsedRequest, path: readonly Document[], state: TenantModel): Buffer {
    return this.#prompts.prefill(parsed, inOrder({ documents: path }, state), state);
  }

  #asCompletion(parsed: ParsedRequest, request: ArrangeRequest): InsertedRequest {
    const prompt = parsed.body.value('prompt');
    if (parsed.api.conversation !== undefined) {
      throw invalid(parsed.api.conversation.messages, 'an array of messages was expected');
    }
    if (prompt === undefined || !parsed.body.scan.isString(prompt)) {
      throw invalid(
        'prompt',
        'with `documents`, the prompt must be one string: documents cannot be put before token ids',
      );
    }
    const preamble = completionPreamble(promptScope(parsed), this.#config.arrange);
    return {
      kind: 'inserted',
      parsed,
      prompt: undefined,
      viewed: NO_MESSAGES,
      request: { ...request, preamble },
      history: NO_HISTORY,
      isNamed: false,
      supplied: '',
      repeated: undefined,
    };
  }
}

/** Whether an error is the client's to mend; every other one is a defect of the gateway, and fails open. */
export function isBadInput(error: unknown): error is WarmpathError {
  return WarmpathError.isInstance(error) && error.status < 500;
}

function nameOf(policy: ArrangeRequest['policy']): string {
  return (typeof policy === 'object' ? policy.name : policy) ?? DEFAULT_POLICY;
}

/** The documents as they come, by the shortest path: no policy, no hint, no prediction. */
function inOrder(request: ArrangeRequest, state: TenantModel): Arrangement {
  const { documents, preamble, maxShift, shiftPrice = 0, warnings = [] } = request;
  return {
    documents,
    order: documents.map((_, rank) => rank),
    references: [],
    hint: undefined,
    locationHint: false,
    preamble,
    predictedCachedTokens: 0,
    trace: {
      policy: 'retrieval',
      residency: state.history.state,
      moves: documents.map(() => 0),
      cachedDocuments: 0,
      maxShift,
      shiftPrice,
      pinned: [],
      warnings,
      cutShort: undefined,
      fellBack: 'WARMPATH_INTERNAL',
    },
  };
}
