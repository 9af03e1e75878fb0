import {
  type ConversationLayout,
  createWorkload,
  type Estimate,
  estimate,
  type LabPolicyName,
  multiSessionTrace,
  multiTurnTrace,
  type PrefixCacheModel,
  RAGBOOST_LENGTHS,
  RAGBOOST_SESSIONS,
  RAGBOOST_TURNS,
  SglangRadixCache,
  simulate,
  toWorkload,
  VllmBlockCache,
  type Workload,
} from '@warmpath/lab';
import { contextIndexTable } from './context-index-order.js';
import { type PlanMethod, type PlannedOptions, planned } from './planned.js';
import { AGENT_TABLES } from './ragboost-agents.js';
import { COST_TABLES } from './ragboost-costs.js';
import type { PaperTable, ReproducedFigure, ReproducedTable, ReproduceOptions } from './reproduction.js';

/** Tokens of KV memory; the paper names GPUs, and leaves open how many served a model. */
const ROOM = { H100: 2_000_000, A6000: 1_000_000 };

/** KV memory beside Qwen3-4B on one H100 of 80 GB, at 144 KiB a token. */
const SINGLE_H100_ROOM = 430_000;

type SessionsName = keyof typeof RAGBOOST_SESSIONS;

/** What a run reused of all prompt tokens, and what it computed. */
interface Reuse {
  readonly hit: number;
  readonly uncached: number;
}

interface Serving {
  readonly policy?: LabPolicyName;
  readonly cache: () => PrefixCacheModel;
  readonly conversations?: ConversationLayout;
}

function serve(workload: Workload, { policy = 'retrieval', cache, conversations }: Serving): Reuse {
  const outcomes = simulate(workload, policy, {
    cache: cache(),
    ...(conversations !== undefined && { conversations }),
  });
  const prompt = outcomes.reduce((sum, { promptTokens }) => sum + promptTokens, 0);
  const cached = outcomes.reduce((sum, { cachedTokens }) => sum + cachedTokens, 0);
  return { hit: cached / prompt, uncached: prompt - cached };
}

/** What a run of each seed gives: mean and standard error. The traces were shaped on seeds 1 to 3. */
function over(seeds: readonly number[], run: (seed: number) => number): Estimate {
  return estimate(seeds.map((seed) => run(seed)));
}

function figure(name: string, paper: number | undefined, { mean: ours, se }: Estimate, places = 1): ReproducedFigure {
  return { name, paper, ours, se, places };
}

const radix = (tokens: number) => () => new SglangRadixCache({ tokens });
const ofRoom = (...tokens: readonly number[]) =>
  `room for ${tokens.map((each) => each.toLocaleString('en-US')).join(' or ')} tokens, one prompt at a time; no time, tokens alone`;
const radixModel = (tokens: number) => `SGLang: a radix tree to the token, ${ofRoom(tokens)}`;
const vllm = (tokens: number) => () => new VllmBlockCache({ blocks: Math.floor(tokens / 16) });

const sessions = (name: SessionsName, seed: number) => createWorkload(`multi-session-${name}`, { seed });

/** Plans of these workloads, for several tables have the same: at most data sets × seeds × ways to plan. */
const plans = new Map<string, Workload>();

function plannedSessions(name: SessionsName, seed: number, options: PlannedOptions): Workload {
  const key = `${name} ${seed} ${options.method} ${options.scheduled}`;
  const workload = plans.get(key) ?? planned(sessions(name, seed), options);
  plans.set(key, workload);
  return workload;
}

const SCHEDULED = { method: 'context-index', scheduled: true } as const satisfies PlannedOptions;

const NO_GPU =
  'F1, accuracy and seconds need the models. A simulation has the ratio of tokens to prefill, which is the gain in prefill throughput if time is proportional to them.';

const BASELINES =
  'RadixCache is arrival order on a radix cache of the same size. LMCache (offloading to the CPU) and CacheBlend (approximate reuse) are other mechanisms and are not simulated.';

const OPEN_SESSIONS =
  'The traces have the published skew (§3.1). Topics, noise and the number of questions are ours, so chosen that an endless cache reuses about 7 % in retrieval order; nothing was fitted to the gains.';

/** RAGBoost's tables and figures that a simulation can have a counterpart of. Takes some minutes. */
export const RAGBOOST_TABLES: readonly PaperTable[] = [
  { name: 'section-3.2', reproduce: reorderingTable },
  { name: 'table-1', reproduce: multiSessionTable },
  { name: 'table-2a', reproduce: multiTurnTable },
  { name: 'table-2b', reproduce: hybridTable },
  { name: 'figure-7', reproduce: breakdownFigure },
  { name: 'figure-8', reproduce: depthFigure },
  { name: 'section-7.2', reproduce: cacheSizeTable },
  { name: 'section-7.2-window', reproduce: windowTable },
  { name: 'context-index', reproduce: contextIndexTable },
  ...AGENT_TABLES,
  ...COST_TABLES,
];

function reorderingTable({ seeds }: ReproduceOptions): ReproducedTable {
  const rows = [
    ['multihoprag', 38.9],
    ['narrativeqa', 20.2],
    ['qasper', 16.5],
  ] as const;
  return {
    title: '§3.2: cache hits after reordering a trace that is known whole',
    model: radixModel(ROOM.H100),
    rows: rows.map(([name, hits]) => {
      const planBy = (method: PlanMethod) =>
        over(seeds, (seed) => {
          const workload = plannedSessions(name, seed, { method, scheduled: true });
          return 100 * serve(workload, { cache: radix(ROOM.H100) }).hit;
        });
      return {
        label: name,
        figures: [
          figure('context index %', hits, planBy('context-index')),
          figure('combined plan %', undefined, planBy('combined')),
        ],
      };
    }),
    notes: [OPEN_SESSIONS, '«Combined plan» is planBatch of @warmpath/core, on the same traces.'],
  };
}

function multiSessionTable({ seeds }: ReproduceOptions): ReproducedTable {
  const rows: readonly (readonly [SessionsName, string, number, number])[] = [
    ['multihoprag', 'MultihopRAG, Qwen3-4B', 58_990.1, 106_799.5],
    ['multihoprag', 'MultihopRAG, Qwen3-32B', 17_682.6, 36_296.1],
    ['multihoprag', 'MultihopRAG, Llama3.3-70B', 14_777.1, 30_046.7],
    ['narrativeqa', 'NarrativeQA, Qwen3-4B', 39_492.4, 57_681.3],
    ['narrativeqa', 'NarrativeQA, Qwen3-32B', 15_598.8, 22_780.4],
    ['narrativeqa', 'NarrativeQA, Llama3.3-70B', 12_644.9, 18_468.8],
    ['qasper', 'QASPER, Qwen3-4B', 33_034.6, 46_619.9],
    ['qasper', 'QASPER, Qwen3-32B', 17_523, 24_733.4],
    ['qasper', 'QASPER, Llama3.3-70B', 13_507.3, 19_061],
  ];
  const gains = new Map(
    (['multihoprag', 'narrativeqa', 'qasper'] as const).map((name) => [
      name,
      over(seeds, (seed) => {
        const cache = radix(ROOM.H100);
        const ordered = plannedSessions(name, seed, SCHEDULED);
        return serve(sessions(name, seed), { cache }).uncached / serve(ordered, { cache }).uncached;
      }),
    ]),
  );
  return {
    title: 'Table 1: multi-session, prefill throughput of RAGBoost over RadixCache',
    model: radixModel(ROOM.H100),
    rows: rows.map(([name, label, before, after]) => ({
      label,
      figures: [figure('gain ×', after / before, gains.get(name)!, 2)],
    })),
    notes: [
      NO_GPU,
      BASELINES,
      OPEN_SESSIONS,
      'The simulation knows no model, so the models of a data set have one figure.',
    ],
  };
}

function multiTurnTable({ seeds }: ReproduceOptions): ReproducedTable {
  const gain = over(seeds, (seed) => {
    const workload = createWorkload('multi-turn', { seed });
    const cache = radix(SINGLE_H100_ROOM);
    const appended = serve(workload, { cache, conversations: 'appended' });
    return appended.uncached / serve(workload, { cache, conversations: 'deduplicated' }).uncached;
  });
  const rows = [
    ['Qwen3-4B', 0.44, 0.22],
    ['Llama3.1-8B', 0.49, 0.31],
    ['Qwen3-30B', 0.61, 0.35],
  ] as const;
  return {
    title: 'Table 2 (a): multi-turn, TTFT of RadixCache over RAGBoost',
    model: radixModel(SINGLE_H100_ROOM),
    rows: rows.map(([label, before, after]) => ({
      label,
      figures: [figure('gain ×', before / after, gain, 2)],
    })),
    notes: [
      NO_GPU,
      BASELINES,
      'The traces repeat 40 % of the documents within a session (§3.1). If that is the share, leaving them out saves at most 1 / (1 - 0.4) = 1.67 × of the documents, and the first turn of a conversation saves nothing; a gain of 2 × has further sources, which the paper does not part.',
      'Open in the paper, and ours: 100 conversations of 4 to 10 turns, k = 5, documents of 1,024 tokens, answers of 100.',
    ],
  };
}

function hybridTable({ seeds }: ReproduceOptions): ReproducedTable {
  const rows = [
    [2, 0.46, 0.24],
    [4, 0.49, 0.29],
    [8, 0.53, 0.34],
    [16, 0.67, 0.41],
    [32, 0.97, 0.65],
  ] as const;
  return {
    title: 'Table 2 (b): conversations at the same time, TTFT of RadixCache over RAGBoost (Qwen3-4B)',
    model: radixModel(SINGLE_H100_ROOM),
    rows: rows.map(([atOnce, before, after]) => ({
      label: `${atOnce} sessions`,
      figures: [figure('gain ×', before / after, hybridGain(atOnce, seeds), 2)],
    })),
    notes: [
      NO_GPU,
      BASELINES,
      `Radix cache of ${SINGLE_H100_ROOM.toLocaleString('en-US')} tokens; RAGBoost is de-duplication with greedy order. Up to 8 conversations it holds every history, and the gain is that of Table 2 (a). Beyond, turns find their own history gone, and a shorter history is lost less often: our gain rises where the published one falls.`,
      'The paper serves requests at the same time, so that its TTFT includes waiting and batching; ours counts tokens.',
    ],
  };
}

function hybridGain(atOnce: number, seeds: readonly number[]): Estimate {
  return over(seeds, (seed) => {
    const trace = multiTurnTrace(seed, { ...RAGBOOST_TURNS, atOnce });
    const workload = toWorkload('hybrid', trace, RAGBOOST_LENGTHS);
    const cache = radix(SINGLE_H100_ROOM);
    const appended = serve(workload, { cache, conversations: 'appended' });
    return appended.uncached / serve(workload, { cache, conversations: 'deduplicated', policy: 'greedy' }).uncached;
  });
}

function breakdownFigure({ seeds }: ReproduceOptions): ReproducedTable {
  const rows = [
    ['SGLang, Qwen3-32B', radix(ROOM.H100), [8.49, 20.56, 33.97]],
    ['vLLM, Llama3.3-70B', vllm(ROOM.H100), [10.7, 30.8, 43.2]],
  ] as const;
  return {
    title: 'Figure 7: cache hits by component, MultihopRAG, k = 15',
    model: `SGLang's radix tree and vLLM's blocks of 16 tokens, by row; ${ofRoom(ROOM.H100)}`,
    rows: rows.map(([label, cache, [baseline, ordered, scheduled]]) => {
      const { retrieval, inOrder, onSchedule } = breakdown(cache, seeds);
      return {
        label,
        figures: [
          figure('baseline %', baseline, retrieval),
          figure('+ ordering %', ordered, inOrder),
          figure('+ scheduling %', scheduled, onSchedule),
        ],
      };
    }),
    notes: [
      OPEN_SESSIONS,
      `Room for ${ROOM.H100.toLocaleString('en-US')} tokens; the paper does not say how much there was. Without a schedule, room decides how much of a good order is still there when it is needed; with one, a cache of one prompt is nearly enough.`,
    ],
  };
}

/** Hit rates of MultihopRAG: arrival order, the context index's document orders, and its request order too. */
function breakdown(cache: () => PrefixCacheModel, seeds: readonly number[]) {
  const hits = (workload: (seed: number) => Workload) =>
    over(seeds, (seed) => 100 * serve(workload(seed), { cache }).hit);
  return {
    retrieval: hits((seed) => sessions('multihoprag', seed)),
    inOrder: hits((seed) => plannedSessions('multihoprag', seed, { ...SCHEDULED, scheduled: false })),
    onSchedule: hits((seed) => plannedSessions('multihoprag', seed, SCHEDULED)),
  };
}

function depthFigure({ seeds }: ReproduceOptions): ReproducedTable {
  const gainAt = (name: 'multihoprag' | 'narrativeqa', k: number) =>
    over(seeds, (seed) => {
      const trace = multiSessionTrace(seed, { ...RAGBOOST_SESSIONS[name], k });
      const workload = toWorkload(name, trace, RAGBOOST_LENGTHS);
      const cache = radix(ROOM.A6000);
      return serve(workload, { cache }).uncached / serve(planned(workload, SCHEDULED), { cache }).uncached;
    });
  const published: Readonly<Record<number, readonly [number, number]>> = { 3: [1.5, 1.3], 15: [2, 1.6] };
  return {
    title: 'Figure 8: gain in prefill throughput by k',
    model: radixModel(ROOM.A6000),
    rows: [3, 5, 10, 15].map((k) => ({
      label: `k = ${k}`,
      figures: [
        figure('MultihopRAG ×', published[k]?.[0], gainAt('multihoprag', k), 2),
        figure('NarrativeQA ×', published[k]?.[1], gainAt('narrativeqa', k), 2),
      ],
    })),
    notes: [
      'The figure is a drawing; the text gives its ends only: 1.5 to 2.0 × on MultihopRAG and 1.3 to 1.6 × on NarrativeQA «as k increases from 3 to 15». We read the smaller number as that of k = 3.',
      NO_GPU,
    ],
  };
}

function cacheSizeTable({ seeds }: ReproduceOptions): ReproducedTable {
  const rows = [
    ['SGLang, A6000', radix(ROOM.A6000), 4.62, 29.64],
    ['SGLang, H100', radix(ROOM.H100), 8.49, 33.97],
    ['vLLM, A6000', vllm(ROOM.A6000), 4.2, 35.9],
    ['vLLM, H100', vllm(ROOM.H100), 11.2, 43.4],
  ] as const;
  return {
    title: '§7.2: cache hits by memory, MultihopRAG, k = 15',
    model: `SGLang's radix tree and vLLM's blocks of 16 tokens, by row; ${ofRoom(ROOM.A6000, ROOM.H100)}`,
    rows: rows.map(([label, cache, plain, boosted]) => {
      const { retrieval, onSchedule } = breakdown(cache, seeds);
      return {
        label,
        figures: [figure('baseline %', plain, retrieval), figure('RAGBoost %', boosted, onSchedule)],
      };
    }),
    notes: [
      `A6000 and H100 stand for ${ROOM.A6000.toLocaleString('en-US')} and ${ROOM.H100.toLocaleString('en-US')} tokens of room, for the paper gives none.`,
      'With a schedule, a trace that is known whole needs no more room than one prompt, so memory makes no difference to ours; the published gain from memory means that its batches are not scheduled whole.',
      'The other vLLM baseline in the text is 10.7 % (Figure 7) where this paragraph has 11.2 %.',
    ],
  };
}

/** A stream of which so many requests are seen at a time: each stretch is planned by itself. */
function plannedByWindow(workload: Workload, window: number): Workload {
  const requests = Array.from({ length: Math.ceil(workload.requests.length / window) }, (_, place) => {
    const seen = workload.requests.slice(place * window, (place + 1) * window);
    return planned({ ...workload, requests: seen }, SCHEDULED).requests;
  });
  return { ...workload, requests: requests.flat() };
}

function windowTable({ seeds }: ReproduceOptions): ReproducedTable {
  const published: Readonly<Record<number, number>> = { 64: 5, 512: 3 };
  const cache = radix(ROOM.H100);
  const whole = seeds.map((seed) => serve(plannedSessions('multihoprag', seed, SCHEDULED), { cache }).hit);
  return {
    title: '§7.2: prompts visible at a time, MultihopRAG, k = 15',
    model: radixModel(ROOM.H100),
    rows: [64, 128, 256, 512].map((window) => {
      const hits = seeds.map((seed) => serve(plannedByWindow(sessions('multihoprag', seed), window), { cache }).hit);
      return {
        label: `${window} visible`,
        figures: [
          figure('hits %', undefined, estimate(hits.map((hit) => 100 * hit))),
          figure(
            'below all visible, points',
            published[window],
            estimate(hits.map((hit, i) => 100 * (whole[i]! - hit))),
          ),
        ],
      };
    }),
    notes: [
      'The paper: «where only 64–512 prompts are visible per batch, hit rates remain within 3–5% of optimal». We read the larger number as that of 64, and the optimum as a plan of all 1,000.',
      'Each stretch is planned by itself by the context index, documents and requests; the cache goes on from stretch to stretch.',
      OPEN_SESSIONS,
    ],
  };
}
