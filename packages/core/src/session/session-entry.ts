import { WarmpathError } from '../errors.js';
import type { SentTurn } from './sent-turn.js';

/** Everything that a memory holds for one link of a hash chain, as plain data: one line of an export. */
export interface SessionEntry {
  readonly version: 1;
  readonly tenant: string;
  readonly session: string | null;
  readonly link: string;
  /** Milliseconds since it was last used. */
  readonly idleMs: number;
  readonly turns: readonly SentTurn[];
}

const PLACES: ReadonlySet<unknown> = new Set<SentTurn['edits'][number]['add']>([
  'text-before',
  'text-after',
  'message-before',
  'message-after',
]);

/**
 * Reads an entry that came from outside: every field that a replay relies on is looked at, so that what was written by another
 * version, or by somebody else, is refused as a whole. Error: `WARMPATH_INVALID_REQUEST`. Cost: O(edits + documents + steps).
 */
export function readSessionEntry(input: unknown): SessionEntry {
  const entry = input as Partial<SessionEntry> | null;
  const isEntry =
    typeof entry === 'object' &&
    entry !== null &&
    entry.version === 1 &&
    isText(entry.tenant) &&
    (entry.session === null || isText(entry.session)) &&
    isText(entry.link) &&
    Number.isFinite(entry.idleMs) &&
    isListOf(entry.turns, isTurn);
  if (isEntry) return entry as SessionEntry;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
    path: 'session',
    detail: 'This is no exported session entry.',
  });
}

function isTurn(value: unknown): boolean {
  const turn = value as Partial<SentTurn> | null;
  return (
    isName(turn) &&
    isText(turn?.supplied) &&
    Number.isInteger(turn?.length) &&
    Number.isFinite(turn?.tail) &&
    (turn?.parent === undefined || isName(turn.parent)) &&
    isListOf(turn?.order, isText) &&
    isListOf(turn?.answers, isText) &&
    isListOf(turn?.edits, isEdit) &&
    isListOf(turn?.documents, isDocument) &&
    isListOf(turn?.steps, isStep)
  );
}

function isName(value: unknown): boolean {
  const name = value as Partial<SentTurn> | null | undefined;
  return isText(name?.id) && isText(name?.link);
}

function isEdit(value: unknown): boolean {
  const edit = value as Partial<SentTurn['edits'][number]> | null;
  return (
    Number.isInteger(edit?.at) &&
    edit!.at! >= 0 &&
    PLACES.has(edit?.add) &&
    isText(edit?.text) &&
    (edit.role === undefined || isText(edit.role))
  );
}

function isDocument(value: unknown): boolean {
  const document = value as Partial<SentTurn['documents'][number]> | null;
  return (
    isText(document?.print) &&
    isText(document.label) &&
    isText(document.content) &&
    (document.title === undefined || isText(document.title)) &&
    (document.shown === undefined || isText(document.shown))
  );
}

function isStep(value: unknown): boolean {
  const step = value as Partial<SentTurn['steps'][number]> | null;
  return isText(step?.key) && Number.isFinite(step?.tokens);
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

function isListOf(value: unknown, isItem: (item: unknown) => boolean): boolean {
  return Array.isArray(value) && value.every(isItem);
}
