import type { Document } from '../document.js';
import type { Preamble } from '../preamble.js';
import type { ServedRequest } from '../residency/history.js';
import type { ResidencyView } from '../residency/view.js';
import { preambleNode } from '../tree/best-path.js';
import type { TreeNode } from '../tree/view.js';
import { CachedPaths } from './cached-paths.js';
import { collectDemand, type Demand } from './demand.js';
import { CHAIN_MAX_DOCUMENTS } from './foresight-chain.js';
import type { Context } from './policy.js';

/** Served requests that are read, the last ones. */
export const MAX_PREWARM_REQUESTS = 100;

/** Documents that are tried behind the served path, the likeliest. */
const MAX_CANDIDATES = 64;

/** Look-ups in the tree for each of these documents. */
const MAX_LOOK_UPS = 4_096;

/** Requests added to those observed: a document of a single request is not certain to come again. */
const UNCERTAIN_REQUESTS = 1;

const DEFAULT_MAX_PATHS = 5;
const DEFAULT_LEAST_RETURN = 0.05;

export interface PrewarmOptions {
  /** Tokens to prefill at most, for all paths together. */
  readonly maxTokens: number;
  /** Paths at most. Default 5. */
  readonly maxPaths?: number;
  /** Tokens expected to be saved for each token prefilled, at least. Default 0.05. */
  readonly leastReturn?: number;
}

/** A path to prefill: the start of a served path, and one more document. `observe` it as `prewarmed` when done. */
export interface PrewarmPath {
  readonly preamble: Preamble | undefined;
  /** In prompt order. All but the last are cached already, as far as the view knows. */
  readonly documents: readonly Document[];
  /** Tokens of the last document: the engine has to prefill them. */
  readonly newTokens: number;
  /** Tokens that the next 20 requests are expected to save. */
  readonly expectedSaved: number;
}

/**
 * Plans prefills for an idle engine: starts of the last served path, each with one document that came with its
 * documents before. Prefill each path as a prompt that ends with its documents.
 *
 * The best return comes first. Empty for more than 29 documents. Pure; takes some milliseconds. Figures:
 * docs/research/foresight.md.
 *
 * @param served requests served lately, the last one last; the last 100 are read
 */
export function planPrewarm(
  served: readonly ServedRequest[],
  view: ResidencyView,
  options: PrewarmOptions,
): readonly PrewarmPath[] {
  const last = served.at(-1);
  if (last === undefined || last.documents.length === 0 || last.documents.length >= CHAIN_MAX_DOCUMENTS) return [];
  const extensions = new Extensions(last, view);
  const paths = likelyCompanions(served, last).flatMap((companion) => extensions.with(companion));
  paths.sort((a, b) => returnOf(b) - returnOf(a));
  const { maxTokens, maxPaths = DEFAULT_MAX_PATHS, leastReturn = DEFAULT_LEAST_RETURN } = options;
  let left = maxTokens;
  const chosen: PrewarmPath[] = [];
  for (const path of paths) {
    if (chosen.length >= maxPaths || returnOf(path) < leastReturn) break;
    if (path.newTokens > left) continue;
    left -= path.newTokens;
    chosen.push(path);
  }
  return chosen;
}

/** A document that may come with those of the served path, and how likely that is. */
interface Companion {
  readonly document: Document;
  readonly likelihood: number;
}

/**
 * Documents of earlier requests, weighted by the share of documents that these have in common with `last`; likeliest
 * first.
 */
function likelyCompanions(served: readonly ServedRequest[], last: ServedRequest): readonly Companion[] {
  const own = new Set(last.documents.map(({ key }) => key));
  const weights = new Map<string, { document: Document; weight: number }>();
  let total = UNCERTAIN_REQUESTS;
  for (const earlier of served.slice(-MAX_PREWARM_REQUESTS, -1)) {
    if (earlier.preamble?.key !== last.preamble?.key) continue;
    const shared = earlier.documents.reduce((count, { key }) => count + (own.has(key) ? 1 : 0), 0);
    if (shared === 0) continue;
    const weight = shared / own.size;
    total += weight;
    for (const document of earlier.documents) {
      if (own.has(document.key)) continue;
      const known = weights.get(document.key)?.weight ?? 0;
      weights.set(document.key, { document, weight: known + weight });
    }
  }
  const companions = [...weights.values()].map(({ document, weight }) => ({ document, likelihood: weight / total }));
  return companions.sort((a, b) => b.likelihood - a.likelihood).slice(0, MAX_CANDIDATES);
}

/** A resident start of the served path: its documents as a set of ranks, its tokens, and its node. */
interface PathStart {
  readonly set: number;
  readonly tokens: number;
  readonly node: TreeNode;
}

/** The value of one more document behind each start of a served path. */
class Extensions {
  readonly #last: ServedRequest;
  readonly #view: ResidencyView;
  /** By retrieval rank. */
  readonly #documents: readonly Document[];
  readonly #starts: readonly PathStart[];
  readonly #demand: Demand;

  constructor(last: ServedRequest, view: ResidencyView) {
    this.#last = last;
    this.#view = view;
    const byRank = [...last.documents];
    last.order?.forEach((rank, place) => {
      byRank[rank] = last.documents[place]!;
    });
    this.#documents = byRank;
    this.#starts = startsOf(last, view);
    this.#demand = collectDemand(this.#contextOf(byRank), view);
  }

  /** The starts with the companion behind them, if that path is not resident and is expected to save tokens. */
  with({ document, likelihood }: Companion): readonly PrewarmPath[] {
    const context = this.#contextOf([...this.#documents, document]);
    const paths = CachedPaths.collect(context, this.#view, { rule: undefined, maxLookUps: MAX_LOOK_UPS });
    if (paths === undefined) return [];
    const extensions: PrewarmPath[] = [];
    for (const [depth, start] of this.#starts.entries()) {
      if (start.node.children.has(document.key)) continue;
      const expectedSaved = likelihood * this.#gainOf(start, document.tokens, paths);
      if (expectedSaved <= 0) continue;
      const documents = [...this.#last.documents.slice(0, depth), document];
      extensions.push({ preamble: this.#last.preamble, documents, newTokens: document.tokens, expectedSaved });
    }
    return extensions;
  }

  /** Tokens that coming requests with this document would save. Only requests that share the whole start save any. */
  #gainOf({ set, tokens }: PathStart, newTokens: number, paths: CachedPaths): number {
    const withDocument = 2 ** this.#documents.length;
    let gain = 0;
    for (const request of this.#demand.requests) {
      // A request that shares all documents, as the served one does, has no room for another one.
      if ((set & ~request.set) !== 0 || request.set === withDocument - 1) continue;
      const held = paths.longestWithin(request.set | withDocument);
      gain += request.weight * Math.max(0, tokens + newTokens - held);
    }
    return gain;
  }

  #contextOf(documents: readonly Document[]): Context {
    return { documents, preamble: this.#last.preamble, maxShift: undefined, pinned: [] };
  }
}

/** All starts that are still resident, the empty one first. */
function startsOf(last: ServedRequest, { tree }: ResidencyView): readonly PathStart[] {
  const { documents, preamble, order } = last;
  let node = preambleNode(tree, preamble);
  let set = 0;
  let tokens = 0;
  const starts: PathStart[] = [];
  for (let place = 0; node !== undefined; place++) {
    starts.push({ set, tokens, node });
    const document = documents[place];
    if (document === undefined) break;
    set |= 1 << (order?.[place] ?? place);
    tokens += document.tokens;
    node = node.children.get(document.key);
  }
  return starts;
}

function returnOf({ expectedSaved, newTokens }: PrewarmPath): number {
  return newTokens === 0 ? 0 : expectedSaved / newTokens;
}
