import { hash } from 'node:crypto';
import { type ConversationName, readSessionEntry, type SentTurn, type SessionEntry } from '@warmpath/core';

/** Characters of the largest turn that goes to the server or is taken from it: 4 MiB of one request's documents. */
const MAX_RECORD = 4_194_304;

/**
 * What a tenant's conversation is called outside of this process: a digest, so that no name of a client, no digest of a key and no
 * sign that means something to the server ever stands in a key. Named and inferred conversations differ.
 */
export function scopeOf({ tenant, session }: ConversationName): string {
  return hash('sha256', JSON.stringify([tenant, session ?? null])).slice(0, 32);
}

/** A turn as it goes to the server, an exported entry of one turn; `undefined` if it is too large. Answers are kept beside it. */
export function writeTurn(scope: string, turn: SentTurn): string | undefined {
  const entry: SessionEntry = {
    version: 1,
    tenant: scope,
    session: null,
    link: turn.link,
    idleMs: 0,
    turns: [{ ...turn, answers: [] }],
  };
  const record = JSON.stringify(entry);
  return record.length > MAX_RECORD ? undefined : record;
}

/**
 * The turn of a record, `undefined` for whatever is none: broken, of another version, or written for another place. Never throws.
 */
export function readTurn(
  record: string,
  { scope, link, id }: { readonly scope: string; readonly link: string; readonly id: string },
): SentTurn | undefined {
  if (record === '' || record.length > MAX_RECORD) return undefined;
  try {
    const entry = readSessionEntry(JSON.parse(record));
    const turn = entry.turns[0];
    const isHere = entry.tenant === scope && entry.link === link && turn?.link === link && turn.id === id;
    return isHere ? turn : undefined;
  } catch {
    return undefined;
  }
}
