import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { WarmpathError } from '@warmpath/core';
import { closeStalled } from '../http/slow-clients.js';
import { type AccessRule, checkAccess } from './access.js';
import { type RelayedRequest, relay, sendError } from './relay.js';
import { RequestBodies } from './request-bodies.js';
import type { Supervisor } from './supervisor.js';
import type { Worker } from './worker.js';

export interface FrontOptions {
  readonly access: AccessRule;
  readonly supervisor: Pick<Supervisor<Worker>, 'worker' | 'ready' | 'restarts'>;
  readonly bodyLimitBytes: number;
  readonly heldLimit: number;
}

/** How often a request without an answer is sent to the next worker. It may be what crashes them. */
const MAX_RETRIES = 1;
/** How long after its connections a worker may end. */
const EXIT_DELAY_MS = 1_000;

/**
 * The HTTP server that clients are connected to. It relays their requests to the worker that the supervisor has. When
 * the worker crashes, streams that had begun end with an error, and other requests go to the next worker.
 */
export class Front {
  readonly server: Server;
  readonly #options: FrontOptions;
  readonly #bodies: RequestBodies;
  #held = 0;
  /** Name of the model, once a worker has said it. */
  #model = '';

  constructor(options: FrontOptions) {
    this.#options = options;
    const { supervisor, bodyLimitBytes } = options;
    // A worker knows how large a body of its longest prompt can be.
    this.#bodies = new RequestBodies(() => supervisor.worker?.model.bodyLimitBytes ?? bodyLimitBytes);
    this.server = createServer((request, response) => {
      closeStalled(request, response);
      this.#answer(request, response).catch((cause: unknown) => {
        if (!response.destroyed) {
          const error = WarmpathError.isInstance(cause) ? cause : new WarmpathError('WARMPATH_INTERNAL', { cause });
          sendError(response, error);
        }
      });
    });
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { access, supervisor } = this.#options;
    const { method, url: path, headers } = request as IncomingMessage & { method: string; url: string };
    try {
      checkAccess(request, access);
    } catch (error) {
      if (access.key !== undefined && method === 'GET' && path === '/health') {
        return sendHealth(response, supervisor.worker !== undefined);
      }
      throw error;
    }
    await this.#bodies.hold(request, async (body) => {
      if (!path.startsWith('/')) {
        // `OPTIONS *`, and requests to a proxy.
        throw new WarmpathError('WARMPATH_NOT_FOUND');
      }
      if (method === 'GET' && path === '/health' && supervisor.worker === undefined) {
        sendHealth(response, false);
      } else if (method === 'GET' && path === '/metrics') {
        await this.#sendMetrics(response);
      } else {
        await this.#relay({ method, path, headers, body }, response);
      }
    });
  }

  async #relay(request: RelayedRequest, response: ServerResponse): Promise<void> {
    for (let retries = 0; ; retries++) {
      const worker = await this.#worker();
      if (response.destroyed) return;
      try {
        return await relay(worker.pool, request, response);
      } catch (error) {
        if (response.headersSent || retries === MAX_RETRIES) throw error;
        // A worker that breaks connections off has crashed, which is known a moment later.
        await Promise.race([worker.exited, delay(EXIT_DELAY_MS)]);
      }
    }
  }

  /** The worker, which is waited for while it starts again. */
  async #worker(): Promise<Worker> {
    const { supervisor, heldLimit } = this.#options;
    if (supervisor.worker !== undefined) return supervisor.worker;
    if (this.#held >= heldLimit) {
      const detail = `${this.#held} requests are waiting since the engine crashed.`;
      throw new WarmpathError('WARMPATH_OVERLOADED', { detail });
    }
    this.#held++;
    try {
      return await supervisor.ready();
    } finally {
      this.#held--;
    }
  }

  /** The worker's metrics, and behind them the front's own, which outlive it. */
  async #sendMetrics(response: ServerResponse): Promise<void> {
    const { worker, restarts } = this.#options.supervisor;
    this.#model = worker?.model.name ?? this.#model;
    const { too_large: tooLarge, no_room: noRoom } = this.#bodies.refused;
    const model = `model_name=${JSON.stringify(this.#model)}`;
    const refused = 'warmpath_engine_bodies_not_received_total';
    const own = [
      '# HELP warmpath_engine_up Whether the process that computes is there',
      '# TYPE warmpath_engine_up gauge',
      `warmpath_engine_up{${model}} ${Number(worker !== undefined)}`,
      '# HELP warmpath_engine_restarts_total Times that the process that computes was started again after a crash',
      '# TYPE warmpath_engine_restarts_total counter',
      `warmpath_engine_restarts_total{${model}} ${restarts}`,
      `# HELP ${refused} Bodies that were refused before they were received, by reason`,
      `# TYPE ${refused} counter`,
      `${refused}{reason="too_large",${model}} ${tooLarge}`,
      `${refused}{reason="no_room",${model}} ${noRoom}`,
    ];
    const theirs = worker === undefined ? '' : await metricsOf(worker);
    response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' });
    response.end(`${theirs}${own.join('\n')}\n`);
  }
}

async function metricsOf({ pool }: Worker): Promise<string> {
  try {
    const { body } = await pool.request({ method: 'GET', path: '/metrics' });
    return await body.text();
  } catch {
    // It has just crashed.
    return '';
  }
}

/** What `GET /health` answers without asking the worker. */
function sendHealth(response: ServerResponse, isUp: boolean): void {
  response.writeHead(isUp ? 200 : 503, { 'content-type': 'application/json; charset=utf-8' });
  response.end(JSON.stringify({ status: isUp ? 'ok' : 'unavailable' }));
}
