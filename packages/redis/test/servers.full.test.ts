import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SILENT, turnAt, turnsOf } from '../../core/test/conformance/conversation-store.cases.js';
import { RedisServer } from '../../gateway/test/redis-server.js';
import { ask, closing, openStore, type StoreSettings } from './stores.js';

const NAME = { tenant: 'a', session: 's' };
const run = promisify(execFile);
/** Servers are real processes, and two cores may be shared by many. */

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-store-'));
});

afterAll(() => rm(folder, { recursive: true, force: true }));

/** Whether what one store is told, another over the same server gives back. */
async function expectShared(options: StoreSettings): Promise<void> {
  const [writer, reader] = [await openStore(options), await openStore(options)];
  expect([writer.isUp, reader.isUp]).toEqual([true, true]);
  writer.sent(NAME, turnAt('1'), 0);
  expect(await turnsOf({ writer, reader }, NAME, '1')).toEqual([turnAt('1')]);
  await writer.exchange('a note');
  // Others may have used the same server a moment ago.
  expect((await reader.exchange(''))!.at(-1)).toMatchObject({ text: 'a note' });
}

/** The reason that a store gives for not being there. */
async function reasonAt(options: StoreSettings): Promise<string> {
  let reason = '';
  const changed = (isUp: boolean, said: string) => {
    expect(isUp).toBe(false);
    reason = said;
  };
  await openStore(options, { ...SILENT, changed });
  return reason;
}

/** A key, and a certificate for this machine that an authority of our own has signed. */
async function certificates(): Promise<Readonly<Record<'ca' | 'cert' | 'key', string>>> {
  const at = (name: string) => join(folder, name);
  const openssl = (...args: string[]) => run('openssl', args, { cwd: folder });
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  await openssl(
    'req',
    '-x509',
    ...newKey,
    '-keyout',
    'ca.key',
    '-out',
    'ca.pem',
    '-subj',
    '/CN=authority',
    '-days',
    '2',
  );
  const name = ['-subj', '/CN=store', '-addext', 'subjectAltName=IP:127.0.0.1'];
  await openssl('req', ...newKey, '-keyout', 'own.key', '-out', 'own.csr', ...name);
  const signed = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-copy_extensions', 'copy', '-days', '2'];
  await openssl('x509', '-req', '-in', 'own.csr', '-out', 'own.pem', ...signed);
  return { ca: at('ca.pem'), cert: at('own.pem'), key: at('own.key') };
}

/** A TCP proxy whose target can be changed, as a name or an address is moved to another server. */
class MovingAddress {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #port: number;

  private constructor(server: Server, port: number) {
    this.#server = server;
    this.#port = port;
    server.on('connection', (near) => {
      const far = connect(this.#port, '127.0.0.1');
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(from);
        from.pipe(to);
        from.on('error', () => {});
        from.on('close', () => to.destroy());
      }
    });
  }

  static async at(port: number): Promise<MovingAddress> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new MovingAddress(server, port);
  }

  get url(): string {
    return `redis://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** New connections go there; those that are open stay. */
  moveTo(port: number): void {
    this.#port = port;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

describe('a server of conversations', () => {
  it('is reached over TLS, by whoever knows its authority and is known to it', async () => {
    const { ca, cert, key } = await certificates();
    const files = ['--tls-cert-file', cert, '--tls-key-file', key, '--tls-ca-cert-file', ca];
    const server = closing(await RedisServer.start('--tls-port', '{port}', '--port', '0', ...files));
    const url = server.url.replace('redis:', 'rediss:');
    await expectShared({ url, tls: { caFile: ca, certFile: cert, keyFile: key } });
    expect(await reasonAt({ url, tls: { certFile: cert, keyFile: key } })).toMatch(/SELF_SIGNED|UNABLE_TO_/);
    expect(await reasonAt({ url, tls: { caFile: ca } })).not.toBe('');
    expect(await reasonAt({ url: server.url })).not.toBe('');
    const missing = openStore({ url, tls: { caFile: join(folder, 'nowhere.pem') } });
    await expect(missing).rejects.toMatchObject({ code: 'WARMPATH_CONFIG_INVALID', path: 'tls.caFile' });
  });

  it('lets in a user of its own who may do no more than the store does', async () => {
    const server = closing(await RedisServer.start());
    const rights = ['~w:*', '+eval', '+evalsha', '+scan', '+hget', '+hset', '+hdel', '+hexists', '+hgetall'];
    const notes = ['+xadd', '+xread', '+xrevrange'];
    const more = ['+pexpire', '+pttl', '+unlink', '+zadd', '+zrange', '+zrangebyscore', '+zremrangebyscore'];
    await ask(
      server.url,
      'ACL',
      'SETUSER',
      'warm',
      'on',
      '>p@ss/word',
      ...rights,
      ...more,
      ...notes,
      '+zremrangebyrank',
      '+time',
    );
    await ask(server.url, 'ACL', 'SETUSER', 'bare', 'on', '>p@ss/word', '~w:*', '+ping');
    const as = (user: string) => server.url.replace('//', `//${user}@`);
    await expectShared({ url: as('warm'), password: 'p@ss/word' });
    await expectShared({ url: server.url.replace('//', '//warm:p%40ss%2Fword@') });
    expect(await reasonAt({ url: as('bare'), password: 'p@ss/word' })).toBe('NOPERM');
    expect(await reasonAt({ url: as('warm'), password: 'p@ss/word', prefix: 'other:' })).toBe('NOPERM');
    expect(await reasonAt({ url: as('warm'), password: 'no' })).toBe('WRONGPASS');
  });

  it('is reached through a Unix socket', async () => {
    const path = join(folder, 'redis.sock');
    closing(await RedisServer.start('--unixsocket', path));
    await expectShared({ url: `unix://${path}` });
    await expectShared({ url: `unix://${path}?db=3` });
  });

  it('is another when its address moves to the replica, which counts once it is promoted', async () => {
    const first = closing(await RedisServer.start('--dir', folder));
    const second = closing(await RedisServer.start('--dir', folder, '--replicaof', '127.0.0.1', `${first.port}`));
    const address = closing(await MovingAddress.at(first.port));
    const heard: string[] = [];
    let tell: (() => void) | undefined;
    const changed = (isUp: boolean, reason: string) => {
      heard.push(isUp ? 'up' : reason);
      tell?.();
    };
    const until = (said: string) =>
      new Promise<void>((resolve) => {
        tell = () => heard.at(-1) === said && resolve();
        tell();
      });
    const writer = await openStore({ url: address.url }, { ...SILENT, changed });
    writer.sent(NAME, turnAt('1'), 0);
    await writer.find(NAME, [], 0);
    await ask(first.url, 'WAIT', '1', '0');
    while (!/master_link_status:up/.test(String(await ask(second.url, 'INFO', 'replication'))));
    while ((await ask(second.url, 'DBSIZE')) !== 1);
    address.moveTo(second.port);
    await first.kill();
    await until('READONLY');
    await ask(second.url, 'REPLICAOF', 'NO', 'ONE');
    await until('up');
    const reader = await openStore({ url: address.url });
    expect(await turnsOf({ writer, reader }, NAME, '1')).toEqual([turnAt('1')]);
    // Demoted with its connections open, it would go on to answer and to keep nothing.
    await ask(second.url, 'REPLICAOF', '127.0.0.1', `${first.port}`);
    writer.sent(NAME, turnAt('2'), 0);
    await until('READONLY');
    expect(heard.filter((said) => said === 'up')).toHaveLength(2);
  });
});

/** The slots of a cluster, in three parts. */
const SLOTS = [0, 1, 2].map((part) => {
  const [from, to] = [part, part + 1].map((place) => Math.floor((place * 16_384) / 3)) as [number, number];
  return Array.from({ length: to - from }, (_, i) => `${from + i}`);
});

describe('a cluster of servers', () => {
  it('holds conversations in all its parts, and is one again after a fail-over', async () => {
    const settings = [
      '--cluster-enabled',
      'yes',
      '--cluster-node-timeout',
      '3000',
      '--dir',
      folder,
      '--dbfilename',
      'cluster-{port}.rdb',
    ];
    const servers: RedisServer[] = [];
    for (let i = 0; i < 4; i++) {
      servers.push(closing(await RedisServer.start(...settings, '--cluster-config-file', 'nodes-{port}.conf')));
    }
    const [one, two, three, replica] = servers as [RedisServer, RedisServer, RedisServer, RedisServer];
    for (const [i, range] of SLOTS.entries()) await ask(servers[i]!.url, 'CLUSTER', 'ADDSLOTS', ...range);
    for (const { port } of [two, three, replica]) await ask(one.url, 'CLUSTER', 'MEET', '127.0.0.1', `${port}`);
    const target = String(await ask(two.url, 'CLUSTER', 'MYID'));
    const reply = async ({ url }: RedisServer, ...command: string[]) => String(await ask(url, ...command));
    const state = (server: RedisServer) => reply(server, 'CLUSTER', 'INFO');
    for (const server of servers) while (!(await state(server)).includes('cluster_state:ok'));
    while (!(await reply(replica, 'CLUSTER', 'NODES')).includes(target));
    await ask(replica.url, 'CLUSTER', 'REPLICATE', target);
    while (!(await reply(replica, 'INFO', 'replication')).includes('master_link_status:up'));
    // Each server must have heard who takes whose place.
    for (const server of servers) while (!(await reply(server, 'CLUSTER', 'NODES')).includes(`slave ${target}`));
    let tell: (() => void) | undefined;
    let isUp = false;
    const changed = (now: boolean) => {
      isUp = now;
      tell?.();
    };
    const writer = await openStore({ url: two.url, timeoutMs: 20_000 }, { ...SILENT, changed });
    const reader = await openStore({ url: one.url });
    const names = Array.from({ length: 24 }, (_, i) => ({ tenant: `t${i}`, session: `s${i}` }));
    for (const name of names) {
      writer.sent(name, turnAt('1'), 0);
      writer.sent(name, turnAt('2', 'x', turnAt('1')), 0);
    }
    for (const name of names) expect(await turnsOf({ writer, reader }, name, '1')).toEqual([turnAt('1')]);
    for (const { url } of [one, two, three]) expect(await ask(url, 'DBSIZE')).toBeGreaterThan(0);
    // What a server has answered may still be on its way to the replica.
    const offset = async (server: RedisServer, field: string) =>
      Number(new RegExp(`^${field}:(\\d+)`, 'm').exec(await reply(server, 'INFO', 'replication'))![1]);
    const written = await offset(two, 'master_repl_offset');
    while ((await offset(replica, 'slave_repl_offset')) < written);
    // The server that this gateway was told of ends, and its replica takes its place.
    await two.kill();
    while (String(await ask(replica.url, 'ROLE').then((role) => (role as unknown[])[0])) !== 'master');
    for (const server of [one, three, replica]) while (!(await state(server)).includes('cluster_state:ok'));
    await new Promise<void>((resolve) => {
      tell = () => isUp && resolve();
      tell();
    });
    // On a loaded machine the parts may lose each other again for a moment, and a store that is away gives nothing.
    let wentDown = 0;
    let nowUp: (() => void) | undefined;
    const later = await openStore({ url: three.url }, { ...SILENT, changed: (up) => (up ? nowUp?.() : wentDown++) });
    const found = async (name: (typeof names)[number]) => {
      for (;;) {
        const before = wentDown;
        if (!later.isUp) await new Promise<void>((resolve) => (nowUp = resolve));
        const turns = await turnsOf({ writer, reader: later }, name, '2');
        if (turns.length > 0 || (later.isUp && wentDown === before)) return turns;
      }
    };
    for (const name of names) expect(await found(name)).toHaveLength(1);
  });
});
