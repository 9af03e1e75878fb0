import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import { closeStalled } from '../http/slow-clients.js';
import { CrashSuspects } from './crash-suspects.js';
import type { FrontMetrics } from './front-metrics.js';
import { ReceivedBodies } from './received-bodies.js';
import { type RelayedRequest, relay, sendError, sendWhole } from './relay.js';
import type { Supervisor } from './supervisor.js';
import type { Worker } from './worker.js';

export interface FrontOptions {
  readonly supervisor: Supervisor<Worker>;
  readonly metrics: FrontMetrics;
  /** Largest request body in bytes. */
  readonly bodyLimitBytes: number;
  /** Most requests that wait while there is no worker. */
  readonly heldLimit: number;
}

/** Tries of a request that the worker may have seen. */
const MOST_TRIES = 2;

/**
 * The HTTP server that clients are connected to. It holds their requests, relays them to the worker that the supervisor
 * has, and sends a request again, once, that failed before its client has got anything of the answer.
 */
export class Front {
  readonly server: Server;
  readonly #supervisor: Supervisor<Worker>;
  readonly #metrics: FrontMetrics;
  readonly #bodies: ReceivedBodies;
  readonly #suspects = new CrashSuspects();
  readonly #heldLimit: number;
  #held = 0;

  constructor({ supervisor, metrics, bodyLimitBytes, heldLimit }: FrontOptions) {
    this.#supervisor = supervisor;
    this.#metrics = metrics;
    // A worker knows how much of it a prompt can need.
    this.#bodies = new ReceivedBodies(() => supervisor.worker?.model.bodyLimitBytes ?? bodyLimitBytes);
    this.#heldLimit = heldLimit;
    this.server = createServer((request, response) => {
      closeStalled(request, response);
      const answered = this.#bodies.hold(request, (body) => this.#answer(request, body, response));
      answered.catch((error: unknown) => fail(response, error));
    });
  }

  async #answer(request: IncomingMessage, body: Buffer, response: ServerResponse): Promise<void> {
    const path = request.url!;
    if (!path.startsWith('/')) {
      // `OPTIONS *`, and what only a proxy is asked.
      throw new WarmpathError('WARMPATH_NOT_FOUND');
    }
    const relayed: RelayedRequest = {
      method: request.method!,
      path,
      headers: request.headers,
      body: body.length > 0 ? body : null,
    };
    if (request.method === 'GET' && path === '/health' && this.#supervisor.worker === undefined) {
      // Whoever asks wants to know now.
      sendWhole(response, unavailable());
    } else if (request.method === 'GET' && path === '/metrics') {
      await this.#sendMetrics(relayed, response);
    } else {
      await this.#relay(relayed, response);
    }
  }

  async #relay(request: RelayedRequest, response: ServerResponse): Promise<void> {
    this.#suspects.check(request);
    let endTurn: () => void = () => undefined;
    try {
      for (let tries = 0; ; ) {
        const worker = await this.#worker();
        if (response.destroyed) {
          return;
        }
        if (tries > 0) {
          this.#metrics.retried();
        }
        const outcome = await relay(worker.pool, request, response, endTurn);
        endTurn();
        if (outcome.kind !== 'lost' && outcome.kind !== 'failed') {
          if (outcome.kind === 'answered') {
            this.#suspects.acquit(request);
          }
          return;
        }
        const isAlive = await worker.isAlive();
        if (!isAlive && outcome.kind === 'lost' && outcome.sent && this.#suspects.accuse(request)) {
          this.#supervisor.forgiveCrash();
        }
        // What never left cannot have done any harm; it waits for the next worker like one that has just come.
        if (isAlive || outcome.kind === 'failed' || outcome.sent) {
          tries++;
        }
        if (tries >= (isSpeculation(request) ? 1 : MOST_TRIES)) {
          if (outcome.kind === 'failed') {
            sendWhole(response, outcome.answer);
            return;
          }
          const detail = `The engine crashed ${tries === 1 ? '' : 'twice '}while it computed this request.`;
          throw new WarmpathError('WARMPATH_ENGINE_FAILED', { detail, cause: outcome.cause });
        }
        endTurn = isAlive ? () => undefined : await this.#suspects.turn();
      }
    } finally {
      endTurn();
    }
  }

  /** The worker, which is waited for while it starts again. */
  async #worker(): Promise<Worker> {
    const { worker } = this.#supervisor;
    if (worker !== undefined) {
      return worker;
    }
    if (this.#held >= this.#heldLimit) {
      const detail = `${this.#held} requests are waiting for the engine to start again.`;
      throw new WarmpathError('WARMPATH_OVERLOADED', { detail });
    }
    this.#held++;
    try {
      return await this.#supervisor.ready();
    } finally {
      this.#held--;
    }
  }

  /** What the worker counts and, behind it, what is counted here. */
  async #sendMetrics(request: RelayedRequest, response: ServerResponse): Promise<void> {
    const own = await this.#metrics.render();
    const body = await this.#workerMetrics(request);
    sendWhole(response, {
      status: 200,
      headers: { 'content-type': own.contentType },
      body: Buffer.from(body + own.body),
    });
  }

  async #workerMetrics({ path }: RelayedRequest): Promise<string> {
    const { worker } = this.#supervisor;
    if (worker === undefined) {
      return '';
    }
    try {
      const { body } = await worker.pool.request({ method: 'GET', path });
      return await body.text();
    } catch {
      return '';
    }
  }
}

/**
 * Whether a request is a speculation that waits for its confirmation. It is not sent again: a confirmation that came
 * before the crash is forgotten, and it would wait for ever. Asked after a failure alone, so bodies are not read
 * otherwise.
 */
function isSpeculation({ body }: RelayedRequest): boolean {
  if (body === null || !body.includes('"speculation"')) {
    return false;
  }
  try {
    const { speculation } = JSON.parse(body.toString()) as { speculation?: { confirmed?: unknown } | null };
    return typeof speculation === 'object' && speculation !== null && speculation.confirmed !== true;
  } catch {
    return false;
  }
}

function fail(response: ServerResponse, cause: unknown): void {
  if (response.destroyed) {
    return;
  }
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const error = WarmpathError.isInstance(cause) ? cause : new WarmpathError('WARMPATH_INTERNAL', { cause });
  sendError(response, error);
}

function unavailable(): { status: number; headers: { 'content-type': string }; body: Buffer } {
  const body = Buffer.from(JSON.stringify({ status: 'unavailable' }));
  return { status: 503, headers: { 'content-type': 'application/json; charset=utf-8' }, body };
}
