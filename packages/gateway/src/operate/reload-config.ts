import { isDeepStrictEqual } from 'node:util';
import { WarmpathError } from '@warmpath/core';
import type { Lifecycle } from '../answer/relay.js';
import { isChangedAtOnce } from '../config/describe.js';
import { resolveConfig } from '../config/load.js';
import { engineSettings, type GatewayConfig } from '../config/schema.js';
import { checksKeys } from '../config/schema-server.js';
import type { DashboardFeed } from '../dashboard/feed.js';
import type { Engines } from '../engines/engines.js';
import { type Access, Cors } from '../intake/admit.js';
import { Authenticator } from '../intake/authenticate.js';
import type { RateLimits } from '../intake/rate-limits.js';
import type { Log } from '../observe/log.js';

/** What another configuration changes. */
export interface ConfigChanges {
  /** What holds from now on: the new values of the keys that change at once, and the old ones of all others. */
  readonly config: GatewayConfig;
  /** Paths of keys, without their values. */
  readonly changed: readonly string[];
  readonly needRestart: readonly string[];
}

/**
 * Compares a configuration with the one that holds. A list is one value, such as `server.keys`.
 *
 * @throws WarmpathError `WARMPATH_CONFIG_INVALID` where the keys that change at once do not go with what stays.
 */
export function changesOf(current: GatewayConfig, next: GatewayConfig): ConfigChanges {
  const mixed = structuredClone(current);
  const changed: string[] = [];
  const needRestart: string[] = [];
  const mayChange = (path: string): boolean => {
    // Who checks callers, and so who they are, stays; which keys and tokens are right may change.
    const isAccess = path.startsWith('server.keys') || path.startsWith('server.jwt');
    return isChangedAtOnce(path) && (!isAccess || (checksKeys(current.server) && checksKeys(next.server)));
  };
  for (const { path, take } of differences(mixed, next, '')) {
    if (mayChange(path)) {
      take();
      changed.push(path);
    } else needRestart.push(path);
  }
  return { config: checked(mixed, needRestart), changed, needRestart };
}

function checked(mixed: GatewayConfig, needRestart: readonly string[]): GatewayConfig {
  try {
    return resolveConfig(mixed);
  } catch (cause) {
    const detail = `${(cause as Error).message}; it would be right after a restart, which ${needRestart.join(', ')} needs`;
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', { detail, cause });
  }
}

/** Takes over what differs, in place: whoever holds the configuration, or a section of it, reads the new values. */
export function adopt(current: GatewayConfig, next: GatewayConfig): void {
  for (const { take } of [...differences(current, next, '')]) take();
}

interface Difference {
  readonly path: string;
  take(): void;
}

function* differences(current: object, next: object, path: string): Generator<Difference> {
  const [own, other] = [current as Record<string, unknown>, next as Record<string, unknown>];
  for (const key of new Set([...Object.keys(own), ...Object.keys(other)])) {
    const at = path === '' ? key : `${path}.${key}`;
    const [before, after] = [own[key], other[key]];
    if (isSection(before) && isSection(after)) yield* differences(before, after, at);
    else if (!isDeepStrictEqual(before, after)) {
      const take = (): void => {
        if (after === undefined) delete own[key];
        else own[key] = after;
      };
      yield { path: at, take };
    }
  }
}

function isSection(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** What became of another configuration: paths of keys, never their values. */
export interface ReloadReport {
  /** Count from now on. */
  readonly changed: readonly string[];
  /** Stay as they are until the gateway is started again. */
  readonly needRestart: readonly string[];
}

/** What a new configuration changes. */
export interface ReloadParts {
  /** Changes in place. */
  readonly config: GatewayConfig;
  readonly access: Access;
  readonly rateLimits: RateLimits;
  readonly engines: Engines;
  readonly log: Log;
  readonly lifecycle: Lifecycle;
  readonly feed: DashboardFeed;
}

/**
 * Takes another configuration, as far as it can change while requests are under way. What may fail comes first: after
 * a failure nothing has changed. Requests under way keep their caller and their engine.
 *
 * @throws WarmpathError `WARMPATH_CONFIG_INVALID`, `WARMPATH_SHUTTING_DOWN`.
 */
export async function reloadConfig(parts: ReloadParts, next: GatewayConfig): Promise<ReloadReport> {
  const { access, engines, log } = parts;
  const { config, changed, needRestart } = changesOf(parts.config, next);
  const authenticator = await Authenticator.open(config.server);
  if (parts.lifecycle.leaving) throw new WarmpathError('WARMPATH_SHUTTING_DOWN');
  await engines.reload(engineSettings(config));
  adopt(parts.config, config);
  const { keys = [], cors = [] } = config.server;
  access.authenticator = authenticator;
  access.cors = new Cors(cors);
  parts.rateLimits.change(keys);
  log.level = config.log.level;
  // Viewers were admitted by the old key and got the old settings. Their page connects again by itself.
  if (changed.length > 0) parts.feed.endAll();
  log.info({ changed }, 'configuration read again');
  if (needRestart.length > 0) log.warn({ keys: needRestart }, 'these keys need a restart and stay as they were');
  return { changed, needRestart };
}
