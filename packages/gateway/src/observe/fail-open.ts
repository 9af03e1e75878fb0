import { WarmpathError } from '@warmpath/core';
import type { FastifyRequest } from 'fastify';
import type { Gateway } from '../gateway.js';
import type { Fallback } from './exchange.js';

/** Learning is never worth an answer: a defect in it is counted, and the request goes its way. */
export function guard(gateway: Gateway, step: () => void): void {
  try {
    step();
  } catch {
    gateway.metrics.error('WARMPATH_INTERNAL', 'gateway');
  }
}

/** Counts, records and logs a defect that cost an order, not an answer. */
export function failOpen(gateway: Gateway, request: FastifyRequest, fallback: Fallback, defect: unknown): void {
  gateway.metrics.failedOpen(fallback);
  const reason = WarmpathError.isInstance(defect) ? defect.code : describeDefect(defect).name;
  request.exchange.wentWithout({ fallback, reason });
  gateway.log.error({ requestId: request.exchange.requestId, fallback, ...describeDefect(defect) }, 'failed open');
}

/** Where a defect is, without its message, which may quote the request. */
export function describeDefect(defect: unknown): { name: string; at: string | undefined } {
  if (!(defect instanceof Error)) return { name: typeof defect, at: undefined };
  const frames = defect.stack?.split('\n').filter((line) => line.startsWith('    at '));
  return { name: defect.name, at: frames?.[0]?.trim() };
}
