/** What a router sees of a replica when a request comes. */
export interface ReplicaLoad {
  /** Requests that wait or run there. */
  readonly requests: number;
  /** Prompt tokens that those still have to compute, as far as is known. */
  readonly pendingTokens: number;
  /**
   * Prompt tokens that the request would have to compute there; all of them where the router does not look at caches.
   */
  readonly newTokens: number;
}

/** Chooses the replica of each request as it comes. */
export interface Router {
  /** Whether it reads `newTokens`, for which the request must be arranged for every replica. */
  readonly readsCaches: boolean;
  /** Place of the chosen replica. */
  choose(replicas: readonly ReplicaLoad[]): number;
}

/** A router for one run; some keep state. */
export type CreateRouter = () => Router;

export const ROUTER_NAMES = ['round-robin', 'least-loaded', 'cache-aware'] as const;

export type RouterName = (typeof ROUTER_NAMES)[number];

/**
 * Routers by name. `round-robin`: each in turn. `least-loaded`: the fewest requests. `cache-aware`: where the fewest
 * tokens stand between the request and its first token, those pending and its own: what is cached weighs as much as
 * what waits, without a weight to tune. Equals are taken in turn.
 */
export const ROUTERS: Readonly<Record<RouterName, CreateRouter>> = {
  'round-robin': () => leastOf(false, () => 0),
  'least-loaded': () => leastOf(false, ({ requests }) => requests),
  'cache-aware': () => leastOf(true, ({ pendingTokens, newTokens }) => pendingTokens + newTokens),
};

/** The replica of the least burden; of equals, the first one behind the one chosen last. O(replicas). */
function leastOf(readsCaches: boolean, burden: (replica: ReplicaLoad) => number): Router {
  let last = -1;
  return {
    readsCaches,
    choose: (replicas) => {
      let best = (last + 1) % replicas.length;
      let least = burden(replicas[best]!);
      for (let step = 2; step <= replicas.length; step++) {
        const place = (last + step) % replicas.length;
        const value = burden(replicas[place]!);
        if (value < least) [best, least] = [place, value];
      }
      last = best;
      return best;
    },
  };
}
