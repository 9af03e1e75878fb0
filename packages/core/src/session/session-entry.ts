import { WarmpathError } from '../errors.js';
import type { SentTurn } from './recall.js';

/** All turns of one link of a hash chain, as plain data: one line of an export. */
export interface SessionEntry {
  readonly version: 3;
  readonly tenant: string;
  readonly user: string | null;
  readonly session: string;
  readonly link: string;
  /** Milliseconds since it was last used. */
  readonly idleMs: number;
  readonly turns: readonly SentTurn[];
}

/**
 * Selects conversations: all, those of a tenant, of one of its end users (`null`: of none), or one by its name. A name
 * alone selects the conversation without an end user.
 */
export interface SessionFilter {
  readonly tenant?: string | undefined;
  readonly user?: string | null | undefined;
  readonly session?: string | undefined;
}

/** Whether a filter selects a conversation. O(1). */
export function matchesFilter(
  {
    tenant,
    user,
    session,
  }: { readonly tenant: string; readonly user?: string | null | undefined; readonly session: string },
  filter: SessionFilter,
): boolean {
  if (filter.tenant !== undefined && filter.tenant !== tenant) return false;
  const isAnyUser = filter.user === undefined && filter.session === undefined;
  const owner = isAnyUser ? undefined : (filter.user ?? null);
  if (owner !== undefined && owner !== (user ?? null)) return false;
  return filter.session === undefined || filter.session === session;
}

/** Returns the path to the invalid part of a value; `undefined` if it is valid. */
type Check = (value: unknown) => string | undefined;

const text: Check = (value) => (typeof value === 'string' ? undefined : '');
/** A name is hashed as UTF-8, which half a surrogate pair has not. */
const name: Check = (value) => (typeof value === 'string' && value.isWellFormed() ? undefined : '');
const whole: Check = (value) => (Number.isInteger(value) ? undefined : '');
const place: Check = (value) => (Number.isInteger(value) && (value as number) >= 0 ? undefined : '');
const finite: Check = (value) => (Number.isFinite(value) ? undefined : '');
const duration: Check = (value) => (Number.isFinite(value) && (value as number) >= 0 ? undefined : '');
const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined ? undefined : check(value);
const oneOf =
  (...values: readonly unknown[]): Check =>
  (value) =>
    values.includes(value) ? undefined : '';

const list =
  (item: Check): Check =>
  (value) => {
    if (!Array.isArray(value)) return '';
    for (const [i, one] of value.entries()) {
      const wrong = item(one);
      if (wrong !== undefined) return `[${i}]${wrong}`;
    }
    return undefined;
  };

const record =
  (fields: Readonly<Record<string, Check>>): Check =>
  (value) => {
    if (typeof value !== 'object' || value === null) return '';
    for (const field in fields) {
      const wrong = fields[field]!((value as Readonly<Record<string, unknown>>)[field]);
      if (wrong !== undefined) return `.${field}${wrong}`;
    }
    return undefined;
  };

const NAME = { link: text, id: text };
const ENTRY = record({
  version: oneOf(3),
  tenant: name,
  user: (value) => (value === null ? undefined : name(value)),
  session: name,
  link: text,
  idleMs: duration,
  turns: list(
    record({
      ...NAME,
      supplied: text,
      length: whole,
      tail: finite,
      parent: optional(record(NAME)),
      order: list(text),
      answers: list(text),
      edits: list(
        record({
          at: place,
          add: oneOf('text-before', 'text-after', 'message-before', 'message-after'),
          text,
          role: optional(text),
        }),
      ),
      documents: list(record({ hash: text, label: text, content: text, title: optional(text), shown: optional(text) })),
      steps: list(record({ key: text, tokens: finite })),
    }),
  ),
});

/**
 * Checks an entry from outside. An entry of another version is refused as a whole. O(edits + documents + steps).
 *
 * @throws `WARMPATH_INVALID_REQUEST` with the path of the first invalid field, for instance `turns[2].edits[0].at`
 */
export function readSessionEntry(input: unknown): SessionEntry {
  const wrong = ENTRY(input);
  if (wrong === undefined) return input as SessionEntry;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
    path: wrong === '' ? 'session' : wrong.slice(1),
    detail: 'This is no exported session entry.',
  });
}
