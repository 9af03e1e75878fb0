import { readFile } from 'node:fs/promises';
import { createClient, createCluster } from '@redis/client';
import { WarmpathError } from '@warmpath/core';

/** Where the server is, and how to log in. */
export interface ServerAddress {
  /** `redis://`, `rediss://` or `unix://`, optionally with a user, a password and a database. Never logged. */
  readonly url: string;
  /** Used instead of the URL's. */
  readonly password?: string | undefined;
  /** PEM files: the authority that signed the server's certificate, and this gateway's own certificate and key. */
  readonly tls?: Readonly<Partial<Record<'caFile' | 'certFile' | 'keyFile', string | undefined>>> | undefined;
  /** Milliseconds that a request waits for an answer. */
  readonly timeoutMs: number;
}

/** A connected client of one server, or of the servers of a cluster. */
export interface ServerClient {
  /** Sends a command to the server that has this key. */
  send(key: string, command: readonly string[]): Promise<unknown>;
  /** For every server that has keys of its own, what sends it a command. */
  readonly nodes: readonly ((command: readonly string[]) => Promise<unknown>)[];
  /** Waits for answers that are due, then disconnects. */
  close(): Promise<void>;
  /** Disconnects at once. Throws if it is closed already. */
  destroy(): void;
}

/**
 * Makes a connected client. `lost` is called, perhaps several times, when the connection fails; such a client is not
 * used again. Rejects with the library's error.
 */
export type Connect = (lost: (error: unknown) => void) => Promise<ServerClient>;

/** Milliseconds to connect. */
export const CONNECT_MS = 5_000;

/** The library's settings of every connection, and the address of the first. */
interface ClientOptions {
  readonly url: string;
  readonly common: {
    readonly RESP: 2;
    readonly disableOfflineQueue: true;
    readonly username?: string;
    readonly password?: string;
  };
  readonly socket: {
    readonly connectTimeout: number;
    readonly reconnectStrategy: false;
    readonly tls?: true;
  };
}

interface HostAndPort {
  readonly host: string;
  readonly port: number;
}

/**
 * Prepares connections to an address. Whether it is that of a cluster is found out by asking the server.
 *
 * @throws WarmpathError `WARMPATH_CONFIG_INVALID` where a PEM file cannot be read.
 */
export async function connector(address: ServerAddress): Promise<Connect> {
  const options = await clientOptions(address);
  // The servers of the cluster as seen last: the one in the URL may be the one that is gone.
  let clusterNodes: readonly HostAndPort[] = [];
  return async (lost) => {
    if (clusterNodes.length === 0) {
      let isUsed = true;
      const single = await connectServer(options, (error) => {
        if (isUsed) lost(error);
      });
      if (!(await isClusterNode(single))) return single;
      isUsed = false;
      single.destroy();
    }
    const cluster = await connectCluster(options, clusterNodes, lost);
    clusterNodes = cluster.addresses;
    return cluster;
  };
}

async function connectServer({ url, common, socket }: ClientOptions, lost: (error: unknown) => void) {
  // The library writes into the objects that it is given.
  const client = createClient({ url, ...common, socket: { ...socket } as object });
  client.on('error', lost);
  client.on('end', () => lost(undefined));
  await client.connect();
  const send = (command: readonly string[]): Promise<unknown> => client.sendCommand(command);
  return {
    send: (_key: string, command: readonly string[]) => send(command),
    nodes: [send],
    close: () => client.close(),
    destroy: () => client.destroy(),
  };
}

/** Whether a server has only some of the keys. A server that does not know the question has all. */
async function isClusterNode(server: ServerClient): Promise<boolean> {
  try {
    return /^cluster_state:/.test(String(await server.send('', ['CLUSTER', 'INFO'])));
  } catch {
    return false;
  }
}

/** The part of the library's cluster client that is used; its own type needs to know every command. */
interface LibraryCluster {
  connect(): Promise<unknown>;
  readonly masters: readonly HostAndPort[];
  nodeClient(node: HostAndPort): Promise<{ sendCommand(command: readonly string[]): Promise<unknown> }>;
  sendCommand(key: string, isReadonly: boolean, command: string[]): Promise<unknown>;
  close(): Promise<void>;
  destroy(): void;
  on(event: 'error' | 'node-error' | 'node-disconnect', listener: (error?: unknown) => void): unknown;
}

/** When one server of the cluster is lost, the whole is: it is connected anew when every part has a server again. */
async function connectCluster(
  { url, common, socket }: ClientOptions,
  known: readonly HostAndPort[],
  lost: (error: unknown) => void,
) {
  const at = (place: object) => ({ ...place, ...common });
  const cluster = createCluster({
    RESP: 2,
    rootNodes: [
      at({ url, socket: { ...socket } }),
      ...known.map(({ host, port }) => at({ socket: { ...socket, host, port } })),
    ],
    defaults: at({ socket: { ...socket } }),
  }) as unknown as LibraryCluster;
  // About servers that could not be asked while connecting; `connect` rejects if none could.
  cluster.on('error', () => {});
  cluster.on('node-error', lost);
  cluster.on('node-disconnect', () => lost(undefined));
  await cluster.connect();
  return {
    addresses: cluster.masters.map(({ host, port }) => ({ host, port })),
    send: (key: string, command: readonly string[]) => cluster.sendCommand(key, false, [...command]),
    get nodes() {
      return cluster.masters.map((node) => async (command: readonly string[]) => {
        const client = await cluster.nodeClient(node);
        return client.sendCommand(command);
      });
    },
    close: () => cluster.close(),
    destroy: () => cluster.destroy(),
  };
}

const URL_WITH_LOGIN = /^([a-z]+:\/\/)(?:([^:@/]*)(?::([^@/]*))?@)?(.*)$/i;

async function clientOptions({ url, password, tls = {} }: ServerAddress): Promise<ClientOptions> {
  const [, scheme = '', user = '', urlPassword = '', rest = url] = URL_WITH_LOGIN.exec(url) ?? [];
  const secret = password ?? decodeURIComponent(urlPassword);
  const files = await Promise.all([
    pem('ca', 'caFile', tls.caFile),
    pem('cert', 'certFile', tls.certFile),
    pem('key', 'keyFile', tls.keyFile),
  ]);
  return {
    url: scheme + rest,
    common: {
      // The oldest servers speak version 2, and so does every other that knows the protocol.
      RESP: 2,
      disableOfflineQueue: true,
      ...(user !== '' && { username: decodeURIComponent(user) }),
      ...(secret !== '' && { password: secret }),
    },
    socket: {
      connectTimeout: CONNECT_MS,
      reconnectStrategy: false,
      ...(scheme.toLowerCase() === 'rediss://' && { tls: true, ...Object.assign({}, ...files) }),
    },
  };
}

async function pem(option: string, key: string, file: string | undefined): Promise<object> {
  if (file === undefined) return {};
  try {
    return { [option]: await readFile(file) };
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: `tls.${key}`,
      detail: `${file} cannot be read`,
      cause,
    });
  }
}
