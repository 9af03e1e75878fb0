import { planBatch } from '@warmpath/core';
import type { Highs } from 'highs';
import type { Workload } from '../workloads/workload.js';
import { CostShares } from './cost-shares.js';
import { connectedGroups, distinctContexts } from './distinct-contexts.js';
import { sharedSets } from './shared-sets.js';
import { SharedSubsets } from './shared-subsets.js';
import { type BinaryProgram, trieProgram } from './trie-program.js';
import { TrieSearch } from './trie-search.js';

/**
 * A bound on the tokens that a group of sets can find in a cache that forgets nothing: whatever the orders, each set
 * but the first finds no more than it shares with one served before it, so all together find no more than the edges of
 * the heaviest spanning tree of what pairs share. Never below the optimum, and never above the tokens seen before at
 * any position. Cost: O(sets² + shared pairs), by Prim's algorithm over an inverted index.
 */
export function mostShared(sets: readonly (readonly number[])[], weights: readonly number[]): number {
  const holders = new Map<number, number[]>();
  for (const [number, set] of sets.entries()) {
    for (const document of set) {
      const list = holders.get(document);
      if (list === undefined) holders.set(document, [number]);
      else list.push(number);
    }
  }
  const best = new Float64Array(sets.length);
  const shared = new Float64Array(sets.length);
  const isIn = new Uint8Array(sets.length);
  let total = 0;
  let next = 0;
  for (let added = 0; added < sets.length; added++) {
    isIn[next] = 1;
    total += best[next]!;
    for (const document of sets[next]!)
      for (const other of holders.get(document)!) shared[other]! += weights[document]!;
    let heaviest = -1;
    for (let other = 0; other < sets.length; other++) {
      if (shared[other]! > best[other]!) best[other] = shared[other]!;
      shared[other] = 0;
      if (isIn[other] === 0 && (heaviest < 0 || best[other]! > best[heaviest]!)) heaviest = other;
    }
    next = heaviest;
  }
  const documents = [...holders].reduce((sum, [document, { length }]) => sum + weights[document]! * (length - 1), 0);
  return Math.min(total, documents);
}

/** What a solver knows of the least cost: nothing is cheaper than `least`, and a solution costs `found`. */
interface LeastCost {
  readonly least: number;
  /** Infinite if none was found in time. */
  readonly found: number;
}

/** Slack for what a solver in floating point calls a whole number. */
const TOLERANCE = 1e-5;

/**
 * Solves a binary program whose costs are whole numbers by branch and cut, in at most `seconds`. Blocks the thread, and
 * the answer depends on the machine if time is short.
 */
function solveProgram(highs: Highs, { costs, rows }: BinaryProgram, seconds: number): LeastCost {
  const starts = [0];
  const indices: number[] = [];
  const values: number[] = [];
  for (const { terms } of rows) {
    for (const [variable, coefficient] of terms) {
      indices.push(variable);
      values.push(coefficient);
    }
    starts.push(indices.length);
  }
  const model = {
    numCols: costs.length,
    numRows: rows.length,
    colCost: costs,
    colLower: costs.map(() => 0),
    colUpper: costs.map(() => 1),
    rowLower: rows.map(({ least }) => least),
    rowUpper: rows.map(({ most }) => most),
    matrix: { format: 'csr', numRows: rows.length, numCols: costs.length, starts, indices, values },
    integrality: costs.map(() => highs.constants.variableType.integer),
  } as const;
  return highs.withModel(model, (program) => {
    program.options.set({ output_flag: false, time_limit: seconds, mip_rel_gap: 0 });
    program.run();
    const found = program.getObjectiveValue();
    const proven = Math.ceil(Number(program.info.get('mip_dual_bound')) - TOLERANCE);
    const isFeasible = program.info.get('primal_solution_status') === highs.constants.solutionStatus.feasible;
    return {
      least: Number.isFinite(proven) ? proven : 0,
      found: isFeasible ? Math.round(found) : Number.POSITIVE_INFINITY,
    };
  });
}

/**
 * What the best orders of all requests together could find cached: shares of the documents' tokens. Equal where it is
 * proven.
 */
export interface OfflineBound {
  /** Found by orders that were seen. */
  readonly low: number;
  /** No orders find more. */
  readonly high: number;
}

/** What an exact solution may cost. */
export interface OfflineLimits {
  /** Seconds for the whole workload. Default 10. */
  readonly seconds?: number;
  /**
   * Sets that paths can have in common, in one group of requests that share documents; with more, the group is not
   * solved. Default 1,500.
   */
  readonly sharedSets?: number;
}

/**
 * Finds the offline bound of a workload. Blocks the thread for up to the seconds allowed, and for what planning and
 * counting subsets take (some seconds for a thousand requests of 15 documents).
 */
export type OfflineSolver = (workload: Workload, limits?: OfflineLimits) => OfflineBound;

/** Groups of more sets are bounded by what was seen before: they have too many pairs. */
const MAX_PAIRED_SETS = 10_000;

/** Slack for a sum of shares that is a whole number. */
const ROUNDING = 1e-4;

/** Documents of the sets of which the solver proves groups in seconds; of larger ones it finds little in a minute. */
const SMALL_SET = 8;

/** Of the time of a group of larger sets, what the search for a better trie gets before all else. */
const SEARCH_PART = 1 / 6;

/** Steps of that search for each pair of sets, at most: more hardly find more. */
const STEPS_A_PAIR = 60;

/** Steps between looks at the clock. */
const STEPS_AT_ONCE = 64;

/** Temperatures of the search at its begin and its end, in mean documents. */
const FIRST_TEMPERATURE = 2;
const LAST_TEMPERATURE = 0.15;

/** Of the time of a group of larger sets, what the solver gets where shared costs leave a gap. */
const SOLVER_PART = 1 / 8;

/** Less time than this is not worth starting the solver for. */
const MIN_SECONDS = 0.02;

/**
 * Loads the solver of the offline optimum (HiGHS as WebAssembly, read when this is called).
 *
 * With a cache that forgets nothing, what is not in the trie of all orders is found: the requests' order does not
 * matter, and the optimum is the trie of fewest tokens over the requests' sets, a Steiner tree in the lattice of their
 * intersections. Requests that share no document are solved apart, small groups first. A group that is too large, or
 * for which no time is left, gets the best of what `planBatch`, a search (`TrieSearch`, for sets of more than 8
 * documents) and the solver found as `low`; as `high` the least of the solver's relaxation, the heaviest spanning tree
 * of what pairs of requests share, and what shared costs leave possible (`CostShares`, the first choice for sets of
 * more than 8 documents), which comes the nearer the more time there is. An upper bound for smaller caches too.
 */
export async function loadOfflineSolver(): Promise<OfflineSolver> {
  // Its types describe the CommonJS module, whose default export `import` does not see.
  const solver = (await import('highs')) as unknown as { readonly default: typeof import('highs').default };
  const highs = await solver.default();
  return (workload, limits = {}) => offlineBound(highs, workload, limits);
}

function offlineBound(highs: Highs, workload: Workload, limits: OfflineLimits): OfflineBound {
  const { seconds = 10, sharedSets: maxSets = 1_500 } = limits;
  const deadline = performance.now() + 1_000 * seconds;
  const contexts = distinctContexts(workload);
  if (contexts.totalTokens === 0) return { low: 0, high: 0 };
  let least = 0;
  let found = 0;
  const groups = [...connectedGroups(contexts)].sort((one, other) => one.length - other.length);
  for (const [done, sets] of groups.entries()) {
    // An equal share of the time that is left: what small groups leave over is there for the large ones.
    const share = (deadline - performance.now()) / 1_000 / (groups.length - done);
    const group = groupCost(highs, { sets, weights: contexts.weights }, { seconds: share, maxSets });
    least += group.least;
    found += group.found;
  }
  return { low: 1 - found / contexts.totalTokens, high: 1 - least / contexts.totalTokens };
}

interface Group {
  readonly sets: readonly (readonly number[])[];
  readonly weights: readonly number[];
}

/** Tokens of the smallest trie of a group. */
function groupCost(
  highs: Highs,
  { sets, weights }: Group,
  { seconds, maxSets }: { readonly seconds: number; readonly maxSets: number },
): LeastCost {
  const documents = new Set(sets.flat());
  const unit = [...documents].reduce((divisor, document) => greatestDivisor(divisor, weights[document]!), 0);
  // Documents of one length count as 1, which is kinder to a solver than 200.
  const group = { sets, weights: weights.map((tokens) => tokens / unit) };
  const bracket = plannedCost(group);
  if (bracket.least === bracket.found || seconds < MIN_SECONDS) return scale(bracket, unit);
  const shared = sharedSets(sets, group.weights, maxSets);
  const solve = (within: number): LeastCost =>
    shared === undefined ? bracket : solveProgram(highs, trieProgram(shared), within);
  if (shared !== undefined && sets.every(({ length }) => length <= SMALL_SET)) {
    return scale(better(bracket, solve(seconds)), unit);
  }
  const searched = searchedCost(group, bracket, SEARCH_PART * seconds);
  if (searched.least === searched.found) return scale(searched, unit);
  const divided = sharedCost(group, searched, (1 - SEARCH_PART) * seconds);
  if (divided.least === divided.found) return scale(divided, unit);
  return scale(better(divided, solve(SOLVER_PART * seconds)), unit);
}

function better(one: LeastCost, other: LeastCost): LeastCost {
  return { least: Math.max(one.least, other.least), found: Math.min(one.found, other.found) };
}

/** The bracket, with a better upper end where a search finds one within the time. */
function searchedCost({ sets, weights }: Group, bracket: LeastCost, seconds: number): LeastCost {
  const started = performance.now();
  const search = new TrieSearch(sets, weights);
  const documents = [...new Set(sets.flat())];
  const mean = documents.reduce((sum, document) => sum + weights[document]!, 0) / documents.length;
  const steps = (STEPS_A_PAIR * sets.length * sets.length) / 2;
  let done = 0;
  for (let part = 0; part < 1 && search.least > bracket.least; done += STEPS_AT_ONCE) {
    part = Math.max(done / steps, (performance.now() - started) / 1_000 / seconds);
    const temperature = mean * FIRST_TEMPERATURE * (LAST_TEMPERATURE / FIRST_TEMPERATURE) ** part;
    for (let step = 0; step < STEPS_AT_ONCE; step++) search.step(temperature);
  }
  return { ...bracket, found: Math.min(bracket.found, search.least) };
}

/** The bracket, with a better lower end where there is time for one and the group is not too large. */
function sharedCost({ sets, weights }: Group, bracket: LeastCost, seconds: number): LeastCost {
  const subsets = SharedSubsets.of(sets, weights);
  if (subsets === undefined) return bracket;
  const deadline = performance.now() + 1_000 * seconds;
  const shares = new CostShares(subsets);
  let { least } = bracket;
  while (!shares.isDone && least < bracket.found && performance.now() < deadline) {
    // Costs are whole numbers.
    least = Math.max(least, Math.ceil(shares.round(bracket.found) - ROUNDING));
  }
  return { ...bracket, least };
}

function scale({ least, found }: LeastCost, unit: number): LeastCost {
  return { least: least * unit, found: found * unit };
}

/** What planning finds, and what the documents that pairs share leave possible. */
function plannedCost({ sets, weights }: Group): LeastCost {
  const contexts = sets.map((set) => set.map(String));
  const { trieTokens } = planBatch(contexts, { tokens: (id) => weights[Number(id)]! });
  const once = new Set(sets.flat());
  const tokensOf = (list: Iterable<number>): number => [...list].reduce((sum, document) => sum + weights[document]!, 0);
  const all = sets.reduce((sum, set) => sum + tokensOf(set), 0);
  const least = sets.length > MAX_PAIRED_SETS ? tokensOf(once) : all - mostShared(sets, weights);
  return { least, found: trieTokens };
}

function greatestDivisor(one: number, other: number): number {
  return other === 0 ? one : greatestDivisor(other, one % other);
}
