import { randomUUID } from 'node:crypto';
import type { PeerNote } from '@warmpath/core/internal';
import { type ScriptCall, script } from './stored-turns.js';

/** Milliseconds back to which a gateway reads that has just begun, and which notes are kept behind the last. */
const WINDOW_MS = 60_000;
/** Notes that are kept, about. */
const MAX_NOTES = 4_096;
/** Notes of one reply; those behind them come with the next. */
const MAX_READ = 256;

/**
 * What gateways tell each other, as one stream in the server: notes by the name of the gateway that wrote them. Each
 * gateway reads on from where it was. One script, so that a gateway tells and hears in one round trip.
 */
export class PeerNotes {
  readonly #key: string;
  readonly #name = randomUUID();
  /** The last note that was read; empty before the first. */
  #position = '';

  constructor(prefix: string) {
    this.#key = `${prefix}peers`;
  }

  /** Adds a note, or none if it is empty, and reads on. */
  exchange(note: string): ScriptCall {
    const limits = [WINDOW_MS, MAX_NOTES, MAX_READ].map(String);
    return { script: EXCHANGE, keys: [this.#key], values: [this.#name, note, this.#position, ...limits] };
  }

  /** What others wrote, by the script's reply: the next one goes on behind it. */
  read(reply: unknown): readonly PeerNote[] {
    if (!Array.isArray(reply)) return [];
    const [now, position, ...told] = reply.map(String) as [string, string, ...string[]];
    this.#position = position;
    const notes: PeerNote[] = [];
    for (let i = 0; i + 2 < told.length; i += 3) {
      const ageMs = Math.max(0, Number(now) - Number.parseInt(told[i]!, 10));
      notes.push({ from: told[i + 1]!, text: told[i + 2]!, ageMs });
    }
    return notes;
  }
}

/**
 * KEYS[1]: the stream. ARGV: the gateway's name, a note or '', the position up to which it has read or '', milliseconds
 * back to which a new one reads, how many notes are kept, and how many are read. Answers the time, the new position,
 * and of each note that others wrote its place, name and text. A position that the stream has not come to yet is that
 * of a server that lost its data.
 */
const EXCHANGE = script(`
local stream, name, note, position = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function msOf(place) return tonumber(string.match(place, '^%d+')) end
local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
if position == '' or not last or msOf(position) > msOf(last[1]) then
  position = string.format('%.0f-0', now - tonumber(ARGV[4]))
end
local reply = {string.format('%.0f', now), position}
local read = redis.call('XREAD', 'COUNT', ARGV[6], 'STREAMS', stream, position)
if read then
  for _, entry in ipairs(read[1][2]) do
    reply[2] = entry[1]
    if entry[2][1] ~= name then
      table.insert(reply, entry[1])
      table.insert(reply, entry[2][1])
      table.insert(reply, entry[2][2])
    end
  end
end
if note ~= '' then
  redis.call('XADD', stream, 'MAXLEN', '~', ARGV[5], '*', name, note)
  redis.call('PEXPIRE', stream, ARGV[4])
end
return reply`);
