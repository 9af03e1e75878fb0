const STATE_WORDS = 624;
const SHIFT_WORDS = 397;

/**
 * CPython's `random.Random` for a whole-number seed, draw for draw: MT19937 seeded by array, and the sampling rules
 * built on it. The papers' workloads are defined by this generator, so that a trace can be compared with theirs byte
 * for byte. Every draw is O(1) amortised.
 */
export class MersenneTwister {
  readonly #state = new Uint32Array(STATE_WORDS);
  #next = STATE_WORDS;

  /** `seed`: a whole number from 0 to 2^53 - 1. */
  constructor(seed: number) {
    const low = seed >>> 0;
    const high = Math.floor(seed / 2 ** 32);
    this.#seedByArray(high === 0 ? [low] : [low, high]);
  }

  /** A float in [0, 1) with 53 random bits. */
  random(): number {
    const high = this.#word() >>> 5;
    const low = this.#word() >>> 6;
    return (high * 2 ** 26 + low) / 2 ** 53;
  }

  /** A whole number in [0, limit), without bias; `limit` from 1 to 2^32 - 1. */
  below(limit: number): number {
    const bits = 32 - Math.clz32(limit);
    for (;;) {
      const value = this.#word() >>> (32 - bits);
      if (value < limit) return value;
    }
  }

  /** A whole number in [low, high]. */
  randint(low: number, high: number): number {
    return low + this.below(high - low + 1);
  }

  /** One of the items. */
  choice<Item>(items: readonly Item[]): Item {
    return items[this.below(items.length)]!;
  }

  /** `count` different items in random order. O(count) when few of many are wanted, else O(items). */
  sample<Item>(items: readonly Item[], count: number): Item[] {
    return items.length <= poolUpTo(count) ? this.#sampleFromPool(items, count) : this.#sampleBySet(items, count);
  }

  /** Shuffles in place. */
  shuffle<Item>(items: Item[]): void {
    for (let last = items.length - 1; last > 0; last--) {
      const chosen = this.below(last + 1);
      const moved = items[last]!;
      items[last] = items[chosen]!;
      items[chosen] = moved;
    }
  }

  #sampleFromPool<Item>(items: readonly Item[], count: number): Item[] {
    const pool = items.slice();
    const chosen: Item[] = [];
    for (let i = 0; i < count; i++) {
      const place = this.below(pool.length - i);
      chosen.push(pool[place]!);
      pool[place] = pool[pool.length - i - 1]!;
    }
    return chosen;
  }

  #sampleBySet<Item>(items: readonly Item[], count: number): Item[] {
    const places = new Set<number>();
    while (places.size < count) places.add(this.below(items.length));
    return Array.from(places, (place) => items[place]!);
  }

  #word(): number {
    if (this.#next === STATE_WORDS) this.#regenerate();
    let word = this.#state[this.#next++]!;
    word ^= word >>> 11;
    word ^= (word << 7) & 0x9d2c5680;
    word ^= (word << 15) & 0xefc60000;
    return (word ^ (word >>> 18)) >>> 0;
  }

  #regenerate(): void {
    const state = this.#state;
    for (let i = 0; i < STATE_WORDS; i++) {
      const joined = (state[i]! & 0x80000000) | (state[(i + 1) % STATE_WORDS]! & 0x7fffffff);
      const twist = (joined & 1) === 0 ? 0 : 0x9908b0df;
      state[i] = state[(i + SHIFT_WORDS) % STATE_WORDS]! ^ (joined >>> 1) ^ twist;
    }
    this.#next = 0;
  }

  #seedByWord(seed: number): void {
    const state = this.#state;
    state[0] = seed;
    for (let i = 1; i < STATE_WORDS; i++) state[i] = Math.imul(1812433253, mixed(state[i - 1]!)) + i;
  }

  #seedByArray(key: readonly number[]): void {
    const state = this.#state;
    this.#seedByWord(19650218);
    let i = 1;
    const advance = () => {
      if (++i < STATE_WORDS) return;
      state[0] = state[STATE_WORDS - 1]!;
      i = 1;
    };
    for (let step = 0; step < Math.max(STATE_WORDS, key.length); step++) {
      const j = step % key.length;
      state[i] = (state[i]! ^ Math.imul(mixed(state[i - 1]!), 1664525)) + key[j]! + j;
      advance();
    }
    for (let step = 1; step < STATE_WORDS; step++) {
      state[i] = (state[i]! ^ Math.imul(mixed(state[i - 1]!), 1566083941)) - i;
      advance();
    }
    state[0] = 0x80000000;
  }
}

function mixed(word: number): number {
  return word ^ (word >>> 30);
}

/** CPython copies the whole population up to this size, and remembers the places drawn above it. */
function poolUpTo(count: number): number {
  return count > 5 ? 21 + 4 ** Math.ceil(Math.log(count * 3) / Math.log(4)) : 21;
}
