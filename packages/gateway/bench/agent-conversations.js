// Conversations of agents: 50 turns, each with a search and its result. The same in every run.
import { draws, prose } from './draw.js';

const TURNS = 50;
/** Requests at the end of each conversation that are sent: two turns of two. */
const LAST = 4;
/** What the engine of the benchmark answers to everything: by it an unnamed conversation is known. */
const ANSWER = 'x'.repeat(400);
const SHORT_ANSWER = 'Searched.';

/** How long the conversations are, and the CPU that one of their requests may cost. */
export const AGENT_SIZES = [
  { name: '30 KB', documents: 2, words: 20, budgetUs: 500 },
  { name: '400 KB', documents: 5, words: 220, budgetUs: 4_000 },
];

/**
 * So many conversations, each as its last requests, oldest first: as the agent sends them, once with a question, once
 * with a result.
 */
export function agentConversations(size, count) {
  const next = draws();
  const pool = Array.from(
    { length: 60 },
    (_, i) => `<document id="doc-${i}">\n${prose(next, size.words)}\n</document>\n`,
  );
  const conversations = Array.from({ length: count }, (_, mark) => conversation(next, pool, { ...size, mark }));
  return conversations.map((messages) =>
    Array.from({ length: LAST }, (_, step) => {
      // Four messages a turn: a request ends with the question, or with the result two messages later.
      const turnsBack = Math.floor((LAST - 1 - step) / 2);
      const end = messages.length - 4 * turnsBack - (step % 2 === 0 ? 3 : 1);
      return { model: 'm', messages: messages.slice(0, end) };
    }),
  );
}

/** An agent's messages; the results of its searches overlap. The last turns have answers that the engine gives. */
function conversation(next, pool, { documents, mark }) {
  const messages = [{ role: 'system', content: 'You are an agent. Search, then answer from what you found.' }];
  for (let turn = 0; turn < TURNS; turn++) {
    const id = `call_${mark}_${turn}`;
    const call = {
      id,
      type: 'function',
      function: { name: 'search', arguments: JSON.stringify({ query: prose(next, 4) }) },
    };
    const left = pool.slice();
    const found = Array.from({ length: documents }, () => left.splice(next(left.length), 1)[0]);
    messages.push({ role: 'user', content: `Question ${turn} of ${mark}: ${prose(next, 6)}?` });
    messages.push({ role: 'assistant', content: null, tool_calls: [call] });
    messages.push({ role: 'tool', tool_call_id: id, content: `<documents>\n${found.join('')}</documents>` });
    messages.push({ role: 'assistant', content: turn < TURNS - 3 ? SHORT_ANSWER : ANSWER });
  }
  return messages;
}
