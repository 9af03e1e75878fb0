import { WarmpathError } from '@warmpath/core';
import { nearestName } from '@warmpath/core/internal';
import { type AgentChoice, chainOfAgents } from './chain-of-agents.js';
import { geospatialTrace } from './geospatial.js';
import { headlineTrace } from './headline.js';
import { mixedTrace } from './mixed.js';
import { multiSessionTrace, RAGBOOST_SESSIONS } from './multi-session.js';
import { multiTurnTrace, RAGBOOST_TURNS } from './multi-turn.js';
import { RAGCACHE_DATASETS, type RagCacheDatasetName, ragCacheTrace, ragCacheWorkload } from './ragcache.js';
import { SETTLED, sessionsTrace } from './sessions.js';
import { tfIdfTrace } from './tf-idf.js';
import { topicsTrace } from './topics.js';
import type { Trace } from './trace.js';
import { trueZeroTrace } from './true-zero.js';
import { twoPhaseTrace } from './two-phase.js';
import { PAPER_LENGTHS, toWorkload, type Workload, type WorkloadLengths } from './workload.js';
import { zipfTrace } from './zipf.js';

/** A workload by name. */
export interface CatalogueEntry {
  readonly name: string;
  readonly description: string;
  /** Whether the trace is data, the same for every seed. */
  readonly isRecorded?: boolean;
  /** Default `PAPER_LENGTHS`. */
  readonly lengths?: WorkloadLengths;
  /** The same trace for the same seed, on every machine. */
  trace(seed: number): Trace;
  /** What becomes of the trace's requests, where they are more than documents and a question. */
  readonly shape?: (workload: Workload) => Workload;
  /** The workload where lengths are its own; else it is made from trace and lengths. */
  workload?(seed: number): Workload;
}

/** How a catalogue workload is made. */
export interface CreateWorkloadOptions {
  readonly seed: number;
  /**
   * `equal`: 200 tokens a document, or the workload's own number; `unequal`: drawn evenly from 64 to 512. Default
   * `equal`.
   */
  readonly lengths?: LengthsName;
}

export const LENGTHS_NAMES = ['equal', 'unequal'] as const;

export type LengthsName = (typeof LENGTHS_NAMES)[number];

/** Keeps the draws of lengths apart from those of the trace of the same seed. */
const LENGTHS_SEED = 2 ** 33;

/** RAGBoost's chunks of 1,024 tokens (§7.1); the length of answers is ours. */
export const RAGBOOST_LENGTHS = { ...PAPER_LENGTHS, documents: 1_024, answer: 100 } as const satisfies WorkloadLengths;

const OVERLAPS = ['0.0', '0.2', '0.4', '0.6', '0.8'] as const;
const DEPTHS = [3, 5, 7, 10] as const;

/** Two documents a request, an hour at 0.8 requests a second (RAGCache §7). */
const RAGCACHE_HOUR = { k: 2, requests: 2_880 } as const;

/** Questions to agents: sixteen prompts each. */
const AGENT_QUESTIONS = 200;
const AGENT_CHOICES = [
  ['chain-of-agents', 'rank', 'the agent of its rank'],
  ['chain-of-agents-routed', 'read-before', 'the agent that read it before'],
] as const satisfies readonly (readonly [name: string, choice: AgentChoice, description: string])[];

/** Every workload that `createWorkload` knows, papers' first. */
export const WORKLOAD_CATALOGUE: readonly CatalogueEntry[] = [
  {
    name: 'headline',
    description: 'RAGCache++ configuration B: 200 requests in bursts of ten, k = 5, overlap 0.6',
    trace: (seed) => headlineTrace(seed, { corpus: 500, requests: 200, k: 5, overlap: 0.6 }),
  },
  {
    name: 'headline-a',
    description: 'RAGCache++ configuration A: 100 documents, 100 requests',
    trace: (seed) => headlineTrace(seed, { corpus: 100, requests: 100, k: 5, overlap: 0.6 }),
  },
  {
    name: 'headline-2000',
    description: 'the headline workload for 2,000 requests, so that regions come back',
    trace: (seed) => headlineTrace(seed, { corpus: 500, requests: 2_000, k: 5, overlap: 0.6 }),
  },
  ...OVERLAPS.map((overlap) => ({
    name: `overlap-${overlap}`,
    description: `RAGCache++ overlap sweep, ${overlap}, 60 requests (the number that gives the published Jaccard)`,
    trace: (seed: number) => headlineTrace(seed, { corpus: 100, requests: 60, k: 5, overlap: Number(overlap) }),
  })),
  ...OVERLAPS.map((overlap) => ({
    name: `overlap-${overlap}-200`,
    description: `the same at overlap ${overlap} with 500 documents and 200 requests`,
    trace: (seed: number) => headlineTrace(seed, { corpus: 500, requests: 200, k: 5, overlap: Number(overlap) }),
  })),
  ...DEPTHS.map((k) => ({
    name: `k-${k}`,
    description: `RAGCache++ sweep over k: ${k} documents a request, 100 requests`,
    trace: (seed: number) => headlineTrace(seed, { corpus: 100, requests: 100, k, overlap: 0.6 }),
  })),
  ...(Object.keys(RAGCACHE_DATASETS) as RagCacheDatasetName[]).map((dataset) => ({
    name: `ragcache-${dataset}`,
    description: `RAGCache: pages of 3,718 tokens on average, skewed like ${dataset}, 2,880 requests`,
    trace: (seed: number) => ragCacheTrace(seed, { dataset, ...RAGCACHE_HOUR }),
    workload: (seed: number) => ragCacheWorkload(seed, { dataset, ...RAGCACHE_HOUR }),
  })),
  {
    name: 'true-zero',
    description: 'RAGCache++ control: adjacent requests share no document',
    trace: (seed) => trueZeroTrace(seed),
  },
  { name: 'mixed', description: 'RAGCache++: jumps between regions, fresh draws', trace: (seed) => mixedTrace(seed) },
  {
    name: 'two-phase',
    description: 'RAGCache++: the popular regions change half way',
    trace: (seed) => twoPhaseTrace(seed),
  },
  {
    name: 'geospatial',
    description: 'RAGCache++ §4.7: cities on a grid, ranks without meaning',
    trace: (seed) => geospatialTrace(seed),
  },
  {
    name: 'tf-idf',
    description: 'RAGCache++ «Wikipedia»: 25 sets in tie order; recorded, the same for every seed',
    isRecorded: true,
    trace: () => tfIdfTrace(),
  },
  {
    name: 'sessions',
    description: 'eight interleaved conversations over 40 topics, k = 5, 1,000 requests',
    trace: (seed) => sessionsTrace(seed, { requests: 1_000, k: 5 }),
  },
  {
    name: 'sessions-settled',
    description: 'the same, with sessions that know what they like: fitted to the figures of a published workload',
    trace: (seed) => sessionsTrace(seed, { requests: 1_000, k: 5, habits: SETTLED }),
  },
  {
    name: 'zipf',
    description: 'independent requests for 15 of 350 documents of Zipf popularity, 1,000 requests',
    trace: (seed) => zipfTrace(seed, { documents: 350, requests: 1_000, k: 15, exponent: 1 }),
  },
  {
    name: 'topics',
    description: 'independent requests for 13 documents of one topic and two common ones, 1,000 requests',
    trace: (seed) => topicsTrace(seed),
  },
  ...Object.entries(RAGBOOST_SESSIONS).map(([dataSet, options]) => ({
    name: `multi-session-${dataSet}`,
    description: `RAGBoost §7.1: 1,000 users with one question each, k = 15, as skewed as ${dataSet}`,
    lengths: RAGBOOST_LENGTHS,
    trace: (seed: number) => multiSessionTrace(seed, options),
  })),
  {
    name: 'multi-turn',
    description: 'RAGBoost §7.1: 100 conversations one after another, 40 % of the documents had before',
    lengths: RAGBOOST_LENGTHS,
    trace: (seed) => multiTurnTrace(seed, RAGBOOST_TURNS),
  },
  {
    name: 'hybrid',
    description: 'RAGBoost §7.1: the same conversations, 32 at a time',
    lengths: RAGBOOST_LENGTHS,
    trace: (seed) => multiTurnTrace(seed, { ...RAGBOOST_TURNS, atOnce: 32 }),
  },
  ...AGENT_CHOICES.map(([name, choice, description]) => ({
    name,
    description: `RAGBoost §7.1: 200 questions to 15 agents, each reads a document and tells the next; ${description}`,
    lengths: RAGBOOST_LENGTHS,
    trace: (seed: number) => multiSessionTrace(seed, { ...RAGBOOST_SESSIONS.multihoprag, requests: AGENT_QUESTIONS }),
    shape: (workload: Workload) => chainOfAgents(workload, choice),
  })),
];

/**
 * The workload of that name for a seed. Error: `WARMPATH_INVALID_REQUEST` at `workload`, naming the nearest known one.
 */
export function createWorkload(name: string, options: CreateWorkloadOptions): Workload {
  const entry = WORKLOAD_CATALOGUE.find((candidate) => candidate.name === name);
  if (entry === undefined) throw unknownWorkload(name);
  const { seed } = options;
  if (entry.workload !== undefined && options.lengths !== 'unequal') return entry.workload(seed);
  const { lengths = PAPER_LENGTHS } = entry;
  const documents =
    options.lengths === 'unequal' ? { least: 64, most: 512, seed: LENGTHS_SEED + seed } : lengths.documents;
  const workload = toWorkload(name, entry.trace(seed), { ...lengths, documents });
  return entry.shape?.(workload) ?? workload;
}

function unknownWorkload(name: string): WarmpathError {
  const names = WORKLOAD_CATALOGUE.map((entry) => entry.name);
  const nearest = nearestName(name, names);
  const advice = nearest === undefined ? `use one of ${names.join(', ')}` : `did you mean \`${nearest}\`?`;
  return new WarmpathError('WARMPATH_INVALID_REQUEST', {
    path: 'workload',
    detail: `There is no workload of that name; ${advice}`,
  });
}
