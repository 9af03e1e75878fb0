import { observe } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { RESPONSE_HEADERS } from '../intake/headers.js';
import { bodyOf } from '../intake/request-body.js';
import { invalid, readObject } from '../json/json-body.js';
import type { OpenArrangement, OpenArrangements } from '../memory/open-arrangements.js';
import type { ReportBuilder } from '../observe/report.js';

const FIELDS = ['id', 'outcome', 'promptTokens', 'cachedTokens'];
const OUTCOMES = ['completed', 'failed'] as const;

interface Report {
  readonly id: string;
  readonly outcome: (typeof OUTCOMES)[number];
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
    request.exchange.bodyAt = now();
    const report = readReport(readObject(bodyOf(request)));
    const found = arrangements.take(report.id, request.exchange.caller.tenant);
    if (found !== undefined) {
      learn(found, report, now());
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

/** The engine's counts enter the metrics, as for prompts that pass the gateway. */
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
