import { type ErrorCode, WarmpathError } from '@warmpath/core';
import { ERROR_TABLE } from '@warmpath/core/internal';

/** What a server of ours answers with instead of a result. */
interface ErrorAnswer {
  readonly error?: { readonly code?: unknown; readonly message?: unknown; readonly param?: unknown };
}

/**
 * The error that a gateway or an embedded engine answered with, as it was thrown there: its message without the path
 * and the remedy, which stand in it for clients that show nothing else. `undefined` for what has no code of the table.
 */
export function errorOfServer(answer: unknown): WarmpathError | undefined {
  const { code, message, param } = (answer as ErrorAnswer | null | undefined)?.error ?? {};
  if (typeof code !== 'string' || !Object.hasOwn(ERROR_TABLE, code) || typeof message !== 'string') return undefined;
  const path = typeof param === 'string' ? param : undefined;
  const { remedy } = ERROR_TABLE[code as ErrorCode];
  let detail = message.endsWith(remedy) ? message.slice(0, -remedy.length).trimEnd() : message;
  if (path !== undefined && detail.startsWith(`${path}: `)) detail = detail.slice(path.length + 2);
  return new WarmpathError(code as ErrorCode, { detail, ...(path !== undefined && { path }) });
}
