import {
  type Arrangement,
  type ArrangeRequest,
  arrange as arrangeByPolicy,
  byteChain,
  type ChatEdit,
  type ChatMessage,
  chatEdits,
  chatPreamble,
  chatTokens,
  completionPreamble,
  DEFAULT_POLICY,
  type Document,
  estimateTokens,
  estimateTokensOfBytes,
  type LayoutName,
  NOTHING_VISIBLE,
  type Preamble,
  type RecalledHistory,
  recordTurn,
  renderHint,
  repeatedOrder,
  repeatedTurn,
  type SentTurn,
  shownBlocks,
  suppliedHash,
  turnEdits,
  turnPreamble,
  WarmpathError,
  type WorkSteps,
} from '@warmpath/core';
import type { GatewayConfig } from '../config/schema.js';
import { mayBeReused } from '../engines/kv-residency.js';
import type { BodyView } from '../intake/body-view.js';
import { applyEdits, type ByteEdit } from '../intake/json-scanner.js';
import type { ParsedRequest } from '../intake/parse-request.js';
import { invalid, PromptView, type ViewedMessages } from '../intake/prompt-view.js';
import { SLICE_SIZE } from '../intake/work-slices.js';
import type { Fallback } from '../observe/exchange.js';
import type { TenantModel } from '../observe/served-histories.js';
import {
  type BreakpointPlaces,
  breakpointRoom,
  breakpointRule,
  placeBreakpoints,
} from '../render/cache-breakpoints.js';
import { DOCUMENTS_PLACE, type DocumentsText, escaped, insertDocuments, PLAIN } from '../render/insert-documents.js';
import { prefillBody } from '../render/prefill.js';
import { DocumentCache } from './document-cache.js';

/** How `arrange` is called; a test puts a failing one in its place. */
export type Arrange = typeof arrangeByPolicy;

/**
 * A request whose documents are put into its prompt, or that continues a conversation with such documents, before its
 * order is decided.
 */
export interface InsertedRequest {
  readonly kind: 'inserted';
  readonly parsed: ParsedRequest;
  /** `undefined` for a plain completion. */
  readonly prompt: PromptView | undefined;
  readonly viewed: ViewedMessages;
  readonly request: ArrangeRequest & { readonly preamble: Preamble };
  /** What earlier turns were rendered to; of a request without a conversation, nothing. */
  readonly history: RecalledHistory;
  /** Whether the turn is to be remembered. */
  readonly isNamed: boolean;
  /**
   * What is asked (core's `suppliedHash`), and the same turn, where it was sent before: it goes out as it did then.
   */
  readonly supplied: string;
  readonly repeated: SentTurn | undefined;
  /** As a plain prompt has it. */
  readonly keepFound?: (() => void) | undefined;
}

/** A prompt whose order is decided: what changes in the client's bytes, and what is remembered of it. */
export interface ArrangedInsertion {
  readonly edits: readonly ByteEdit[];
  readonly arrangement: Arrangement;
  /** `undefined` where no conversation is named. */
  readonly turn: SentTurn | undefined;
  /** The whole prompt, in estimated tokens. */
  readonly estimatedTokens: number;
  readonly fallback: Fallback | undefined;
  /** What went wrong, if something did. */
  readonly defect: unknown;
}

const NO_HISTORY: RecalledHistory = {
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
 * Documents that a request brings beside its messages: decides their order and puts them into the prompt. Pure but for
 * the policy's view and `now`.
 */
export class InsertedDocuments {
  /** Core's `arrange`, or what stands in for it. */
  readonly #arrange: Arrange;
  readonly cache: DocumentCache;
  readonly #config: GatewayConfig;

  constructor(config: GatewayConfig, cacheBytes: number, arrange: Arrange = arrangeByPolicy) {
    this.#config = config;
    this.#arrange = arrange;
    const { limits } = config;
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
    const { policy, hints, maxShift, shiftPrice } = this.#config.arrange;
    return { policy, hints, shiftPrice, ...(maxShift !== undefined && { maxShift }), ...request };
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
    history: RecalledHistory | undefined,
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
    const asked = {
      ...request,
      visible: known.visible,
      deduplicate,
      ...(looksAtParts && { shown: shownBlocks(known, prompt.view(0).messages, arrange) }),
    };
    const supplied = history === undefined ? '' : suppliedHash(asked, arrange, promptScope(parsed));
    const repeated = history === undefined ? undefined : repeatedTurn(known, supplied);
    const preamble = this.preamble(parsed, messages, known);
    const policy = repeated === undefined ? asked.policy : repeatedOrder(repeated, nameOf(asked.policy));
    return {
      kind: 'inserted',
      parsed,
      prompt,
      viewed,
      request: { ...asked, preamble, ...(policy !== undefined && { policy }) },
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
  decide(asked: InsertedRequest, request: InsertedRequest['request'], state: TenantModel, now: number) {
    try {
      return this.#render(asked, this.arrange(request, state, now), state);
    } catch (error) {
      if (isBadInput(error)) throw error;
      const anew = { ...asked, repeated: undefined };
      return { ...this.#render(anew, inOrder(request, state), state), fallback: 'retrieval' as const, defect: error };
    }
  }

  /**
   * Reads and measures what `preamble` would, in steps, where that is long: the messages from `sent` on, and tools.
   * Errors: those of `PromptView.view`.
   */
  *measure(request: ScopedRequest, prompt: PromptView, sent: number): WorkSteps<void> {
    yield* prompt.read(sent);
    const size = request.body.bytes.length / 2;
    if (size < SLICE_SIZE) return;
    promptScope(request);
    yield size;
    toolTokens(request.body);
    yield size;
  }

  /** What stands before the documents. */
  preamble(request: ScopedRequest, messages: readonly ChatMessage[], history: RecalledHistory = NO_HISTORY): Preamble {
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

  /**
   * The body that prefills a path behind a served request's preamble: its documents and an empty question. It is a
   * prefix of every prompt that begins with these documents, up to what the chat template writes behind the user's
   * text.
   */
  prefill(parsed: ParsedRequest, path: readonly Document[], state: TenantModel): Buffer {
    const { arrange } = this.#config;
    const body = prefillBody(parsed.body, parsed.api, arrange.layout);
    const arrangement = inOrder({ documents: path }, state);
    const prompt = PromptView.of(body, parsed.api);
    if (prompt === undefined) {
      return applyEdits(body.bytes, this.#renderCompletion({ parsed: { ...parsed, body } }, arrangement).edits);
    }
    const viewed = prompt.view(0);
    const edits = chatEdits(viewed.messages, arrangement, { ...arrange, documentsText: DOCUMENTS_PLACE });
    const places = this.#breakpoints({ parsed, prompt, viewed }, arrangement, { isTurn: true, state });
    const text = this.#documentsText(parsed, path, { isTurn: true, places });
    return applyEdits(body.bytes, insertDocuments(prompt, viewed, edits, text, places?.marks));
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

  #render(asked: InsertedRequest, arrangement: Arrangement, state: TenantModel): ArrangedInsertion {
    const { fellBack } = arrangement.trace;
    const isFallback = {
      fallback: fellBack && ('retrieval' as const),
      defect: fellBack && new WarmpathError(fellBack),
    };
    return asked.prompt === undefined
      ? { ...this.#renderCompletion(asked, arrangement), ...isFallback }
      : { ...this.#renderChat(asked, asked.prompt, arrangement, state), ...isFallback };
  }

  #renderChat(
    { parsed, viewed, history, isNamed, supplied, repeated }: InsertedRequest,
    prompt: PromptView,
    arrangement: Arrangement,
    state: TenantModel,
  ) {
    const { arrange } = this.#config;
    const { messages } = viewed;
    const own = turnEdits(history, messages, arrangement, { ...arrange, documentsText: DOCUMENTS_PLACE });
    const isOther = repeated !== undefined && !isSameTurn(repeated, arrangement, own);
    const edits = [...history.turns.flatMap((turn) => turn.edits), ...(isOther ? repeated.edits : own)];
    const places = this.#breakpoints({ parsed, prompt, viewed }, arrangement, { isTurn: isNamed, state });
    const text = this.#documentsText(parsed, arrangement.documents, { isTurn: isNamed, places });
    const turn = !isNamed
      ? undefined
      : (repeated ??
        recordTurn(
          { history, messages, arrangement, supplied },
          turnEdits(history, messages, arrangement, arrange),
          arrange,
        ));
    return {
      edits: insertDocuments(prompt, viewed, edits, text, places?.marks),
      arrangement,
      turn,
      estimatedTokens:
        turn === undefined
          ? estimatePrompt(messages, arrangement, arrange.layout)
          : tokensOf([...history.turns, turn]) + turn.tail,
    };
  }

  #renderCompletion({ parsed }: Pick<InsertedRequest, 'parsed'>, arrangement: Arrangement) {
    const { arrange, upstream } = this.#config;
    const { scan } = parsed.body;
    const prompt = parsed.body.value('prompt')!;
    const at = prompt.start + 1;
    const hint = renderHint(arrangement, arrange.template, arrange.wording);
    const groups = arrangement.documents.map((document) => this.cache.rendered(document));
    const edits: ByteEdit[] = [{ start: at, end: at, pieces: [...groups, escaped(hint)] }];
    if (upstream.segments) edits.push(parsed.body.with('segments', JSON.stringify(documentEnds(groups))));
    const tokens = arrangement.documents.reduce((sum, document) => sum + document.tokens, 0);
    return {
      edits,
      arrangement,
      turn: undefined,
      estimatedTokens:
        tokens +
        (hint === '' ? 0 : estimateTokens(hint)) +
        estimateTokensOfBytes(scan.bytes.subarray(prompt.start, prompt.end)),
    };
  }

  /** Where the prompt is to be cached up to; `undefined` where the engine needs no word of it, or has no room. */
  #breakpoints(
    {
      parsed,
      prompt,
      viewed,
    }: { readonly parsed: ParsedRequest; readonly prompt: PromptView; readonly viewed: ViewedMessages },
    arrangement: Arrangement,
    { isTurn, state }: { readonly isTurn: boolean; readonly state: TenantModel },
  ): BreakpointPlaces | undefined {
    const { cacheBreakpoints } = this.#config.upstream;
    const rule = breakpointRule(state.engine.dialect, { api: parsed.api.name, model: parsed.model, cacheBreakpoints });
    if (rule === undefined || prompt.isText) return undefined;
    const room = breakpointRoom(rule, parsed.body);
    if (room < 1) return undefined;
    return placeBreakpoints(rule, room, {
      prompt,
      viewed,
      arrangement,
      // What is replayed in later turns has no cuts: a conversation's cache is found again at the ends of its messages
      // only.
      isTurn,
      tree: state.history.tree,
      tokensBefore: toolTokens(parsed.body),
    });
  }

  /**
   * The documents as the engine is to see where they end: each by itself (`segments`, or where breakpoints stand
   * between them), or all in one.
   */
  #documentsText(
    { api }: ParsedRequest,
    documents: readonly Document[],
    { isTurn, places }: { readonly isTurn: boolean; readonly places: BreakpointPlaces | undefined },
  ): DocumentsText {
    if (documents.length === 0) return PLAIN;
    const groups = documents.map((document) => this.cache.rendered(document));
    if (places !== undefined) return { groups, isCut: !isTurn, marked: places.documents };
    return { groups, isCut: this.#config.upstream.segments && api.name === 'chat', marked: PLAIN.marked };
  }
}

/**
 * What decides the prompt's beginning beside the messages: model, and hashes of tools and the like as the client wrote
 * them. O(their length).
 */
function promptScope({ api, model, body }: ScopedRequest): string {
  const known = scopes.get(body);
  if (known !== undefined) return known;
  const parts = [modelScope(model)];
  for (const field of api.promptFields) {
    const value = body.value(field);
    if (value !== undefined) parts.push(`${field}:${byteChain(body.bytes, [value])[0]}`);
  }
  const scope = parts.join('\n');
  scopes.set(body, scope);
  return scope;
}

/** The scope of a prompt that has nothing else in front of its messages. */
function modelScope(model: string): string {
  return JSON.stringify(model);
}

type ScopedRequest = Pick<ParsedRequest, 'api' | 'model' | 'body'>;

/** For as long as the body is held. */
const scopes = new WeakMap<BodyView, string>();
const tokensOfTools = new WeakMap<BodyView, number>();

/** Tokens of the tools, estimated; none without any. O(their length), once for a body. */
function toolTokens(body: BodyView): number {
  const tools = body.value('tools');
  if (tools === undefined) return 0;
  let tokens = tokensOfTools.get(body);
  if (tokens === undefined) {
    tokens = estimateTokensOfBytes(body.bytes.subarray(tools.start, tools.end));
    tokensOfTools.set(body, tokens);
  }
  return tokens;
}

/** Whether an error is the client's to mend; every other one is a defect of the gateway, and fails open. */
export function isBadInput(error: unknown): error is WarmpathError {
  return WarmpathError.isInstance(error) && error.status < 500;
}

/** Whether a turn that was sent is what these edits make of the same documents: then its text is known as bytes. */
function isSameTurn(sent: SentTurn, { documents }: Arrangement, edits: readonly ChatEdit[]): boolean {
  return (
    documents.every(({ label }, place) => label === sent.order[place]) &&
    edits.length === sent.edits.length &&
    edits.every(({ at, add, text }, place) => {
      const known = sent.edits[place]!;
      const behind = text.startsWith(DOCUMENTS_PLACE) ? text.slice(DOCUMENTS_PLACE.length) : text;
      return at === known.at && add === known.add && known.text.endsWith(behind);
    })
  );
}

function nameOf(policy: ArrangeRequest['policy']): string {
  return (typeof policy === 'object' ? policy.name : policy) ?? DEFAULT_POLICY;
}

function tokensOf(turns: readonly SentTurn[]): number {
  return turns.reduce((total, { steps }) => steps.reduce((sum, { tokens }) => sum + tokens, total), 0);
}

/**
 * Tokens of the whole prompt, estimated: what stands before the documents, the documents, the hint, and what comes
 * after.
 */
function estimatePrompt(messages: readonly ChatMessage[], arrangement: Arrangement, layout: LayoutName): number {
  let tokens = arrangement.preamble?.tokens ?? 0;
  for (const document of arrangement.documents) tokens += document.tokens;
  if (arrangement.hint !== undefined) tokens += estimateTokens(arrangement.hint.labels.join(', '));
  return tokens + chatTokens(messagesAfterDocuments(messages, layout));
}

function messagesAfterDocuments(messages: readonly ChatMessage[], layout: LayoutName): readonly ChatMessage[] {
  if (layout !== 'system') return messages.slice(messages.findLastIndex(({ role }) => role === 'user'));
  return messages.slice(messages.findIndex(({ role }) => role === 'system' || role === 'developer') + 1);
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

/** Places in a completion's prompt, in UTF-16 code units, at which the documents in front of it end. O(length). */
function documentEnds(rendered: readonly Buffer[]): readonly number[] {
  let end = 0;
  return rendered.map((json) => {
    end += (JSON.parse(`"${json.toString()}"`) as string).length;
    return end;
  });
}
