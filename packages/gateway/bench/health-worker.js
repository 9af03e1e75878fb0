// Asks a gateway's /healthz every 5 ms, on as many connections as it takes, and tells on a message the longest that one
// waited for its answer. A thread of its own: what the attacking clients do does not count. `lagMs` is how late it was
// itself.
import { connect } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';

const EVERY_MS = 5;
const REQUEST = 'GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n';

const { hostname, port } = new URL(workerData.url);
const idle = [];
/** When each request under way was sent, by its connection. */
const sent = new Map();
let asked = 0;
let broken = 0;
let longestMs = 0;
let lagMs = 0;

function open() {
  const socket = connect(Number(port), hostname);
  socket.on('data', () => {
    // The answer is small: it comes in one piece.
    longestMs = Math.max(longestMs, performance.now() - sent.get(socket));
    sent.delete(socket);
    idle.push(socket);
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    if (sent.delete(socket)) broken++;
    const at = idle.indexOf(socket);
    if (at >= 0) idle.splice(at, 1);
  });
  return socket;
}

function ask() {
  const socket = idle.pop() ?? open();
  sent.set(socket, performance.now());
  asked++;
  socket.write(REQUEST);
}

let due = performance.now() + EVERY_MS;
const timer = setInterval(() => {
  const now = performance.now();
  lagMs = Math.max(lagMs, now - due);
  due = now + EVERY_MS;
  ask();
}, EVERY_MS);

parentPort.once('message', () => {
  clearInterval(timer);
  const now = performance.now();
  for (const since of sent.values()) longestMs = Math.max(longestMs, now - since);
  parentPort.postMessage({ asked, broken, longestMs, lagMs });
  for (const socket of [...idle, ...sent.keys()]) socket.destroy();
});
