import { describe, expect, it } from 'vitest';
import { type Attack, problemsAfterwards } from './attacks/attack.js';
import { GatewayProcess } from './attacks/gateway-process.js';
import { LARGE_BODIES } from './attacks/large-bodies.js';
import { MEMORY } from './attacks/memory.js';
import { SinkEngine } from './attacks/sink-engine.js';
import { closing } from './harness.js';

const PROGRAM = new URL('../bench/gateway-process.js', import.meta.url);
const TIMEOUT = { timeout: 120_000 };

/**
 * The attacks in small, against the built gateway in a process of its own: every one is answered, and the gateway
 * serves on. How long others wait meanwhile and what memory it takes is measured by `npm run attacks`, with the real
 * sizes.
 */
async function run(attack: Attack): Promise<readonly string[]> {
  const engine = closing(await SinkEngine.start());
  const gateway = closing(await GatewayProcess.start(PROGRAM, engine.url, attack.config ?? {}));
  const attacked = { url: gateway.url, engine, isFull: false };
  return [...(await attack.run(attacked)), ...(await problemsAfterwards(attacked))];
}

describe('a gateway that is sent', TIMEOUT, () => {
  it.each([...LARGE_BODIES, ...MEMORY].map((attack) => [attack.name, attack] as const))(
    '%s answers, and serves on',
    async (_, attack) => {
      expect(await run(attack)).toEqual([]);
    },
  );
});
