import { randomUUID } from 'node:crypto';
import {
  type Arrangement,
  type ArrangeRequest,
  applyEdits,
  arrange as arrangeByPolicy,
  type ChatEdit,
  type ChatMessage,
  chatEdits,
  chatPreamble,
  completionPreamble,
  DEFAULT_POLICY,
  type Document,
  editsOf,
  estimateTokens,
  type PolicyName,
  type Preamble,
  prepareRequest,
  type RecalledHistory,
  recordTurn,
  renderHint,
  repeatedOrder,
  repeatedTurn,
  type SentTurn,
  shownBlocks,
  suppliedPrint,
  turnEdits,
  turnPreamble,
  WarmpathError,
  type Warning,
} from '@warmpath/core';
import type { GatewayConfig } from '../config/schema.js';
import type { Prompt } from '../intake/apis/prompt-api.js';
import type { ExtractedRequest, RequestSwitches } from '../intake/extract.js';
import { bytesOfPart } from '../observe/memory-budget.js';
import type { TenantModel } from '../observe/served-histories.js';
import { documentBlocks } from '../render/document-blocks.js';
import { documentEnds } from '../render/document-ends.js';
import { NO_MORE_THAN_PREFILL, withEmptyQuestion, withLeastAnswer } from '../render/prefill.js';
import { DocumentMemory } from './document-memory.js';
import { type PromptSource, promptScope } from './prompt-scope.js';
import { estimatePrompt } from './prompt-tokens.js';

/** A request whose documents stand in a prompt. */
export type PromptRequest = ArrangeRequest & { readonly preamble: Preamble };

/** A request as one turn of a conversation. */
export interface Conversation {
  readonly history: RecalledHistory;
  /** What is asked (core's `suppliedPrint`). */
  readonly supplied: string;
  /** The same turn, sent before: it goes out as it did then. */
  readonly repeated: SentTurn | undefined;
}

/** How `arrange` is called; a test puts a failing one in its place. */
export type Arrange = typeof arrangeByPolicy;

/** What the gateway did instead, when a defect of its own kept it from arranging. */
export type Fallback = 'retrieval' | 'original' | 'conversation';

/** A request ready for the engine. */
export interface ComposedRequest {
  readonly body: string;
  /** To be remembered; `undefined` where no conversation is kept. */
  readonly turn: SentTurn | undefined;
  readonly arrangement: Arrangement;
  readonly warnings: readonly Warning[];
  /** The whole prompt, in estimated tokens. */
  readonly estimatedTokens: number;
  readonly fallback: Fallback | undefined;
  /** What went wrong, if something did. */
  readonly defect: unknown;
}

/**
 * Stands for the rendered documents while the messages become JSON, so that what is known as JSON is not escaped again.
 * Drawn at random for each process: no message can contain it.
 */
const PLACE = `documents-${randomUUID()}`;
/** The same, or what stands for one block of documents of several; the number says for which. */
const PLACES = new RegExp(`${PLACE}(?:-(\\d+)-)?`, 'g');

/** Extracted request in, body for the engine out: arrange, render, put back. Pure but for the policy's view and `now`. */
export class Composer {
  /** Core's `arrange`, or what stands in for it. */
  readonly arrange: Arrange;
  /** What is remembered of passages that come again. */
  readonly memory: DocumentMemory;
  readonly #config: GatewayConfig;

  constructor(config: GatewayConfig, arrange: Arrange = arrangeByPolicy) {
    this.#config = config;
    this.arrange = arrange;
    this.memory = new DocumentMemory(bytesOfPart('documents', config.limits.memoryBytes), config.arrange.template);
  }

  /**
   * Checks the request's documents and switches, and fills in the configured defaults. Errors: those of core's
   * `prepareRequest`, with paths into the body.
   */
  prepare(
    extracted: { readonly documents: unknown; readonly switches: RequestSwitches },
    tenant: string,
    dialPath?: string,
  ): ArrangeRequest {
    const { arrange, limits } = this.#config;
    const request = prepareRequest(
      { ...extracted.switches, documents: extracted.documents },
      {
        ...(dialPath !== undefined && { dialPath }),
        limits: { maxDocuments: limits.documents, maxContentLength: limits.documentLength },
        template: arrange.template,
        memo: this.memory.of(tenant),
      },
    );
    return {
      policy: arrange.policy,
      hints: arrange.hints,
      ...(arrange.maxShift !== undefined && { maxShift: arrange.maxShift }),
      ...request,
    };
  }

  /**
   * The request as one turn of what is known of its conversation: documents that it still shows are referred to, and parts that it
   * shows, as far as the client or the configuration wants it. Errors: those of core's `turnPreamble`.
   */
  converse(
    extracted: ExtractedRequest,
    prepared: ArrangeRequest,
    history: RecalledHistory,
  ): { readonly request: PromptRequest; readonly conversation: Conversation } {
    const { arrange, session } = this.#config;
    const deduplicates = extracted.deduplicate ?? session.deduplicate;
    // A part is replaced by a hint, or not at all.
    const looksAtParts =
      deduplicates && prepared.documents.length > 0 && prepared.hints !== false && (extracted.blocks ?? session.blocks);
    const asked = {
      ...prepared,
      ...(deduplicates && { visible: history.visible }),
      ...(looksAtParts && { shown: shownBlocks(history, chatMessages(extracted), arrange) }),
    };
    const supplied = suppliedPrint(asked, arrange, promptScope(extracted));
    const repeated = repeatedTurn(history, supplied);
    const preamble = this.preamble(extracted, history);
    const policy = repeated === undefined ? asked.policy : repeatedOrder(repeated, nameOf(asked.policy));
    return {
      request: { ...asked, preamble, ...(policy !== undefined && { policy }) },
      conversation: { history, supplied, repeated },
    };
  }

  /**
   * Arranges and renders a request with its preamble. A defect in between costs the order, not the answer: the documents go out in retrieval order.
   * Should that fail as well, or the input be bad, this throws.
   */
  compose(
    extracted: ExtractedRequest,
    { request, conversation }: { readonly request: PromptRequest; readonly conversation: Conversation | undefined },
    state: TenantModel,
    now: number,
  ): ComposedRequest {
    try {
      const arrangement = this.arrange(request, state.history, now);
      return this.#render(extracted, arrangement, conversation, state);
    } catch (error) {
      if (isBadInput(error)) throw error;
      const anew = conversation && { ...conversation, repeated: undefined };
      return { ...this.#render(extracted, inOrder(request, state), anew, state), defect: error };
    }
  }

  /** What stands before the documents. */
  preamble(extracted: PromptSource, history?: RecalledHistory): Preamble {
    const scope = promptScope(extracted);
    const { arrange } = this.#config;
    if (extracted.prompt?.kind !== 'chat') return completionPreamble(scope, arrange);
    const { messages } = extracted.prompt;
    if (history !== undefined && history.turns.length > 0) return turnPreamble(history, messages, scope, arrange);
    const { key, tokens } = chatPreamble(messages, scope, arrange);
    const tools = extracted.rawValue('tools');
    return { key, tokens: tools === undefined ? tokens : tokens + estimateTokens(tools) };
  }

  /**
   * The body that prefills a path behind a served request's preamble: its documents and an empty question. What is rendered is
   * a prefix of every prompt that starts with these documents, up to what the chat template writes behind the user's text.
   */
  composePrefill(extracted: ExtractedRequest, path: readonly Document[], state: TenantModel): string {
    const { prompt } = extracted;
    const arrangement = inOrder({ documents: path, preamble: { key: '', tokens: 0 } }, state);
    const { layout } = this.#config.arrange;
    const empty: Prompt =
      prompt?.kind === 'chat'
        ? { ...prompt, messages: withEmptyQuestion(upToQuestion(prompt.messages), layout) }
        : { kind: 'completion', prompt: '' };
    const changes = this.#changes({ ...extracted, prompt: empty }, arrangement, state);
    return withLeastAnswer(extracted.rewrite(new Map([...NO_MORE_THAN_PREFILL, ...changes])), extracted.api);
  }

  #render(
    extracted: ExtractedRequest,
    arrangement: Arrangement,
    conversation: Conversation | undefined,
    state: TenantModel,
  ): ComposedRequest {
    const { arrange } = this.#config;
    const { fellBack } = arrangement.trace;
    const turn = conversation && this.#turn(extracted, arrangement, conversation);
    const estimatedTokens =
      turn === undefined
        ? estimatePrompt(extracted, arrangement, arrange.layout)
        : tokensOf([...conversation!.history.turns, turn]) + turn.tail;
    return {
      body: extracted.rewrite(this.#changes(extracted, arrangement, state, conversation)),
      turn,
      arrangement,
      warnings: arrangement.trace.warnings,
      estimatedTokens,
      fallback: fellBack === undefined ? undefined : 'retrieval',
      defect: fellBack && new WarmpathError(fellBack),
    };
  }

  #turn(extracted: ExtractedRequest, arrangement: Arrangement, conversation: Conversation): SentTurn {
    if (conversation.repeated !== undefined) return conversation.repeated;
    const { arrange } = this.#config;
    const { history } = conversation;
    const messages = chatMessages(extracted);
    return recordTurn(
      { ...conversation, messages, arrangement },
      turnEdits(history, messages, arrangement, arrange),
      arrange,
    );
  }

  /** What all turns of the conversation added; the documents of this one stand as `PLACE`, unless they were sent in another order. */
  #edits(
    extracted: ExtractedRequest,
    arrangement: Arrangement,
    { history, repeated }: Conversation,
  ): { readonly edits: readonly ChatEdit[]; readonly isRepeated: boolean } {
    const options = { ...this.#config.arrange, documentsText: PLACE };
    const edits = turnEdits(history, chatMessages(extracted), arrangement, options);
    const isRepeated = repeated !== undefined && !isSameTurn(repeated, arrangement, edits);
    return { edits: [...editsOf(history.turns), ...(isRepeated ? repeated.edits : edits)], isRepeated };
  }

  /** The prompt with the documents in it, as members of the body. */
  #changes(
    extracted: ExtractedRequest,
    arrangement: Arrangement,
    state: TenantModel,
    conversation?: Conversation,
  ): ReadonlyMap<string, string | undefined> {
    const { arrange, upstream } = this.#config;
    const { prompt } = extracted;
    const memory = this.memory.of(state.tenant);
    if (prompt?.kind === 'chat') {
      const { edits, isRepeated } =
        conversation === undefined
          ? { edits: chatEdits(prompt.messages, arrangement, { ...arrange, documentsText: PLACE }), isRepeated: false }
          : this.#edits(extracted, arrangement, conversation);
      const rendered = applyEdits(prompt.messages, edits);
      const { messages, blocks } = documentBlocks(extracted, rendered, arrangement, {
        place: PLACE,
        template: arrange.template,
        upstream,
        isRepeated,
        // Named, or begun before: what is sent now will be sent again.
        isTurn:
          conversation !== undefined && (conversation.history.session ?? conversation.history.turns[0]) !== undefined,
      });
      const json = blocks.map((documents) => memory.renderedJson(documents));
      const written = [...prompt.write(messages)];
      return new Map(written.map(([key, text]) => [key, withBlocks(text, json)]));
    }
    const documents = memory.renderedJson(arrangement.documents);
    const rest = JSON.stringify(renderHint(arrangement, arrange.template, arrange.wording) + (prompt?.prompt ?? ''));
    const text: [string, string] = ['prompt', `"${documents}${rest.slice(1)}`];
    if (!upstream.segments) return new Map([text]);
    return new Map([text, ['segments', JSON.stringify(documentEnds(arrangement.documents, arrange.template))]]);
  }
}

/**
 * The text with blocks where they are to stand: what is before the first of them is not searched by a pattern, and nothing where
 * there is no document. O(length), native.
 */
function withBlocks(text: string, blocks: readonly string[]): string {
  if (blocks.every((block) => block === '')) return text;
  const first = text.indexOf(PLACE);
  if (first < 0) return text;
  return text.slice(0, first) + text.slice(first).replace(PLACES, (_, at = '0') => blocks[Number(at)]!);
}

function chatMessages({ prompt }: ExtractedRequest): readonly ChatMessage[] {
  return prompt?.kind === 'chat' ? prompt.messages : [];
}

/** Whether a turn that was sent is what these edits make of the same documents: then its text need not be escaped again. */
function isSameTurn(sent: SentTurn, { documents }: Arrangement, edits: readonly ChatEdit[]): boolean {
  return (
    documents.every(({ label }, place) => label === sent.order[place]) &&
    edits.length === sent.edits.length &&
    edits.every(({ at, add, text }, place) => {
      const known = sent.edits[place]!;
      const behind = text.startsWith(PLACE) ? text.slice(PLACE.length) : text;
      return at === known.at && add === known.add && known.text.endsWith(behind);
    })
  );
}

function nameOf(policy: ArrangeRequest['policy']): PolicyName {
  return (typeof policy === 'object' ? policy.name : policy) ?? DEFAULT_POLICY;
}

function tokensOf(turns: readonly SentTurn[]): number {
  return turns.reduce((total, { steps }) => steps.reduce((sum, { tokens }) => sum + tokens, total), 0);
}

/** Whether an error is the client's to mend; every other one is a defect of the gateway, and fails open. */
export function isBadInput(error: unknown): error is WarmpathError {
  return WarmpathError.isInstance(error) && error.status < 500;
}

/** The documents as they come, by the shortest path: no policy, no hint, no prediction. */
function inOrder(request: PromptRequest, state: TenantModel): Arrangement {
  const { documents, preamble, maxShift, warnings = [] } = request;
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
      pinned: [],
      warnings,
      fellBack: 'WARMPATH_INTERNAL',
    },
  };
}

/** All up to the question; what follows it is no part of what stands before the documents. */
function upToQuestion(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  return messages.slice(0, messages.findLastIndex(({ role }) => role === 'user') + 1);
}
