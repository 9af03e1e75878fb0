import { WarmpathError } from '@warmpath/core';
import type { FastifyBaseLogger } from 'fastify';
import { adopt, changesOf } from '../config/changes.js';
import { engineSettings, type GatewayConfig } from '../config/schema.js';
import type { Gateway } from '../gateway.js';
import { Authenticator } from '../intake/authenticate.js';
import { Cors } from '../intake/cors.js';
import type { WorkerPool } from '../workers/worker-pool.js';

/** What became of another configuration: paths of keys, never their values. */
export interface ReloadReport {
  /** Count from now on. */
  readonly changed: readonly string[];
  /** Stay as they are until the gateway is started again. */
  readonly needRestart: readonly string[];
}

/**
 * Takes another configuration, as far as it can change while requests are under way. What may fail comes first, so that
 * one that cannot hold changes nothing; then all keys change in one turn of the event loop. Requests under way go on:
 * as those of the caller that they were known by, and on the engine that they have.
 *
 * @throws WarmpathError `WARMPATH_CONFIG_INVALID`, `WARMPATH_SHUTTING_DOWN`.
 */
export async function reloadConfig(
  gateway: Gateway,
  next: GatewayConfig,
  { log, workers }: { readonly log: FastifyBaseLogger; readonly workers: WorkerPool | undefined },
): Promise<ReloadReport> {
  const { config, changed, needRestart } = changesOf(gateway.config, next);
  const authenticator = await Authenticator.open(config.server);
  if (gateway.draining) throw new WarmpathError('WARMPATH_SHUTTING_DOWN');
  await gateway.engines.reload(engineSettings(config));
  adopt(gateway.config, config);
  const { keys = [], cors } = config.server;
  gateway.authenticator = authenticator;
  gateway.rateLimits.change(keys);
  gateway.cors = cors && new Cors(cors);
  log.level = config.log.level;
  workers?.setUp();
  // Who watches came in by the old key, and was told the old settings: the page comes back by itself.
  if (changed.length > 0) for (const viewer of gateway.viewers) viewer.end();
  log.info({ changed }, 'configuration read again');
  if (needRestart.length > 0) log.warn({ keys: needRestart }, 'these keys need a restart and stay as they were');
  return { changed, needRestart };
}
