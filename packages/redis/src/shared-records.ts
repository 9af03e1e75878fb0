import { WarmpathError } from '@warmpath/core';
import type { SharedRecords } from '@warmpath/core/internal';
import type { Connection } from './connection.js';
import { type ScriptCall, script } from './stored-turns.js';

/**
 * Records in one hash of the server, with a version that changes with each write. A gateway that finds the hash gone
 * writes what it knows again: the server lost its data.
 */
export class RedisRecords implements SharedRecords {
  readonly #connection: () => Connection | undefined;
  readonly #key: string;
  #version = '';
  #known: ReadonlyMap<string, string> | undefined;

  /** @param connection `undefined` before the store is open */
  constructor(key: string, connection: () => Connection | undefined) {
    this.#key = key;
    this.#connection = connection;
  }

  async read(): Promise<ReadonlyMap<string, string> | undefined> {
    let reply: unknown;
    let failure: string | undefined = 'down';
    await this.#connection()?.find('exchange', this.#call(READ, [this.#version]), {
      answered: (answer) => {
        reply = answer;
        failure = undefined;
      },
      missed: (reason) => {
        failure = reason;
      },
    });
    if (failure !== undefined && failure !== 'timeout') {
      throw new WarmpathError('WARMPATH_STORE_UNAVAILABLE', { detail: `The shared store: ${failure}.` });
    }
    if (!Array.isArray(reply)) return undefined;
    const [version, ...fields] = reply.map(String) as [string, ...string[]];
    if (version === '' && this.#known !== undefined) {
      await this.#restore(this.#known);
      return undefined;
    }
    const records = new Map<string, string>();
    for (let i = 0; i + 1 < fields.length; i += 2) {
      if (fields[i] !== VERSION_FIELD) records.set(fields[i]!, fields[i + 1]!);
    }
    this.#version = version;
    this.#known = records;
    return records;
  }

  async write(key: string, record: string | undefined): Promise<void> {
    const connection = this.#connection();
    if (connection === undefined) throw new WarmpathError('WARMPATH_STORE_UNAVAILABLE');
    await connection.run('keep', this.#call(WRITE, ['', key, record ?? '']));
  }

  async #restore(known: ReadonlyMap<string, string>): Promise<void> {
    if (known.size === 0) return;
    await this.#connection()?.attempt('keep', this.#call(WRITE, ['restore', ...[...known].flat()]));
  }

  #call(text: ScriptCall['script'], values: readonly string[]): ScriptCall {
    return { script: text, keys: [this.#key], values };
  }
}

const VERSION_FIELD = 'version';

/** ARGV[1]: the version read last. Answers nothing if it still holds; else the version (or '') and all fields. */
const READ = script(`
local version = redis.call('HGET', KEYS[1], '${VERSION_FIELD}') or ''
if version == ARGV[1] and version ~= '' then return false end
local reply = redis.call('HGETALL', KEYS[1])
table.insert(reply, 1, version)
return reply`);

/**
 * ARGV: 'restore' or '', then keys and records. An empty record removes its key. To restore changes no record that the
 * server has.
 */
const WRITE = script(`
local command = ARGV[1] == 'restore' and 'HSETNX' or 'HSET'
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[i])
  else redis.call(command, KEYS[1], ARGV[i], ARGV[i + 1]) end
end
local time = redis.call('TIME')
local version = tonumber(time[1]) * 1000000 + tonumber(time[2])
local last = tonumber(redis.call('HGET', KEYS[1], '${VERSION_FIELD}') or '0')
if version <= last then version = last + 1 end
redis.call('HSET', KEYS[1], '${VERSION_FIELD}', string.format('%.0f', version))
return 1`);
