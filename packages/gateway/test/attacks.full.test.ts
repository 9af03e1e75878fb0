import { describe, expect, it } from 'vitest';
import { resolveConfig } from '../src/config/load.js';
import { type Attack, problemsAfterwards } from './attacks/attack.js';
import { GatewayProcess } from './attacks/gateway-process.js';
import { LARGE_BODIES } from './attacks/large-bodies.js';
import { MEMORY } from './attacks/memory.js';
import { SinkEngine } from './attacks/sink-engine.js';
import { closing } from './harness.js';

const PROGRAM = new URL('../bench/gateway-process.js', import.meta.url);

/** What a gateway takes beside the memory that is configured: the process itself and the requests under way. */
const BESIDE_BYTES = 150e6;
/** Those that took most memory when nothing was bounded, one for each way of reading a body. */
const IN_FULL: ReadonlySet<string> = new Set([
  '33 MB of messages: [1,1,1,…]',
  '33 MB of messages: [{},{},…]',
  '33 MB of millions of keys',
  '60 clients that send 32 of 33 MB and stop',
]);
const ATTACKS = [...LARGE_BODIES, ...MEMORY];

/** Against the built gateway in a process of its own, whose heap is 1 GiB: what is wrong, and what memory it took. */
async function run(attack: Attack, isFull: boolean) {
  const engine = closing(await SinkEngine.start());
  const gateway = closing(await GatewayProcess.start(PROGRAM, engine.url, attack.config ?? {}));
  const attacked = { url: gateway.url, engine, isFull };
  const problems = [...(await attack.run(attacked))];
  if (gateway.hasEnded) return { problems: [...problems, 'the gateway ended'], peakBytes: 0 };
  problems.push(...(await problemsAfterwards(attacked)));
  return { problems, peakBytes: gateway.peakBytes };
}

/** How long others wait meanwhile is measured by `npm run attacks`, which has all of them in their real sizes. */
describe('a gateway that is sent', () => {
  it.each(ATTACKS.filter(({ name }) => !IN_FULL.has(name)).map((attack) => [attack.name, attack] as const))(
    '%s, in small, answers and serves on',
    async (_, attack) => {
      expect((await run(attack, false)).problems).toEqual([]);
    },
  );

  it.each(ATTACKS.filter(({ name }) => IN_FULL.has(name)).map((attack) => [attack.name, attack] as const))(
    '%s answers, serves on, and stays within its memory',
    async (_, attack) => {
      const { memoryBytes } = resolveConfig({ upstream: { url: 'http://127.0.0.1' } }).limits;
      const { problems, peakBytes } = await run(attack, true);
      expect(problems).toEqual([]);
      expect(peakBytes).toBeLessThan(memoryBytes + BESIDE_BYTES);
    },
  );

  it('has its real size for those that matter most', () => {
    expect(ATTACKS.filter(({ name }) => IN_FULL.has(name))).toHaveLength(IN_FULL.size);
  });
});
