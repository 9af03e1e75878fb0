import { randomBytes } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import { type EngineOptions, spawnEngine } from '@warmpath/engine';
import { type EngineAddress, EngineClient } from '../engine-client.js';
import { announceStart } from '../engine-settings.js';
import type { Terminal } from '../terminal.js';

/** The system prompt of every request of the demo. */
const SYSTEM_PROMPT = 'Answer the question using only the provided documents.';

/** What a reader of the figures must know about the engine. */
export interface EngineDescription {
  readonly model: string;
  /**
   * Whether it is the model that ships with Warmpath, which was trained to answer from documents like the almanac's.
   */
  readonly isDemoModel: boolean;
  /** What must be said about the model. */
  readonly notice: string | undefined;
}

/** An engine whose cache holds nothing that the coming requests could use. */
export interface ColdEngine extends EngineAddress {
  readonly description: EngineDescription;
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
export function embeddedEngine(options: EngineOptions, terminal: Terminal): EngineSource {
  return {
    name: 'embedded',
    coldness: 'an engine process of its own for each order',
    start: async (signal) => {
      const start = announceStart(terminal);
      const starting = spawnEngine({ ...options, port: 0 }, { onProgress: start.onProgress, signal });
      const engine = await starting.finally(() => start.stop());
      const { name, kind, notice } = engine.model;
      const description = { model: name, isDemoModel: kind === 'demo', notice };
      const stop = async () => {
        await engine.stop();
      };
      return { url: engine.url, description, systemPrompt: SYSTEM_PROMPT, stop };
    },
  };
}

/**
 * An engine that is already running. It cannot be restarted, so every start opens the system prompt with a number never
 * used before: nothing in the cache begins with it. Both orders share the cache's room, which costs both alike.
 */
export function remoteEngine(address: EngineAddress, model: string | undefined): EngineSource {
  return {
    name: address.url,
    coldness: 'a system prompt that opens with a fresh number for each order',
    start: async (signal) => {
      const systemPrompt = `${randomBytes(6).toString('hex')} ${SYSTEM_PROMPT}`;
      const name = model ?? (await firstModel(address, signal));
      const description = { model: name, isDemoModel: false, notice: undefined };
      return { ...address, description, systemPrompt, stop: async () => {} };
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
