/** A seeded stream of numbers in [0, 1), so that every run measures the same requests. */
export function randomSource(seed) {
  let state = seed | 0;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    let word = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    word = Math.imul(word ^ (word >>> 15), 0x735a2d97);
    return ((word ^ (word >>> 15)) >>> 0) / 2 ** 32;
  };
}

/** Draws 0..count-1 with probability proportional to 1 / (i + 1)^exponent. */
export function zipf(count, exponent, random) {
  const cumulative = [];
  let total = 0;
  for (let i = 0; i < count; i++) {
    total += 1 / (i + 1) ** exponent;
    cumulative.push(total);
  }
  return () => {
    const target = random() * total;
    let low = 0;
    let high = count - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (cumulative[middle] < target) low = middle + 1;
      else high = middle;
    }
    return low;
  };
}
