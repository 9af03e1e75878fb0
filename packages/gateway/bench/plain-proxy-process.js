// For comparison: plain proxies over undici, in the way of each that costs least. `fastify` parses the body, as a proxy
// that looks into it must; `http` is bare `node:http` and forwards the bytes, the least that a proxy on Node does. In
// both `pool.stream` writes the answer to the client as it comes. Headers travel, those of a connection do not. No
// documents, no order, no counts, no aborts. `plain-proxy-process.js URL [fastify|http]`.
import { createServer } from 'node:http';
import { fastify } from 'fastify';
import { Pool } from 'undici';

const [, , upstream, kind = 'fastify'] = process.argv;
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

function forward({ url, headers }, body, response) {
  const options = { method: 'POST', path: url, headers: forwarded(headers), body };
  const answer = ({ statusCode, headers: given }) => response.writeHead(statusCode, answered(given));
  // A client that has left is no reason to end.
  pool.stream(options, answer).catch(() => response.destroy());
}

async function startFastify() {
  const app = fastify({ bodyLimit: 33_554_432, logger: false });
  app.post('/v1/*', (request, reply) => {
    reply.hijack();
    forward(request, JSON.stringify(request.body), reply.raw);
  });
  return app.listen({ host: '127.0.0.1', port: 0 });
}

function startHttp() {
  const server = createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => forward(request, parts.length === 1 ? parts[0] : Buffer.concat(parts), response));
  });
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve(`http://127.0.0.1:${server.address().port}`));
  });
}

process.on('message', () => {
  const { user, system } = process.cpuUsage();
  process.send({ cpuUs: user + system, residentBytes: process.memoryUsage.rss() });
});
process.send({ url: await (kind === 'http' ? startHttp() : startFastify()) });
