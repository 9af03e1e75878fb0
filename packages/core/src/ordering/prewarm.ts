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

/** Served requests that are looked at, the last ones. */
export const MAX_PREWARM_REQUESTS = 100;

/** Documents that are tried behind the served path, the likeliest. */
const MAX_CANDIDATES = 64;

/** Look-ups in the tree for one of them. */
const MAX_LOOK_UPS = 4_096;

/** Added to the requests that were seen: a document of one request is not certain to come again. */
const UNCERTAIN_REQUESTS = 1;

const DEFAULT_MAX_PATHS = 5;
const DEFAULT_LEAST_RETURN = 0.05;

export interface PrewarmOptions {
  /** Tokens that may be prefilled for all paths together. */
  readonly maxTokens: number;
  /** Paths at most. Default 5. */
  readonly maxPaths?: number;
  /** Tokens that coming requests must be expected to save for each token prefilled. Default 0.05. */
  readonly leastReturn?: number;
}

/**
 * A path worth prefilling: the start of one that was served, and one document more. Also what to tell `observe` when
 * done.
 */
export interface PrewarmPath {
  readonly preamble: Preamble | undefined;
  /** In prompt order; all but the last stand in the cache already, as far as the view knows. */
  readonly documents: readonly Document[];
  /** Tokens of the last document: what the engine has to prefill. */
  readonly newTokens: number;
  /** Tokens that the next 20 requests are expected to save with it. */
  readonly expectedSaved: number;
}

/**
 * Plans what to prefill while the engine is idle: starts of the path served last, each with one document that came with
 * its documents before. Prefill each path as a prompt that ends behind its documents, then `observe` it as `prewarmed`.
 *
 * Paths come in order of return, best first. None for more than 29 documents. Pure; takes up to some milliseconds.
 * Figures: docs/research/foresight.md.
 *
 * @param served requests served lately, the last one last; at most the last 100 are looked at
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

/** A document that may come with those of the served path, and how likely it does. */
interface Companion {
  readonly document: Document;
  readonly likelihood: number;
}

/** Documents of earlier requests that shared some with `last`, by the share of what they shared; likeliest first. */
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

/** A resident beginning of the served path: its documents as a set of ranks, its tokens, and its node in the tree. */
interface Beginning {
  readonly set: number;
  readonly tokens: number;
  readonly node: TreeNode;
}

/** What one more document behind each beginning of a served path would be worth. */
class Extensions {
  readonly #last: ServedRequest;
  readonly #view: ResidencyView;
  /** By retrieval rank. */
  readonly #documents: readonly Document[];
  readonly #beginnings: readonly Beginning[];
  readonly #demand: Demand;

  constructor(last: ServedRequest, view: ResidencyView) {
    this.#last = last;
    this.#view = view;
    const byRank = [...last.documents];
    last.order?.forEach((rank, place) => {
      byRank[rank] = last.documents[place]!;
    });
    this.#documents = byRank;
    this.#beginnings = beginningsOf(last, view);
    this.#demand = collectDemand(this.#contextOf(byRank), view);
  }

  /** The beginnings with `companion` behind them, as far as that path is not resident and worth something. */
  with({ document, likelihood }: Companion): readonly PrewarmPath[] {
    const context = this.#contextOf([...this.#documents, document]);
    const paths = CachedPaths.collect(context, this.#view, { rule: undefined, maxLookUps: MAX_LOOK_UPS });
    if (paths === undefined) return [];
    const extensions: PrewarmPath[] = [];
    for (const [depth, beginning] of this.#beginnings.entries()) {
      if (beginning.node.children.has(document.key)) continue;
      const expectedSaved = likelihood * this.#gainOf(beginning, document.tokens, paths);
      if (expectedSaved <= 0) continue;
      const documents = [...this.#last.documents.slice(0, depth), document];
      extensions.push({ preamble: this.#last.preamble, documents, newTokens: document.tokens, expectedSaved });
    }
    return extensions;
  }

  /**
   * Tokens that requests would save, all of which also want the document. Those who want less of the path gain nothing.
   */
  #gainOf({ set, tokens }: Beginning, newTokens: number, paths: CachedPaths): number {
    const withDocument = 2 ** this.#documents.length;
    let gain = 0;
    for (const wish of this.#demand.wishes) {
      // A request that wants all documents has no room for another one. The served request is one of these.
      if ((set & ~wish.set) !== 0 || wish.set === withDocument - 1) continue;
      const held = paths.longestWithin(wish.set | withDocument);
      gain += wish.weight * Math.max(0, tokens + newTokens - held);
    }
    return gain;
  }

  #contextOf(documents: readonly Document[]): Context {
    return { documents, preamble: this.#last.preamble, maxShift: undefined, pinned: [] };
  }
}

/** All beginnings that are still resident, the empty one first. */
function beginningsOf(last: ServedRequest, { tree }: ResidencyView): readonly Beginning[] {
  const { documents, preamble, order } = last;
  let node = preambleNode(tree, preamble);
  let set = 0;
  let tokens = 0;
  const beginnings: Beginning[] = [];
  for (let place = 0; node !== undefined; place++) {
    beginnings.push({ set, tokens, node });
    const document = documents[place];
    if (document === undefined) break;
    set |= 1 << (order?.[place] ?? place);
    tokens += document.tokens;
    node = node.children.get(document.key);
  }
  return beginnings;
}

function returnOf({ expectedSaved, newTokens }: PrewarmPath): number {
  return newTokens === 0 ? 0 : expectedSaved / newTokens;
}
