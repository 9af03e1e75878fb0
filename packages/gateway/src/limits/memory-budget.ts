/**
 * How the budget (`limits.memoryBytes`) is divided. Everything that a client can make the gateway keep is a part with a
 * bound in bytes, so that the whole process stays within the budget, the process itself (some 100 MB) and what is being
 * parsed or written at the moment (a few times the largest body). Sixty-fourths; they add up to 64.
 */
const SHARES = {
  /** Bodies that are being received, that wait, and that are kept until their answer is over. */
  bodies: 24,
  /** What the engine is believed to hold, per tenant and model. */
  histories: 12,
  /** Turns of conversations, and what was done with their messages. */
  conversations: 12,
  /** Prompts of programs, learned from traffic, and the consents to them. */
  prompts: 2,
  /** Passages that came more than once. */
  documents: 7,
  /** Orders given alone whose outcome is not known. */
  arrangements: 1,
  /** What became of requests just served. */
  requests: 1,
  /** When prompt prefixes were used last. */
  prefixes: 1,
  /** Which of several engines got which beginnings of bodies. */
  beginnings: 2,
  /** What engines would have cached of prompts as clients wrote them. */
  baselines: 2,
} as const;

/** A part of the gateway that keeps what clients send. */
export type MemoryPart = keyof typeof SHARES;

export const MEMORY_PARTS = Object.keys(SHARES) as readonly MemoryPart[];

/** The bytes of a part. */
export function bytesOfPart(part: MemoryPart, memoryBytes: number): number {
  return Math.floor((memoryBytes * SHARES[part]) / 64);
}
