import { readFile } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';

/** Where the server is, and how to be let in. */
export interface StoreAddress {
  /** `redis://`, `rediss://` or `unix://`, perhaps with a user, a password and a database. Never logged. */
  readonly url: string;
  /** Goes before the URL's. */
  readonly password?: string | undefined;
  /** Files in PEM: who may have signed the server's certificate, and this gateway's own. */
  readonly tls?: Readonly<Partial<Record<'caFile' | 'certFile' | 'keyFile', string | undefined>>> | undefined;
  /** Milliseconds that a request waits for what it asked. */
  readonly timeoutMs: number;
}

/** One server, or the servers of a cluster, as the connection uses them. */
export interface StoreClient {
  /** Connects. Error: the library's. */
  connect(): Promise<void>;
  /** Sends a command to the server that has this key. */
  send(key: string, command: readonly string[]): Promise<unknown>;
  /** Sends a command to every server that has keys of its own. */
  readonly nodes: readonly ((command: readonly string[]) => Promise<unknown>)[];
  /** Lets what is under way end. */
  close(): Promise<void>;
  destroy(): void;
}

/** Makes clients, one for each connection; a client that is lost is not used again. */
export interface StoreClients {
  /** `lost` hears of every failure of the connection, or of one of them. Connected, or the library's error. */
  connect(lost: (client: StoreClient, error: unknown) => void): Promise<StoreClient>;
}

/** Milliseconds to connect. */
export const CONNECT_MS = 5_000;

type Library = typeof import('@redis/client');

/** The library's settings of every connection, and the address of the first. */
interface ServerOptions {
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
    readonly ca?: Buffer;
    readonly cert?: Buffer;
    readonly key?: Buffer;
  };
}

/**
 * Loads the library and the files that the address names. Errors: `WARMPATH_CONFIG_INVALID` where the library is not installed or a file
 * cannot be read.
 */
export async function storeClients(address: StoreAddress): Promise<StoreClients> {
  const library = await loadLibrary();
  const options = await serverOptions(address);
  // Servers of the cluster seen last: the one that the URL names may be the one that is gone.
  let known: readonly ServerPlace[] = [];
  return {
    connect: async (lost) => {
      const single = new SingleServer(library, options, lost);
      let isCluster = known.length > 0;
      if (!isCluster) {
        await single.connect();
        isCluster = await single.isOfCluster();
        if (!isCluster) return single;
        single.destroy();
      }
      const cluster = new Cluster(library, options, { known, lost });
      await cluster.connect();
      known = cluster.addresses;
      return cluster;
    },
  };
}

class SingleServer implements StoreClient {
  readonly #client: ReturnType<Library['createClient']>;

  constructor(
    { createClient }: Library,
    { url, common, socket }: ServerOptions,
    lost: (client: StoreClient, error: unknown) => void,
  ) {
    // The library writes into the objects that it is given.
    this.#client = createClient({ url, ...common, socket: { ...socket } as object });
    this.#client.on('error', (error: unknown) => lost(this, error));
    this.#client.on('end', () => lost(this, undefined));
  }

  async connect(): Promise<void> {
    await this.#client.connect();
  }

  /** Whether the server has a part of the keys only. A server that does not say is taken for one that has all. */
  async isOfCluster(): Promise<boolean> {
    try {
      return /^cluster_state:/.test(String(await this.#client.sendCommand(['CLUSTER', 'INFO'])));
    } catch {
      return false;
    }
  }

  send(_key: string, command: readonly string[]): Promise<unknown> {
    return this.#client.sendCommand(command);
  }

  get nodes(): StoreClient['nodes'] {
    return [(command) => this.#client.sendCommand(command)];
  }

  close(): Promise<void> {
    return this.#client.close();
  }

  destroy(): void {
    this.#client.destroy();
  }
}

interface ServerPlace {
  readonly host: string;
  readonly port: number;
}

/** What is used of the library's client of a cluster. */
interface LibraryCluster {
  connect(): Promise<unknown>;
  readonly masters: readonly ServerPlace[];
  nodeClient(node: ServerPlace): Promise<{ sendCommand(command: readonly string[]): Promise<unknown> }>;
  sendCommand(key: string, isReadonly: boolean, command: string[]): Promise<unknown>;
  close(): Promise<void>;
  destroy(): void;
  on(event: 'error' | 'node-error' | 'node-disconnect', listener: (error?: unknown) => void): unknown;
}

/** A part of it that is lost is the whole lost: it is connected anew when every part has a server again. */
class Cluster implements StoreClient {
  readonly #cluster: LibraryCluster;

  constructor(
    { createCluster }: Library,
    { url, common, socket }: ServerOptions,
    {
      known,
      lost,
    }: {
      readonly known: readonly ServerPlace[];
      readonly lost: (client: StoreClient, error: unknown) => void;
    },
  ) {
    const at = (place: object) => ({ ...place, ...common });
    this.#cluster = createCluster({
      RESP: 2,
      rootNodes: [
        at({ url, socket: { ...socket } }),
        ...known.map(({ host, port }) => at({ socket: { ...socket, host, port } })),
      ],
      defaults: at({ socket: { ...socket } }),
    }) as unknown as LibraryCluster;
    // Of servers that could not be asked on the way; what counts is whether one of them answered.
    this.#cluster.on('error', () => {});
    this.#cluster.on('node-error', (error: unknown) => lost(this, error));
    this.#cluster.on('node-disconnect', () => lost(this, undefined));
  }

  async connect(): Promise<void> {
    await this.#cluster.connect();
  }

  get addresses(): readonly ServerPlace[] {
    return this.#cluster.masters.map(({ host, port }) => ({ host, port }));
  }

  send(key: string, command: readonly string[]): Promise<unknown> {
    return this.#cluster.sendCommand(key, false, [...command]);
  }

  get nodes(): StoreClient['nodes'] {
    return this.#cluster.masters.map((master) => async (command) => {
      const client = await this.#cluster.nodeClient(master);
      return client.sendCommand(command);
    });
  }

  close(): Promise<void> {
    return this.#cluster.close();
  }

  destroy(): void {
    this.#cluster.destroy();
  }
}

async function loadLibrary(): Promise<Library> {
  try {
    return await import('@redis/client');
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: 'session.store.kind',
      detail: 'The library @redis/client, which talks to the store, cannot be loaded. Run: npm install @redis/client@6',
      cause,
    });
  }
}

const WITH_LOGIN = /^([a-z]+:\/\/)(?:([^:@/]*)(?::([^@/]*))?@)?(.*)$/i;

async function serverOptions({ url, password, tls = {} }: StoreAddress): Promise<ServerOptions> {
  const [, scheme = '', user = '', inUrl = '', rest = url] = WITH_LOGIN.exec(url) ?? [];
  const secret = password ?? decodeURIComponent(inUrl);
  const files = await Promise.all([
    pem('ca', 'caFile', tls.caFile),
    pem('cert', 'certFile', tls.certFile),
    pem('key', 'keyFile', tls.keyFile),
  ]);
  const isSecured = scheme.toLowerCase() === 'rediss://';
  return {
    url: scheme + rest,
    common: {
      // The oldest servers speak it, and so does every other that knows the protocol.
      RESP: 2,
      disableOfflineQueue: true,
      ...(user !== '' && { username: decodeURIComponent(user) }),
      ...(secret !== '' && { password: secret }),
    },
    socket: {
      connectTimeout: CONNECT_MS,
      reconnectStrategy: false,
      ...(isSecured && { tls: true, ...Object.assign({}, ...files) }),
    },
  };
}

async function pem(name: string, key: string, file: string | undefined): Promise<object> {
  if (file === undefined) return {};
  try {
    return { [name]: await readFile(file) };
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: `session.store.tls.${key}`,
      detail: `${file} cannot be read`,
      cause,
    });
  }
}
