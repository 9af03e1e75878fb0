// For comparison: the least that a proxy in Node can do with a JSON body. It parses it, writes it again and hands the
// answer on; no documents, no order, no aborts, no errors.
import { createServer } from 'node:http';
import { Pool } from 'undici';

const [, , upstream] = process.argv;
const pool = new Pool(upstream, { connections: 1_024 });
const server = createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    const body = JSON.stringify(JSON.parse(Buffer.concat(parts).toString('utf8')));
    const headers = { 'content-type': 'application/json' };
    pool.stream({ method: 'POST', path: request.url, headers, body }, ({ statusCode, headers: answered }) => {
      response.writeHead(statusCode, { 'content-type': answered['content-type'] });
      return response;
    });
  });
});
process.on('message', () => {
  const { user, system } = process.cpuUsage();
  process.send({ cpuUs: user + system, residentBytes: process.memoryUsage.rss() });
});
server.listen(0, '127.0.0.1', () => process.send({ url: `http://127.0.0.1:${server.address().port}` }));
