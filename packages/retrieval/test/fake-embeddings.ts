import { type JsonAnswer, type JsonRequest, startJsonServer } from './json-server.js';

type Answer = JsonAnswer | 'hang' | 'cut';

/** A fake embedding endpoint over real HTTP: words hashed into a few dimensions, the same for the same text. */
export async function startFakeEmbeddings(dimension = 64) {
  const fake = {
    dimension,
    /** Given in place of vectors, where there is one. */
    answer: undefined as ((request: JsonRequest) => Answer | undefined | Promise<Answer | undefined>) | undefined,
    /** Texts that were asked for and got vectors. */
    embedded: [] as string[],
  };
  const server = await startJsonServer(async (request) => {
    const instead = await fake.answer?.(request);
    if (instead !== undefined) return instead;
    const input = request.body.input as string[];
    fake.embedded.push(...input);
    const data = input.map((text, index) => ({ index, embedding: hashedVector(text, fake.dimension) }));
    return { body: { object: 'list', data } };
  });
  return Object.assign(fake, {
    url: `${server.url}/v1`,
    requests: server.requests,
    close: () => server.close(),
  });
}

/** Each word, and each word of two, counts in a place of its own; what has none lies on the first axis. */
function hashedVector(text: string, dimension: number): number[] {
  const vector = new Array<number>(dimension).fill(0);
  const words = text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  for (const [i, word] of words.entries()) {
    for (const term of [word, `${words[i - 1] ?? ''} ${word}`]) {
      let hash = 2166136261;
      for (const char of term) hash = Math.imul(hash ^ char.codePointAt(0)!, 16777619);
      vector[(hash >>> 0) % dimension]! += 1;
    }
  }
  if (words.length === 0) vector[0] = 1;
  return vector;
}
