/** Ids that llama.cpp offers in a unified buffer (`LLAMA_MAX_SEQ`). */
const NATIVE_SEQUENCES = 256;

/**
 * Labels the cells that are on their way out of the buffer or into it. It must be the lowest id: a state names the
 * labels below `n_seq_max` alone (`state_write_meta` in src/llama-kv-cache.cpp), which is the number of outputs here.
 */
export const SCRATCH_SEQUENCE = 0;

/** The lowest id that running requests and the prefix cache may use. */
export const FIRST_SEQUENCE = SCRATCH_SEQUENCE + 1;

/** The ids that running requests and the prefix cache may use. */
export const SEQUENCE_IDS: readonly number[] = Array.from(
  { length: NATIVE_SEQUENCES - FIRST_SEQUENCE },
  (_, index) => FIRST_SEQUENCE + index,
);

/**
 * llama.cpp reuses a cell with a single label once it has left the sliding window of that label (`find_slot` in
 * src/llama-kv-cache.cpp). So with windows every cell carries a second label: its sequence and half of all ids more.
 */
export const TWIN_OFFSET = NATIVE_SEQUENCES / 2;

/** The ids that may be used where each has a twin. */
export const TWINNED_SEQUENCE_IDS: readonly number[] = SEQUENCE_IDS.slice(0, TWIN_OFFSET - FIRST_SEQUENCE);
