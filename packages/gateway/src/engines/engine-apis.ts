import type { IncomingHttpHeaders } from 'node:http';
import type { TranslatedApi } from '@warmpath/translate';
import { type Caller, KEY_HEADERS } from '../intake/authenticate.js';
import { type HeaderOverrides, requestHeaders } from '../intake/headers.js';
import type { Upstream } from './upstream.js';

/** How a request goes to the engine: as it is, or translated into chat completions. */
export type Way = 'native' | 'translate';

/** Milliseconds for which it is remembered what the engine speaks; it may have been replaced by then. */
const REMEMBERED_MS = 600_000;

/** Answers remembered, where each tenant has its own; the oldest goes first. */
const REMEMBERED_ANSWERS = 1_024;

/** What servers answer at a path that they do not have. */
const NO_SUCH_ROUTE = new Set([404, 405, 501]);
/**
 * Refusals that come from something in front of the route: a key that is wrong, a proxy, an engine that is not ready.
 */
const SAYS_NOTHING = new Set([401, 403, 407, 408, 425, 429]);

/** The engine that is asked. */
export interface AskedEngine {
  readonly upstream: Upstream;
  /** What every request to it carries of the gateway. */
  readonly credentials: HeaderOverrides;
  /** Whether it gets the keys that clients send. */
  readonly forwardsClientKey: boolean;
}

/** What the engine speaks besides chat completions, found out by asking. */
export class EngineApis {
  readonly #upstream: Upstream;
  readonly #way: Way | undefined;
  readonly #credentials: HeaderOverrides;
  readonly #asksWithClientKey: boolean;
  readonly #now: () => number;
  readonly #known = new Map<string, { readonly way: Way; readonly until: number }>();
  readonly #asking = new Map<string, Promise<Way>>();

  /**
   * @param way Of all requests; the engine is asked if `undefined`.
   * @param now The monotonic clock, in milliseconds.
   */
  constructor(engine: AskedEngine, way: Way | undefined, now: () => number) {
    const { upstream, credentials, forwardsClientKey } = engine;
    this.#upstream = upstream;
    this.#way = way;
    this.#credentials = credentials;
    this.#asksWithClientKey = forwardsClientKey;
    this.#now = now;
  }

  /**
   * How a request of that caller goes to the engine. What is not known is asked for, once for all who wait: an empty
   * request, which an engine that has the route refuses. It carries the gateway's own key, and the answer is
   * everybody's; where the engine gets clients' keys, it carries nothing but that client's, and the answer is that
   * tenant's alone. Where the answer says nothing, the request goes as it is, and the next one asks again. Never
   * rejects.
   */
  way(api: TranslatedApi, { tenant }: Pick<Caller, 'tenant'>, headers: IncomingHttpHeaders): Way | Promise<Way> {
    if (this.#way !== undefined) return this.#way;
    const question = this.#asksWithClientKey ? `${api} ${tenant}` : api;
    const known = this.#known.get(question);
    if (known !== undefined && this.#now() < known.until) return known.way;
    let asking = this.#asking.get(question);
    if (asking === undefined) {
      const keys = this.#asksWithClientKey ? KEY_HEADERS.map((name) => [name, headers[name]]) : [];
      asking = this.#ask(api, question, Object.fromEntries(keys) as IncomingHttpHeaders);
      this.#asking.set(question, asking);
    }
    return asking;
  }

  async #ask(api: TranslatedApi, question: string, keys: IncomingHttpHeaders): Promise<Way> {
    const headers = requestHeaders(keys, this.#credentials, { 'content-type': 'application/json' });
    const status = await this.#statusOf(`/v1/${api}`, headers);
    this.#asking.delete(question);
    const way = status === undefined ? undefined : wayOf(status);
    if (way === undefined) return 'native';
    this.#known.delete(question);
    this.#known.set(question, { way, until: this.#now() + REMEMBERED_MS });
    if (this.#known.size > REMEMBERED_ANSWERS) this.#known.delete(this.#known.keys().next().value!);
    return way;
  }

  #statusOf(path: string, headers: Record<string, string | string[]>): Promise<number | undefined> {
    return new Promise((resolve) => {
      let status: number | undefined;
      this.#upstream.start(
        { method: 'POST', path, headers, body: '{}' },
        {
          onHead: (answered) => {
            status = answered;
          },
          onData: () => true,
          onEnd: () => resolve(status),
          onError: () => resolve(status),
        },
        { totalMs: this.#upstream.connectMs, isBackground: true },
      );
    });
  }
}

/** What the answer to an empty request proves; `undefined` for nothing. */
function wayOf(status: number): Way | undefined {
  if (NO_SUCH_ROUTE.has(status)) return 'translate';
  const isRouteThere = status < 300 || (status >= 400 && status < 500 && !SAYS_NOTHING.has(status));
  return isRouteThere ? 'native' : undefined;
}
