// The engine of the benchmarks: a plain HTTP server in a process of its own that answers at once, or streams as many
// chunks as `max_tokens` says, one every few milliseconds. `upstream-process.js [interval]`.
import { createServer } from 'node:http';

const CHUNKS = 32;
const CHUNK_INTERVAL_MS = Number(process.argv[2] ?? 10);

const completion = Buffer.from(
  JSON.stringify({
    id: 'chatcmpl-1',
    object: 'chat.completion',
    choices: [{ index: 0, message: { role: 'assistant', content: 'x'.repeat(400) }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 7_500, completion_tokens: 100, prompt_tokens_details: { cached_tokens: 5_000 } },
  }),
);
const chunk = `data: ${JSON.stringify({ id: 'chatcmpl-1', choices: [{ index: 0, delta: { content: 'word ' } }] })}\n\n`;

function stream(response, chunks) {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  let sent = 1;
  const timer = setInterval(() => {
    if (sent++ < chunks) {
      response.write(chunk);
      return;
    }
    clearInterval(timer);
    response.end('data: [DONE]\n\n');
  }, CHUNK_INTERVAL_MS);
  response.on('close', () => clearInterval(timer));
  response.write(chunk);
}

const server = createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    const body = parts.length === 1 ? parts[0] : Buffer.concat(parts);
    if (body.includes('"stream":true')) {
      const [, chunks = CHUNKS] = /"max_tokens":(\d+)/.exec(body.toString('latin1')) ?? [];
      stream(response, Number(chunks));
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
