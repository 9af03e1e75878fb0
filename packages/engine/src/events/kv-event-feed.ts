import type { TierListener } from '../cache/tier-listener.js';
import type { KvEvent, KvEventPublisher } from './kv-event.js';
import { KvEventLog } from './kv-event-log.js';

export interface KvEventFeedOptions {
  readonly publisher: KvEventPublisher;
  /** Tokens of one block. */
  readonly blockTokens: number;
  /** Milliseconds since 1970. */
  readonly clock: () => number;
}

/**
 * From one life of a cache to a publisher that may outlive it: what changed goes out as one batch a step. The first
 * event says that nothing lies anywhere, because a consumer may still believe what an earlier life held; so does the
 * last.
 */
export class KvEventFeed {
  readonly #publisher: KvEventPublisher;
  readonly #log: KvEventLog;
  readonly #clock: () => number;
  #hasBegun = false;

  constructor({ publisher, blockTokens, clock }: KvEventFeedOptions) {
    this.#publisher = publisher;
    this.#log = new KvEventLog(blockTokens);
    this.#clock = clock;
  }

  /** What the cache has to tell. */
  get listener(): TierListener {
    return this.#log;
  }

  /** Publishes what has changed since the last time, if anything has. */
  flush(): void {
    const events = this.#log.drain();
    this.#publish(this.#hasBegun ? events : [{ type: 'cleared' }, ...events]);
    this.#hasBegun = true;
  }

  /** The cache is gone. */
  end(): void {
    this.#log.drain();
    this.#publish([{ type: 'cleared' }]);
  }

  #publish(events: readonly KvEvent[]): void {
    if (events.length > 0) {
      this.#publisher.publish({ timestamp: this.#clock() / 1000, events });
    }
  }
}
