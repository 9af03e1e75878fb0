import type { ArrangeRequest, DocumentBlock } from '@warmpath/core';
import { byteChain, fingerprint, type RecalledConversation, type WorkSteps } from '@warmpath/core/internal';
import { PromptView } from '../apis/prompt-view.js';
import type { GatewayConfig } from '../config/schema.js';
import { documentLimits } from '../config/schema-server.js';
import type { ConversationMemory } from '../conversation/conversation-memory.js';
import type { SentMessages } from '../conversation/sent-messages.js';
import { type ParsedRequest, parseRequest, recordedSession } from '../intake/parse-request.js';
import { applyEdits, BodyView, isReadable, modelOf } from '../json/json-body.js';
import { type EventLoopBudget, whenReady } from '../limits/load.js';
import type { FailOpen } from '../observe/log.js';
import { traced } from '../observe/tracing.js';
import type { Call, PermuteSlots, Prompt, RecognisedRequest } from '../shapes/shapes.js';
import { replayInPlace } from './arrange-in-place.js';
import {
  type DocumentSearch,
  formedBlocks,
  mapPromptLabels,
  markedBlocks,
  mergedBlocks,
  recogniseRequest,
} from './find-documents.js';
import { type InsertedDocuments, isBadInput } from './insert-slot.js';
import type { KnownPrompts } from './known-prompts.js';
import type { ResultRewriter } from './rewrite-results.js';

/** What marks documents in a prompt. */
const MARK = Buffer.from('warmpath-documents');

/** Larger bodies are not searched for documents. */
const MAX_SEARCHED_BYTES = 4_194_304;
/** A scan looks at so many bytes while other work looks at one. */
const SCANNED_BYTES_PER_STEP = 16;

/** What a parser works with. */
export interface PromptParserParts {
  readonly config: GatewayConfig;
  readonly documents: InsertedDocuments;
  readonly memory: ConversationMemory;
  readonly sentMessages: SentMessages;
  readonly resultRewriter: ResultRewriter;
  readonly eventLoopBudget: EventLoopBudget;
  readonly failOpen: FailOpen;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  readonly knownPrompts: KnownPrompts;
}

/** What a request asks for. */
interface Asked {
  /** `undefined` for a body that has nothing for the gateway. */
  readonly parsed: ParsedRequest | undefined;
  /** Its documents and switches, checked; `undefined` where nothing is to be arranged. */
  readonly request: ArrangeRequest | undefined;
  /** The messages, where a conversation is named. */
  readonly view: PromptView | undefined;
}

type CallAndAsked = readonly [Call, Asked];

const NOTHING_ASKED: Asked = { parsed: undefined, request: undefined, view: undefined };

/**
 * Reads a request as far as the gateway has to: 1. what it asks for, 2. which conversation it continues, 3. where its
 * documents are. A body that has nothing for the gateway is not read.
 */
export class PromptParser {
  readonly #parts: PromptParserParts;

  constructor(parts: PromptParserParts) {
    this.#parts = parts;
  }

  /**
   * A defect makes a prompt in which nothing is arranged.
   *
   * @throws WarmpathError bad input, with a path; a conversation that is forgotten; a store that does not answer.
   */
  parse(call: Call): Prompt | Promise<Prompt> {
    const { report } = call.request;
    const { eventLoopBudget } = this.#parts;
    const isUnwanted = () => call.reply.raw.destroyed;
    const arrange = (sent: Call, asked: Asked) =>
      whenReady(this.#recall(sent, asked), (history) => {
        const search = this.#searchOptions(sent, asked.parsed, history);
        this.#learn(sent, asked.parsed);
        if (asked.parsed === undefined && search === undefined) return unarranged(sent, undefined, undefined);
        return traced(this.#parts, report, 'documents', () =>
          eventLoopBudget.runSteps(this.#findSlots(sent, asked, history, search), isUnwanted),
        );
      });
    try {
      const read = traced(this.#parts, report, 'read', () => this.#readRequest(call, isUnwanted));
      const prompt = whenReady(
        whenReady(read, (given) => this.#holdOut(call, given)),
        (asked) => {
          if (this.#parts.config.prices.length === 0) return arrange(call, asked);
          return whenReady(this.#withShortResults(call, asked, isUnwanted), ([sent, again]) => arrange(sent, again));
        },
      );
      return prompt instanceof Promise ? prompt.catch((error) => this.#withoutSlots(call, error)) : prompt;
    } catch (error) {
      return this.#withoutSlots(call, error);
    }
  }

  /** Bad input is the client's to mend. A defect costs the order, not the answer. */
  #withoutSlots({ body, request }: Call, error: unknown): Prompt {
    if (isBadInput(error) || isUnavailable(error)) throw error;
    this.#parts.failOpen(request.report, 'original', error);
    return { body, history: undefined, slots: undefined };
  }

  #readRequest(call: Call, isUnwanted: () => boolean): Asked | Promise<Asked> {
    const { request, api, body, translation } = call;
    const parsed = parseRequest(body, api, {
      headers: request.headers,
      caller: request.report.caller,
      original: translation && (request.body as Buffer),
    });
    if (parsed === undefined) return NOTHING_ASKED;
    return this.#parts.eventLoopBudget.runSteps(this.#readSteps(call, parsed), isUnwanted);
  }

  *#readSteps(call: Call, given: ParsedRequest): WorkSteps<Asked> {
    yield call.body.length / SCANNED_BYTES_PER_STEP;
    const isNamed = given.conversation !== undefined;
    const { parsed, view } = isNamed ? this.#asSent(call, given) : { parsed: given, view: undefined };
    const request = parsed.bypass ? undefined : yield* this.#parts.documents.readDocuments(parsed, call.tenant);
    return { parsed, request, view };
  }

  /** Earlier messages of a named conversation go out in the bytes in which they were sent before. */
  #asSent(call: Call, parsed: ParsedRequest): Pick<Asked, 'view'> & { readonly parsed: ParsedRequest } {
    const { conversation } = parsed;
    const view = PromptView.of(parsed.body, call.api);
    if (view === undefined || conversation === undefined || conversation.lacksUser || parsed.bypass)
      return { parsed, view };
    const body = this.#parts.sentMessages.asSent(view, call.tenant, conversation);
    if (body === view.body.bytes) return { parsed, view };
    const { headers, report } = call.request;
    const again = parseRequest(body, call.api, { headers, caller: report.caller, all: true })!;
    return { parsed: { ...again, conversation }, view: PromptView.of(again.body, call.api) };
  }

  /** Of a prompt that is held out, documents stay in retrieval order, without references and hints. */
  #holdOut(call: Call, asked: Asked): Asked {
    const { parsed, request } = asked;
    const { report } = call.request;
    report.isHeldOut = isHeldOut(call, parsed?.conversation, this.#parts.config.holdout);
    if (!report.isHeldOut) return asked;
    report.unmoved = 'holdout';
    return {
      ...asked,
      parsed: parsed && { ...parsed, deduplicate: false, blocks: false },
      request: request && { ...request, policy: 'retrieval', hints: false },
    };
  }

  /** The call with shortened results of tools, where its model's price asks for that, and what is read of it then. */
  #withShortResults(call: Call, asked: Asked, isUnwanted: () => boolean): CallAndAsked | Promise<CallAndAsked> {
    const { report } = call.request;
    if (asked.parsed?.bypass === true || report.isHeldOut) return [call, asked];
    const body = asked.parsed?.body.bytes ?? call.body;
    const rewritten = this.#parts.resultRewriter.rewrite({ ...call, body });
    if (rewritten === undefined) return [call, asked];
    report.rewrittenTokens = rewritten.savedTokens;
    const sent = { ...call, body: rewritten.body };
    return whenReady(this.#readRequest(sent, isUnwanted), (again): CallAndAsked => [sent, again]);
  }

  /** What the conversation's earlier turns were rendered to. `undefined` where no conversation is followed. */
  #recall(
    { request: { report }, tenant }: Call,
    { parsed, view }: Asked,
  ): RecalledConversation | undefined | Promise<RecalledConversation | undefined> {
    const { memory, failOpen, now } = this.#parts;
    if (parsed?.conversation === undefined || view === undefined) return undefined;
    const { conversation } = parsed;
    if (conversation.lacksUser) {
      const isForgotten = memory.withoutEndUser(view, conversation);
      report.conversation = isForgotten ? 'forgotten' : 'ignored';
      return undefined;
    }
    report.session = recordedSession(tenant, conversation);
    const orUnread = (error: unknown): undefined => {
      // What the engine may accept is not refused because an agent named its session.
      if (conversation.client === 'warmpath' || parsed.documents !== undefined || !isBadInput(error)) throw error;
    };
    try {
      const recalled = traced(this.#parts, report, 'conversation', () =>
        memory.recall(view, conversation, {
          tenant,
          now: now(),
          missed: (failure) => report.wentWithout({ fallback: 'conversation', reason: `store ${failure}` }),
          failed: (defect) => failOpen(report, 'conversation', defect),
        }),
      );
      const told = whenReady(recalled, (history) => {
        report.conversation = history.isForgotten ? 'forgotten' : history.sentMessages > 0 ? 'known' : 'new';
        return history;
      });
      return told instanceof Promise ? told.catch(orUnread) : told;
    } catch (error) {
      return orUnread(error);
    }
  }

  *#findSlots(
    call: Call,
    asked: Asked,
    history: RecalledConversation | undefined,
    search: DocumentSearch | undefined,
  ): WorkSteps<Prompt> {
    const { parsed } = asked;
    try {
      if (parsed?.bypass) {
        call.request.report.unmoved = 'bypass';
        return unarranged(call, parsed, history);
      }
      const hasDocuments = parsed?.documents !== undefined;
      // A conversation to which something was added goes before documents that stand in its prompt.
      const isReplayed = history?.turns.some(({ edits }) => edits.length > 0) === true;
      if (!hasDocuments && !isReplayed) {
        const body = bodyOf(call, parsed);
        const slots = search && this.#findInTexts(call, asked, body, search);
        // The next slice is that of the order and the edits.
        yield slots === undefined ? 0 : call.body.length;
        if (slots !== undefined) return { body, history, slots, labels: slots.found.mapped?.map };
        if (parsed === undefined || history === undefined || history.turns.length === 0)
          return unarranged(call, parsed, history);
      }
      return yield* this.#insertSlot(call, { ...asked, parsed: parsed! }, history, search);
    } catch (error) {
      // Without documents nothing is asked of the gateway that it could refuse.
      if (isBadInput(error) && parsed?.documents === undefined && history === undefined)
        return unarranged(call, parsed, history);
      throw error;
    }
  }

  /** Documents in the texts of a request that brings none, as far as the configuration or the request wants that. */
  #findInTexts(
    { api, tenant }: Call,
    { parsed, request }: Asked,
    body: Buffer,
    search: DocumentSearch,
  ): PermuteSlots | undefined {
    const given = recogniseRequest(body, api, search);
    if (given === undefined) return undefined;
    const found = this.#withLabels(given, tenant, search);
    const deduplicate = parsed?.deduplicate ?? true;
    const switches = request ?? this.#parts.documents.withDefaults({ documents: [] });
    return { kind: 'permute', found, switches, deduplicate, blocks: parsed?.blocks ?? false };
  }

  *#insertSlot(
    call: Call,
    { parsed, request, view: given }: Asked & { readonly parsed: ParsedRequest },
    history: RecalledConversation | undefined,
    search: DocumentSearch | undefined,
  ): WorkSteps<Prompt> {
    const { documents } = this.#parts;
    const { body } = parsed;
    const sent = search && this.#sentBefore({ ...call, body: body.bytes }, search);
    const whole = sent === undefined ? parsed : this.#withSentOrders(call, parsed, sent);
    const view = whole === parsed && given !== undefined ? given : PromptView.of(whole.body, call.api);
    if (view === undefined && parsed.documents === undefined) return unarranged(call, parsed, history);
    if (view !== undefined) yield* documents.measure(whole, view, history?.sentMessages ?? 0);
    const slots = documents.slotOf(whole, view, request!, history);
    yield call.body.length;
    return { body: body.bytes, history, slots, labels: sent?.mapped?.map };
  }

  /** Labels of messages that were sent before stay as they were; others are as the request, or its kind, wants. */
  #withLabels(found: RecognisedRequest, tenant: string, { labelsOf }: DocumentSearch): RecognisedRequest {
    return mapPromptLabels(found, { labelsOf, ordersOf: (message) => this.#parts.memory.ordersOf(tenant, message) });
  }

  /** Documents in the texts of a request that brings documents of its own: a conversation may do so after tools. */
  #sentBefore({ api, body, tenant }: Call, search: DocumentSearch): RecognisedRequest | undefined {
    const found = recogniseRequest(body, api, search);
    return found && this.#withLabels(found, tenant, search);
  }

  /** The request with documents of earlier messages as they were sent; the very same if nothing in it was changed. */
  #withSentOrders(call: Call, parsed: ParsedRequest, found: RecognisedRequest): ParsedRequest {
    const body = replayInPlace(found, { tenant: call.tenant, memory: this.#parts.memory });
    if (body === found.view.bytes) return parsed;
    const { headers, report } = call.request;
    const again = parseRequest(body, call.api, { headers, caller: report.caller, all: true })!;
    return { ...again, conversation: parsed.conversation };
  }

  /** How documents in the texts are looked for; `undefined` where they are not. O(body), a native search. */
  #searchOptions(
    { body, tenant, request: { report } }: Call,
    parsed: ParsedRequest | undefined,
    history: RecalledConversation | undefined,
  ): DocumentSearch | undefined {
    const { config, knownPrompts } = this.#parts;
    const { recognise, server, upstream } = config;
    if (parsed?.bypass === true || report.isHeldOut) return undefined;
    if (recognise === 'off' || body.length > MAX_SEARCHED_BYTES) return undefined;
    const isMarked = body.includes(MARK);
    const refersToParts = parsed?.blocks === true;
    const refers = parsed?.deduplicate ?? (refersToParts || recognise === 'auto');
    if (!isMarked && !refers && !knownPrompts.mayFind(tenant, recognise)) return undefined;
    if (!isReadable(body)) return undefined;
    const maxDocuments = documentLimits(server).documents;
    const mapped = new Set<DocumentBlock>();
    const name = history && [history.tenant, history.user ?? null, history.session];
    return {
      labelsOf: (block) => parsed?.labels ?? (mapped.has(block) ? 'mapped' : 'kept'),
      markerKey: recognise === 'auto' ? JSON.stringify([upstream.cacheSaltKey ?? null, ...(name ?? [])]) : undefined,
      find: (texts) => {
        const marked = isMarked ? markedBlocks(texts) : [];
        const allowed = knownPrompts.find(tenant, texts, recognise);
        for (const { block, labels } of allowed) if (labels === 'mapped') mapped.add(block);
        const movable = mergedBlocks(
          marked,
          allowed.map(({ block }) => block),
        );
        const formed = refers ? formedBlocks(texts, { refersToParts }).map(withoutConsent) : [];
        return mergedBlocks(movable, formed).filter(({ documents }) => documents.length <= maxDocuments);
      },
    };
  }

  /** Learns behind the request, which does not wait for it. */
  #learn({ api, body, tenant }: Call, parsed: ParsedRequest | undefined): void {
    const { config, knownPrompts } = this.#parts;
    if (config.recognise === 'off' || parsed?.bypass === true || parsed?.documents !== undefined) return;
    knownPrompts.learn({ tenant, api, body });
  }
}

/** Documents that may be referred to and not moved. */
function withoutConsent(block: DocumentBlock): DocumentBlock {
  return { ...block, fixed: 'not-allowed' };
}

/** The model of an unread body; empty for one that cannot be read. O(body). */
export function modelIn({ body }: { readonly body: Buffer }): string {
  try {
    return modelOf(new BodyView(body));
  } catch {
    return '';
  }
}

/** The client's bytes, without the gateway's own fields. */
function bodyOf({ body }: Call, parsed: ParsedRequest | undefined): Buffer {
  return parsed === undefined ? body : applyEdits(parsed.body.bytes, parsed.ownFields);
}

function unarranged(call: Call, parsed: ParsedRequest | undefined, history: RecalledConversation | undefined): Prompt {
  return { body: bodyOf(call, parsed), history, slots: undefined };
}

function isUnavailable(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === 'WARMPATH_STORE_UNAVAILABLE';
}

const HASH_DIGITS = 8;
const HASHES = 16 ** HASH_DIGITS;

/**
 * Whether a prompt belongs to the group that is left as it is, to compare with. All turns of a conversation are in one
 * group: by its name, or else by the first words of its user. Every gateway decides the same. O(body).
 */
function isHeldOut(call: Call, conversation: ParsedRequest['conversation'], share: number): boolean {
  if (share === 0) return false;
  const { session, user } = conversation ?? {};
  const name = session === undefined ? firstMessage(call) : JSON.stringify([user ?? null, session]);
  return Number.parseInt(fingerprint([call.tenant, name]).slice(0, HASH_DIGITS), 16) < share * HASHES;
}

/** A hash of the first message of the user; of what the request has instead, where it has none. */
function firstMessage({ body, api }: Call): string {
  try {
    const view = new BodyView(body);
    const prompt = PromptView.of(view, api);
    const place = prompt?.elements.findIndex((_, at) => prompt.isText || prompt.roleAt(at) === 'user') ?? -1;
    const first = prompt?.elements[Math.max(0, place)] ?? view.value('prompt');
    return first === undefined ? '' : byteChain(view.bytes, [first])[0]!;
  } catch {
    // What cannot be read is the engine's to refuse.
    return '';
  }
}
