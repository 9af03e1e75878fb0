import { type Arrangement, type Document, observe } from '@warmpath/core';
import { withHourWrites } from '@warmpath/core/internal';
import type { RelayResult } from '../answer/relay.js';
import type { ApiName } from '../apis/prompt-view.js';
import type { GatewayConfig } from '../config/schema.js';
import type { ConversationMemory } from '../conversation/conversation-memory.js';
import { reusable } from '../dialects/dialects.js';
import { type Engine, engineHeaders, IDENTITY, promptHeaders } from '../engines/engine.js';
import type { KvResidency } from '../engines/kv-residency.js';
import { isTokenizedAsChat, tokenizeBody } from '../engines/prompt-tokens.js';
import type { UpstreamRequest } from '../engines/upstream.js';
import { BodyView } from '../json/json-body.js';
import type { PromptBaseline } from '../memory/baselines.js';
import type { DocumentCache } from '../memory/document-cache.js';
import { withoutTexts } from '../memory/open-arrangements.js';
import {
  type PromptPrefix,
  prefixOf,
  type ServedHistories,
  type TenantModel,
  type WarmPrefixes,
} from '../memory/served-histories.js';
import type { Metrics } from '../observe/metrics.js';
import type { PeerGateways } from '../observe/peer-gateways.js';
import { outlined } from '../observe/prompt-pieces.js';
import type { ReportBuilder } from '../observe/report.js';
import type { RequestLog } from '../observe/request-log.js';
import { rememberOrders } from '../prompt/arrange-in-place.js';
import type { ArrangedPrompt } from '../prompt/decide.js';
import type { KnownPrompts } from '../prompt/known-prompts.js';
import type { AgentSessions } from '../sessions/agent-sessions.js';
import type { Call, Sent } from '../shapes/shapes.js';

/** Larger bodies are counted, and not compared. */
const MAX_COMPARED_BYTES = 4_194_304;
/** Where the tokens of a prompt are asked for, of an engine that nothing is known of. */
const TOKENIZER = '/tokenize';

/** What is kept of a prompt until its answer is over. */
export interface LearningPrompt {
  /** `undefined` for a prompt in which nothing was arranged. */
  readonly state: TenantModel | undefined;
  readonly arrangements: readonly Arrangement[];
  readonly estimatedTokens: number;
  readonly turn: Sent['turn'];
  /** Whether the documents were put into the prompt, not found there. */
  readonly isInserted: boolean;
  /** The name under which what stands before the documents counts as warm. */
  readonly prefix: PromptPrefix | undefined;
}

/** One prompt at one engine, from the moment it goes out. */
export interface PromptOutcome {
  readonly engine: Engine;
  readonly call: Call;
  readonly prompt: LearningPrompt;
  /** The body that went out. */
  readonly sent: Buffer;
  /** Milliseconds of the gateway's clock. */
  readonly dispatchedAt: number;
  /** What the engine would have had cached; `undefined` where that is not known. */
  readonly baseline: PromptBaseline | undefined;
  /** How the exchange with the engine ended. */
  readonly result: RelayResult;
}

export interface LearningParts {
  readonly memory: ConversationMemory;
  readonly histories: ServedHistories;
  readonly cache: DocumentCache;
  readonly prefixes: WarmPrefixes;
  readonly metrics: Metrics;
  readonly knownPrompts: KnownPrompts;
  readonly sessions: AgentSessions;
  /** Where prompts are compared with earlier ones; `undefined` where they are not. */
  readonly compared: RequestLog | undefined;
  /** Called for a prompt whose session lost something of the cache. */
  readonly lost: (report: ReportBuilder) => void;
  readonly config: Pick<GatewayConfig, 'prices' | 'recognise'>;
  /** Only where the store of conversations is shared. */
  readonly peers: PeerGateways | undefined;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/**
 * All that shared state is changed by: a prompt goes out, the engine takes it, its answer is over. A defect here is
 * counted and costs no answer.
 */
export class Learning {
  readonly #parts: LearningParts;

  constructor(parts: LearningParts) {
    this.#parts = parts;
  }

  /**
   * The prompt goes to the engine: its paths count as resident from now on, so that concurrent requests follow each
   * other.
   */
  dispatched(
    { prompt: { slots }, decision }: ArrangedPrompt,
    { state, arrangements }: LearningPrompt,
    tenant: string,
  ): void {
    const { memory, peers, now } = this.#parts;
    this.guarded(() => {
      if (state === undefined) return;
      if (slots?.kind === 'permute') rememberOrders(slots.found, decision.placed!.blocks, { tenant, memory });
      for (const arrangement of arrangements) {
        observe({ kind: 'dispatched', arrangement, now: now() }, state.history);
        peers?.dispatched(state, arrangement);
      }
    });
  }

  /**
   * What is kept until the answer is over, which may take minutes: of the texts nothing, but where the engine's events
   * are compared with them. The history knows an arrangement by its object: the same ones are dispatched and completed.
   */
  keep({ prompt, decision, sent }: ArrangedPrompt, tenant: string, { kvResidency }: Engine): LearningPrompt {
    const { slots } = prompt;
    const { state, arrangements } = decision;
    const insert = slots?.kind === 'insert' ? slots : undefined;
    return {
      state,
      arrangements:
        insert !== undefined || kvResidency !== undefined ? arrangements : arrangements.map(withoutItsTexts),
      estimatedTokens: sent.estimatedTokens,
      turn: sent.turn,
      isInserted: insert !== undefined,
      prefix: insert && prefixOf(tenant, insert.parsed.model, insert.request.preamble.key),
    };
  }

  /** The engine has taken the prompt: the turn is remembered, so that the next one of its conversation continues it. */
  accepted({ turn }: LearningPrompt): void {
    if (turn === undefined) return;
    const { memory, now } = this.#parts;
    this.guarded(() => memory.sentTurn(turn, now()));
  }

  /** The exchange with the engine is over. */
  ended(outcome: PromptOutcome): void {
    this.guarded(() => {
      this.#count(outcome);
      this.#explainNoGain(outcome);
    });
    this.guarded(() => this.#compare(outcome));
    this.guarded(() => this.#learnAnswer(outcome));
    this.guarded(() => this.#rememberAnswers(outcome));
  }

  /** Learning is never worth an answer: a defect in it is counted, and the request goes its way. */
  guarded(step: () => void): void {
    try {
      step();
    } catch {
      this.#parts.metrics.error('WARMPATH_INTERNAL', 'gateway');
    }
  }

  /** What the engine counted enters the report, beside what it would have counted without the gateway. */
  #count({ engine, call, prompt, dispatchedAt, baseline, result }: PromptOutcome): void {
    const { usage, firstContentAt, completionTokens } = result.sniffer;
    if (!isPrefilled(result)) {
      baseline?.ended({ promptTokens: undefined, answerTokens: undefined });
      return;
    }
    const { report } = call.request;
    if (firstContentAt !== undefined) report.ttftMs = firstContentAt - dispatchedAt;
    baseline?.ended({
      promptTokens: usage?.promptTokens,
      answerTokens: result.complete ? completionTokens : undefined,
    });
    if (usage === undefined) return;
    report.promptTokens = usage.promptTokens;
    report.baselineTokens = baseline?.tokens(usage.promptTokens);
    report.cacheWriteTokens = usage.cacheWriteTokens;
    report.baselineWriteTokens = baseline?.cacheWriteTokens(usage.promptTokens) ?? 0;
    const model = prompt.state?.model ?? baseline?.model ?? '';
    const { prices } = this.#parts.config;
    const price = prices.find(({ models }) => models === undefined || models.includes(model));
    report.price = price && withHourWrites(price, usage);
    const expected = Math.max(report.baselineTokens ?? 0, report.decision.predictedCachedTokens ?? 0);
    report.cachedTokens = this.#parts.histories.reportedCounts(engine, model).cachedTokens(usage, expected);
    if (usage.cachedTokens !== undefined) engine.counted(usage.cachedTokens);
  }

  /** Says where the prompt parts from an earlier one, and what its session lost of the cache. */
  #compare({ engine, call, sent, dispatchedAt, baseline }: PromptOutcome): void {
    const { sessions, compared, lost, now } = this.#parts;
    const { api, tenant } = call;
    const { report } = call.request;
    const { session, promptTokens, cachedTokens, cacheWriteTokens, price, requestId } = report;
    const isOfSession = session !== undefined && promptTokens !== undefined;
    if (compared === undefined && !isOfSession) return;
    const known = session === undefined ? [] : sessions.outlines(tenant, session);
    const prompt =
      sent.length > MAX_COMPARED_BYTES
        ? undefined
        : outlined(sent, { api, findsDocuments: compared !== undefined, known });
    if (prompt !== undefined) report.prefix = compared?.compare(tenant, requestId, prompt, api.name);
    if (!isOfSession) return;
    report.sessionBreak = sessions.answered({
      tenant,
      session,
      requestId,
      model: baseline?.model ?? '',
      body: sent,
      outlined: prompt,
      engine,
      price,
      promptTokens,
      cachedTokens,
      cacheWriteTokens,
      dispatchedAt,
      answeredAt: now(),
    });
    if (report.sessionBreak !== undefined) lost(report);
  }

  /** Looks for a reason where nothing was gained, and the order alone does not tell it. */
  #explainNoGain({ engine, call, prompt, baseline }: PromptOutcome): void {
    const { report } = call.request;
    const { promptTokens, gainTokens = 0 } = report.soFar();
    if (report.unmoved !== undefined || gainTokens > 0) return;
    const model = baseline?.model ?? '';
    if (engine.dialect.reuse.kind === 'none') {
      report.unmoved = 'nothing-reused';
    } else if (promptTokens !== undefined && reusable(engine.dialect, model, promptTokens - 1) === 0) {
      report.unmoved = 'too-short';
    } else if (!prompt.isInserted) {
      const { knownPrompts, config } = this.#parts;
      report.unmoved = knownPrompts.noGainReason(call, config.recognise, report.decision.slots);
    }
  }

  #learnAnswer(outcome: PromptOutcome): void {
    const { engine, call, prompt, result } = outcome;
    const { state, arrangements, prefix } = prompt;
    if (state === undefined) return;
    const now = this.#parts.now();
    const { report } = call.request;
    const { counts, history } = state;
    if (!isPrefilled(result)) {
      for (const arrangement of arrangements) observe({ kind: 'failed', arrangement, now }, history);
      return;
    }
    const { usage, completionTokens } = result.sniffer;
    if (usage !== undefined) counts.observe(prompt.estimatedTokens, usage);
    // The counts are of the whole prompt: they belong to the path that goes farthest into it.
    const { promptTokens, cachedTokens } = report;
    const counted = counts.outcome({ promptTokens, cachedTokens, answerTokens: completionTokens }, engine.dialect);
    for (const [place, arrangement] of arrangements.entries()) {
      const isLast = place === arrangements.length - 1;
      observe({ kind: 'completed', arrangement, now, ...(isLast && counted) }, history);
    }
    if (engine.kvResidency !== undefined) this.#followTokens(engine.kvResidency, outcome, state);
    if (prefix !== undefined) this.#parts.prefixes.touch(prefix, now);
  }

  /** What the engine's events say of this prompt can be read once its tokens are known. */
  #followTokens(residency: KvResidency, { engine, call, prompt, sent }: PromptOutcome, { history }: TenantModel): void {
    const body = viewOf(sent);
    const { report } = call.request;
    const { arrangements, isInserted } = prompt;
    const textOf = (document: Document) =>
      isInserted ? (JSON.parse(`"${this.#parts.cache.rendered(document)}"`) as string) : document.content;
    residency.completed({
      history,
      arrangements,
      texts: () => arrangements.flatMap(({ documents }) => documents.map(textOf)),
      request: () => body && tokensRequest(engine, call, body),
      promptTokens: isTokenizedAsChat(call.api.name) ? (report.promptTokens ?? 0) : undefined,
      salt: body?.string('cache_salt'),
      model: body?.string('model'),
      cachedTokens: report.cachedTokens,
      bytes: call.body.length + sent.length,
    });
  }

  #rememberAnswers({ prompt: { turn }, result }: PromptOutcome): void {
    if (turn === undefined || !result.complete) return;
    const { memory, now } = this.#parts;
    for (const answer of result.sniffer.answers) memory.answeredTurn(turn, answer, now());
  }
}

function withoutItsTexts(arrangement: Arrangement): Arrangement {
  return { ...arrangement, ...withoutTexts(arrangement) };
}

/** Asks an engine which tokens a prompt becomes; `undefined` for one that it cannot be asked about. */
function tokensRequest(
  engine: Engine,
  call: Call,
  sent: BodyView,
): (UpstreamRequest & { readonly body: Buffer }) | undefined {
  const body = tokenizeBodyOf(sent, call.api.name);
  if (body === undefined) return undefined;
  const headers = engineHeaders(engine, call.request, promptHeaders(engine, call), IDENTITY);
  return { method: 'POST', path: engine.dialect.tokenizer ?? TOKENIZER, headers, body };
}

function tokenizeBodyOf(sent: BodyView, api: ApiName): Buffer | undefined {
  try {
    return tokenizeBody(sent, api);
  } catch {
    return undefined;
  }
}

function viewOf(bytes: Buffer): BodyView | undefined {
  try {
    return new BodyView(bytes);
  } catch {
    return undefined;
  }
}

/**
 * Whether the engine has the prompt's KV now. A client that left after the first content left a prompt that is
 * prefilled.
 */
function isPrefilled({ status, complete, sniffer }: RelayResult): boolean {
  return status !== undefined && status < 300 && (complete || sniffer.prefilled);
}
