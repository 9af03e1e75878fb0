// What the benchmarks' requests are drawn from: the same in every run.

const WORDS = 'engine cache prefix token block radix leaf page device host tier request prompt order document'.split(
  ' ',
);

/** Whole numbers below a limit, the same for the same seed. */
export function draws(seed = 42) {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** So many words. */
export function prose(next, words) {
  return Array.from({ length: words }, () => WORDS[next(WORDS.length)]).join(' ');
}
