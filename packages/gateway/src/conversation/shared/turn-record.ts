import { type ConversationName, readSessionEntry, type SentTurn, type SessionEntry } from '@warmpath/core';
import { scopeOf } from './store-keys.js';

/** Characters of the largest turn that goes to the server or is taken from it: 4 MiB of one request's documents. */
const MAX_RECORD = 4_194_304;

/** A turn as it goes to the server, an exported entry of one turn; `undefined` if it is too large. Answers are kept beside it. */
export function writeTurn({ tenant, user, session }: ConversationName, turn: SentTurn): string | undefined {
  const entry: SessionEntry = {
    version: 2,
    tenant,
    user: user ?? null,
    session,
    link: turn.link,
    idleMs: 0,
    turns: [{ ...turn, answers: [] }],
  };
  const record = JSON.stringify(entry);
  return record.length > MAX_RECORD ? undefined : record;
}

/** Whose turn a record is, and the turn. */
export interface TurnRecord {
  readonly name: ConversationName;
  readonly turn: SentTurn;
}

/**
 * What a record holds, `undefined` for whatever is none: broken, of another version, or written for another place. Never throws.
 */
export function readTurn(
  record: string,
  { scope, link, id }: { readonly scope: string; readonly link: string; readonly id: string },
): TurnRecord | undefined {
  if (record === '' || record.length > MAX_RECORD) return undefined;
  try {
    const { tenant, user, session, turns, ...entry } = readSessionEntry(JSON.parse(record));
    const [turn] = turns;
    const name = { tenant, user: user ?? undefined, session };
    if (turn === undefined || entry.link !== link || turn.link !== link || turn.id !== id) return undefined;
    return scopeOf(name) === scope ? { name, turn } : undefined;
  } catch {
    return undefined;
  }
}
