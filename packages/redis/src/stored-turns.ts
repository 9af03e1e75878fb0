import { hash } from 'node:crypto';
import type { ConversationName, SentTurn } from '@warmpath/core/internal';
import {
  MAX_ANSWERS,
  MAX_RENDERINGS,
  readSessionEntry,
  type SessionEntry,
  type SessionFilter,
  type TurnName,
} from '@warmpath/core/internal';

// How turns are stored in the server: keys, records, and the scripts that read and write them.

/** Characters of the largest record: about 4 MiB of documents in one request. */
const MAX_RECORD = 4_194_304;
/** Filters that are kept for gateways that have not applied them yet. */
const MAX_FORGOTTEN = 10_000;
/** Hexadecimal digits of the hashes in keys. */
const TENANT_DIGITS = 16;
const SCOPE_DIGITS = 32;
const AFTER_PREFIX = /^[0-9a-f]{16}\{([0-9a-f]{32})\}(.+)$/s;

/** A script that the server runs as one atomic step, so that gateways that write at the same time lose nothing. */
export interface Script {
  readonly text: string;
  /** Names the script to a server that has run it before. */
  readonly sha1: string;
}

/** A script, the keys that it works on (all of one conversation), and its other arguments. */
export interface ScriptCall {
  readonly script: Script;
  readonly keys: readonly string[];
  readonly values: readonly string[];
}

/** Where a turn is stored: the hash of its conversation's name, and the link of the hash chain. */
export interface TurnPlace {
  readonly scope: string;
  readonly link: string;
}

/** One rendering of a turn, as the scripts answer it. */
export interface StoredRendering {
  readonly id: string;
  readonly answers: readonly string[];
  /** Empty where the gateway holds it already. */
  readonly record: string;
}

/**
 * The keys of a store, and the calls on them. A key is a prefix, the hash of the tenant, by which all that a tenant has
 * is found, the hash of the conversation's name in braces, and the link. A cluster places keys by what stands in
 * braces: the keys of one conversation are on one server. No name of a client ever stands in a key.
 */
export class StoredTurns {
  readonly prefix: string;

  constructor(prefix: string) {
    this.prefix = prefix;
  }

  keyOf(name: ConversationName, link: string): string {
    return `${this.prefix}${tenantHash(name.tenant)}{${scopeOf(name)}}${link}`;
  }

  /** What a key is the place of; `undefined` for a key that is none of a turn. */
  placeOf(key: string): TurnPlace | undefined {
    const [, scope, link] = AFTER_PREFIX.exec(key.slice(this.prefix.length)) ?? [];
    return scope === undefined || link === undefined ? undefined : { scope, link };
  }

  /** The server's pattern for the keys of these conversations; other keys may match, too. */
  patternFor({ tenant, user, session }: SessionFilter): string {
    const prefix = this.prefix.replace(/[\\*?[\]]/g, '\\$&');
    if (tenant === undefined) return `${prefix}*{*}*`;
    const scope = session === undefined ? '*' : scopeOf({ tenant, user: user ?? undefined, session });
    return `${prefix}${tenantHash(tenant)}{${scope}}*`;
  }

  /** Answers a list for each link (`renderingsOf`); of the turns `held` there, without records. */
  find(name: ConversationName, links: readonly string[], held: (link: string) => readonly TurnName[]): ScriptCall {
    const start = this.keyOf(name, '');
    return {
      script: FIND_TURNS,
      keys: links.map((link) => `${start}${link}`),
      values: links.map((link) => {
        const ids = held(link).map(({ id }) => id);
        return ` ${ids.join(' ')} `;
      }),
    };
  }

  /**
   * Stores the first of these turns, or only answers to it if `record` is empty, and extends the life of them all.
   * Answers the positions, from 1, of turns that the server does not have.
   */
  keep(
    name: ConversationName,
    turns: readonly TurnName[],
    { record, answers, timeToLiveMs }: { record: string; answers: readonly string[]; timeToLiveMs: number },
  ): ScriptCall {
    const start = this.keyOf(name, '');
    const limits = [Math.ceil(timeToLiveMs), MAX_RENDERINGS, MAX_ANSWERS].map(String);
    return {
      script: KEEP_TURN,
      keys: turns.map(({ link }) => `${start}${link}`),
      values: [...limits, record, answers.join(' '), ...turns.map(({ id }) => id)],
    };
  }

  /** Answers the milliseconds that a key has to live, and a list (`renderingsOf`). */
  read(key: string): ScriptCall {
    return { script: READ_LINK, keys: [key], values: [] };
  }

  /** Answers how many turns the removed key had. */
  remove(key: string): ScriptCall {
    return { script: REMOVE_LINK, keys: [key], values: [] };
  }

  /**
   * Publishes a filter that was forgotten, or nothing if it is empty. Answers the position up to which the gateway has
   * read now, then the filters that were published after `position`.
   */
  forgotten(position: string, filter: string, maxAgeMs: number): ScriptCall {
    const values = [position, filter, `${maxAgeMs}`, `${MAX_FORGOTTEN}`];
    return { script: FORGOTTEN, keys: [`${this.prefix}forgotten`], values };
  }

  /** Changes nothing; fails wherever this gateway may not write. */
  probe(): ScriptCall {
    return { script: PROBE, keys: [`${this.prefix}probe`], values: [] };
  }
}

/** The hash of a conversation's name. */
export function scopeOf({ tenant, user, session }: ConversationName): string {
  return hash('sha256', JSON.stringify([tenant, user ?? null, session])).slice(0, SCOPE_DIGITS);
}

function tenantHash(tenant: string): string {
  return hash('sha256', tenant).slice(0, TENANT_DIGITS);
}

/** The renderings in a script's list `id, answers, record, id, …`. */
export function renderingsOf(list: readonly unknown[]): readonly StoredRendering[] {
  const renderings: StoredRendering[] = [];
  for (let i = 0; i + 2 < list.length; i += 3) {
    const answers = String(list[i + 1])
      .split(' ')
      .filter((answer) => answer !== '');
    renderings.push({ id: String(list[i]), answers, record: String(list[i + 2]) });
  }
  return renderings;
}

/** A turn as the server stores it: an exported entry of one turn without answers. `undefined` if it is too large. */
export function writeRecord({ tenant, user, session }: ConversationName, turn: SentTurn): string | undefined {
  const entry: SessionEntry = {
    version: 3,
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

/**
 * The turn in a record; `undefined` for a record that is broken, of another version, or of another place. Never throws.
 */
export function readRecord(
  { id, record }: StoredRendering,
  { scope, link }: TurnPlace,
): { readonly name: ConversationName; readonly turn: SentTurn } | undefined {
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

// A link is one hash in the server: `order`, the ids of its renderings, the last used one at the end; `turn:<id>`, a
// record; `answers:<id>`, hashes of answers, the latest at the end. Ids and hashes hold no spaces.

/**
 * KEYS: the links. ARGV[i]: ids held at KEYS[i], between spaces. Answers nil for a link that the server does not have.
 */
const FIND_TURNS = script(`
local found = {}
for i, key in ipairs(KEYS) do
  local order = redis.pcall('HGET', key, 'order')
  if type(order) == 'string' then
    local turns = {}
    for id in string.gmatch(order, '%S+') do
      local held = string.find(ARGV[i], ' ' .. id .. ' ', 1, true)
      table.insert(turns, id)
      table.insert(turns, redis.call('HGET', key, 'answers:' .. id) or '')
      table.insert(turns, held and '' or redis.call('HGET', key, 'turn:' .. id) or '')
    end
    found[i] = turns
  else
    found[i] = false
  end
end
return found`);

/**
 * KEYS[1]: the link of the turn; the others: links of the turns before it. ARGV: milliseconds to live, most renderings
 * of a link, most answers of a rendering, the record, the answers between spaces, and the id of the turn at each of
 * KEYS.
 */
const KEEP_TURN = script(`
local ttl, renderings, answers = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local key, id, record = KEYS[1], ARGV[6], ARGV[4]
local function words(text)
  local list = {}
  for word in string.gmatch(text or '', '%S+') do table.insert(list, word) end
  return list
end
local function latest(list, word)
  for i = #list, 1, -1 do
    if list[i] == word then table.remove(list, i) end
  end
  table.insert(list, word)
end
if record ~= '' then
  redis.call('HSET', key, 'turn:' .. id, record)
  local order = words(redis.call('HGET', key, 'order'))
  latest(order, id)
  while #order > renderings do
    local oldest = table.remove(order, 1)
    redis.call('HDEL', key, 'turn:' .. oldest, 'answers:' .. oldest)
  end
  redis.call('HSET', key, 'order', table.concat(order, ' '))
end
if ARGV[5] ~= '' and redis.call('HEXISTS', key, 'turn:' .. id) == 1 then
  local list = words(redis.call('HGET', key, 'answers:' .. id))
  for _, answer in ipairs(words(ARGV[5])) do latest(list, answer) end
  while #list > answers do table.remove(list, 1) end
  redis.call('HSET', key, 'answers:' .. id, table.concat(list, ' '))
end
local missing = {}
for i, used in ipairs(KEYS) do
  if redis.pcall('HEXISTS', used, 'turn:' .. ARGV[5 + i]) == 1 then
    if redis.call('PTTL', used) < tonumber(ttl) then redis.call('PEXPIRE', used, ttl) end
  else
    table.insert(missing, i)
  end
end
return missing`);

const READ_LINK = script(`
local order = redis.pcall('HGET', KEYS[1], 'order')
if type(order) ~= 'string' then return false end
local turns = {}
for id in string.gmatch(order, '%S+') do
  table.insert(turns, id)
  table.insert(turns, redis.call('HGET', KEYS[1], 'answers:' .. id) or '')
  table.insert(turns, redis.call('HGET', KEYS[1], 'turn:' .. id) or '')
end
return {redis.call('PTTL', KEYS[1]), turns}`);

const REMOVE_LINK = script(`
local order = redis.pcall('HGET', KEYS[1], 'order')
redis.call('UNLINK', KEYS[1])
if type(order) ~= 'string' then return 0 end
local _, turns = string.gsub(order, '%S+', '')
return turns`);

/**
 * KEYS[1]: a sorted set of filters. ARGV: the position up to which this gateway has read, the filter to publish or '',
 * milliseconds that filters are kept, and how many. A position is the server's time at which a filter was published,
 * made unique.
 */
const FORGOTTEN = script(`
local list, since, filter, ttl, most = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if filter ~= '' then
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local last = redis.call('ZRANGE', list, -1, -1, 'WITHSCORES')
  if last[2] and tonumber(last[2]) >= now then now = tonumber(last[2]) + 1 end
  redis.call('ZADD', list, now, filter)
  redis.call('ZREMRANGEBYSCORE', list, '-inf', now - ttl)
  redis.call('ZREMRANGEBYRANK', list, 0, -most - 1)
  redis.call('PEXPIRE', list, ttl)
end
local published = redis.call('ZRANGEBYSCORE', list, '(' .. since, '+inf', 'WITHSCORES')
local reply = {since}
for i = 1, #published, 2 do
  table.insert(reply, published[i])
  reply[1] = published[i + 1]
end
return reply`);

const PROBE = script("return redis.call('PEXPIRE', KEYS[1], 1)");

/** A script of this text. */
export function script(text: string): Script {
  return { text, sha1: hash('sha1', text) };
}
