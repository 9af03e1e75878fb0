// What the benchmarks' requests are drawn from: the same in every run.

const WORDS = 'engine cache prefix token block radix leaf page device host tier request prompt order document'.split(
  ' ',
);

/** Whole numbers below a limit. */
export function draws() {
  let state = 42;
  return (limit) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** So many words. */
export function prose(next, words) {
  return Array.from({ length: words }, () => WORDS[next(WORDS.length)]).join(' ');
}
