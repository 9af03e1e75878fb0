import { type ArrangeRequest, type Document, observe, renderHint, WarmpathError } from '@warmpath/core';
import { expectedCachedTokens, type WorkSteps } from '@warmpath/core/internal';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Engine } from '../engines/engine.js';
import { predictedTokens } from '../engines/expected-reuse.js';
import type { Gateway } from '../gateway.js';
import { RESPONSE_HEADERS } from '../intake/headers.js';
import { modelOf } from '../intake/parse-request.js';
import { BodyView } from '../json/body-view.js';
import { escaped } from '../json/json-scanner.js';
import { withoutTexts } from '../memory/open-arrangements.js';
import { summaryHeader } from '../observe/summary-header.js';
import { NOTHING_DONE } from '../shapes/shapes.js';

const SWITCHES = ['policy', 'maxShift', 'shiftPrice', 'pin', 'hints'];
const FIELDS = ['documents', ...SWITCHES, 'preamble', 'model', 'engine'];

/**
 * `POST /v1/arrange`: the order alone, for clients that build their own prompts. The answer counts as served: the next
 * request is arranged as if the engine had seen this one, which is what makes the order useful. Behind the same
 * preamble, a call knows of the prompts that wait for the engine, and of calls that come at the same time. Prompts that
 * wait find the order that it was given in the tree: whichever comes first computes what they share. `id` names it for
 * `POST /v1/observe`.
 *
 * Body: `documents` and the switches of the `warmpath` field; `preamble` is the text that the client puts before the
 * documents, which counts as the system message of a chat; `model` keeps the histories of several models apart. Of
 * several engines, `engine` names the one that the prompt goes to; without it the gateway chooses one, as for its own
 * prompts, and the answer says which.
 */
export function arrangeRoute(app: FastifyInstance, gateway: Gateway): void {
  const calls = new WaitingCalls();
  app.post('/v1/arrange', async (request, reply) => {
    const { exchange } = request;
    exchange.bodyAt = gateway.now();
    const body = readBody(request.body as Buffer | undefined);
    const steps = readDocuments(gateway, body, exchange.caller.tenant);
    const asked = await gateway.eventLoopBudget.runSteps(steps, () => reply.raw.destroyed);
    const call = placed(gateway, request, body, asked);
    const others = await calls.turn(call);
    const answer = arrangeOnly(gateway, request, { ...call, others });
    exchange.overheadMs = gateway.now() - exchange.bodyAt;
    return reply
      .header(RESPONSE_HEADERS.requestId, exchange.requestId)
      .header(RESPONSE_HEADERS.summary, summaryHeader(exchange.soFar()))
      .type('application/json; charset=utf-8')
      .send(answer);
  });
}

function* readDocuments(
  { documents }: Gateway,
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

/** The documents of calls that came at the same time. */
type OtherContexts = readonly (readonly Document[])[];

const NO_OTHERS: readonly never[] = [];

/**
 * Calls whose order is to be decided. Each waits for one turn of the event loop, so that those that come together know
 * of each other, as prompts that wait for an engine do: a prefix that they share is worth leaving.
 */
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

/** Other requests that a policy gets; it reads no more. */
const MAX_OTHERS = 64;

function placed(
  gateway: Gateway,
  { exchange }: FastifyRequest,
  { body, preamble, engine: wanted }: ReturnType<typeof readBody>,
  asked: ArrangeRequest,
): PlacedCall {
  const place = { tenant: exchange.caller.tenant, model: modelOf(body), wanted };
  const request =
    typeof preamble === 'string'
      ? { ...asked, preamble: gateway.documents.preambleOfText(preamble, place.model) }
      : asked;
  return {
    request,
    engine: engineFor(gateway, request, place, gateway.now()),
    tenant: place.tenant,
    model: place.model,
  };
}

function arrangeOnly(
  gateway: Gateway,
  { exchange }: FastifyRequest,
  { request, engine, tenant, model, others }: PlacedCall & { readonly others: OtherContexts },
): Buffer {
  const { documents, config } = gateway;
  const now = gateway.now();
  const state = gateway.histories.of(engine, tenant, model);
  const { preamble } = request;
  const queued = preamble === undefined ? NO_OTHERS : engine.queue.waitingBehind(preamble, tenant);
  const waiting = [...queued, ...others].slice(0, MAX_OTHERS);
  const known = waiting.length === 0 ? request : { ...request, waiting };
  const arrangement = documents.arrange(known, state, now);
  const served = withoutTexts(arrangement);
  observe({ kind: 'dispatched', arrangement: served, now }, state.history);
  gateway.peers?.dispatched(state, served);
  const predictedCachedTokens = predictedTokens(state, arrangement);
  exchange.decision = {
    ...NOTHING_DONE,
    documents: arrangement.documents.length,
    documentsMoved: arrangement.trace.moves.filter((places) => places !== 0).length,
    predictedCachedTokens,
  };
  const { template } = config.arrange;
  const { hint } = arrangement;
  const before = {
    object: 'arrangement',
    ...(gateway.engines.only === undefined && { engine: engine.name }),
    id: gateway.arrangements.open({ arrangement: served, state }),
    documents: arrangement.documents.map(({ id, label, title, tokens }, place) => {
      return { id, label, title, tokens, rank: arrangement.order[place] };
    }),
    order: arrangement.order,
    hint: hint === undefined ? null : { labels: hint.labels, text: renderHint(arrangement, template) },
  };
  const behind = { predictedCachedTokens, trace: arrangement.trace };
  // The documents are known as JSON already, and may be long.
  return Buffer.concat([
    Buffer.from(`${JSON.stringify(before).slice(0, -1)},"text":"`),
    ...arrangement.documents.map((document) => documents.cache.rendered(document)),
    escaped(renderHint(arrangement, template)),
    Buffer.from(`",${JSON.stringify(behind).slice(1)}`),
  ]);
}

/** The engine that the client names, or the one that would answer first. */
function engineFor(
  { engines, histories }: Gateway,
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
    promptTokens: request.documents.reduce((sum, { tokens }) => sum + tokens, request.preamble?.tokens ?? 0),
    cachedTokens: (engine) => reuse(histories.of(engine, tenant, model).history),
    tried: [],
  }).engine;
}

function readBody(bytes: Buffer = Buffer.alloc(0)) {
  const body = new BodyView(bytes);
  for (const { key } of body.members) {
    if (!FIELDS.includes(key)) throw invalid(key, `unknown field; known ones are ${FIELDS.join(', ')}`);
  }
  for (const key of ['preamble', 'model', 'engine']) {
    const span = body.value(key);
    if (span !== undefined && !body.scan.isNull(span) && !body.scan.isString(span)) {
      throw invalid(key, 'a string was expected');
    }
  }
  const switches = Object.fromEntries(SWITCHES.map((key) => [key, body.parse(key)]));
  return { body, preamble: body.string('preamble'), engine: body.string('engine'), switches };
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
