// The engine of the benchmark: a plain HTTP server in a process of its own that answers at once, or streams 32 chunks.
import { createServer } from 'node:http';

const CHUNKS = 32;
const CHUNK_INTERVAL_MS = 10;

const completion = Buffer.from(
  JSON.stringify({
    id: 'chatcmpl-1',
    object: 'chat.completion',
    choices: [{ index: 0, message: { role: 'assistant', content: 'x'.repeat(400) }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 7_500, completion_tokens: 100, prompt_tokens_details: { cached_tokens: 5_000 } },
  }),
);
const chunk = `data: ${JSON.stringify({ id: 'chatcmpl-1', choices: [{ index: 0, delta: { content: 'word ' } }] })}\n\n`;

function stream(response) {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  let sent = 0;
  const timer = setInterval(() => {
    response.write(chunk);
    if (++sent < CHUNKS) return;
    clearInterval(timer);
    response.end('data: [DONE]\n\n');
  }, CHUNK_INTERVAL_MS);
  response.write(chunk);
}

const server = createServer((request, response) => {
  let isStream = false;
  request.on('data', (part) => {
    isStream ||= part.includes('"stream":true');
  });
  request.on('end', () => {
    if (isStream) {
      stream(response);
      return;
    }
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': completion.length });
    response.end(completion);
  });
});
process.on('message', () => {
  const { user, system } = process.cpuUsage();
  process.send({ cpuUs: user + system, residentBytes: process.memoryUsage.rss() });
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => process.send({ url: `http://127.0.0.1:${server.address().port}` }));
