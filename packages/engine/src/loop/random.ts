/**
 * A seeded source of numbers in [0, 1): sfc32 (Chris Doty-Humphrey's PractRand), 128 bits of state, period ≥ 2³².
 * The same seed gives the same numbers on every machine.
 */
export function seededRandom(seed: number): () => number {
  let a = seed >>> 0;
  let b = Math.floor(seed / 0x1_0000_0000) >>> 0;
  let c = 0x9e37_79b9;
  let counter = 1;
  const next = (): number => {
    const sum = (((a + b) | 0) + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (c << 21) | (c >>> 11);
    c = (c + sum) | 0;
    return (sum >>> 0) / 0x1_0000_0000;
  };
  // The first outputs of neighbouring seeds resemble each other.
  for (let round = 0; round < 15; round++) {
    next();
  }
  return next;
}
