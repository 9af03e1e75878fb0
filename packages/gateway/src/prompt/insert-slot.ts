import {
  type Arrangement,
  type ArrangeRequest,
  arrange as arrangeByPolicy,
  type ChatMessage,
  chatPreamble,
  type Preamble,
  WarmpathError,
} from '@warmpath/core';
import {
  completionPreamble,
  DEFAULT_POLICY,
  NOTHING_VISIBLE,
  type RecalledConversation,
  repeatedOrder,
  repeatedTurn,
  shownSegments,
  suppliedHash,
  turnPreamble,
  type WorkSteps,
} from '@warmpath/core/internal';
import {
  modelScope,
  type PromptView,
  promptScope,
  type ScopedRequest,
  toolTokens,
  type ViewedMessages,
} from '../apis/prompt-view.js';
import type { GatewayConfig } from '../config/schema.js';
import { documentLimits } from '../config/schema-server.js';
import type { ParsedRequest } from '../intake/parse-request.js';
import { invalid } from '../json/json-body.js';
import { UNINTERRUPTED_SIZE } from '../limits/load.js';
import { DocumentCache } from '../memory/document-cache.js';
import { mayBeReused, type TenantModel } from '../memory/served-histories.js';
import type { InsertSlot } from '../shapes/shapes.js';

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
export function sharedTokens({ preamble, documents }: Pick<ArrangeRequest, 'preamble' | 'documents'>): number {
  return documents.reduce((sum, { tokens }) => sum + tokens, preamble?.tokens ?? 0);
}

/** Documents that a request brings beside its messages: reads them, and makes the slot that they are inserted at. */
export class InsertedDocuments {
  /** Core's `arrange`, or what stands in for it. */
  readonly #arrange: Arrange;
  readonly cache: DocumentCache;
  readonly #config: GatewayConfig;

  constructor(config: GatewayConfig, cacheBytes: number, arrange: Arrange = arrangeByPolicy) {
    this.#config = config;
    this.#arrange = arrange;
    const limits = documentLimits(config.server);
    this.cache = new DocumentCache({ maxBytes: cacheBytes, template: config.arrange.template, limits });
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
  withDefaults(request: ArrangeRequest): ArrangeRequest {
    const { arrange } = this.#config;
    const { documents, sources, warnings, policy, maxShift, shiftPrice, pin, hints } = request;
    return {
      documents,
      sources,
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
  slotOf(
    parsed: ParsedRequest,
    view: PromptView | undefined,
    request: ArrangeRequest,
    history: RecalledConversation | undefined,
  ): InsertSlot {
    if (view === undefined) return this.#slotOfCompletion(parsed, request);
    const { arrange } = this.#config;
    const viewed = view.view(history?.sentMessages ?? 0);
    const { messages } = viewed;
    const known = { ...(history ?? NO_HISTORY), sentMessages: viewed.sentMessages };
    const deduplicate = parsed.deduplicate ?? true;
    // A part is replaced by a hint, or not at all.
    const looksAtParts =
      deduplicate && request.documents.length > 0 && request.hints !== false && parsed.blocks === true;
    const shown = looksAtParts ? shownSegments(known, view.view(0).messages, arrange) : undefined;
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
      kind: 'insert',
      parsed,
      view,
      viewed,
      request: repeated === undefined ? asked : { ...asked, policy: repeatedOrder(repeated, nameOf(policy)) },
      history: known,
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

  #slotOfCompletion(parsed: ParsedRequest, request: ArrangeRequest): InsertSlot {
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
      kind: 'insert',
      parsed,
      view: undefined,
      viewed: NO_MESSAGES,
      request: { ...request, preamble },
      history: NO_HISTORY,
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
