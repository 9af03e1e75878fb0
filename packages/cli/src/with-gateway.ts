import { WarmpathError } from '@warmpath/core';
import { EngineClient } from './engine-client.js';
import { withInterruption } from './interruption.js';
import { keyFrom } from './options.js';

/** Asks a running gateway. Error: `WARMPATH_GATEWAY_UNREACHABLE`, beside those of the gateway. */
export function withGateway<Answer>(
  { gateway: url, ...keys }: { readonly gateway: string; readonly keyEnv?: string },
  environment: NodeJS.ProcessEnv,
  ask: (client: EngineClient, signal: AbortSignal) => Promise<Answer>,
): Promise<Answer> {
  return withInterruption(async (signal) => {
    const apiKey = keyFrom(keys, environment);
    const client = new EngineClient({ url, ...(apiKey !== undefined && { apiKey }) });
    try {
      return await ask(client, signal);
    } catch (error) {
      throw aboutGateway(error, url);
    } finally {
      await client.close();
    }
  });
}

function aboutGateway(error: unknown, url: string): unknown {
  if (!WarmpathError.isInstance(error) || error.code !== 'WARMPATH_UPSTREAM_UNREACHABLE') return error;
  // A gateway that answers says so of its engine.
  if (error.cause === undefined) return error;
  const detail = `no gateway answers at ${url}; start one with \`warmpath up\`, or name it with --gateway`;
  return new WarmpathError('WARMPATH_GATEWAY_UNREACHABLE', { path: '--gateway', detail, cause: error });
}
