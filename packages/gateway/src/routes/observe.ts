import { observe, WarmpathError } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import type { Gateway } from '../gateway.js';
import { RESPONSE_HEADERS } from '../intake/headers.js';
import { bodyOf } from '../intake/request-body.js';
import { readObject } from '../json/json-body.js';
import type { OpenArrangement } from '../memory/open-arrangements.js';
import type { ReportBuilder } from '../observe/report.js';

const FIELDS = ['id', 'outcome', 'promptTokens', 'cachedTokens'];
const OUTCOMES = ['completed', 'failed'] as const;

interface Report {
  readonly id: string;
  readonly outcome: (typeof OUTCOMES)[number];
  readonly promptTokens: number | undefined;
  readonly cachedTokens: number | undefined;
}

/**
 * `POST /v1/observe`: what became of a prompt whose order came from `/v1/arrange`. Body: `id` of that answer, `outcome`
 * (`completed` or `failed`), and what the engine counted. A report about an arrangement that is known no more is no
 * error: the answer says `forgotten`, and the prompt counts as served.
 */
export function observeRoute(app: FastifyInstance, gateway: Gateway): void {
  app.post('/v1/observe', (request, reply) => {
    request.exchange.bodyAt = gateway.now();
    const report = readReport(readObject(bodyOf(request)));
    const found = gateway.arrangements.take(report.id, request.exchange.caller.tenant);
    if (found !== undefined) {
      learn(found, report, gateway.now());
      note(request.exchange, found, report);
    }
    return reply
      .header(RESPONSE_HEADERS.requestId, request.exchange.requestId)
      .send({ object: 'observation', state: found === undefined ? 'forgotten' : 'observed' });
  });
}

function learn({ arrangement, state }: OpenArrangement, report: Report, now: number): void {
  const { counts, history } = state;
  if (report.outcome === 'failed') {
    observe({ kind: 'failed', arrangement, now }, history);
    return;
  }
  observe({ kind: 'completed', arrangement, now, ...counts.outcome(report) }, history);
}

/** What the engine counted shows in the metrics, as it does for prompts that go through the gateway. */
function note(
  exchange: ReportBuilder,
  { state }: OpenArrangement,
  { outcome, promptTokens, cachedTokens }: Report,
): void {
  if (outcome === 'failed' || promptTokens === undefined) return;
  exchange.promptTokens = promptTokens;
  exchange.cachedTokens = state.counts.cachedTokens({ promptTokens, cachedTokens });
}

function readReport(body: Readonly<Record<string, unknown>>): Report {
  for (const key of Object.keys(body)) {
    if (!FIELDS.includes(key)) throw invalid(key, `unknown field; known ones are ${FIELDS.join(', ')}`);
  }
  const { id } = body;
  if (typeof id !== 'string') throw invalid('id', 'a string was expected');
  const outcome = OUTCOMES.find((known) => known === body['outcome']);
  if (outcome === undefined) throw invalid('outcome', `one of ${OUTCOMES.join(', ')} was expected`);
  const [promptTokens, cachedTokens] = [readCount(body, 'promptTokens'), readCount(body, 'cachedTokens')];
  return { id, outcome, promptTokens, cachedTokens };
}

function readCount(body: Readonly<Record<string, unknown>>, field: string): number | undefined {
  const value = body[field] ?? undefined;
  if (value === undefined || (Number.isSafeInteger(value) && (value as number) >= 0))
    return value as number | undefined;
  throw invalid(field, 'a whole number of 0 or more was expected');
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
