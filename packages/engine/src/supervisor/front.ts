import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import { closeStalled } from '../http/slow-clients.js';
import { type AccessRule, checkAccess } from './access.js';
import type { FrontMetrics } from './front-metrics.js';
import { ReceivedBodies } from './received-bodies.js';
import {
  breakStream,
  type RelayedRequest,
  type RelayOutcome,
  relay,
  sendError,
  sendWhole,
  type WholeAnswer,
} from './relay.js';
import { QueuedRequest, RequestLine } from './request-line.js';
import type { Supervisor } from './supervisor.js';
import type { Worker } from './worker.js';

export interface FrontOptions {
  readonly access: AccessRule;
  readonly supervisor: Supervisor<Worker>;
  readonly metrics: FrontMetrics;
  /** Largest request body in bytes. */
  readonly bodyLimitBytes: number;
  /** Most requests that wait while there is no worker. */
  readonly heldLimit: number;
  /** Milliseconds since some moment. */
  readonly clock: () => number;
}

/** Tries of a request that a living worker could not compute. */
const MAX_TRIES = 2;

/**
 * The HTTP server that clients are connected to. It holds their requests and relays them to the worker that the
 * supervisor has. When that crashes, the next one gets the requests that have no answer yet; a stream that had begun
 * goes on behind what its client has.
 */
export class Front {
  readonly server: Server;
  readonly #supervisor: Supervisor<Worker>;
  readonly #metrics: FrontMetrics;
  readonly #bodies: ReceivedBodies;
  readonly #heldLimit: number;
  readonly #line: RequestLine;
  #held = 0;

  constructor({ access, supervisor, metrics, bodyLimitBytes, heldLimit, clock }: FrontOptions) {
    this.#supervisor = supervisor;
    this.#metrics = metrics;
    // A worker knows how much of it a prompt can need.
    const limitBytes = (): number => supervisor.worker?.model.bodyLimitBytes ?? bodyLimitBytes;
    this.#bodies = new ReceivedBodies(limitBytes, (reason) => metrics.notReceived(reason));
    this.#heldLimit = heldLimit;
    this.#line = new RequestLine(clock);
    this.server = createServer((request, response) => {
      closeStalled(request, response);
      try {
        checkAccess(request, access);
      } catch (error) {
        if (access.key !== undefined && request.method === 'GET' && request.url === '/health') {
          sendWhole(response, supervisor.worker === undefined ? state(503, 'unavailable') : state(200, 'ok'));
        } else {
          fail(response, error);
        }
        return;
      }
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
      sendWhole(response, state(503, 'unavailable'));
    } else if (request.method === 'GET' && path === '/metrics') {
      await this.#sendMetrics(relayed, response);
    } else {
      await this.#relay(relayed, response);
    }
  }

  async #relay(sent: RelayedRequest, response: ServerResponse): Promise<void> {
    const request = new QueuedRequest(sent);
    this.#line.check(request);
    try {
      for (let tries = 0; ; ) {
        const worker = await this.#worker(request);
        let outcome: RelayOutcome;
        try {
          if (response.destroyed) {
            return;
          }
          this.#count(request, tries);
          outcome = await relay(worker, sent, response);
          if (outcome.kind !== 'lost' && outcome.kind !== 'failed') {
            return;
          }
          if (await worker.isAlive()) {
            tries++;
          } else if ((outcome.kind === 'failed' || outcome.sent) && this.#line.crashed(request, worker)) {
            throw crashed(request.crashes, outcome);
          }
        } finally {
          this.#line.leave(request, worker);
        }
        // What never left cannot have done any harm; it waits for the next worker like one that has just come.
        const mayRepeat = tries < MAX_TRIES;
        if (!mayRepeat && outcome.kind === 'failed' && sent.answer === undefined) {
          sendWhole(response, outcome.answer);
          return;
        }
        if (!mayRepeat) {
          throw crashed(tries + request.crashes, outcome);
        }
      }
    } finally {
      this.#line.end(request);
    }
  }

  #count({ sent, crashes }: QueuedRequest, tries: number): void {
    if (sent.answer !== undefined) {
      this.#metrics.continued();
    } else if (tries + crashes > 0) {
      this.#metrics.retried();
    }
  }

  /** The worker, which is waited for while it starts again, or while a request runs alone. */
  async #worker(request: QueuedRequest): Promise<Worker> {
    const { worker } = this.#supervisor;
    if (worker !== undefined && this.#line.enter(request, worker)) {
      return worker;
    }
    // Those that a worker had before were counted when they came.
    const isNew = request.crashes === 0;
    if (isNew && this.#held >= this.#heldLimit) {
      const detail = `${this.#held} requests are waiting since the engine crashed.`;
      throw new WarmpathError('WARMPATH_OVERLOADED', { detail });
    }
    this.#held += isNew ? 1 : 0;
    try {
      for (;;) {
        const next = await this.#supervisor.ready();
        if (this.#line.enter(request, next)) {
          return next;
        }
        await this.#line.wait();
      }
    } finally {
      this.#held -= isNew ? 1 : 0;
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

function crashed(times: number, outcome: RelayOutcome): WarmpathError {
  const often = times === 1 ? '' : times === 2 ? 'twice ' : `${times} times `;
  const detail = `The engine crashed ${often}while it computed this request.`;
  return new WarmpathError('WARMPATH_ENGINE_FAILED', {
    detail,
    ...(outcome.kind === 'lost' && { cause: outcome.cause }),
  });
}

function fail(response: ServerResponse, cause: unknown): void {
  if (response.destroyed) {
    return;
  }
  const error = WarmpathError.isInstance(cause) ? cause : new WarmpathError('WARMPATH_INTERNAL', { cause });
  if (response.headersSent) {
    breakStream(response, error.toOpenAI());
    return;
  }
  sendError(response, error);
}

/** What `GET /health` answers without asking the worker. */
function state(status: number, said: 'ok' | 'unavailable'): WholeAnswer {
  const body = Buffer.from(JSON.stringify({ status: said }));
  return { status, headers: { 'content-type': 'application/json; charset=utf-8' }, body };
}
