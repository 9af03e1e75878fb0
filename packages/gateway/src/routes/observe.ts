import { observe } from '@warmpath/core';
import type { FastifyInstance } from 'fastify';
import { RESPONSE_HEADERS } from '../intake/headers.js';
import { observation, readFields } from '../intake/own-fields.js';
import { bodyOf } from '../intake/request-body.js';
import { readObject } from '../json/json-body.js';
import type { OpenArrangement, OpenArrangements } from '../memory/open-arrangements.js';
import type { ReportBuilder } from '../observe/report.js';

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
    return reply
      .header(RESPONSE_HEADERS.requestId, request.report.requestId)
      .send({ object: 'observation', state: found === undefined ? 'forgotten' : 'observed' });
  });
}

function learn({ arrangement, state }: OpenArrangement, report: Observation, now: number): void {
  const { counts, history } = state;
  if (report.outcome === 'failed') {
    observe({ kind: 'failed', arrangement, now }, history);
    return;
  }
  observe({ kind: 'completed', arrangement, now, ...counts.outcome(report) }, history);
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
