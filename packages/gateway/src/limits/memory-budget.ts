/**
 * Parts of the budget (`limits.memoryBytes`), in sixty-fourths; their sum is 64. Everything that a client can make the
 * gateway keep belongs to a part with a bound in bytes. The budget also covers the process itself (about 100 MB) and
 * bodies that are being parsed or written.
 */
const SHARES = {
  /** Bodies, from the first byte until the answer is over. */
  bodies: 24,
  /** What engines should have cached, per tenant and model. */
  histories: 12,
  /** Turns of conversations; messages and lists of tools as they were sent; orders of documents; stored responses. */
  conversations: 12,
  /** Prompts of programs, learned from traffic, and the consents to them. */
  prompts: 2,
  /** Documents that came more than once. */
  documents: 5,
  /** Arrangements of clients that write their own prompts. */
  arrangements: 1,
  /** Records of the latest requests, and bodies that the operator captures. */
  requests: 1,
  /** Last uses of prompt prefixes. */
  prefixes: 1,
  /** Which engines got which beginnings of bodies. */
  beginnings: 2,
  /** Accounts of sessions, and hashes of their latest prompts. */
  sessions: 2,
  /** What engines would have cached of prompts as clients wrote them. */
  baselines: 2,
} as const;

/** A part of the budget. */
export type MemoryPart = keyof typeof SHARES;

export const MEMORY_PARTS = Object.keys(SHARES) as readonly MemoryPart[];

/** Bytes of a part. */
export function bytesOfPart(part: MemoryPart, memoryBytes: number): number {
  return Math.floor((memoryBytes * SHARES[part]) / 64);
}
