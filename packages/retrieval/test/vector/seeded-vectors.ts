/** Numbers from 0 to 1 that follow from the seed. */
function seededRandom(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let hash = Math.imul(state ^ (state >>> 15), 1 | state);
    hash = (hash + Math.imul(hash ^ (hash >>> 7), 61 | hash)) ^ hash;
    return ((hash ^ (hash >>> 14)) >>> 0) / 0x1_0000_0000;
  };
}

/** Normally distributed vectors; around `clusters` centres where there are some. */
export function seededVectors(count: number, dimension: number, seed: number, clusters = 0): Float32Array[] {
  const random = seededRandom(seed);
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  const centres = Array.from({ length: clusters }, () => Float32Array.from({ length: dimension }, normal));
  return Array.from({ length: count }, () => {
    const centre = centres[Math.floor(random() * clusters)];
    return Float32Array.from({ length: dimension }, (_, i) =>
      centre === undefined ? normal() : centre[i]! + 0.7 * normal(),
    );
  });
}
