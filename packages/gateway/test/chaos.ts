/** How much chaos: 1 in the tests, more in `npm run chaos`. */
export const ROUNDS = Number(process.env['CHAOS_ROUNDS'] ?? 1);

/** The same faults every time; CHAOS_SEED asks for others. */
export function chaosSeed(): number {
  return Number(process.env['CHAOS_SEED'] ?? 14);
}

/** Whole numbers below a limit, the same for the same seed (mulberry32). */
export function random(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}
