import { randomBytes } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import { type EngineOptions, spawnEngine } from '@warmpath/engine';
import { type EngineAddress, EngineClient } from '../engine-client.js';

/** The system prompt of every request of the demo. */
const SYSTEM_PROMPT = 'Answer the question using only the provided documents.';

/** An engine whose cache holds nothing that the coming requests could use. */
export interface ColdEngine extends EngineAddress {
  readonly model: string;
  readonly systemPrompt: string;
  stop(): Promise<void>;
}

/** Where the demo's engines come from. */
export interface EngineSource {
  /** What the report calls it: `embedded`, or the URL. */
  readonly name: string;
  /** How a cold cache is come by, in words. */
  readonly coldness: string;
  /** Cold for every call. */
  start(signal: AbortSignal): Promise<ColdEngine>;
}

/** The embedded engine: a process of its own for every start. */
export function embeddedEngine(options: EngineOptions): EngineSource {
  return {
    name: 'embedded',
    coldness: 'a fresh engine process for each order',
    start: async () => {
      const engine = await spawnEngine(options);
      return { url: engine.url, model: engine.model, systemPrompt: SYSTEM_PROMPT, stop: () => engine.stop() };
    },
  };
}

/**
 * An engine that somebody else runs. It cannot be restarted, so every start opens the system prompt with a number never used
 * before: nothing in the cache begins with it.
 */
export function remoteEngine(address: EngineAddress, model: string | undefined): EngineSource {
  return {
    name: address.url,
    coldness: 'a system prompt that opens with a fresh number for each order',
    start: async (signal) => {
      const systemPrompt = `${randomBytes(6).toString('hex')} ${SYSTEM_PROMPT}`;
      return { ...address, model: model ?? (await firstModel(address, signal)), systemPrompt, stop: async () => {} };
    },
  };
}

async function firstModel(address: EngineAddress, signal: AbortSignal): Promise<string> {
  const client = new EngineClient(address);
  try {
    const [first] = await client.models(signal);
    if (first !== undefined) return first.id;
    throw new WarmpathError('WARMPATH_MODEL_NOT_FOUND', { path: '--model', detail: 'the engine names no model' });
  } finally {
    await client.close();
  }
}
