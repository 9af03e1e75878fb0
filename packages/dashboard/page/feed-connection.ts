import type { FeedStart, FeedTick } from '../src/feed.ts';

/** How the page stands to the gateway. */
export type Connection =
  | { readonly kind: 'connecting' | 'live' }
  /** A key is needed; `isWrong` where one was sent. */
  | { readonly kind: 'key'; readonly isWrong: boolean }
  /** Nobody may see this, and why. */
  | { readonly kind: 'refused'; readonly message: string }
  /** Nothing answers; it is tried again at that time of `Date.now`. */
  | { readonly kind: 'gone'; readonly message: string; readonly retryAt: number };

export interface FeedListener {
  changed(connection: Connection): void;
  start(start: FeedStart): void;
  tick(tick: FeedTick): void;
}

const KEY_NAME = 'warmpath-operator-key';
/** Milliseconds without an event after which the gateway counts as gone; it sends one each second. */
const SILENCE_MS = 6_000;
const RETRY_MS = [1_000, 2_000, 4_000, 8_000, 15_000];

/**
 * Reads the gateway's events, and connects again when they end. With `fetch`, because `EventSource` sends no key. A
 * page that nobody sees is not connected.
 */
export class FeedConnection {
  readonly #listener: FeedListener;
  #abort: AbortController | undefined;
  #retry: number | undefined;
  #failures = 0;

  constructor(listener: FeedListener) {
    this.#listener = listener;
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) this.#stop();
      else if (this.#abort === undefined) this.connect();
    });
  }

  /** The operator's key; kept as long as the tab. */
  get key(): string | null {
    return sessionStorage.getItem(KEY_NAME);
  }

  /** Takes a key, or forgets it, and connects with it. */
  useKey(key: string | null): void {
    if (key === null) sessionStorage.removeItem(KEY_NAME);
    else sessionStorage.setItem(KEY_NAME, key);
    this.connect();
  }

  connect(): void {
    this.#stop();
    const abort = new AbortController();
    this.#abort = abort;
    this.#listener.changed({ kind: 'connecting' });
    this.#read(abort).catch((error: unknown) => {
      if (this.#abort !== abort) return;
      this.#failed(error instanceof Refusal ? error.message : 'The gateway does not answer.');
    });
  }

  /** Asks the gateway for something else. Rejects with a sentence for the reader. */
  get<Answer>(path: string): Promise<Answer> {
    return this.#ask(path, { headers: this.#headers() });
  }

  /** Sends JSON to the gateway. Rejects as `get` does. */
  post<Answer>(path: string, body: object): Promise<Answer> {
    const headers = { ...this.#headers(), 'content-type': 'application/json' };
    return this.#ask(path, { method: 'POST', headers, body: JSON.stringify(body) });
  }

  async #ask<Answer>(path: string, request: RequestInit): Promise<Answer> {
    const response = await fetch(path, request).catch(() => {
      throw new Error('The gateway does not answer.');
    });
    if (response.ok) return (await response.json()) as Answer;
    throw new Error(await messageOf(response));
  }

  #headers(): Record<string, string> {
    const { key } = this;
    return key === null ? {} : { authorization: `Bearer ${key}` };
  }

  #stop(): void {
    clearTimeout(this.#retry);
    this.#abort?.abort();
    this.#abort = undefined;
  }

  async #read(abort: AbortController): Promise<void> {
    const watch = new SilenceWatch(abort);
    try {
      const response = await fetch('/ui/events', { headers: this.#headers(), signal: abort.signal, cache: 'no-store' });
      if (response.status === 401) {
        this.#listener.changed({ kind: 'key', isWrong: this.key !== null });
        return;
      }
      if (response.status === 403) {
        this.#listener.changed({ kind: 'refused', message: await messageOf(response) });
        return;
      }
      if (!response.ok || response.body === null) throw new Refusal(await messageOf(response));
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let held = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) throw new Refusal('The gateway ended the connection.');
        watch.heard();
        const events = (held + value).split('\n\n');
        held = events.pop()!;
        for (const event of events) this.#take(event);
      }
    } finally {
      watch.close();
    }
  }

  #take(event: string): void {
    const [name, data] = event.split('\n');
    const value: unknown = JSON.parse(data!.slice('data: '.length));
    if (name === 'event: start') {
      this.#failures = 0;
      this.#listener.start(value as FeedStart);
      this.#listener.changed({ kind: 'live' });
    } else this.#listener.tick(value as FeedTick);
  }

  #failed(message: string): void {
    const wait = RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)]!;
    this.#abort = undefined;
    this.#listener.changed({ kind: 'gone', message, retryAt: Date.now() + wait });
    this.#retry = window.setTimeout(() => {
      if (!document.hidden) this.connect();
    }, wait);
  }
}

/** Something that the gateway said, or did. */
class Refusal extends Error {}

/** Gives up a connection on which nothing comes. */
class SilenceWatch {
  readonly #abort: AbortController;
  #timer: number | undefined;

  constructor(abort: AbortController) {
    this.#abort = abort;
    this.heard();
  }

  heard(): void {
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => this.#abort.abort(), SILENCE_MS);
  }

  close(): void {
    clearTimeout(this.#timer);
  }
}

async function messageOf(response: Response): Promise<string> {
  const body = (await response.json().catch(() => null)) as { error?: { message?: string } } | null;
  return body?.error?.message ?? `The gateway answers with status ${response.status}.`;
}
