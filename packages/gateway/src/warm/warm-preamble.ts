import { type LayoutName, observe, type Preamble, WarmpathError } from '@warmpath/core';
import type { WorkSteps } from '@warmpath/core/internal';
import type { FastifyRequest } from 'fastify';
import { type PromptApi, PromptView } from '../apis/prompt-view.js';
import type { GatewayConfig } from '../config/schema.js';
import { type Engine, engineHeaders } from '../engines/engine.js';
import type { Engines } from '../engines/engines.js';
import type { Upstream, UpstreamCall, UpstreamRequest } from '../engines/upstream.js';
import { applyEdits, BodyView, invalid, modelOf } from '../json/json-body.js';
import type { EventLoopBudget } from '../limits/load.js';
import { type PromptPrefix, prefixOf, type ServedHistories, type WarmPrefixes } from '../memory/served-histories.js';
import type { Metrics } from '../observe/metrics.js';
import type { InsertedDocuments } from '../prompt/insert-slot.js';
import type { CacheSalts } from '../prompt/render.js';
import type { Call } from '../shapes/shapes.js';

/** What warming works with. */
export interface WarmParts {
  readonly config: Pick<GatewayConfig, 'arrange'>;
  readonly engines: Engines;
  readonly histories: ServedHistories;
  readonly documents: InsertedDocuments;
  readonly warmups: Warmups;
  readonly cacheSalts: CacheSalts | undefined;
  readonly eventLoopBudget: EventLoopBudget;
  readonly metrics: Metrics;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/** What stands before the documents of a request, and the body that prefills it. */
export interface PreambleToWarm {
  readonly api: PromptApi;
  readonly model: string;
  readonly body: BodyView;
  readonly preamble: Preamble;
}

/**
 * Reads the beginning of a prompt whose documents are not known yet.
 *
 * The engine gets the messages with an empty question and answers with as few tokens as it can. A chat template writes
 * the same tokens before every question, so that they are a prefix of the real prompt.
 */
export function* readPreamble(
  { config, documents }: Pick<WarmParts, 'config' | 'documents'>,
  api: PromptApi,
  bytes: Buffer,
): WorkSteps<PreambleToWarm> {
  const given = new BodyView(bytes);
  const model = modelOf(given);
  const prompt = PromptView.of(given, api);
  if (prompt === undefined) throw invalid('messages', 'an array of messages was expected');
  yield* prompt.read(0);
  // All of it is checked, though not all of it is sent.
  prompt.view(0);
  const body = prefillBody(given, api, config.arrange.layout);
  yield bytes.length;
  const asked = { api, model, body: given };
  const prefilled = PromptView.of(body, api)!;
  yield* documents.measure(asked, prefilled, 0);
  return { api, model, body, preamble: documents.preamble(asked, prefilled.view(0).messages) };
}

/** The engine that the prompt will most likely go to. */
export function engineToWarm(
  { engines, histories }: Pick<WarmParts, 'engines' | 'histories'>,
  tenant: string,
  asked: PreambleToWarm,
): Engine {
  if (engines.only !== undefined) return engines.only;
  const { model, preamble } = asked;
  return engines.route({
    model: () => model,
    promptTokens: preamble.tokens,
    cachedTokens: (engine) => histories.of(engine, tenant, model).history.bestPath([], preamble, undefined).tokens,
    tried: [],
  }).engine;
}

/**
 * Starts the prefill of a preamble on an engine, unless it is warm or being warmed.
 *
 * @throws WarmpathError `WARMPATH_OVERLOADED` when too many are under way.
 */
export function warmPreamble(
  { cacheSalts, warmups, engines, histories, now }: WarmParts,
  request: FastifyRequest,
  engine: Engine,
  { api, model, body, preamble }: PreambleToWarm,
): Warmup {
  const { tenant } = request.report.caller;
  const prefill = () => ({
    method: 'POST',
    path: api.path,
    headers: engineHeaders(engine, request),
    body: cacheSalts?.salted(body.bytes, tenant) ?? body.bytes,
  });
  return warmups.start(engine.upstream, prefixOf(tenant, model, preamble.key), prefill, () => {
    if (engines.only === engine) return;
    // Routing must know which of the engines is warm.
    const { history } = histories.of(engine, tenant, model);
    observe({ kind: 'prefilled', path: { documents: [], preamble }, now: now() }, history);
  });
}

/** A prefill beside a search. */
export interface SearchWarming {
  end(): void;
}

/** Milliseconds of a search before its preamble is warmed: shorter searches end before a prefill pays. */
const SEARCH_MS = 10;
/** Tokens of the shortest preamble that is worth a prefill of its own. */
const MIN_TOKENS = 64;

/**
 * Warms the preamble of a call during its search (RAGCache++ §3.6): on an engine that keeps prefixes and has nothing
 * else to prefill, where the preamble is cold. `end` stops the prefill when the prompt itself goes out: the engine
 * keeps what it has computed. Never throws.
 *
 * @param coming The call without its documents.
 */
export function warmDuringSearch(parts: WarmParts, coming: () => Call): SearchWarming {
  let warmup: Warmup | undefined;
  let isOver = false;
  const begin = async (): Promise<void> => {
    const { api, body, request, tenant } = coming();
    const asked = await parts.eventLoopBudget.runSteps(readPreamble(parts, api, body), () => isOver);
    const engine = engineToWarm(parts, tenant, asked);
    const keepsPrefixes = engine.dialect.reuse.kind === 'prefix' && engine.dialect.owners.length > 0;
    if (isOver || !keepsPrefixes || asked.preamble.tokens < MIN_TOKENS || engine.prefilling > 0) return;
    warmup = warmPreamble(parts, request, engine, asked);
    if (warmup.isOwn) parts.metrics.warmedDuringSearch('started');
  };
  const timer = setTimeout(() => {
    // The prompt itself reports what is wrong with the request.
    begin().catch(() => {});
  }, SEARCH_MS);
  return {
    end: () => {
      isOver = true;
      clearTimeout(timer);
      const under = warmup;
      warmup = undefined;
      if (under?.stop() === true) parts.metrics.warmedDuringSearch('stopped');
    },
  };
}

/** `warming`: a prefill is under way. `warm`: the engine has the prefix. */
type WarmupState = 'warming' | 'warm';

/** The result of a request to warm a prefix. */
export interface Warmup {
  readonly state: WarmupState;
  /** Whether this request started the prefill. */
  readonly isOwn: boolean;
  /** Ends the prefill if this request started it. @returns Whether it was under way. */
  stop(): boolean;
}

/** Warm-ups under way at once. */
const MAX_UNDER_WAY = 4;

/**
 * Prefills prompt prefixes during a retrieval (RAGCache++ §3.6): on a cold prefix, prefill and search overlap. One
 * prefill per prefix at a time.
 */
export class Warmups {
  readonly #prefixes: WarmPrefixes;
  readonly #now: () => number;
  readonly #underWay = new Map<string, UpstreamCall>();

  constructor(prefixes: WarmPrefixes, now: () => number) {
    this.#prefixes = prefixes;
    this.#now = now;
  }

  /**
   * Starts a prefill of `prefix` unless it is warm or being warmed. Returns at once.
   *
   * @param request Makes the request that prefills it.
   * @param done Called when it is prefilled.
   * @throws WarmpathError `WARMPATH_OVERLOADED` beyond `MAX_UNDER_WAY`.
   */
  start(upstream: Upstream, prefix: PromptPrefix, request: () => UpstreamRequest, done: () => void): Warmup {
    if (this.#prefixes.isWarm(prefix, this.#now())) return notOwn('warm');
    const name = JSON.stringify([prefix.tenant, prefix.key]);
    if (this.#underWay.has(name)) return notOwn('warming');
    if (this.#underWay.size >= MAX_UNDER_WAY) {
      throw new WarmpathError('WARMPATH_OVERLOADED', { detail: `${MAX_UNDER_WAY} warm-ups are under way.` });
    }
    let status = 0;
    // The call may fail before it is recorded.
    let isOver = false;
    const over = () => {
      isOver = true;
      this.#underWay.delete(name);
    };
    const call = upstream.start(request(), {
      onHead: (answered) => {
        status = answered;
      },
      onData: () => true,
      onEnd: () => {
        over();
        if (status !== 200) return;
        this.#prefixes.touch(prefix, this.#now());
        done();
      },
      // The next prompt prefills the prefix itself.
      onError: over,
    });
    if (!isOver) this.#underWay.set(name, call);
    return {
      state: 'warming',
      isOwn: true,
      stop: () => {
        if (this.#underWay.get(name) !== call) return false;
        call.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED', { detail: 'The prompt itself goes out.' }));
        return true;
      },
    };
  }

  /** Aborts all warm-ups. */
  close(): void {
    for (const call of [...this.#underWay.values()]) call.abort(new WarmpathError('WARMPATH_SHUTTING_DOWN'));
  }
}

function notOwn(state: WarmupState): Warmup {
  return { state, isOwn: false, stop: () => false };
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
function prefillBody(body: BodyView, api: PromptApi, layout: LayoutName): BodyView {
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
