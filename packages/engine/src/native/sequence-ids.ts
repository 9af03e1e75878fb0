/** Ids that llama.cpp offers in a unified buffer (`LLAMA_MAX_SEQ`). */
export const NATIVE_SEQUENCES = 256;

/**
 * Labels the cells that are on their way out of the buffer or into it. It must be the lowest id: a state names the
 * labels below `n_seq_max` alone (`state_write_meta` in src/llama-kv-cache.cpp), which is the number of outputs here.
 */
export const SCRATCH_SEQUENCE = 0;

/** The ids that running requests and the prefix cache may use. */
export const SEQUENCE_IDS: readonly number[] = Array.from(
  { length: NATIVE_SEQUENCES - 1 },
  (_, index) => SCRATCH_SEQUENCE + 1 + index,
);
