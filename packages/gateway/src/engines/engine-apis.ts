import type { IncomingHttpHeaders } from 'node:http';
import type { TranslatedApi } from '@warmpath/translate';
import { type Caller, KEY_HEADERS } from '../intake/authenticate.js';
import { type HeaderOverrides, requestHeaders } from '../intake/headers.js';
import type { Upstream } from './upstream.js';

/** How a request reaches the engine: as it is, or translated into chat completions. */
export type ApiRoute = 'native' | 'translate';

/** Milliseconds after which the engine is asked again. Another engine may be there by then. */
const REMEMBERED_MS = 600_000;

/** Remembered answers, if each tenant has its own. The oldest is dropped first. */
const REMEMBERED_ANSWERS = 1_024;

/** Statuses of servers for an unknown path. */
const NO_SUCH_ROUTE = new Set([404, 405, 501]);
/** Statuses that prove nothing about the route: a wrong key, a proxy, an engine that is not ready. */
const SAYS_NOTHING = new Set([401, 403, 407, 408, 425, 429]);

export interface AskedEngine {
  readonly upstream: Upstream;
  /** Headers of every request of the gateway. */
  readonly credentials: HeaderOverrides;
  /** Whether clients' own keys are forwarded to it. */
  readonly forwardsClientKey: boolean;
}

/** Finds out which APIs the engine speaks besides chat completions. */
export class EngineApis {
  readonly #upstream: Upstream;
  readonly #route: ApiRoute | undefined;
  readonly #credentials: HeaderOverrides;
  readonly #asksWithClientKey: boolean;
  readonly #now: () => number;
  readonly #known = new Map<string, { readonly route: ApiRoute; readonly until: number }>();
  readonly #asking = new Map<string, Promise<ApiRoute>>();

  /**
   * @param route Of all requests; the engine is asked if `undefined`.
   * @param now The monotonic clock, in milliseconds.
   */
  constructor(engine: AskedEngine, route: ApiRoute | undefined, now: () => number) {
    const { upstream, credentials, forwardsClientKey } = engine;
    this.#upstream = upstream;
    this.#route = route;
    this.#credentials = credentials;
    this.#asksWithClientKey = forwardsClientKey;
    this.#now = now;
  }

  /**
   * How a caller's request reaches the engine. If unknown, the gateway sends one empty request, which an engine with
   * that route refuses. With the gateway's own key, the answer holds for all tenants. With clients' keys, it is sent
   * with this client's key and holds for its tenant only. An answer that proves nothing counts as `native` once. Never
   * rejects.
   */
  routeOf(
    api: TranslatedApi,
    { tenant }: Pick<Caller, 'tenant'>,
    headers: IncomingHttpHeaders,
  ): ApiRoute | Promise<ApiRoute> {
    if (this.#route !== undefined) return this.#route;
    const question = this.#asksWithClientKey ? `${api} ${tenant}` : api;
    const known = this.#known.get(question);
    if (known !== undefined && this.#now() < known.until) return known.route;
    let asking = this.#asking.get(question);
    if (asking === undefined) {
      const keys = this.#asksWithClientKey ? KEY_HEADERS.map((name) => [name, headers[name]]) : [];
      asking = this.#ask(api, question, Object.fromEntries(keys) as IncomingHttpHeaders);
      this.#asking.set(question, asking);
    }
    return asking;
  }

  async #ask(api: TranslatedApi, question: string, keys: IncomingHttpHeaders): Promise<ApiRoute> {
    const headers = requestHeaders(keys, this.#credentials, { 'content-type': 'application/json' });
    const status = await this.#statusOf(`/v1/${api}`, headers);
    this.#asking.delete(question);
    const route = status === undefined ? undefined : routeOf(status);
    if (route === undefined) return 'native';
    this.#known.delete(question);
    this.#known.set(question, { route, until: this.#now() + REMEMBERED_MS });
    if (this.#known.size > REMEMBERED_ANSWERS) this.#known.delete(this.#known.keys().next().value!);
    return route;
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

/** What the status of an empty request proves; `undefined`: nothing. */
function routeOf(status: number): ApiRoute | undefined {
  if (NO_SUCH_ROUTE.has(status)) return 'translate';
  const isRouteThere = status < 300 || (status >= 400 && status < 500 && !SAYS_NOTHING.has(status));
  return isRouteThere ? 'native' : undefined;
}
