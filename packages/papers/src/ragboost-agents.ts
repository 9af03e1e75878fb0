import { type Document, hintTokens } from '@warmpath/core';
import {
  createWorkload,
  type Estimate,
  estimate,
  type ServedOutcome,
  SglangRadixCache,
  simulate,
  type Workload,
  type WorkloadRequest,
} from '@warmpath/lab';
import type { PaperTable, ReproducedTable, ReproduceOptions } from './reproduction.js';

/** Agents of one answer, each of which reads one document (§7.1). */
const AGENTS = 15;
/** Tokens of what makes an agent that agent, and of what it tells the next; the paper gives neither. */
const ROLE = 120;
const SUMMARY = 100;
/** KV memory beside a model of 8B on one H100, in tokens of 128 KiB. */
const ROOM = 480_000;

/** Which agent reads the document of each rank. */
type AssignAgents = (documents: readonly Document[]) => readonly number[];

/** RAGBoost's agents, and where hints stand. Takes some ten seconds. */
export const AGENT_TABLES: readonly PaperTable[] = [
  { name: 'chain-of-agents', reproduce: chainTable },
  { name: 'hint-position', reproduce: hintPositionTable },
];

/**
 * Chain of agents: every document of a question is read by an agent of its own, which is told what the one before it
 * found; a manager answers. So a question is sixteen prompts: role, document, question and what was found so far.
 */
function chainOfAgents({ requests, ...workload }: Workload, assign: AssignAgents): Workload {
  const chained = requests.flatMap(({ documents, question }, number): WorkloadRequest[] => [
    ...assign(documents).map((agent, rank) => ({
      documents: [documents[rank]!],
      history: [{ key: `agent ${agent}`, tokens: ROLE }],
      question: { key: `question ${number} after ${rank}`, tokens: question.tokens + (rank > 0 ? SUMMARY : 0) },
    })),
    {
      documents: [],
      history: [{ key: 'manager', tokens: ROLE }],
      question: { key: `question ${number}`, tokens: question.tokens + SUMMARY },
    },
  ]);
  return { ...workload, requests: chained };
}

/** The agent that read a document last reads it again, if no other document has it now; else the next free one does. */
function agentsThatKnow(): AssignAgents {
  const last = new Map<string, number>();
  return (documents) => {
    const free = new Set(Array.from({ length: AGENTS }, (_, agent) => agent));
    const agents = documents.map(({ key }) => {
      const agent = last.get(key);
      return agent !== undefined && free.delete(agent) ? agent : -1;
    });
    for (const [rank, { key }] of documents.entries()) {
      if (agents[rank] === -1) {
        const [next] = free;
        agents[rank] = next!;
        free.delete(next!);
      }
      last.set(key, agents[rank]!);
    }
    return agents;
  };
}

const sumOf = (outcomes: readonly ServedOutcome[], of: (outcome: ServedOutcome) => number) =>
  outcomes.reduce((sum, outcome) => sum + of(outcome), 0);

function chainTable({ seeds, requests }: ReproduceOptions): ReproducedTable {
  const runs = seeds.map((seed) => {
    const all = createWorkload('multi-session-multihoprag', { seed });
    const workload = { ...all, requests: all.requests.slice(0, requests) };
    const serve = (assign: AssignAgents) => {
      const outcomes = simulate(chainOfAgents(workload, assign), 'retrieval', {
        cache: new SglangRadixCache({ tokens: ROOM }),
      });
      const prompt = sumOf(outcomes, ({ promptTokens }) => promptTokens);
      const cached = sumOf(outcomes, ({ cachedTokens }) => cachedTokens);
      return { hit: (100 * cached) / prompt, uncached: prompt - cached };
    };
    const byRank = serve((documents) => documents.map((_, rank) => rank));
    const knowing = serve(agentsThatKnow());
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
      `The paper's traces of agents are not published. Ours: the questions of the multi-session workload, one document an agent, roles of ${ROLE} tokens, findings of ${SUMMARY} that are told to the next agent, and ${ROOM.toLocaleString('en-US')} tokens of room. The gain is that of tokens to prefill, of all agents and the manager.`,
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
