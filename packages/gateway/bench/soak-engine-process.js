// The engine of the soak: answers with what it was asked, the number of the question and the ids of its documents, and
// fails in the way that the question names.
import { createServer } from 'node:http';

/** Ways to fail in which nothing of an answer comes. */
const FAULTS = {
  reset: (response) => response.socket.resetAndDestroy(),
  status: (response) => response.writeHead(500, { 'content-type': 'application/json' }).end('{"error":{}}'),
  silence: () => {},
  garbage: (response) => response.socket.end('GARBAGE\r\n\r\n'),
};

const server = createServer((request, response) => {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('error', () => {});
  request.on('end', () => {
    const body = Buffer.concat(chunks).toString('utf8');
    const [, number, fault] = /Question number (\d+), (\w+)\?/.exec(body) ?? [];
    const ids = [...body.matchAll(/<document id=\\"([^"\\]+)/g)].map(([, id]) => id).sort();
    const content = `${number} ${ids.join(' ')}`;
    if (FAULTS[fault] !== undefined) FAULTS[fault](response);
    else answer(response, { content, isStream: body.includes('"stream":true'), isCut: fault === 'cut' });
  });
});

function answer(response, { content, isStream, isCut }) {
  const usage = { prompt_tokens: 900, completion_tokens: 9, prompt_tokens_details: { cached_tokens: 500 } };
  const choice = isStream ? { delta: { content } } : { message: { role: 'assistant', content }, finish_reason: 'stop' };
  const json = JSON.stringify({ id: 'x', choices: [{ index: 0, ...choice }], usage });
  if (isStream) {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(`data: ${json}\n\n`);
    if (isCut) setImmediate(() => response.socket?.destroy());
    else response.end('data: [DONE]\n\n');
    return;
  }
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(json) });
  if (isCut) response.write(json.slice(0, -9), () => response.socket?.destroy());
  else response.end(json);
}

server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => process.send({ url: `http://127.0.0.1:${server.address().port}` }));
