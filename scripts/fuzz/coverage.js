// Counts how often each branch of Warmpath's built code runs. Import it before anything of Warmpath.
import { register } from 'node:module';

/** Branches of all packages together, rounded up generously. */
const MAX_BRANCHES = 65_536;
const counters = new Uint8Array(MAX_BRANCHES);
/** Four counters at a time: most are zero after any one input. */
const words = new Uint32Array(counters.buffer);
let used = 0;

globalThis[Symbol.for('warmpath.fuzz')] = {
  region(branches) {
    if (used + branches > MAX_BRANCHES) throw new Error(`there are more than ${MAX_BRANCHES} branches`);
    used += branches;
    return counters.subarray(used - branches, used);
  },
};
register('./instrument.js', import.meta.url);

/** How often a branch ran, as one bit of eight: 1, 2, 3, 4-7, 8-15, 16-31, 32-127, more. A counter wraps at 256. */
const BUCKET = Uint8Array.from({ length: 256 }, (_, count) => {
  if (count <= 3) return count === 0 ? 0 : 1 << (count - 1);
  return count < 8 ? 8 : count < 16 ? 16 : count < 32 ? 32 : count < 128 ? 64 : 128;
});

/** What the inputs of one target have reached. */
export class Coverage {
  #seen = new Uint8Array(MAX_BRANCHES);
  /** Branches that ran at all. */
  branches = 0;
  /** Branches, and how often they ran within one input: what decides whether an input is kept. */
  features = 0;

  /** Nothing counts as reached any more. */
  forget() {
    this.#seen = new Uint8Array(MAX_BRANCHES);
    this.branches = 0;
    this.features = 0;
  }

  /** Forgets what ran so far, so that `take` is about one input alone. */
  begin() {
    counters.fill(0, 0, used);
  }

  /** Notes what ran since `begin`. Returns how much of it is new. O(branches / 4). */
  take() {
    const seen = this.#seen;
    let added = 0;
    for (let word = 0; word < used >> 2; word++) {
      if (words[word] !== 0) added += this.#takeWord(seen, 4 * word, 4 * word + 4);
    }
    added += this.#takeWord(seen, used & ~3, used);
    this.features += added;
    return added;
  }

  #takeWord(seen, from, to) {
    let added = 0;
    for (let at = from; at < to; at++) {
      const bit = BUCKET[counters[at]];
      if ((seen[at] & bit) === bit) continue;
      if (seen[at] === 0) this.branches++;
      seen[at] |= bit;
      added++;
    }
    return added;
  }
}
