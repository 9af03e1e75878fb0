import { type PolicyName, WarmpathError } from '@warmpath/core';
import { startGateway } from '@warmpath/gateway';
import { EngineClient, type MeasuredAnswer } from '../engine-client.js';
import type { ColdEngine } from './cold-engine.js';
import type { DemoRequest } from './workload.js';

export const STRATEGY_NAMES = ['retrieval', 'arranged'] as const;
/** The two orders that the demo compares. */
export type StrategyName = (typeof STRATEGY_NAMES)[number];

const POLICIES: Readonly<Record<StrategyName, PolicyName>> = { retrieval: 'retrieval', arranged: 'exact' };

/** Settings that are the same for both strategies. */
export interface RunSettings {
  /** Tokens of an answer, at most. */
  readonly maxTokens: number;
  readonly signal: AbortSignal;
  /** Called after every answer. */
  readonly onAnswer: () => void;
}

/**
 * Asks every question, one after the other, through a gateway of its own with an empty history, on an engine that is cold.
 * Everything but the ordering policy is the same for every strategy. One short question without documents goes first and is
 * not counted: it opens connections and wakes the engine.
 */
export async function runStrategy(
  strategy: StrategyName,
  requests: readonly DemoRequest[],
  engine: ColdEngine,
  settings: RunSettings,
): Promise<readonly MeasuredAnswer[]> {
  const gateway = await startGateway({
    server: { host: '127.0.0.1', port: 0 },
    upstream: { url: engine.url },
    log: { level: 'silent' },
  });
  const client = new EngineClient({ url: gateway.url, apiKey: engine.apiKey });
  try {
    const base = { model: engine.description.model, max_tokens: settings.maxTokens, temperature: 0 };
    const system = { role: 'system', content: engine.systemPrompt };
    await client.measureChat({ ...base, messages: [system, { role: 'user', content: 'Ready?' }] }, settings.signal);
    const answers: MeasuredAnswer[] = [];
    for (const { question, documents } of requests) {
      const messages = [system, { role: 'user', content: question }];
      const body = { ...base, messages, documents, warmpath: { policy: POLICIES[strategy] } };
      const answer = await client.measureChat(body, settings.signal);
      requirePolicy(answer, POLICIES[strategy]);
      answers.push(answer);
      settings.onAnswer();
    }
    return answers;
  } finally {
    await client.close();
    await gateway.close();
  }
}

/** A gateway that fell back to another order would make the comparison a lie. */
function requirePolicy({ headers }: MeasuredAnswer, policy: PolicyName): void {
  if (headers['x-warmpath-policy'] === policy && headers['x-warmpath-fallback'] === undefined) return;
  throw new WarmpathError('WARMPATH_INTERNAL', { detail: `the gateway did not order by ${policy}` });
}
