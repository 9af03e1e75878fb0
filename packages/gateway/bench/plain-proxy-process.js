// For comparison: a plain proxy of fastify and undici, in the way of each that costs least: fastify parses the body,
// `pool.stream` writes the answer to the client as it comes. Headers travel, those of a connection do not. No
// documents, no order, no counts, no aborts, no errors.
import { fastify } from 'fastify';
import { Pool } from 'undici';

const [, , upstream] = process.argv;
const pool = new Pool(upstream, { connections: 1_024 });
const NOT_FORWARDED = new Set(['connection', 'keep-alive', 'transfer-encoding', 'host', 'content-length', 'expect']);

function forwarded(headers) {
  const kept = {};
  for (const name in headers) if (!NOT_FORWARDED.has(name)) kept[name] = headers[name];
  return kept;
}

/** The answer's length stays what it is; without it, every answer would go in chunks. */
function answered({ 'content-length': length, ...headers }) {
  const kept = forwarded(headers);
  if (length !== undefined) kept['content-length'] = length;
  return kept;
}

const app = fastify({ bodyLimit: 33_554_432, logger: false });
app.post('/v1/*', (request, reply) => {
  reply.hijack();
  const body = JSON.stringify(request.body);
  const options = { method: 'POST', path: request.url, headers: forwarded(request.headers), body };
  pool.stream(options, ({ statusCode, headers }) => {
    reply.raw.writeHead(statusCode, answered(headers));
    return reply.raw;
  });
});
process.on('message', () => {
  const { user, system } = process.cpuUsage();
  process.send({ cpuUs: user + system, residentBytes: process.memoryUsage.rss() });
});
process.send({ url: await app.listen({ host: '127.0.0.1', port: 0 }) });
