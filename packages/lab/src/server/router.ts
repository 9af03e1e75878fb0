import { EngineRouter, fingerprint } from '@warmpath/core/internal';
import { MersenneTwister } from '../workloads/mersenne-twister.js';
import type { WorkloadRequest } from '../workloads/workload.js';

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

/** What a router sees of a request. */
export interface RoutedRequest {
  /** Place in the workload. */
  readonly number: number;
  readonly request: WorkloadRequest;
  /** All tokens of its prompt. */
  readonly promptTokens: number;
}

/** Chooses the replica of each request as it comes. */
export interface Router {
  /** Whether it reads `newTokens`, for which the request must be arranged for every replica. */
  readonly readsCaches: boolean;
  /** Place of the chosen replica. */
  choose(replicas: readonly ReplicaLoad[], routed: RoutedRequest): number;
}

/** A router for one run; some keep state. */
export type CreateRouter = () => Router;

export const ROUTER_NAMES = [
  'round-robin',
  'random',
  'least-loaded',
  'session-hash',
  'prefix-hash',
  'two-mode',
  'weighted-score',
  'cache-aware',
  'cache-pressure',
] as const;

export type RouterName = (typeof ROUTER_NAMES)[number];

/** Requests that a replica may have beside its share, in `prefix-hash` (Mirrokni et al.: 1.25 keeps moves few). */
const BOUND = 1.25;
/** SGLang's router, as its command line sets it (`policies/cache_aware.rs`): when loads count as apart, and a match. */
const TWO_MODE = { absolute: 64, relative: 1.5, match: 0.3 };
/** Weight of the cached share beside that of the load, in llm-d's default profile. */
const CACHED_WEIGHT = 2;
const RANDOM_SEED = 5_489;

/**
 * Routers by name. `round-robin`: each in turn. `random`: any. `least-loaded`: the fewest requests. `session-hash`: the
 * replica that the session's name stands for; without a session, any. `prefix-hash`: the one that the first document
 * stands for, unless it has a quarter more than its share of requests; then the next. `two-mode`: SGLang's, the least
 * loaded while loads are far apart, else the best match, if it is a match of 30 %. `weighted-score`: llm-d's, the
 * cached share twice and the share of free places once. `cache-aware`: where the fewest tokens stand between the
 * request and its first token, those pending and its own, as NVIDIA Dynamo counts it. `cache-pressure`: the same, and
 * what its new tokens push out of that cache (`bench/fleet.js`). Equals are taken in turn.
 */
export const ROUTERS: Readonly<Record<RouterName, CreateRouter>> = {
  'round-robin': () => leastOf(false, () => 0),
  random: () => {
    const draws = new MersenneTwister(RANDOM_SEED);
    return { readsCaches: false, choose: ({ length }) => Math.floor(length * draws.random()) };
  },
  'least-loaded': () => leastOf(false, ({ requests }) => requests),
  'session-hash': () => ({
    readsCaches: false,
    choose: ({ length }, { number, request }) => preferences(request.session ?? `#${number}`, length)[0]!,
  }),
  'prefix-hash': () => ({ readsCaches: false, choose: chooseByPrefix }),
  'two-mode': twoMode,
  'weighted-score': () =>
    leastOf(true, ({ requests, newTokens }, { promptTokens, mostRequests }) => {
      const cachedShare = promptTokens === 0 ? 0 : 1 - newTokens / promptTokens;
      return requests / Math.max(1, mostRequests) - CACHED_WEIGHT * cachedShare;
    }),
  'cache-aware': () => leastOf(true, ({ pendingTokens, newTokens }) => pendingTokens + newTokens),
  'cache-pressure': cachePressure,
};

/** What a burden may depend on beside the replica. */
interface Surroundings {
  readonly promptTokens: number;
  /** Of the replica that has most. */
  readonly mostRequests: number;
}

/** The replica of the least burden; of equals, the first one behind the one chosen last. O(replicas). */
function leastOf(readsCaches: boolean, burden: (replica: ReplicaLoad, of: Surroundings) => number): Router {
  let last = -1;
  return {
    readsCaches,
    choose: (replicas, { promptTokens }) => {
      const of = { promptTokens, mostRequests: Math.max(...replicas.map(({ requests }) => requests)) };
      let best = (last + 1) % replicas.length;
      let least = burden(replicas[best]!, of);
      for (let step = 2; step <= replicas.length; step++) {
        const place = (last + step) % replicas.length;
        const value = burden(replicas[place]!, of);
        if (value < least) [best, least] = [place, value];
      }
      last = best;
      return best;
    },
  };
}

/** Core's rule, which the gateway has too. */
function cachePressure(): Router {
  const rule = new EngineRouter();
  return {
    readsCaches: true,
    choose: (replicas, { promptTokens }) => {
      const candidates = replicas.map(({ pendingTokens }, engine) => ({ engine, pendingTokens }));
      return rule.choose(candidates, promptTokens, (place) => replicas[place]!.newTokens).place;
    },
  };
}

function twoMode(): Router {
  const leastLoaded = leastOf(false, ({ requests }) => requests);
  const bestMatch = leastOf(true, ({ newTokens }) => newTokens);
  return {
    readsCaches: true,
    choose: (replicas, routed) => {
      const requests = replicas.map((replica) => replica.requests);
      const [least, most] = [Math.min(...requests), Math.max(...requests)];
      const isApart = most - least > TWO_MODE.absolute && most > TWO_MODE.relative * least;
      const fewest = Math.min(...replicas.map(({ newTokens }) => newTokens));
      const isMatch = routed.promptTokens - fewest > TWO_MODE.match * routed.promptTokens;
      return (isApart || !isMatch ? leastLoaded : bestMatch).choose(replicas, routed);
    },
  };
}

/** Consistent hashing with bounded loads, over the first document. */
function chooseByPrefix(replicas: readonly ReplicaLoad[], { number, request }: RoutedRequest): number {
  const under = replicas.reduce((sum, { requests }) => sum + requests, 0);
  const bound = Math.ceil((BOUND * (under + 1)) / replicas.length);
  const [first] = request.documents;
  const preferred = preferences(first?.key ?? `#${number}`, replicas.length);
  return preferred.find((place) => replicas[place]!.requests < bound)!;
}

/** Replicas in the order in which a name prefers them (rendezvous hashing). */
function preferences(name: string, replicas: number): number[] {
  const weights = Array.from({ length: replicas }, (_, place) => fingerprint([name, String(place)]));
  return weights.map((_, place) => place).sort((a, b) => (weights[a]! < weights[b]! ? -1 : 1));
}
