import {
  type Arrangement,
  type ArrangeRequest,
  type ChatMessage,
  type Document,
  estimateTokens,
  type LayoutName,
  type Preamble,
  renderHint,
  type SentTurn,
  WarmpathError,
} from '@warmpath/core';
import {
  type ChatEdit,
  chatEdits,
  chatTokens,
  estimateTokensOfBytes,
  type RecalledConversation,
  recordTurn,
  turnEdits,
} from '@warmpath/core/internal';
import { PromptView, toolTokens, type ViewedMessages } from '../apis/prompt-view.js';
import type { GatewayConfig } from '../config/schema.js';
import type { ParsedRequest } from '../intake/parse-request.js';
import { applyEdits, type ByteEdit, escaped } from '../json/json-scanner.js';
import type { DocumentCache } from '../memory/document-cache.js';
import type { TenantModel } from '../memory/served-histories.js';
import type { Fallback } from '../observe/exchange.js';
import { type BreakpointPlaces, breakpointRoom, breakpointRule, placeBreakpoints } from './cache-breakpoints.js';
import { DOCUMENTS_PLACE, type DocumentsText, insertDocuments, PLAIN } from './insert-documents.js';
import { prefillBody } from './prefill.js';

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
  readonly history: RecalledConversation;
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

/** Puts documents into prompts, in the order that was decided. */
export class InsertedPrompts {
  readonly #config: GatewayConfig;
  readonly #cache: DocumentCache;

  constructor(config: GatewayConfig, cache: DocumentCache) {
    this.#config = config;
    this.#cache = cache;
  }

  /** What changes in the body where documents stand in this order, and what is to be remembered of that. O(prompt). */
  render(asked: InsertedRequest, arrangement: Arrangement, state: TenantModel): ArrangedInsertion {
    const { fellBack } = arrangement.trace;
    const { edits, turn, estimatedTokens } =
      asked.prompt === undefined
        ? this.#renderCompletion(asked, arrangement)
        : this.#renderChat(asked, asked.prompt, arrangement, state);
    const fallback = fellBack && ('retrieval' as const);
    const defect = fellBack && new WarmpathError(fellBack);
    return { edits, arrangement, turn, estimatedTokens, fallback, defect };
  }

  /**
   * The body that prefills these documents behind a served request's preamble, with an empty question. It is a prefix
   * of every prompt that begins with these documents, up to what the chat template writes behind the user's text.
   */
  prefill(parsed: ParsedRequest, arrangement: Arrangement, state: TenantModel): Buffer {
    const { arrange } = this.#config;
    const body = prefillBody(parsed.body, parsed.api, arrange.layout);
    const prompt = PromptView.of(body, parsed.api);
    if (prompt === undefined) {
      return applyEdits(body.bytes, this.#renderCompletion({ parsed: { ...parsed, body } }, arrangement).edits);
    }
    const viewed = prompt.view(0);
    const edits = chatEdits(viewed.messages, arrangement, { ...arrange, documentsText: DOCUMENTS_PLACE });
    const places = this.#breakpoints({ parsed, prompt, viewed }, arrangement, { isTurn: true, state });
    const text = this.#documentsText(parsed, arrangement.documents, { isTurn: true, places });
    return applyEdits(body.bytes, insertDocuments(prompt, viewed, edits, text, places?.marks));
  }

  #renderChat(
    { parsed, viewed, history, isNamed, supplied, repeated }: InsertedRequest,
    prompt: PromptView,
    arrangement: Arrangement,
    state: TenantModel,
  ) {
    const { arrange } = this.#config;
    const { layout, template, wording } = arrange;
    const { messages } = viewed;
    const options = { layout, template, wording, documentsText: DOCUMENTS_PLACE };
    const own = turnEdits(history, messages, arrangement, options);
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
    const groups = arrangement.documents.map((document) => this.#cache.rendered(document));
    const edits: ByteEdit[] = [{ start: at, end: at, pieces: [...groups, escaped(hint)] }];
    if (upstream.segments) edits.push(parsed.body.with('segments', JSON.stringify(documentEnds(groups))));
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
    const groups = documents.map((document) => this.#cache.rendered(document));
    if (places !== undefined) return { groups, isCut: !isTurn, marked: places.documents };
    return { groups, isCut: this.#config.upstream.segments && api.name === 'chat', marked: PLAIN.marked };
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
