/**
 * Conversations that go on at the same time, turn by turn: `atOnce` are open, each takes one turn a round, and where
 * one ends the next begins. The order of turns within a conversation stays. O(turns).
 */
export function interleave<Turn>(conversations: readonly (readonly Turn[])[], atOnce: number): Turn[] {
  const turns: Turn[] = [];
  let next = 0;
  const begin = () => conversations[next++]?.values();
  let open = Array.from({ length: Math.min(atOnce, conversations.length) }, begin);
  while (open.length > 0) {
    const stillOpen: typeof open = [];
    for (const conversation of open) {
      let current = conversation;
      let turn = current?.next();
      while (turn?.done === true) {
        current = begin();
        turn = current?.next();
      }
      if (turn === undefined) continue;
      turns.push(turn.value);
      stillOpen.push(current);
    }
    open = stillOpen;
  }
  return turns;
}

/**
 * Documents of one request by number, in retrieval order, and the number of its question: equal numbers, equal text.
 */
export interface TraceRequest {
  readonly documents: readonly number[];
  readonly question: number;
  /** Conversation or user that the request belongs to; absent where a workload knows none. */
  readonly session?: number;
}

/** What a generator yields: who asks for which documents, in order of arrival, before lengths are given to anything. */
export type Trace = readonly TraceRequest[];

/**
 * Mean Jaccard similarity of the document sets of adjacent requests, the papers' measure of overlap; 0 for fewer than
 * two requests. O(total documents).
 */
export function meanAdjacentJaccard(trace: readonly { readonly documents: readonly unknown[] }[]): number {
  if (trace.length < 2) return 0;
  let sum = 0;
  for (let i = 1; i < trace.length; i++) {
    const before = new Set(trace[i - 1]!.documents);
    const current = new Set(trace[i]!.documents);
    let shared = 0;
    for (const document of current) if (before.has(document)) shared++;
    const union = before.size + current.size - shared;
    sum += union === 0 ? 0 : shared / union;
  }
  return sum / (trace.length - 1);
}
