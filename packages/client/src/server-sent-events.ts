/**
 * The `data` of each event of an SSE stream, as it arrives. Comments and other fields are skipped; data over several
 * lines is joined, as the format says. Memory: one event.
 */
export async function* readServerSentEvents(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  let data: string[] = [];
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split(/\r?\n/);
    rest = lines.pop()!;
    for (const line of lines) {
      if (line.startsWith('data:')) {
        data.push(line.slice(line.startsWith('data: ') ? 6 : 5));
      } else if (line === '' && data.length > 0) {
        yield data.join('\n');
        data = [];
      }
    }
  }
  // A server that leaves the last blank line out has said all the same.
  if (rest.startsWith('data:')) data.push(rest.slice(rest.startsWith('data: ') ? 6 : 5));
  if (data.length > 0) yield data.join('\n');
}
