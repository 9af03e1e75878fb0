import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { WarmpathError } from '@warmpath/core';
import { type EngineOptions, type EngineProcess, spawnEngine } from '@warmpath/engine';
import {
  canHearKvEvents,
  type GatewayConfigInput,
  type GatewayParts,
  type RunningGateway,
  resolveConfig,
  startGateway,
} from '@warmpath/gateway';
import { collectionsFolder } from './collections/open-collection.js';
import type { CommandContext } from './command-context.js';
import { announceStart, engineSettings } from './engine-settings.js';
import { type GatewayOptions, gatewaySettings } from './gateway-settings.js';
import { describeListenError, requireFreePort } from './listen-address.js';
import type { Terminal } from './terminal.js';

/** The embedded engine, and a gateway in front of it. */
export interface EmbeddedGateway {
  readonly gateway: RunningGateway;
  readonly engine: EngineProcess;
}

/** Starts the embedded engine and a gateway in front of it, and stops both when `body` is over. */
export async function withEmbeddedGateway<Result>(
  options: GatewayOptions & Pick<EngineOptions, 'model'>,
  { terminal, environment }: CommandContext,
  { parts, signal }: { readonly parts: GatewayParts; readonly signal: AbortSignal },
  body: (started: EmbeddedGateway) => Promise<Result>,
): Promise<Result> {
  const defaults = { logLevel: 'warn' } as const;
  // The engine's address is not known yet; everything else is checked before a model is loaded for minutes.
  const { server } = resolveConfig(await gatewaySettings(options, 'http://127.0.0.1', { environment, defaults }));
  const address = { host: server.host, port: server.port, option: '--port' } as const;
  await requireFreePort(address);
  const settings = engineSettings(options);
  const events = await openPrivateEvents();
  try {
    const published = events && { kvEvents: events.endpoint, kvEventsReplay: events.replayEndpoint };
    const key = randomBytes(32).toString('base64url');
    const engine = await startEngine({ ...settings, ...published, port: 0 }, terminal, { key, signal });
    try {
      const config = await gatewaySettings(options, engine.url, { environment, defaults });
      const collections = await offered(config.collections ?? { folder: collectionsFolder(environment) }, engine);
      const upstream = {
        // Only this gateway uses the engine, and the engine knows salts: the gateway keeps tenants apart by default.
        cacheSaltKey: randomBytes(32).toString('base64url'),
        ...config.upstream,
        dialect: 'embedded' as const,
        // The engine answers this gateway only.
        apiKey: key,
        ...(events && { kvEvents: { endpoint: events.endpoint, replayEndpoint: events.replayEndpoint } }),
      };
      const gateway = await startGateway({ ...config, collections, upstream }, parts).catch((error: unknown) => {
        throw describeListenError(error, address);
      });
      try {
        return await body({ gateway, engine });
      } finally {
        await gateway.close();
      }
    } finally {
      await engine.stop();
    }
  } finally {
    await events?.close();
  }
}

type CollectionsInput = NonNullable<GatewayConfigInput['collections']>;

/** Offers each ingested collection as a model, for clients that can only choose a model. A caller meets its own. */
async function offered(collections: CollectionsInput, { model }: EngineProcess): Promise<CollectionsInput> {
  if (model.template === undefined || model.template.problem !== undefined) return collections;
  const { Collections } = await import('@warmpath/retrieval');
  const opened = new Collections(collections.folder);
  try {
    const names = (await opened.names('default')).filter((name) => name !== model.name);
    const models = Object.fromEntries(names.map((name) => [name, { model: model.name, collection: name }]));
    return { ...collections, models: { ...models, ...collections.models } };
  } finally {
    await opened.close();
  }
}

/** Addresses at which the engine sends its KV events to this gateway alone. */
interface PrivateEvents {
  readonly endpoint: string;
  readonly replayEndpoint: string;
  close(): Promise<void>;
}

/**
 * Sockets in a folder of this user's own: events name the tokens of prompts. `undefined` where such sockets are not to
 * be had; the gateway then goes by what it has served.
 */
async function openPrivateEvents(): Promise<PrivateEvents | undefined> {
  if (process.platform === 'win32' || !(await canHearKvEvents())) return undefined;
  const folder = await mkdtemp(join(tmpdir(), 'warmpath-events-'));
  return {
    endpoint: `ipc://${join(folder, 'live')}`,
    replayEndpoint: `ipc://${join(folder, 'replay')}`,
    close: () => rm(folder, { recursive: true, force: true }),
  };
}

/** The engine's front runs in this process, beside the gateway; what computes is a process of its own. */
function startEngine(
  options: EngineOptions,
  terminal: Terminal,
  hooks: { readonly key: string; readonly signal: AbortSignal },
): Promise<EngineProcess> {
  const onCrash = ({ message }: WarmpathError) => terminal.note(message);
  const start = announceStart(terminal);
  return spawnEngine(options, { onProgress: start.onProgress, onCrash, ...hooks }).finally(() => start.stop());
}
