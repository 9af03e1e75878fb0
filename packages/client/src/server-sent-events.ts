import { SseReader } from '@warmpath/core/internal';

/** The largest event that is read, in bytes. */
const LIMIT_BYTES = 33_554_432;

/**
 * The `data` of each event of an SSE stream, as it arrives. Comments, other fields and events without data are skipped;
 * data over several lines is joined, as the format says. Memory: one event, of at most 32 MiB.
 *
 * @throws RangeError for an event that is longer.
 */
export async function* readServerSentEvents(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const events: string[] = [];
  const handler = {
    onData: (data: Uint8Array) => events.push(decoder.decode(data)),
    onTooLong: () => {
      throw new RangeError(`An event of the stream has more than ${LIMIT_BYTES} bytes.`);
    },
  };
  const reader = new SseReader(handler, LIMIT_BYTES);
  for await (const chunk of chunks) {
    reader.read(chunk);
    yield* events.splice(0);
  }
  reader.end();
  yield* events;
}
