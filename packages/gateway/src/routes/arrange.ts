import { type ArrangeRequest, type Document, observe, renderHint, WarmpathError } from '@warmpath/core';
import { expectedCachedTokens, type WorkSteps } from '@warmpath/core/internal';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { GatewayConfig } from '../config/schema.js';
import type { Engine } from '../engines/engine.js';
import type { Engines } from '../engines/engines.js';
import { RESPONSE_HEADERS } from '../intake/headers.js';
import { arrangeRequest, observation, readFields, uncheckedOrdering } from '../intake/own-fields.js';
import { bodyOf } from '../intake/request-body.js';
import { BodyView, escaped, invalid, modelOf, readObject } from '../json/json-body.js';
import type { EventLoopBudget } from '../limits/load.js';
import { type OpenArrangement, type OpenArrangements, withoutTexts } from '../memory/open-arrangements.js';
import { predictedTokens, type ServedHistories } from '../memory/served-histories.js';
import type { PeerGateways } from '../observe/peer-gateways.js';
import { type ReportBuilder, summaryHeader } from '../observe/report.js';
import { movedDocuments } from '../prompt/decide.js';
import { type InsertedDocuments, sharedTokens } from '../prompt/insert-slot.js';
import { NOTHING_DONE } from '../shapes/shapes.js';

/** Fields that are parsed. Documents are read as bytes. */
const SMALL_FIELDS = new Set(Object.keys(arrangeRequest.omit({ documents: true }).shape));
const FIELDS = uncheckedOrdering(arrangeRequest.extend({ documents: z.unknown().optional() }));

export interface ArrangeParts {
  readonly config: Pick<GatewayConfig, 'arrange'>;
  readonly engines: Engines;
  readonly histories: ServedHistories;
  readonly documents: InsertedDocuments;
  readonly arrangements: OpenArrangements;
  /** `undefined` without a shared store of conversations. */
  readonly peers: PeerGateways | undefined;
  readonly eventLoopBudget: EventLoopBudget;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/**
 * `POST /v1/arrange`: the order alone, for clients that build their own prompts. The answer counts as served, so that
 * the next request is arranged behind it. A call also considers the prompts that wait for the engine behind the same
 * preamble, and calls that come at the same time. `POST /v1/observe` takes the answer's `id`.
 *
 * The body and the answer are described in `openapi.ts`. Without `engine`, the gateway chooses one of several.
 */
export function arrangeRoute(app: FastifyInstance, parts: ArrangeParts): void {
  const calls = new WaitingCalls();
  app.post('/v1/arrange', async (request, reply) => {
    const { report } = request;
    report.bodyAt = parts.now();
    const body = readBody(request.body as Buffer | undefined);
    const steps = readDocuments(parts, body, report.caller.tenant);
    const asked = await parts.eventLoopBudget.runSteps(steps, () => reply.raw.destroyed);
    const call = placed(parts, request, body, asked);
    const others = await calls.turn(call);
    const answer = arrangeOnly(parts, request, { ...call, others });
    report.overheadMs = parts.now() - report.bodyAt;
    return reply
      .header(RESPONSE_HEADERS.summary, summaryHeader(report.soFar()))
      .type('application/json; charset=utf-8')
      .send(answer);
  });
}

function* readDocuments(
  { documents }: ArrangeParts,
  { body, switches }: ReturnType<typeof readBody>,
  tenant: string,
): WorkSteps<ArrangeRequest> {
  const span = body.value('documents');
  if (span === undefined || !body.scan.isArray(span)) {
    throw new WarmpathError('WARMPATH_INVALID_DOCUMENTS', { path: 'documents' });
  }
  return documents.withDefaults(yield* documents.cache.prepare(tenant, body.scan, span, switches, {}));
}

/** A call whose documents are known, and the engine that its prompt goes to. */
interface PlacedCall {
  readonly request: ArrangeRequest;
  readonly engine: Engine;
  readonly tenant: string;
  readonly model: string;
}

/** The documents of calls that came in the same turn of the event loop. */
type OtherContexts = readonly (readonly Document[])[];

const NO_OTHERS: readonly never[] = [];

/** Calls that wait one turn of the event loop, so that calls that come together are arranged with a common prefix. */
class WaitingCalls {
  readonly #groups = new Map<string, Set<PlacedCall>>();

  /** Resolves, in order of arrival, with the documents of the calls of the same kind that come after this one. */
  turn(call: PlacedCall): Promise<OtherContexts> {
    const { request, engine, tenant, model } = call;
    if (request.preamble === undefined) return Promise.resolve(NO_OTHERS);
    const group = JSON.stringify([engine.number, tenant, model, request.preamble.key]);
    const calls = this.#groups.get(group) ?? new Set();
    this.#groups.set(group, calls.add(call));
    return new Promise((resolve) => {
      setImmediate(() => {
        calls.delete(call);
        if (calls.size === 0) this.#groups.delete(group);
        const others = [...calls].slice(0, MAX_OTHERS);
        resolve(others.map(({ request: { documents } }) => documents));
      });
    });
  }
}

/** Other requests that a policy reads. */
const MAX_OTHERS = 64;

function placed(
  parts: ArrangeParts,
  { report }: FastifyRequest,
  { body, preamble, engine: wanted }: ReturnType<typeof readBody>,
  asked: ArrangeRequest,
): PlacedCall {
  const place = { tenant: report.caller.tenant, model: modelOf(body), wanted };
  const request =
    typeof preamble === 'string'
      ? { ...asked, preamble: parts.documents.preambleOfText(preamble, place.model) }
      : asked;
  return {
    request,
    engine: engineFor(parts, request, place, parts.now()),
    tenant: place.tenant,
    model: place.model,
  };
}

function arrangeOnly(
  parts: ArrangeParts,
  { report }: FastifyRequest,
  { request, engine, tenant, model, others }: PlacedCall & { readonly others: OtherContexts },
): Buffer {
  const { documents, config } = parts;
  const now = parts.now();
  const state = parts.histories.of(engine, tenant, model);
  const { preamble } = request;
  const queued = preamble === undefined ? NO_OTHERS : engine.queue.waitingBehind(preamble, tenant);
  const waiting = [...queued, ...others].slice(0, MAX_OTHERS);
  const known = waiting.length === 0 ? request : { ...request, waiting };
  const arrangement = documents.arrange(known, state, now);
  const served = withoutTexts(arrangement);
  observe({ kind: 'dispatched', arrangement: served, now }, state.history);
  parts.peers?.dispatched(state, served);
  const predictedCachedTokens = predictedTokens(state, arrangement);
  report.decision = {
    ...NOTHING_DONE,
    documents: arrangement.documents.length,
    documentsMoved: movedDocuments(arrangement),
    predictedCachedTokens,
  };
  const { template } = config.arrange;
  const { hint } = arrangement;
  const before = {
    object: 'arrangement',
    ...(parts.engines.only === undefined && { engine: engine.name }),
    id: parts.arrangements.open({ arrangement: served, state }),
    documents: arrangement.documents.map(({ id, label, title, tokens }, place) => {
      const rank = arrangement.order[place]!;
      return { id, label, title, tokens, rank, source: request.sources?.[rank] };
    }),
    order: arrangement.order,
    hint: hint === undefined ? null : { labels: hint.labels, text: renderHint(arrangement, template) },
  };
  const behind = { predictedCachedTokens, trace: arrangement.trace };
  // The documents are JSON already, and may be long.
  return Buffer.concat([
    Buffer.from(`${JSON.stringify(before).slice(0, -1)},"text":"`),
    ...arrangement.documents.map((document) => documents.cache.rendered(document)),
    escaped(renderHint(arrangement, template)),
    Buffer.from(`",${JSON.stringify(behind).slice(1)}`),
  ]);
}

/** The engine that the client names, or the one that would answer first. @throws WarmpathError for an unknown name. */
function engineFor(
  { engines, histories }: ArrangeParts,
  request: ArrangeRequest,
  { tenant, model, wanted }: { readonly tenant: string; readonly model: string; readonly wanted: string | undefined },
  now: number,
): Engine {
  if (wanted !== undefined) {
    const engine = engines.find(wanted);
    if (engine === undefined) throw invalid('engine', 'there is no engine of that name');
    return engine;
  }
  if (engines.only !== undefined) return engines.only;
  const reuse = expectedCachedTokens(request, now);
  return engines.route({
    model: () => model,
    promptTokens: sharedTokens(request),
    cachedTokens: (engine) => reuse(histories.of(engine, tenant, model).history),
    tried: [],
  }).engine;
}

function readBody(bytes: Buffer = Buffer.alloc(0)) {
  const body = new BodyView(bytes);
  const fields = body.members.map(({ key }) => [key, SMALL_FIELDS.has(key) ? body.parse(key) : undefined]);
  const { preamble, engine, policy, maxShift, shiftPrice, pin, hints } = readFields(
    FIELDS,
    Object.fromEntries(fields),
    '',
  );
  const switches = { policy, maxShift, shiftPrice, pin, hints };
  return { body, preamble: preamble ?? undefined, engine: engine ?? undefined, switches };
}

/** What became of a prompt. */
interface Observation {
  readonly id: string;
  readonly outcome: 'completed' | 'failed';
  readonly promptTokens: number | undefined;
  readonly cachedTokens: number | undefined;
}

export interface ObserveParts {
  readonly arrangements: OpenArrangements;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/**
 * `POST /v1/observe`: reports the outcome of a prompt whose order came from `/v1/arrange`. Body: the `id` of that
 * answer, `outcome` (`completed` or `failed`), and the engine's counts. The answer is `forgotten` for an arrangement
 * that is not remembered: it counts as served.
 */
export function observeRoute(app: FastifyInstance, { arrangements, now }: ObserveParts): void {
  app.post('/v1/observe', (request, reply) => {
    request.report.bodyAt = now();
    const report = readObservation(readObject(bodyOf(request)));
    const found = arrangements.take(report.id, request.report.caller.tenant);
    if (found !== undefined) {
      learn(found, report, now());
      note(request.report, found, report);
    }
    return reply.send({ object: 'observation', state: found === undefined ? 'forgotten' : 'observed' });
  });
}

function learn({ arrangement, state }: OpenArrangement, report: Observation, now: number): void {
  const { counts, history, engine } = state;
  if (report.outcome === 'failed') {
    observe({ kind: 'failed', arrangement, now }, history);
    return;
  }
  observe({ kind: 'completed', arrangement, now, ...counts.outcome(report, engine.dialect) }, history);
}

/** The engine's counts enter the metrics, as for prompts that pass the gateway. */
function note(
  report: ReportBuilder,
  { state }: OpenArrangement,
  { outcome, promptTokens, cachedTokens }: Observation,
): void {
  if (outcome === 'failed' || promptTokens === undefined) return;
  report.promptTokens = promptTokens;
  report.cachedTokens = state.reported.cachedTokens(
    { promptTokens, cachedTokens },
    report.decision.predictedCachedTokens ?? 0,
  );
}

function readObservation(body: Readonly<Record<string, unknown>>): Observation {
  const { id, outcome, promptTokens, cachedTokens } = readFields(observation, body, '');
  return { id, outcome, promptTokens: promptTokens ?? undefined, cachedTokens: cachedTokens ?? undefined };
}
