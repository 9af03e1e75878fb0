import { hash } from 'node:crypto';

/**
 * A script that the server runs as one atomic step, so that gateways that write at the same time lose nothing. A link of the hash
 * chain is one hash in the server: `order`, the ids of its renderings with the last used one at the end; `turn:<id>`, a rendering;
 * `answers:<id>`, the prints of its answers, the latest last. Ids and prints hold no spaces.
 */
export interface StoreScript {
  readonly text: string;
  /** By which a server knows it that has run it before. */
  readonly digest: string;
}

/**
 * What is at these links, and of the turns that the gateway holds already only their names and answers.
 * KEYS: the links. ARGV[i]: ids held at KEYS[i], between spaces. Answers for each link a list `id, answers, record, id, …`, in order
 * of last use; nil where nothing is known, and `''` for a record that is held.
 */
export const FIND_TURNS = script(`
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
 * Keeps a turn, its answers, or both, and lets the turn and those before it live on.
 * KEYS[1]: its link; the others those of the turns before it. ARGV: milliseconds to live, most renderings of a link, most answers
 * of a rendering, the record or '' where only answers come, the answers between spaces, and the id of the turn at each of KEYS.
 * Answers the positions in KEYS, from 1, of turns that the server does not have.
 */
export const KEEP_TURN = script(`
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

/** Milliseconds that KEYS[1] has to live, and what is there: `id, answers, record, id, …`, in order of last use. */
export const READ_LINK = script(`
local order = redis.pcall('HGET', KEYS[1], 'order')
if type(order) ~= 'string' then return false end
local turns = {}
for id in string.gmatch(order, '%S+') do
  table.insert(turns, id)
  table.insert(turns, redis.call('HGET', KEYS[1], 'answers:' .. id) or '')
  table.insert(turns, redis.call('HGET', KEYS[1], 'turn:' .. id) or '')
end
return {redis.call('PTTL', KEYS[1]), turns}`);

/** Removes a link; answers how many turns it had. */
export const DROP_LINK = script(`
local order = redis.pcall('HGET', KEYS[1], 'order')
redis.call('UNLINK', KEYS[1])
if type(order) ~= 'string' then return 0 end
local _, turns = string.gsub(order, '%S+', '')
return turns`);

/**
 * Says what was forgotten, and hears what others forgot. KEYS[1]: the list. ARGV: the place up to which this gateway has heard, what is
 * forgotten now or '', milliseconds that it is told for, and how many of them. Answers the place up to which it has heard now, then
 * what came since. A place is a time, later than all before it.
 */
export const FORGOTTEN = script(`
local list, since, what, ttl, most = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if what ~= '' then
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local last = redis.call('ZRANGE', list, -1, -1, 'WITHSCORES')
  if last[2] and tonumber(last[2]) >= now then now = tonumber(last[2]) + 1 end
  redis.call('ZADD', list, now, what)
  redis.call('ZREMRANGEBYSCORE', list, '-inf', now - ttl)
  redis.call('ZREMRANGEBYRANK', list, 0, -most - 1)
  redis.call('PEXPIRE', list, ttl)
end
local heard = redis.call('ZRANGEBYSCORE', list, '(' .. since, '+inf', 'WITHSCORES')
local news = {since}
for i = 1, #heard, 2 do
  table.insert(news, heard[i])
  news[1] = heard[i + 1]
end
return news`);

/** Does nothing, to a key that there is not, wherever this gateway may write. KEYS[1]: a key of the store's prefix. */
export const PROBE = script("return redis.call('PEXPIRE', KEYS[1], 1)");

function script(text: string): StoreScript {
  return { text, digest: hash('sha1', text) };
}
