import { createHmac } from 'node:crypto';
import {
  type Arrangement,
  type ArrangeRequest,
  type ChatMessage,
  type Document,
  estimateTokens,
  type LayoutName,
  renderHint,
} from '@warmpath/core';
import {
  type ChatEdit,
  chatTokens,
  estimateTokensOfBytes,
  type KnowledgeTreeView,
  plainTurn,
  recordTurn,
  type SentTurn,
  turnEdits,
} from '@warmpath/core/internal';
import { type ApiName, OPENING, type PromptView, toolTokens, type ViewedMessages } from '../apis/prompt-view.js';
import type { GatewayConfig } from '../config/schema.js';
import { type BreakpointRule, type Dialect, leastMarked } from '../dialects/dialects.js';
import type { ParsedRequest } from '../intake/parse-request.js';
import { applyEdits, BodyView, type ByteEdit, escaped } from '../json/json-body.js';
import type { ByteSpan } from '../json/json-scanner.js';
import type { DocumentCache } from '../memory/document-cache.js';
import type { TenantModel } from '../memory/served-histories.js';
import type { Decision, InsertSlot, Prompt, Sent } from '../shapes/shapes.js';
import { permuted } from './arrange-in-place.js';
import {
  type BreakpointMarks,
  DOCUMENTS_PLACE,
  type DocumentsText,
  insertDocuments,
  PLAIN,
} from './insert-documents.js';

/** Writes the body for the engine: edits of the client's bytes, where documents stand in the order that was decided. */
export class PromptRenderer {
  readonly #config: GatewayConfig;
  readonly #cache: DocumentCache;

  constructor(config: GatewayConfig, cache: DocumentCache) {
    this.#config = config;
    this.#cache = cache;
  }

  /** `marks`: whether the gateway adds cache breakpoints where the engine needs them. O(prompt). */
  render({ history, slots, labels }: Prompt, { state, arrangements, placed }: Decision, marks = true): Sent {
    if (slots?.kind === 'insert') {
      return { ...this.#insert(slots, arrangements[0]!, state!, { isNamed: history !== undefined, marks }), labels };
    }
    const { changes, estimatedTokens } = placed!;
    const turn = history && { history, sent: plainTurn(history) };
    return { body: permuted(slots!.found, changes), estimatedTokens, labels, turn };
  }

  #insert(
    slot: InsertSlot,
    arrangement: Arrangement,
    state: TenantModel,
    { isNamed, marks }: { readonly isNamed: boolean; readonly marks: boolean },
  ): Omit<Sent, 'labels'> {
    const { parsed, view, history } = slot;
    const { edits, turn, estimatedTokens } =
      view === undefined
        ? this.#renderCompletion(slot, arrangement)
        : this.#renderChat(slot, { view, isNamed, marks, arrangement, state });
    return {
      body: applyEdits(parsed.body.bytes, [...parsed.ownFields, ...edits]),
      estimatedTokens,
      turn: turn && { history, sent: turn },
    };
  }

  #renderChat(
    { parsed, viewed, history, supplied, repeated }: InsertSlot,
    {
      view,
      isNamed,
      marks,
      arrangement,
      state,
    }: {
      readonly view: PromptView;
      readonly isNamed: boolean;
      readonly marks: boolean;
      readonly arrangement: Arrangement;
      readonly state: TenantModel;
    },
  ) {
    const { arrange } = this.#config;
    const { layout, template } = arrange;
    const { messages } = viewed;
    const options = { layout, template, documentsText: DOCUMENTS_PLACE };
    const own = turnEdits(history, messages, arrangement, options);
    const isOther = repeated !== undefined && !isSameTurn(repeated, arrangement, own);
    const edits = [...history.turns.flatMap((turn) => turn.edits), ...(isOther ? repeated.edits : own)];
    const places = marks
      ? this.#breakpoints({ parsed, prompt: view, viewed }, arrangement, { isTurn: isNamed, state })
      : undefined;
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
      edits: insertDocuments(view, viewed, edits, text, places?.marks),
      turn,
      estimatedTokens:
        turn === undefined
          ? estimatePrompt(messages, arrangement, arrange.layout)
          : tokensOf([...history.turns, turn]) + turn.tail,
    };
  }

  #renderCompletion({ parsed }: Pick<InsertSlot, 'parsed'>, arrangement: Arrangement) {
    const { arrange, upstream } = this.#config;
    const { scan } = parsed.body;
    const prompt = parsed.body.value('prompt')!;
    const at = prompt.start + 1;
    const hint = renderHint(arrangement, arrange.template);
    const groups = arrangement.documents.map((document) => this.#cache.rendered(document));
    const edits: ByteEdit[] = [{ start: at, end: at, pieces: [...groups, escaped(hint)] }];
    if (upstream.dialect === 'embedded') edits.push(parsed.body.with('segments', JSON.stringify(documentEnds(groups))));
    const tokens = arrangement.documents.reduce((sum, document) => sum + document.tokens, 0);
    return {
      edits,
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
    const rule = breakpointRule(state.engine.dialect, { api: parsed.api.name, model: parsed.model });
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
    const groups = documents.map((document) => this.#cache.rendered(document));
    if (places !== undefined) return { groups, isCut: !isTurn, marked: places.documents };
    return { groups, isCut: this.#config.upstream.dialect === 'embedded' && api.name === 'chat', marked: PLAIN.marked };
  }
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

/** Places in a completion's prompt, in UTF-16 code units, at which the documents in front of it end. O(length). */
function documentEnds(rendered: readonly Buffer[]): readonly number[] {
  let end = 0;
  return rendered.map((json) => {
    end += (JSON.parse(`"${json.toString()}"`) as string).length;
    return end;
  });
}

/** The documents as they come: no policy, no hint, no prediction. */
export function inRetrievalOrder(request: ArrangeRequest, state: TenantModel): Arrangement {
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

const FIELD = 'cache_salt';

/**
 * Keeps tenants apart in the engine's cache: every body gets a `cache_salt` that only this key and the tenant give, so
 * that nobody can learn from cached tokens or from the time what another tenant has sent. A client's own salt is mixed
 * into it: it separates within the tenant and never reaches another's.
 */
export class CacheSalts {
  readonly #key: string;

  /** @param key The secret. Gateways in front of the same engine must have the same one, to share its cache. */
  constructor(key: string) {
    this.#key = key;
  }

  /**
   * A request's body with the salt, also where the key stands there twice. Cost: a scan of the body.
   *
   * @throws WarmpathError `WARMPATH_INVALID_JSON`, `WARMPATH_BODY_TOO_COMPLEX`: no body goes out without its salt.
   */
  salted(bytes: Buffer, tenant: string): Buffer {
    const body = new BodyView(bytes);
    const span = body.value(FIELD);
    const own = span === undefined || body.scan.isNull(span) ? null : body.scan.text(span);
    const digest = createHmac('sha256', this.#key)
      .update(JSON.stringify([tenant, own]))
      .digest('base64url');
    const salt = `"${digest}"`;
    if (span === undefined) return applyEdits(bytes, [body.with(FIELD, salt)]);
    const given = body.members.filter(({ key }) => key === FIELD);
    return applyEdits(
      bytes,
      given.map(({ valueStart, end }) => ({ start: valueStart, end, pieces: [salt] })),
    );
  }
}

/** A prompt that gets breakpoints. */
interface MarkedPrompt {
  readonly prompt: PromptView;
  readonly viewed: ViewedMessages;
  readonly arrangement: Arrangement;
  /** Whether it is a turn of a named conversation: its documents are one text with the question. */
  readonly isTurn: boolean;
  /** What was served before. */
  readonly tree: KnowledgeTreeView;
  /** Estimated tokens in front of the messages. */
  readonly tokensBefore: number;
}

/** Where breakpoints go. */
export interface BreakpointPlaces {
  readonly marks: BreakpointMarks;
  /** Documents that end in one, by their places in the prompt. */
  readonly documents: ReadonlySet<number>;
}

/** How requests of an API to such an engine say up to where they are to be cached; `undefined` where they need not. */
export function breakpointRule(
  { breakpoints }: Dialect,
  { api, model }: { readonly api: ApiName; readonly model: string },
): BreakpointRule | undefined {
  if (!breakpoints?.apis.includes(api) || breakpoints.models?.test(model) === false) return undefined;
  return { ...breakpoints, least: leastMarked(breakpoints, model) };
}

/** Breakpoints that may be added to those that the client set itself. O(body), native. */
function breakpointRoom({ key, most, implicit }: BreakpointRule, body: BodyView): number {
  const set = new RegExp(`"${key}"\\s*:\\s*\\{`, 'g');
  let own = body.raw(key)?.startsWith('{') ? 1 : 0;
  for (const field of ['tools', 'system', 'messages', 'input']) own += body.raw(field)?.match(set)?.length ?? 0;
  if (implicit !== undefined && (body.parse(implicit) as { mode?: unknown } | undefined)?.mode !== 'explicit') own++;
  return most - own;
}

/**
 * Chooses what to mark, at most `room` places: the end of all documents, which the same documents find again; the end
 * of the system prompt, which every request shares; the end of the path that was served before; and other ends on that
 * path from which requests went different ways, by the tokens that they shared. Nothing is marked before the prompt is
 * as long as the engine caches at all. O(documents + system prompt).
 */
function placeBreakpoints(
  { member, least }: BreakpointRule,
  room: number,
  prompt: MarkedPrompt,
): BreakpointPlaces | undefined {
  const { arrangement } = prompt;
  const ends = endsOf(arrangement);
  const last = ends.length - 1;
  const documents = new Set<number>();
  if (last >= 0 && ends[last]! >= least) documents.add(last);
  const message = documents.size < room ? systemMessage(prompt, least) : undefined;
  let left = room - documents.size - Number(message !== undefined);
  for (const place of prompt.isTurn ? [] : junctions(prompt)) {
    if (left <= 0) break;
    if (documents.has(place) || ends[place]! < least) continue;
    documents.add(place);
    left--;
  }
  if (documents.size === 0 && message === undefined) return undefined;
  return { marks: { member, message }, documents };
}

/** Estimated tokens of the prompt up to the end of each document. */
function endsOf({ preamble, documents }: Arrangement): number[] {
  let end = preamble?.tokens ?? 0;
  return documents.map(({ tokens }) => {
    end += tokens;
    return end;
  });
}

/** The system prompt, if it opens the prompt and is long enough with what stands before it. */
function systemMessage({ prompt, viewed, tokensBefore }: MarkedPrompt, least: number): number | undefined {
  const origin = viewed.origins[0];
  if (origin === undefined) return undefined;
  const span = origin.place === OPENING ? openingOf(prompt) : systemElement(prompt, origin.place);
  if (span === undefined) return undefined;
  const tokens = estimateTokensOfBytes(prompt.body.bytes.subarray(span.start, span.end));
  return tokensBefore + tokens >= least ? 0 : undefined;
}

/** Of OpenAI's Responses, the opening is a text that cannot be marked. */
function openingOf({ members, opening }: PromptView): ByteSpan | undefined {
  return members.opening === 'system' ? opening : undefined;
}

function systemElement(prompt: PromptView, place: number): ByteSpan | undefined {
  const role = prompt.roleAt(place);
  return role === 'system' || role === 'developer' ? prompt.elements[place] : undefined;
}

/** Places behind which requests went different ways, the most worthwhile first: this one's own comes before all. */
function junctions({ arrangement, tree }: MarkedPrompt): number[] {
  const { preamble, documents, trace } = arrangement;
  const before = preamble === undefined ? 0 : (preamble.steps?.length ?? 0) + 1;
  const keys = [...(preamble?.steps ?? []).map(({ key }) => key), ...(preamble === undefined ? [] : [preamble.key])];
  const hits = tree.hitsAlong([...keys, ...documents.map(({ key }) => key)]).slice(before);
  const own = trace.cachedDocuments - 1;
  let tokens = preamble?.tokens ?? 0;
  const worth = hits.map((along, place) => {
    tokens += documents[place]!.tokens;
    return tokens * (along - (hits[place + 1] ?? 0));
  });
  const places = [...hits.keys()].filter((place) => worth[place]! > 0 || place === own);
  return places.sort((a, b) => Number(b === own) - Number(a === own) || worth[b]! - worth[a]! || a - b);
}
