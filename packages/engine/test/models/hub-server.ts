import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** What the two servers do; change it between or during requests. */
export interface HubBehaviour {
  /** Content of the file. */
  content: Buffer;
  /** `x-linked-etag` of the hub; the SHA-256 of the content when left out, none when `null`. */
  linkedEtag?: string | null;
  /** `x-linked-size` of the hub; the length of the content when left out. */
  linkedSize?: number;
  /** Entity tag of the host that serves the bytes; none when `null`. */
  etag: string | null;
  /** Bytes after which the connection breaks, one entry a transfer; transfers beyond the list are whole. */
  cuts: number[];
  /** Answers that the hub gives instead of the redirect, one a request. */
  hubAnswers: { status: number; headers?: Record<string, string> }[];
  /** Leave ranges unheeded and send everything. */
  ignoreRanges: boolean;
  /** Start a range this many bytes before the one asked for. */
  rangeShift: number;
  /** Send without a length, in chunks. */
  chunked: boolean;
  /** Address to which the hub redirects; the serving host when left out. */
  location?: string;
  /** Paths of the repository's files, for its list. */
  files: string[];
  /** Called when a transfer's first bytes are on their way. */
  onTransfer?: () => void;
}

export interface SeenRequest {
  readonly server: 'hub' | 'storage';
  readonly path: string;
  readonly range: string | undefined;
  readonly authorization: string | undefined;
  /** What was answered. */
  status: number;
}

/**
 * A model hub on two ports: the hub itself names the content and redirects to a storage host on another origin, which
 * serves ranges, as the public one does.
 */
export class FakeHub {
  readonly requests: SeenRequest[] = [];
  readonly behaviour: HubBehaviour;
  #hub!: Server;
  #storage!: Server;
  url = '';
  storageUrl = '';

  constructor(content: Buffer) {
    this.behaviour = {
      content,
      etag: '"storage-1"',
      cuts: [],
      hubAnswers: [],
      files: [],
      ignoreRanges: false,
      rangeShift: 0,
      chunked: false,
    };
  }

  async start(): Promise<void> {
    this.#storage = await listen((request, response) => this.#serve(request, response));
    this.#hub = await listen((request, response) => this.#answer(request, response));
    this.url = origin(this.#hub);
    this.storageUrl = origin(this.#storage);
  }

  async stop(): Promise<void> {
    for (const server of [this.#hub, this.#storage]) {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    }
  }

  /** Requests that reached the storage host. */
  get transfers(): SeenRequest[] {
    return this.requests.filter(({ server }) => server === 'storage');
  }

  #note(server: SeenRequest['server'], request: IncomingMessage): SeenRequest {
    const { range, authorization } = request.headers;
    const seen = {
      server,
      path: request.url ?? '',
      range,
      authorization,
      status: 0,
    };
    this.requests.push(seen);
    return seen;
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const seen = this.#note('hub', request);
    const { content, linkedEtag, linkedSize, hubAnswers, location } = this.behaviour;
    const special = hubAnswers.shift();
    seen.status = special?.status ?? 302;
    if (special !== undefined) {
      response.writeHead(special.status, special.headers).end('not the file');
      return;
    }
    if (request.url?.startsWith('/api/models/') === true) {
      seen.status = 200;
      const entries = this.behaviour.files.map((path) => ({ type: 'file', path, size: content.length }));
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify([{ type: 'directory', path: 'Q4' }, ...entries]));
      return;
    }
    const tag = linkedEtag === undefined ? createHash('sha256').update(content).digest('hex') : linkedEtag;
    response.writeHead(302, {
      location: location ?? `${this.storageUrl}/blob?signature=secret`,
      'x-linked-size': linkedSize ?? content.length,
      ...(tag !== null && { 'x-linked-etag': `"${tag}"` }),
    });
    response.end('Found');
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const seen = this.#note('storage', request);
    const { content, etag, ignoreRanges, chunked, onTransfer } = this.behaviour;
    const asked = /^bytes=(\d+)-$/.exec(seen.range ?? '');
    const from = asked !== null && !ignoreRanges ? Number(asked[1]) - this.behaviour.rangeShift : 0;
    if (from >= content.length) {
      seen.status = 416;
      response.writeHead(416, { 'content-range': `bytes */${content.length}` }).end();
      return;
    }
    seen.status = from > 0 ? 206 : 200;
    response.writeHead(seen.status, {
      ...(etag !== null && { etag }),
      ...(!chunked && { 'content-length': content.length - from }),
      ...(from > 0 && { 'content-range': `bytes ${from}-${content.length - 1}/${content.length}` }),
    });
    const cut = this.behaviour.cuts.shift();
    if (cut === undefined) {
      response.end(content.subarray(from), () => onTransfer?.());
      return;
    }
    // Ending the socket, not destroying it, delivers what was written before the cut.
    const breakOff = () => {
      onTransfer?.();
      response.socket?.end();
    };
    response.flushHeaders();
    if (cut === 0) breakOff();
    else response.write(content.subarray(from, from + cut), breakOff);
  }
}

async function listen(handler: (request: IncomingMessage, response: ServerResponse) => void): Promise<Server> {
  const server = createServer(handler);
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  return server;
}

function origin(server: Server): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
