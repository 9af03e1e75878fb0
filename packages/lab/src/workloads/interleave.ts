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
