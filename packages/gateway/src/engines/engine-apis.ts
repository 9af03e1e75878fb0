import type { IncomingHttpHeaders } from 'node:http';
import type { GatewayConfig } from '../config/schema.js';
import { requestHeaders } from '../dispatch/headers.js';
import type { Upstream } from '../dispatch/upstream.js';
import type { TranslatedApi } from './translate-request.js';

/** How a request goes to the engine: as it is, or translated into chat completions. */
export type Way = 'native' | 'translate';

/** Milliseconds for which it is remembered what the engine speaks; it may have been replaced by then. */
const REMEMBERED_MS = 600_000;

/** What servers answer at a path that they do not have. */
const NO_SUCH_ROUTE = new Set([404, 405, 501]);
/** Answers that come from something in front of the route: a key that is wrong, a proxy, an engine that is not ready. */
const SAYS_NOTHING = new Set([401, 403, 407, 408, 429, 502, 503, 504]);

/** What the engine speaks besides chat completions: configured, or found out by asking. */
export class EngineApis {
  readonly #upstream: Upstream;
  readonly #settings: Pick<GatewayConfig['upstream'], 'messages' | 'responses'>;
  readonly #totalMs: number;
  readonly #now: () => number;
  readonly #known = new Map<TranslatedApi, { readonly way: Way; readonly until: number }>();
  readonly #asking = new Map<TranslatedApi, Promise<Way>>();

  /** `now`: the monotonic clock, in milliseconds. */
  constructor(upstream: Upstream, settings: GatewayConfig['upstream'], now: () => number) {
    this.#upstream = upstream;
    this.#settings = settings;
    this.#totalMs = settings.timeouts.connectMs;
    this.#now = now;
  }

  /**
   * The way of a request with these headers, in which the engine finds its key. What is not known is asked for, once for all
   * who wait: an empty request, which an engine that has the route refuses. Where the answer says nothing, the request goes
   * as it is, and the next one asks again. Never rejects.
   */
  way(
    api: TranslatedApi,
    headers: IncomingHttpHeaders,
    own: Readonly<Record<string, string | undefined>>,
  ): Way | Promise<Way> {
    const setting = this.#settings[api];
    if (setting !== 'auto') return setting;
    const known = this.#known.get(api);
    if (known !== undefined && this.#now() < known.until) return known.way;
    let asking = this.#asking.get(api);
    if (asking === undefined) {
      asking = this.#ask(api, requestHeaders(headers, { ...own, 'content-type': 'application/json' }));
      this.#asking.set(api, asking);
    }
    return asking;
  }

  async #ask(api: TranslatedApi, headers: Record<string, string | string[]>): Promise<Way> {
    const status = await this.#statusOf(`/v1/${api}`, headers);
    this.#asking.delete(api);
    if (status === undefined || SAYS_NOTHING.has(status)) return 'native';
    const way = NO_SUCH_ROUTE.has(status) ? 'translate' : 'native';
    this.#known.set(api, { way, until: this.#now() + REMEMBERED_MS });
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
        { totalMs: this.#totalMs, isBackground: true },
      );
    });
  }
}
