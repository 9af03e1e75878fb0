import type { CostModel } from '@warmpath/core/internal';
import type { DecodeCost, HostCopyCost } from '@warmpath/lab';

/** KV bytes a token of the paper's models (Table 1). */
const KV_BYTES = {
  'mistral-7b': 131_072,
  'llama2-7b': 524_288,
} as const;

export type ModelName = keyof typeof KV_BYTES;

const GIB = 2 ** 30;

/** Tokens whose KV fits so much memory. */
export function tokensOf(model: ModelName, gib: number): number {
  return Math.floor((gib * GIB) / KV_BYTES[model]);
}

/**
 * KV memory of the A10G in GiB, inferred: nine tenths of 24 GiB, as vLLM takes by default, less 14 GiB of weights
 * (Table 1) and 1.6 GiB for activations.
 */
export const DEVICE_GIB = 6;

/**
 * Prefill of a 7B model on the A10G, inferred from figures that the text puts into numbers: one second at 4,000 tokens
 * (Fig. 3); behind 4,096 cached tokens 32 tokens take 1 / 11.5 of prefilling all (Fig. 7). `82 + 0.195 n + 1.75e-5 (c n
 * + n² / 2)` ms gives 1,002 ms and 1 / 11.4; the quadratic term, attention, is twice its share of the arithmetic, for
 * it runs less efficiently.
 */
export const A10G: CostModel = {
  prefillMs: (cached, fresh) => 82 + 0.195 * fresh + 1.75e-5 * (cached * fresh + (fresh * fresh) / 2),
};

/**
 * 14 GiB of weights read at 600 GB/s, and what the attention of one sequence adds; inferred from the A10G's data sheet.
 */
export const A10G_DECODE: DecodeCost = { stepMs: 25, sequenceMs: 0.5 };

/**
 * 12.3 GB/s between host and device, inferred: with 4,096 tokens (2 GiB) of Llama2-7B in the host, a hit takes 1 / 3.9
 * of prefilling all (Fig. 7), 175 ms more than without the copy.
 */
export function hostCopyOf(model: ModelName): HostCopyCost {
  return (tokens) => (tokens * KV_BYTES[model]) / 12.3e6;
}

/**
 * Documents longer than this are cut where times are simulated, so that two of them fit the 4,096 tokens of Llama2. The
 * paper does not say that it does, but at full length (3,718 tokens on average) a top-2 request takes 2.1 s by its Fig.
 * 3, and the rates it serves (0.8 a second in Table 2, 2.5 in Fig. 21) would be 1.7 and 5 times what the device can do
 * without a cache.
 */
export const MAX_DOCUMENT_TOKENS = 1_984;
