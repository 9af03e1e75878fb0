import { WarmpathError } from '@warmpath/core';
import { MersenneTwister } from '../workloads/mersenne-twister.js';
import type { Workload } from '../workloads/workload.js';

/** A request that comes at a time. */
export interface Arrival {
  /** Place in the workload. */
  readonly number: number;
  /** Milliseconds of virtual time. */
  readonly at: number;
}

/** Who sends the requests of one run, and when. Every request comes once. */
export interface Clients {
  /** The requests that come whatever becomes of others. */
  first(): readonly Arrival[];
  /** The request that the end of an answer brings about, if any. */
  next(number: number, now: number): Arrival | undefined;
}

/** Clients for a run over a workload; they keep state, so every run has its own. */
export type CreateClients = (workload: Workload) => Clients;

/** Requests that come at random times (a Poisson process), whether or not anything is free. */
export interface PoissonArrivals {
  /** Mean requests a second. */
  readonly perSecond: number;
  readonly seed: number;
}

/** Time that a client takes between an answer and its next request. */
export interface ThinkTime {
  /** Mean milliseconds, exponentially distributed; 0 for none. */
  readonly thinkMs: number;
  readonly seed: number;
}

export interface ClosedLoop extends ThinkTime {
  /** Clients, each of which waits for its answer before it asks again. */
  readonly clients: number;
}

export interface SessionArrivals extends ThinkTime {
  /** Mean sessions that begin a second (a Poisson process). Default: all begin at once. */
  readonly startsPerSecond?: number;
}

/** Open loop: requests come at random. Error: `WARMPATH_INVALID_REQUEST` for a rate that is not above 0. */
export function poissonClients({ perSecond, seed }: PoissonArrivals): CreateClients {
  checkRate(perSecond, 'perSecond');
  return ({ requests }) => openLoop(poissonTimes(requests.length, perSecond, seed));
}

/**
 * Open loop: each request comes at its `arrivalMs`. Error: `WARMPATH_INVALID_REQUEST` with the path of one that has
 * none.
 */
export function recordedClients(): CreateClients {
  return ({ requests }) =>
    openLoop(
      requests.map(({ arrivalMs }, number) => {
        if (arrivalMs !== undefined && arrivalMs >= 0 && Number.isFinite(arrivalMs)) return arrivalMs;
        throw invalid(`requests[${number}].arrivalMs`, 'A time of arrival was expected.');
      }),
    );
}

/**
 * Closed loop: so many clients take the requests of the workload in order; each thinks after an answer before it asks
 * again. Error: `WARMPATH_INVALID_REQUEST` for a number of clients or a time out of range.
 */
export function closedLoopClients({ clients, ...thinking }: ClosedLoop): CreateClients {
  if (!(Number.isSafeInteger(clients) && clients > 0)) throw invalid('clients', 'A whole number above 0 was expected.');
  checkThinkTime(thinking);
  return ({ requests }) => {
    const think = thinkTimes(thinking);
    let coming = Math.min(clients, requests.length);
    const first = Array.from({ length: coming }, (_, number) => ({ number, at: 0 }));
    return {
      first: () => first,
      next: (_, now) => (coming < requests.length ? { number: coming++, at: now + think() } : undefined),
    };
  };
}

/**
 * Sessions: the next turn of a session comes after the answer to its last one and a time to think; sessions begin at
 * random in the order of the workload. A request without a session is one by itself. Error: `WARMPATH_INVALID_REQUEST`
 * for a rate or time out of range.
 */
export function sessionClients({ startsPerSecond, ...thinking }: SessionArrivals): CreateClients {
  if (startsPerSecond !== undefined) checkRate(startsPerSecond, 'startsPerSecond');
  checkThinkTime(thinking);
  return (workload) => {
    const think = thinkTimes(thinking);
    const { openings, following } = turnsOf(workload);
    const starts =
      startsPerSecond === undefined
        ? openings.map(() => 0)
        : poissonTimes(openings.length, startsPerSecond, thinking.seed);
    return {
      first: () => openings.map((number, place) => ({ number, at: starts[place]! })),
      next: (number, now) => {
        const turn = following[number];
        return turn === undefined ? undefined : { number: turn, at: now + think() };
      },
    };
  };
}

function openLoop(times: readonly number[]): Clients {
  return { first: () => times.map((at, number) => ({ number, at })), next: () => undefined };
}

/** The first request of each session, and for each request the one that follows it in its session. */
function turnsOf({ requests }: Workload): { openings: number[]; following: (number | undefined)[] } {
  const openings: number[] = [];
  const following: (number | undefined)[] = requests.map(() => undefined);
  const last = new Map<string, number>();
  for (const [number, { session }] of requests.entries()) {
    const before = session === undefined ? undefined : last.get(session);
    if (before === undefined) openings.push(number);
    else following[before] = number;
    if (session !== undefined) last.set(session, number);
  }
  return { openings, following };
}

/** Times of a Poisson process in milliseconds: gaps are exponential. */
function poissonTimes(count: number, perSecond: number, seed: number): number[] {
  const random = new MersenneTwister(seed);
  let now = 0;
  return Array.from({ length: count }, () => {
    now -= (1_000 / perSecond) * Math.log(1 - random.random());
    return now;
  });
}

/** Keeps the draws of think times apart from those of arrivals of the same seed. */
const THINK_SEED = 2 ** 34;

function thinkTimes({ thinkMs, seed }: ThinkTime): () => number {
  if (thinkMs === 0) return () => 0;
  const random = new MersenneTwister(THINK_SEED + seed);
  return () => -thinkMs * Math.log(1 - random.random());
}

function checkThinkTime({ thinkMs }: ThinkTime): void {
  if (!(thinkMs >= 0 && Number.isFinite(thinkMs))) throw invalid('thinkMs', 'A number of 0 or more was expected.');
}

function checkRate(perSecond: number, path: string): void {
  if (perSecond > 0 && Number.isFinite(perSecond)) return;
  throw invalid(path, 'A number a second above 0 was expected.');
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
