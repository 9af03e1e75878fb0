import { Encoder } from '@msgpack/msgpack';
import { XPublisher } from 'zeromq';
import { closing } from '../harness.js';

// An engine's events over a real socket, and what it answers, for tests that have no engine to publish them.

export const ANSWER = {
  choices: [{ message: { role: 'assistant', content: 'A.' } }],
  usage: { prompt_tokens: 900, completion_tokens: 1 },
};

/** A character is a token. */
export function tokenised(body: string) {
  const { messages } = JSON.parse(body) as { messages: readonly { content: string }[] };
  const text = messages.map(({ content }) => content).join('');
  return { tokens: [...text].map((piece) => ({ id: piece.codePointAt(0)!, piece })) };
}

const encoder = new Encoder({ useBigInt64: true });
const BLOCK = 4;

/** A prompt's full blocks, by names that nobody else gives. */
export function stored(tokens: readonly number[]) {
  const blocks = Math.floor(tokens.length / BLOCK);
  const hashes = Array.from({ length: blocks }, (_, place) => BigInt(1_000 * tokens.length + place));
  return ['BlockStored', hashes, null, tokens.slice(0, blocks * BLOCK), BLOCK, null, 'GPU'];
}

export async function publisher(port: number) {
  const socket = new XPublisher({ linger: 0 });
  await socket.bind(`tcp://127.0.0.1:${port}`);
  closing({ close: async () => socket.close() });
  let sequence = 0n;
  return {
    joined: socket.receive(),
    close: async () => socket.close(),
    publish: async (events: readonly unknown[], rank?: number) => {
      const number = Buffer.alloc(8);
      number.writeBigUInt64BE(sequence++);
      await socket.send(['', number, encoder.encode([1.5, events, ...(rank === undefined ? [] : [rank])])]);
    },
  };
}
