import {
  type Arrangement,
  type ArrangeRequest,
  type ChatMessage,
  type Document,
  estimateTokens,
  type LayoutName,
  renderHint,
} from '@warmpath/core';
import type { SentTurn } from '@warmpath/core/internal';
import {
  type ChatEdit,
  chatTokens,
  estimateTokensOfBytes,
  plainTurn,
  recordTurn,
  turnEdits,
} from '@warmpath/core/internal';
import type { PromptApi } from '../apis/prompt-api.js';
import { PromptView, toolTokens, type ViewedMessages } from '../apis/prompt-view.js';
import type { GatewayConfig } from '../config/schema.js';
import type { ParsedRequest } from '../intake/parse-request.js';
import { applyEdits, BodyView, type ByteEdit, escaped } from '../json/json-body.js';
import type { DocumentCache } from '../memory/document-cache.js';
import type { TenantModel } from '../memory/served-histories.js';
import type { Decision, InsertSlot, Prompt, Sent } from '../shapes/shapes.js';
import { permuted } from './arrange-in-place.js';
import { type BreakpointPlaces, breakpointRoom, breakpointRule, placeBreakpoints } from './cache-breakpoints.js';
import { DOCUMENTS_PLACE, type DocumentsText, insertDocuments, PLAIN } from './insert-documents.js';

/** Writes the body for the engine: edits of the client's bytes, where documents stand in the order that was decided. */
export class PromptRenderer {
  readonly #config: GatewayConfig;
  readonly #cache: DocumentCache;

  constructor(config: GatewayConfig, cache: DocumentCache) {
    this.#config = config;
    this.#cache = cache;
  }

  /** O(prompt). */
  render({ history, slots, labels }: Prompt, { state, arrangements, placed }: Decision): Sent {
    if (slots?.kind === 'insert')
      return { ...this.#insert(slots, history !== undefined, arrangements[0]!, state!), labels };
    const { changes, estimatedTokens } = placed!;
    const turn = history && { history, sent: plainTurn(history) };
    return { body: permuted(slots!.found, changes), estimatedTokens, labels, turn };
  }

  #insert(slot: InsertSlot, isNamed: boolean, arrangement: Arrangement, state: TenantModel): Omit<Sent, 'labels'> {
    const { parsed, view, history } = slot;
    const { edits, turn, estimatedTokens } =
      view === undefined
        ? this.#renderCompletion(slot, arrangement)
        : this.#renderChat(slot, { view, isNamed, arrangement, state });
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
      arrangement,
      state,
    }: {
      readonly view: PromptView;
      readonly isNamed: boolean;
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
    const places = this.#breakpoints({ parsed, prompt: view, viewed }, arrangement, { isTurn: isNamed, state });
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

/**
 * What would make a request more than the prefill of a prompt, or is none of the engine's business: members to leave
 * out.
 */
const NO_MORE_THAN_PREFILL: ReadonlySet<string> = new Set([
  'documents',
  'warmpath',
  'stream',
  'stream_options',
  'background',
  'n',
  'max_tokens',
  'max_completion_tokens',
  'max_output_tokens',
  'min_tokens',
]);

const EMPTY_QUESTION = '{"role":"user","content":""}';

/**
 * The body that prefills what stands before a question: the messages up to there, a user's message that has just begun,
 * and the least answer that every engine gives. O(body), native.
 */
export function prefillBody(body: BodyView, api: PromptApi, layout: LayoutName): BodyView {
  const { field, least } = api.answerLimit;
  const prompt = PromptView.of(body, api);
  const left = new Set(NO_MORE_THAN_PREFILL);
  left.delete(field);
  const edits = [...body.without(left), body.with(field, String(least))];
  if (prompt === undefined) edits.push(body.with('prompt', '""'));
  else {
    const span = body.value(prompt.members.messages)!;
    edits.push({ ...span, pieces: ['[', ...beforeQuestion(prompt, layout), EMPTY_QUESTION, ']'] });
  }
  return new BodyView(applyEdits(body.bytes, edits));
}

/** JSON of the messages before the last question; up to the system prompt, where documents stand behind that. */
function beforeQuestion(prompt: PromptView, layout: LayoutName): readonly (Buffer | string)[] {
  const { elements, body } = prompt;
  const roles = elements.map((_, place) => prompt.roleAt(place));
  const system = roles.findIndex((role) => role === 'system' || role === 'developer');
  const question = roles.lastIndexOf('user');
  const end = layout === 'system' ? system + 1 : question < 0 ? elements.length : question;
  return end === 0 ? [] : [body.bytes.subarray(elements[0]!.start, elements[end - 1]!.end), ','];
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
