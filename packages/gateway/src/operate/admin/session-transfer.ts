import { WarmpathError } from '@warmpath/core';
import type { ConversationStore, SessionEntry, SessionFilter } from '@warmpath/core/internal';

/** The first line of an export. */
const HEAD = { format: 'warmpath-sessions', version: 1 } as const;
/** Bytes of a line, at most: eight renderings of the largest turns of a shared store. */
const MAX_LINE_BYTES = 67_108_864;
/** Refused entries that a result lists, at most. */
const MAX_REFUSED = 100;
const NEWLINE = 0x0a;

/** A refused entry. */
export interface RefusedEntry {
  /** Line number, counted from 1, head included. */
  readonly line: number;
  /** Path in the entry. */
  readonly path: string;
  readonly detail: string;
}

/** The result of an import. */
export interface SessionImport {
  readonly object: 'session_import';
  readonly imported: number;
  /** Entries that were not imported, because they were unused for longer than `session.maxAgeMs`. */
  readonly expired: number;
  /** The first hundred refused entries. */
  readonly refused: readonly RefusedEntry[];
  readonly refusedCount: number;
  /** Whether the export was complete: its last line is there, with the right number of entries. */
  readonly complete: boolean;
}

/**
 * Exports conversations: a head, one entry a line, and a last line with their number, which shows whether the file is
 * complete. Error: `WARMPATH_STORE_UNAVAILABLE`, at once or while iterating.
 */
export async function* exportLines(
  store: ConversationStore,
  filter: SessionFilter,
  now: number,
): AsyncGenerator<string> {
  yield `${JSON.stringify(HEAD)}\n`;
  let entries = 0;
  for await (const entry of store.export(filter, now)) {
    entries++;
    yield `${JSON.stringify(entry satisfies SessionEntry)}\n`;
  }
  yield `${JSON.stringify({ end: true, entries })}\n`;
}

/**
 * Imports an export as a stream, one line at a time. Invalid entries are refused with line and path; the others are
 * imported. Errors: `WARMPATH_INVALID_REQUEST` if it is no export; `WARMPATH_STORE_UNAVAILABLE` with the first line
 * that was not imported.
 */
export async function importLines(
  store: ConversationStore,
  bytes: AsyncIterable<Buffer>,
  now: number,
): Promise<SessionImport> {
  const counts = { imported: 0, expired: 0, refused: 0 };
  const refused: RefusedEntry[] = [];
  let said: number | undefined;
  let hasHead = false;
  for await (const { line, text } of linesOf(bytes)) {
    const value = text === undefined ? undefined : parsed(text);
    if (!hasHead) {
      requireHead(value);
      hasHead = true;
      continue;
    }
    said = endOf(value);
    if (said !== undefined) break;
    try {
      if (await store.restore(value, now)) counts.imported++;
      else counts.expired++;
    } catch (error) {
      const refusal = refusalOf(error, line, text === undefined);
      counts.refused++;
      if (refused.length < MAX_REFUSED) refused.push(refusal);
    }
  }
  if (!hasHead) requireHead(undefined);
  const { imported, expired } = counts;
  const complete = said === imported + expired + counts.refused;
  return { object: 'session_import', imported, expired, refused, refusedCount: counts.refused, complete };
}

/** The reason for a refusal. Throws any other error, with the line. */
function refusalOf(error: unknown, line: number, isTooLong: boolean): RefusedEntry {
  if (isTooLong) return { line, path: '', detail: `longer than ${MAX_LINE_BYTES} bytes` };
  if (!WarmpathError.isInstance(error)) throw error;
  const { code, path = '', message } = error;
  if (code !== 'WARMPATH_INVALID_REQUEST') {
    throw new WarmpathError(code, { path: `line ${line}`, detail: message, cause: error });
  }
  // The message begins with the path.
  return { line, path, detail: path === '' ? message : message.slice(path.length + 2) };
}

function requireHead(value: unknown): void {
  const { format, version } = (value ?? {}) as Partial<Record<keyof typeof HEAD, unknown>>;
  if (format === HEAD.format && version === HEAD.version) return;
  const detail =
    format === HEAD.format
      ? `an export of version ${String(version)}; this gateway reads version ${HEAD.version}`
      : `an export begins with ${JSON.stringify(HEAD)}`;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'line 1', detail });
}

function endOf(value: unknown): number | undefined {
  const { end, entries } = (value ?? {}) as { readonly end?: unknown; readonly entries?: unknown };
  return end === true && typeof entries === 'number' ? entries : undefined;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The lines of a stream, counted from 1. A line that is too long has no text. Empty lines are skipped. */
async function* linesOf(
  bytes: AsyncIterable<Buffer>,
): AsyncGenerator<{ readonly line: number; readonly text: string | undefined }> {
  let held: Buffer[] = [];
  let length = 0;
  let line = 0;
  const take = () => {
    const text = length > MAX_LINE_BYTES ? undefined : Buffer.concat(held).toString('utf8');
    held = [];
    length = 0;
    line++;
    return { line, text };
  };
  const hold = (piece: Buffer) => {
    length += piece.length;
    if (length <= MAX_LINE_BYTES) held.push(piece);
    else held = [];
  };
  for await (const piece of bytes) {
    let from = 0;
    for (let end = piece.indexOf(NEWLINE); end >= 0; end = piece.indexOf(NEWLINE, from)) {
      hold(piece.subarray(from, end));
      from = end + 1;
      const whole = take();
      if (whole.text !== '') yield whole;
    }
    if (from < piece.length) hold(piece.subarray(from));
  }
  if (length > 0) yield take();
}
