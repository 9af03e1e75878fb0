// The engine of the soak: its answer names the question and the documents that it was asked over, and it does with a
// request what the question tells it to play: answer, refuse, break off, say what is no HTTP, or wait for the end.
import { createServer } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { setImmediate as turn } from 'node:timers/promises';
import { answerTo, FILLER, NONSENSE, REFUSED } from './soak-plays.js';

const FRAME_MS = 5;
const PIECE = 24;
/** Frames of the answer that fills the buffers of whoever reads it slowly: 8 MB. */
const FILLING = 128;

let open = 0;
/** Answers that were not taken to their end, by what was played. */
const aborted = {};

const frame = (content) => `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content } }] })}\n\n`;
const usage = { prompt_tokens: 900, completion_tokens: 20, prompt_tokens_details: { cached_tokens: 400 } };

function sendJson(response, status, body) {
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) });
  response.end(body);
}

function completion(content) {
  return JSON.stringify({ choices: [{ index: 0, message: { role: 'assistant', content } }], usage });
}

function startStream(response) {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
}

async function writePieces(response, text) {
  for (let from = 0; from < text.length && !response.destroyed; from += PIECE) {
    response.write(frame(text.slice(from, from + PIECE)));
    await turn();
  }
}

/** What is played, with the answer that would be the whole one. */
const PLAYS = {
  whole: (response, answer) => sendJson(response, 200, completion(answer)),
  refused: (response, answer) => sendJson(response, REFUSED, JSON.stringify({ error: { message: answer } })),
  nonsense: (response, answer) => sendJson(response, 200, NONSENSE + answer),
  reset: (response) => response.socket.resetAndDestroy(),
  garbled: (response) => response.socket.end('GARBAGE\r\n\r\n'),
  cut(response, answer) {
    const body = completion(answer);
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length });
    response.write(body.slice(0, body.length / 2), () => response.socket?.destroy());
  },
  async stream(response, answer) {
    startStream(response);
    await writePieces(response, answer);
    response.end(`data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`);
  },
  async 'cut stream'(response, answer) {
    startStream(response);
    await writePieces(response, answer);
    response.socket?.resetAndDestroy();
  },
  async 'slow reader'(response, answer) {
    startStream(response);
    const frames = [...Array.from({ length: FILLING }, () => frame(FILLER)), frame(answer), 'data: [DONE]\n\n'];
    await pipeline(frames, response).catch(() => {});
  },
  'left before an answer': () => {},
  'left in a stream'(response, answer) {
    startStream(response);
    const timer = setInterval(() => response.write(frame(answer)), FRAME_MS);
    response.on('close', () => clearInterval(timer));
    response.write(frame(answer));
  },
};

const server = createServer((request, response) => {
  open++;
  let play;
  response.on('close', () => {
    open--;
    if (!response.writableFinished) aborted[play] = (aborted[play] ?? 0) + 1;
  });
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('error', () => {});
  request.on('end', async () => {
    const body = Buffer.concat(parts).toString('latin1');
    const asked = /question (\d+), play ([a-z ]+):/.exec(body);
    if (asked === null) {
      // The gateway asks what models there are.
      sendJson(response, 200, '{"object":"list","data":[{"id":"m","object":"model"}]}');
      return;
    }
    play = asked[2];
    const names = [...body.matchAll(/((?:doc|new)-[\d-]+): The engine/g)].map(([, name]) => name);
    await PLAYS[play](response, answerTo(asked[1], names));
  });
});
process.on('message', () => {
  const { user, system } = process.cpuUsage();
  process.send({ cpuUs: user + system, residentBytes: process.memoryUsage.rss(), open, aborted });
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => process.send({ url: `http://127.0.0.1:${server.address().port}` }));
