import type { ServedRequest } from '@warmpath/gateway';
import { percent, type Style, type Terminal } from './terminal.js';

/** From this share of reused tokens on, the gain is shown as one. */
const MUCH = 0.5;

/**
 * Prints a line for each request that is over: when, status, route, documents, reused tokens, time to the first token.
 * Counts and times alone; what a request says is nobody's business.
 */
export function requestPrinter(
  terminal: Terminal,
  now: () => Date = () => new Date(),
): (request: ServedRequest) => void {
  return (request) => terminal.line(describeRequest(request, terminal.style, now()));
}

/** One request in a line of fewer than 100 columns. */
export function describeRequest(request: ServedRequest, style: Style, at: Date): string {
  const { status, route, documents, ttftMs, durationMs, errorCode } = request;
  const colour = status < 400 ? style.green : status < 500 ? style.yellow : style.red;
  const parts = [style.dim(clock(at)), colour(String(status)), nameOf(route).padEnd(16)];
  if (errorCode !== undefined) parts.push(colour(errorCode));
  if (documents !== undefined) parts.push(`${documents} ${documents === 1 ? 'document' : 'documents'}`.padEnd(12));
  const reused = reusedTokens(request, style);
  if (reused !== undefined) parts.push(reused);
  parts.push(ttftMs === undefined ? style.dim(`${durationMs.toFixed(0)} ms`) : `TTFT ${ttftMs.toFixed(0)} ms`);
  return parts.join('  ');
}

/** A route as a person knows it; what only passes through has no name here, for a path is the client's. */
function nameOf(route: string): string {
  return route === '/v1/*' ? 'passed on' : route.replace(/^\/v1\//, '');
}

function reusedTokens({ promptTokens, cachedTokens }: ServedRequest, style: Style): string | undefined {
  if (promptTokens === undefined) return undefined;
  const all = promptTokens.toLocaleString('en-US');
  if (cachedTokens === undefined) return style.dim(`${all} tokens, reuse not reported`);
  const share = cachedTokens / Math.max(1, promptTokens);
  const text = `${cachedTokens.toLocaleString('en-US')} of ${all} tokens reused (${percent(share, 0)})`;
  return share >= MUCH ? style.green(text) : text;
}

function clock(at: Date): string {
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => String(part).padStart(2, '0')).join(':');
}
