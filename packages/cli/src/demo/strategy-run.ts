import { readSummary } from '@warmpath/client';
import { type PolicyName, WarmpathError } from '@warmpath/core';
import { DEFAULT_POLICY } from '@warmpath/core/internal';
import { type RunningGateway, startGateway } from '@warmpath/gateway';
import { EngineClient, type MeasuredAnswer } from '../engine-client.js';
import type { ColdEngine, EngineDescription, EngineSource } from './cold-engine.js';
import type { DemoRequest } from './workload.js';

export const STRATEGY_NAMES = ['retrieval', 'arranged'] as const;
/** The two orders that the demo compares. */
export type StrategyName = (typeof STRATEGY_NAMES)[number];

const POLICIES: Readonly<Record<StrategyName, PolicyName>> = { retrieval: 'retrieval', arranged: DEFAULT_POLICY };

/** Settings that are the same for both strategies. */
export interface RunSettings {
  /** Tokens of an answer, at most. */
  readonly maxTokens: number;
  readonly signal: AbortSignal;
}

/**
 * One strategy on an engine that starts cold, behind a gateway of its own with an empty history. Everything but the
 * ordering policy is the same for every strategy.
 */
export class StrategyRun {
  readonly #strategy: StrategyName;
  readonly #engine: ColdEngine;
  readonly #gateway: RunningGateway;
  readonly #client: EngineClient;
  readonly #settings: RunSettings;

  private constructor(strategy: StrategyName, engine: ColdEngine, gateway: RunningGateway, settings: RunSettings) {
    this.#strategy = strategy;
    this.#engine = engine;
    this.#gateway = gateway;
    this.#client = new EngineClient({ url: gateway.url, apiKey: engine.apiKey });
    this.#settings = settings;
  }

  /**
   * Starts engine and gateway, and asks one short question without documents that is not counted: it opens connections
   * and wakes the engine.
   */
  static async open(strategy: StrategyName, source: EngineSource, settings: RunSettings): Promise<StrategyRun> {
    const engine = await source.start(settings.signal);
    try {
      const gateway = await startGateway({
        server: { host: '127.0.0.1', port: 0 },
        upstream: { url: engine.url },
        log: { level: 'silent' },
      });
      const run = new StrategyRun(strategy, engine, gateway, settings);
      try {
        await run.#client.measureChat(run.#body('Ready?'), settings.signal);
        return run;
      } catch (error) {
        await run.#closeClient();
        throw error;
      }
    } catch (error) {
      await engine.stop();
      throw error;
    }
  }

  get engine(): EngineDescription {
    return this.#engine.description;
  }

  /** Asks one question, with its documents ordered by this run's strategy, and measures the answer. */
  async ask({ question, documents }: DemoRequest): Promise<MeasuredAnswer> {
    const policy = POLICIES[this.#strategy];
    const body = { ...this.#body(question), documents, warmpath: { policy } };
    const answer = await this.#client.measureChat(body, this.#settings.signal);
    requirePolicy(answer, policy);
    return answer;
  }

  async close(): Promise<void> {
    await this.#closeClient();
    await this.#engine.stop();
  }

  async #closeClient(): Promise<void> {
    await this.#client.close();
    await this.#gateway.close();
  }

  #body(question: string) {
    return {
      model: this.#engine.description.model,
      max_tokens: this.#settings.maxTokens,
      temperature: 0,
      messages: [
        { role: 'system', content: this.#engine.systemPrompt },
        { role: 'user', content: question },
      ],
    };
  }
}

/** A gateway that fell back to another order would make the comparison a lie. */
function requirePolicy({ headers }: MeasuredAnswer, policy: PolicyName): void {
  const told = readSummary(String(headers['x-warmpath'] ?? ''));
  if (told['policy'] === policy && told['fallback'] === undefined) return;
  throw new WarmpathError('WARMPATH_INTERNAL', { detail: `the gateway did not order by ${policy}` });
}
