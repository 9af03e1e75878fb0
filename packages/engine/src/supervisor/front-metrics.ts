import { Counter, Gauge, Registry } from 'prom-client';
import type { ZmqPublisherStats } from '../events/zmq-publisher.js';
import { REFUSED_BODIES, type RefusedBody } from './received-bodies.js';

/** What the front counts beside the worker's own metrics, which begin again with every worker. */
export class FrontMetrics {
  readonly #registry = new Registry();
  readonly #retries = this.#counter(
    'retries',
    'Requests that were computed again because they failed before their first token',
  );
  readonly #continued = this.#counter(
    'continued_streams',
    'Times that a stream went on behind what its client had, after a crash or a decode that failed',
  );
  readonly #notReceived = new Counter({
    name: 'warmpath_engine_bodies_not_received_total',
    help: 'Bodies that were refused before they were received, by reason',
    labelNames: ['reason'],
    registers: [this.#registry],
  });

  /**
   * @param isUp Whether there is a worker.
   * @param restarts Restarts since the start.
   */
  constructor(isUp: () => boolean, restarts: () => number) {
    this.#gauge('up', 'Whether the process that computes is there', () => Number(isUp()));
    const again = 'Times that the process that computes was started again after a crash';
    const restarted = this.#counter('restarts', again, () => {
      restarted.reset();
      restarted.inc(restarts());
    });
    for (const reason of REFUSED_BODIES) {
      this.#notReceived.inc({ reason }, 0);
    }
  }

  /** A body was refused before all of it had come. */
  notReceived(reason: RefusedBody): void {
    this.#notReceived.inc({ reason });
  }

  /** Adds what is published of the cache. Call it once. */
  watchEvents(stats: () => ZmqPublisherStats): void {
    const gauge = (name: string, help: string, read: (stats: ZmqPublisherStats) => number): void =>
      this.#gauge(`kv_event_${name}`, help, () => read(stats()));
    gauge('next_sequence', 'The number that the next batch of KV events gets', ({ nextSequence }) => nextSequence);
    gauge('buffered_batches', 'Batches of KV events that can be replayed', ({ bufferedSteps }) => bufferedSteps);
    gauge('buffered_bytes', 'Bytes of batches that can be replayed', ({ bufferedBytes }) => bufferedBytes);
    gauge('failures', 'Batches that the socket refused, since the start', ({ failures }) => failures);
  }

  /** A request is sent to a worker again. */
  retried(): void {
    this.#retries.inc();
  }

  /** A stream goes on. */
  continued(): void {
    this.#continued.inc();
  }

  /** @param model The label `model_name` of every metric. */
  name(model: string): void {
    this.#registry.setDefaultLabels({ model_name: model });
  }

  /** @returns The metrics in Prometheus' text format and their content type. */
  async render(): Promise<{ body: string; contentType: string }> {
    return { body: await this.#registry.metrics(), contentType: this.#registry.contentType };
  }

  #counter(name: string, help: string, collect?: () => void): Counter {
    const registers = [this.#registry];
    return new Counter({ name: `warmpath_engine_${name}_total`, help, registers, ...(collect && { collect }) });
  }

  #gauge(name: string, help: string, read: () => number): void {
    const collect = (): void => gauge.set(read());
    const gauge: Gauge = new Gauge({ name: `warmpath_engine_${name}`, help, registers: [this.#registry], collect });
  }
}
