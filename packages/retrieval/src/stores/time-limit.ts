import { WarmpathError } from '@warmpath/core';
import { untilAborted } from '../staged-retriever.js';

/** Milliseconds that a query may take where nothing else is said. */
export const QUERY_TIMEOUT_MS = 30_000;

/** How long a query may take. `path` names what is asked. */
export interface TimeLimit {
  readonly path: string;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** @throws WARMPATH_RETRIEVAL_TIMEOUT, what the query throws, the signal's reason. */
export async function withinTime<Answer>(query: Promise<Answer>, limit: TimeLimit): Promise<Answer> {
  const { path, timeoutMs, signal } = limit;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const detail = `no answer within ${timeoutMs} ms.`;
    timer = setTimeout(() => reject(new WarmpathError('WARMPATH_RETRIEVAL_TIMEOUT', { path, detail })), timeoutMs);
  });
  try {
    return await untilAborted(Promise.race([query, late]), signal);
  } finally {
    clearTimeout(timer);
  }
}
