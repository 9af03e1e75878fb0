import type { Document } from '@warmpath/core';
import {
  createWorkload,
  type Estimate,
  estimate,
  mean,
  type ServedOutcome,
  simulate,
  VllmBlockCache,
  type Workload,
} from '@warmpath/lab';
import { ContextIndex } from './context-index.js';
import type { ReproducedFigure, ReproducedTable, ReproduceOptions } from './reproduction.js';

/**
 * A workload with the documents of each request in the order that RAGBoost's context index gives them, online: each
 * request is put behind what the index holds of those before it. Simulate it with the policy `retrieval` to compare the
 * method with ordering policies, which the index is none of: it changes whenever it is asked.
 *
 * `capacity`: tokens of documents that the index holds, least recently used ones evicted, for an engine whose cache is
 * limited. Default: no limit. Cost: that of an insertion into the index for each request.
 */
export function orderByContextIndex(workload: Workload, capacity: number = Number.POSITIVE_INFINITY): Workload {
  const numbers = new Map<string, number>();
  const documents: Document[] = [];
  const index = new ContextIndex({ capacity, tokens: (number) => documents[number]!.tokens });
  const numberOf = (document: Document): number => {
    const known = numbers.get(document.key);
    if (known !== undefined) return known;
    const number = documents.push(document) - 1;
    numbers.set(document.key, number);
    return number;
  };
  return {
    ...workload,
    requests: workload.requests.map((request) => {
      const ordered = index.insert(request.documents.map(numberOf)).documents;
      return { ...request, documents: ordered.map((number) => documents[number]!) };
    }),
  };
}

const UNLIMITED = ['headline', 'k-7', 'mixed', 'two-phase', 'overlap-0.0-200', 'geospatial', 'sessions'] as const;
const LIMITED = [
  ['sessions', 330],
  ['sessions', 1_320],
  ['geospatial', 330],
  ['mixed', 330],
] as const;
const BLOCK = 16;

/** The context index beside the ordering policies, on all workloads of RAGCache++. The paper has no such table. */
export function contextIndexTable({ seeds }: ReproduceOptions): ReproducedTable {
  return {
    title: 'The context index online, beside the ordering policies: what is cached',
    model: 'vLLM: blocks of 16 tokens with room for all, or for as many as the row says, one prompt at a time; no time',
    rows: [
      ...UNLIMITED.map((name) => ({ label: name, figures: unlimitedFigures(name, seeds) })),
      ...LIMITED.map(([name, blocks]) => ({
        label: `${name}, ${blocks.toLocaleString('en-US')} blocks`,
        figures: limitedFigures(name, blocks, seeds),
      })),
    ],
    notes: [
      'Share of documents with an unlimited cache, of tokens with vLLM blocks.',
      'Of the next eight requests, `foresight` gets those that could be waiting.',
      '«As large»: the index holds as many tokens as the cache, least recently used ones evicted.',
    ],
  };
}

const documentShare = (outcomes: readonly ServedOutcome[]) =>
  mean(outcomes.map(({ cachedDocuments, documents }) => cachedDocuments / documents));

function tokenShare(outcomes: readonly ServedOutcome[]): number {
  const sum = (of: (outcome: ServedOutcome) => number) => outcomes.reduce((total, outcome) => total + of(outcome), 0);
  return sum(({ cachedTokens }) => cachedTokens) / sum(({ promptTokens }) => promptTokens);
}

function percentOver(seeds: readonly number[], run: (seed: number) => number): Estimate {
  return estimate(seeds.map((seed) => 100 * run(seed)));
}

function unlimitedFigures(name: string, seeds: readonly number[]): readonly ReproducedFigure[] {
  const share = (policy: 'retrieval' | 'greedy' | 'exact' | 'foresight') =>
    percentOver(seeds, (seed) => documentShare(simulate(createWorkload(name, { seed }), policy, { queue: AHEAD })));
  const index = percentOver(seeds, (seed) =>
    documentShare(simulate(orderByContextIndex(createWorkload(name, { seed })), 'retrieval')),
  );
  // Without a limit, the index as it is is as large as the cache.
  return figuresOf([share('retrieval'), share('greedy'), index, index, share('exact'), share('foresight')]);
}

function limitedFigures(name: string, blocks: number, seeds: readonly number[]): readonly ReproducedFigure[] {
  const share = (policy: 'retrieval' | 'greedy' | 'exact' | 'foresight', prepare = (workload: Workload) => workload) =>
    percentOver(seeds, (seed) => {
      const workload = prepare(createWorkload(name, { seed }));
      return tokenShare(simulate(workload, policy, { cache: new VllmBlockCache({ blocks }), queue: AHEAD }));
    });
  const asLarge = (workload: Workload) => orderByContextIndex(workload, BLOCK * blocks);
  return figuresOf([
    share('retrieval'),
    share('greedy'),
    share('retrieval', (workload) => orderByContextIndex(workload)),
    share('retrieval', asLarge),
    share('exact'),
    share('foresight'),
  ]);
}

/** Requests ahead that are looked at. */
const AHEAD = 8;

function figuresOf(shares: readonly Estimate[]): readonly ReproducedFigure[] {
  const names = ['retrieval %', 'greedy %', 'index %', 'as large %', 'exact %', 'foresight %'];
  return shares.map(({ mean: ours, se }, place) => ({ name: names[place]!, paper: undefined, ours, se }));
}
