import type { Document } from '@warmpath/core';
import type { Workload, WorkloadRequest } from './workload.js';

/** Tokens of what makes an agent that agent, and of what it tells the next. RAGBoost gives neither. */
export const AGENT_TOKENS = { role: 120, finding: 100 } as const;

/**
 * Which agent reads a document: that of its `rank`; or the one that read it last (`read-before`), if no other document
 * has it now, else the next free one.
 */
export type AgentChoice = 'rank' | 'read-before';

/**
 * The questions of a workload asked to a chain of agents (RAGBoost §7.1): every document of a question is read by an
 * agent of its own, which gets what the one before it found; a manager gets what the last one found, and answers. So a
 * question for k documents becomes k + 1 prompts: role, document, question and finding. Agents differ by their role,
 * which stands in front of the document: who reads it decides what is found cached.
 *
 * O(documents of all requests); the same for the same workload.
 */
export function chainOfAgents({ requests, ...workload }: Workload, choice: AgentChoice): Workload {
  const agentsOf = choice === 'rank' ? byRank : agentsThatReadBefore();
  const chained = requests.flatMap(({ documents, question, ...request }, number): WorkloadRequest[] => {
    const { session, arrivalMs } = request;
    const origin = { ...(session !== undefined && { session }), ...(arrivalMs !== undefined && { arrivalMs }) };
    const finding = (rank: number) => (rank > 0 ? AGENT_TOKENS.finding : 0);
    return [
      ...agentsOf(documents).map((agent, rank) => ({
        ...origin,
        documents: [documents[rank]!],
        history: [{ key: `agent ${agent}`, tokens: AGENT_TOKENS.role }],
        question: { key: `question ${number} after ${rank}`, tokens: question.tokens + finding(rank) },
      })),
      {
        ...origin,
        documents: [],
        history: [{ key: 'manager', tokens: AGENT_TOKENS.role }],
        question: { key: `question ${number}`, tokens: question.tokens + finding(documents.length) },
      },
    ];
  });
  return { ...workload, requests: chained };
}

function byRank(documents: readonly Document[]): readonly number[] {
  return documents.map((_, rank) => rank);
}

/** Remembers a number for each document of the workload. */
function agentsThatReadBefore(): typeof byRank {
  const last = new Map<string, number>();
  return (documents) => {
    const free = new Set(documents.keys());
    const agents = documents.map(({ key }) => {
      const agent = last.get(key);
      return agent !== undefined && free.delete(agent) ? agent : undefined;
    });
    return documents.map(({ key }, rank) => {
      const [next] = free;
      const agent = agents[rank] ?? next!;
      free.delete(agent);
      last.set(key, agent);
      return agent;
    });
  };
}
