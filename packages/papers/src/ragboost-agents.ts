import type { Document } from '@warmpath/core';
import { hintTokens } from '@warmpath/core/internal';
import {
  AGENT_TOKENS,
  type AgentChoice,
  chainOfAgents,
  createWorkload,
  type Estimate,
  estimate,
  type ServedOutcome,
  SglangRadixCache,
  simulate,
  type Workload,
} from '@warmpath/lab';
import type { PaperTable, ReproducedTable, ReproduceOptions } from './reproduction.js';

/** KV memory beside a model of 8B on one H100, in tokens of 128 KiB. */
const ROOM = 480_000;

/** RAGBoost's agents, and where hints stand. Takes some ten seconds. */
export const AGENT_TABLES: readonly PaperTable[] = [
  { name: 'chain-of-agents', reproduce: chainTable },
  { name: 'hint-position', reproduce: hintPositionTable },
];

const sumOf = (outcomes: readonly ServedOutcome[], of: (outcome: ServedOutcome) => number) =>
  outcomes.reduce((sum, outcome) => sum + of(outcome), 0);

function chainTable({ seeds, requests }: ReproduceOptions): ReproducedTable {
  const runs = seeds.map((seed) => {
    const all = createWorkload('multi-session-multihoprag', { seed });
    const workload = { ...all, requests: all.requests.slice(0, requests) };
    const serve = (reader: AgentChoice) => {
      const outcomes = simulate(chainOfAgents(workload, reader), 'retrieval', {
        cache: new SglangRadixCache({ tokens: ROOM }),
      });
      const prompt = sumOf(outcomes, ({ promptTokens }) => promptTokens);
      const cached = sumOf(outcomes, ({ cachedTokens }) => cachedTokens);
      return { hit: (100 * cached) / prompt, uncached: prompt - cached };
    };
    const byRank = serve('rank');
    const knowing = serve('read-before');
    return { byRank, knowing, gain: byRank.uncached / knowing.uncached };
  });
  const figures = {
    byRank: estimate(runs.map(({ byRank }) => byRank.hit)),
    knowing: estimate(runs.map(({ knowing }) => knowing.hit)),
    gain: estimate(runs.map(({ gain }) => gain)),
  };
  const figure = (name: string, paper: number | undefined, { mean: ours, se }: Estimate, places = 1) => ({
    name,
    ...{ paper, ours, se, places },
  });
  return {
    title: 'Chain of agents, 15 agents, MultihopRAG: documents sent to the agent that read them before',
    model: `SGLang: a radix tree to the token, room for ${ROOM.toLocaleString('en-US')} tokens, one prompt at a time; no time, tokens alone`,
    rows: (
      [
        ['Qwen3-4B', 1.8],
        ['Llama3.1-8B', 2.1],
      ] as const
    ).map(([label, gain]) => ({
      label,
      figures: [
        figure('gain ×', gain, figures.gain, 2),
        figure('hits by rank %', undefined, figures.byRank),
        figure('hits, agent that knows %', undefined, figures.knowing),
      ],
    })),
    notes: [
      `The paper's traces of agents are not published. Ours: the questions of the multi-session workload, one document an agent, roles of ${AGENT_TOKENS.role} tokens, findings of ${AGENT_TOKENS.finding} that are told to the next agent, and ${ROOM.toLocaleString('en-US')} tokens of room. The gain is that of tokens to prefill, of all agents and the manager.`,
      'Before, the agent of a rank reads the document of that rank. Agents differ by their role, which stands in front of the document: with one role for all, every document ever read is found without any routing.',
    ],
  };
}

function hintPositionTable({ seeds }: ReproduceOptions): ReproducedTable {
  const shareOf = (prepare: (workload: Workload) => Workload, hints: boolean) =>
    estimate(
      seeds.map((seed) => {
        const outcomes = simulate(prepare(createWorkload('multi-session-multihoprag', { seed })), 'exact', {
          cache: new SglangRadixCache(),
          hints,
        });
        return (
          (100 * sumOf(outcomes, ({ cachedTokens }) => cachedTokens)) / sumOf(outcomes, (each) => each.promptTokens)
        );
      }),
    );
  const rows = [
    ['no hint', shareOf((workload) => workload, false)],
    ['behind the documents, before or after the question', shareOf((workload) => workload, true)],
    ['in front of the documents', shareOf(hintsInFront, false)],
  ] as const;
  return {
    title: 'Where the order hint stands: percent of the prompt found cached, `exact`, MultihopRAG, k = 15',
    model: 'SGLang: a radix tree to the token, with room for all, one prompt at a time; no time, tokens alone',
    rows: rows.map(([label, { mean: ours, se }]) => ({
      label,
      figures: [{ name: 'cached %', paper: undefined, ours, se }],
    })),
    notes: [
      'The paper moves the hint before and after the question and finds accuracy within 0.5 %, which needs the models. For the cache the two are one: nothing behind the documents is ever reused. In front of them, nothing else is.',
    ],
  };
}

/** An order in which every document but a middle one moves, so that its hint names them all. */
function reversed(documents: readonly Document[]): readonly number[] {
  return documents.map((_, place) => documents.length - 1 - place);
}

/** Every request with a hint of its own in front of its documents. */
function hintsInFront(workload: Workload): Workload {
  return {
    ...workload,
    requests: workload.requests.map((request, number) => ({
      ...request,
      history: [{ key: `hint ${number}`, tokens: hintTokens(request.documents, reversed(request.documents)) }],
    })),
  };
}
