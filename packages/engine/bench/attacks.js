// What one client can do to all others: hostile bodies, one at a time and many at once, clients that do not read, and
// mutated bodies, against `warmpath engine` in processes of its own, while another thread asks /health every 5 ms. `npm
// run attacks -w packages/engine -- [--bodies 30000] [--seed 1] [--wait-ms 100] [--only words] [--engine <the
// bin/warmpath.js of another build>]`. Exits with 1 where a worker was lost, an answer was the engine's own
// fault, or /health waited longer; in brackets is how late it was asked. Linux only: memory is read from /proc. On a
// busy machine /health waits for the machine, too.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { Pool } from 'undici';
import { seeded } from './draw.js';
import { HOSTILE, isServersFault, mutatedRequest } from './hostile-bodies.js';
import { modelPath } from './random-model/dist/model-path.js';

const ASK_EVERY_MS = 5;
const HOSTILE_BYTES = 15_000_000;
/** The largest that this engine receives: 32,768 tokens of 16 bytes, six bytes a letter, and 1 MiB. */
const RECEIVED_BYTES = 4_194_304;
/** An attack that takes longer is given up; the engine is started again after it. */
const PATIENCE_MS = 60_000;
const NOTHING_MS = 3_000;
/** /health is asked as long after an attack as well: its end may take time, too. */
const AFTERWARDS_MS = 200;

/** Asks /health again and again, and tells the longest that one answer took. */
function askHealth() {
  const { hostname, port } = new URL(workerData.url);
  const sent = new Map();
  const idle = [];
  let longestMs = 0;
  let lagMs = 0;
  const open = () => {
    const socket = connect(Number(port), hostname);
    socket.on('data', () => {
      idle.push(socket);
      // Asked before the attack began.
      if (!sent.has(socket)) return;
      longestMs = Math.max(longestMs, performance.now() - sent.get(socket));
      sent.delete(socket);
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      // The server closes a connection that has been idle; a question that met that is asked again.
      const at = idle.indexOf(socket);
      if (at >= 0) idle.splice(at, 1);
      if (sent.has(socket)) ask(sent.get(socket));
      sent.delete(socket);
    });
    return socket;
  };
  const ask = (since) => {
    const socket = idle.pop() ?? open();
    sent.set(socket, since);
    socket.write('GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
  };
  let due = performance.now();
  setInterval(() => {
    const now = performance.now();
    lagMs = Math.max(lagMs, now - due - ASK_EVERY_MS);
    due = now;
    ask(now);
  }, ASK_EVERY_MS);
  parentPort.on('message', (message) => {
    if (message === 'begin') {
      sent.clear();
      longestMs = 0;
      lagMs = 0;
      return;
    }
    const now = performance.now();
    for (const since of sent.values()) longestMs = Math.max(longestMs, now - since);
    parentPort.postMessage({ longestMs, lagMs });
  });
}

/** The processes of an engine. */
class Engine {
  static async start(binary) {
    const model = await modelPath('random:1m');
    const flags = ['--model', model, '--port', '0', '--context-tokens', '32768', '--default-max-tokens', '4'];
    const limits = ['--max-running', '8', '--threads', '1', '--host-tier', '0'];
    const command = [binary, 'engine', ...flags, ...limits];
    const child = spawn(process.execPath, command, { stdio: ['ignore', 'pipe', 'inherit'] });
    process.once('exit', () => child.kill());
    const lines = createInterface({ input: child.stdout });
    for await (const line of lines) {
      const url = /http:\/\/[\d.]+:\d+/.exec(line)?.[0];
      if (url !== undefined) return new Engine(child, url);
    }
    throw new Error('the engine did not start');
  }

  constructor(child, url) {
    this.child = child;
    this.url = url;
    this.pool = new Pool(url, { connections: null, headersTimeout: PATIENCE_MS, bodyTimeout: PATIENCE_MS });
    this.worker = this.findWorker();
  }

  get hasEnded() {
    return this.child.exitCode !== null || this.child.signalCode !== null;
  }

  findWorker() {
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .find((pid) => Number(/PPid:\s+(\d+)/.exec(statusOf(pid))?.[1]) === this.child.pid);
  }

  /** Peak resident memory since `begin`, in MiB, of the worker and of the front. */
  peaks() {
    return [this.worker, this.child.pid].map((pid) => {
      const kib = /VmHWM:\s+(\d+)/.exec(statusOf(pid))?.[1];
      return kib === undefined ? '-' : String(Math.round(Number(kib) / 1024));
    });
  }

  begin() {
    this.worker = this.findWorker();
    for (const pid of [this.worker, this.child.pid]) {
      try {
        writeFileSync(`/proc/${pid}/clear_refs`, '5');
      } catch {
        // It is gone.
      }
    }
  }

  async post(path, body, method = 'POST') {
    try {
      const answer = await this.pool.request({ method, path, ...(body !== undefined && { body }) });
      return { status: answer.statusCode, text: await answer.body.text() };
    } catch (error) {
      return { status: error.code ?? error.name, text: '' };
    }
  }

  async stop() {
    this.child.kill('SIGTERM');
    if (!this.hasEnded) await Promise.race([once(this.child, 'exit'), delay(20_000)]);
    this.child.kill('SIGKILL');
    await this.pool.destroy();
  }
}

function statusOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/status`, 'utf8');
  } catch {
    return '';
  }
}

/** Streams whose clients do not read a byte; what they get is far more than the system holds for them. */
async function neverRead(engine) {
  const { hostname, port } = new URL(engine.url);
  const body = JSON.stringify({ prompt: 'a', stream: true, max_tokens: 30_000, ignore_eos: true });
  const head = `POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: ${body.length}\r\n\r\n`;
  const sockets = Array.from({ length: 64 }, () => {
    const socket = connect(Number(port), hostname).pause();
    socket.on('error', () => {});
    socket.write(head + body);
    return socket;
  });
  await delay(10_000);
  for (const socket of sockets) socket.destroy();
  return [await engine.post('/v1/completions', JSON.stringify({ prompt: 'b', max_tokens: 1 }))];
}

/** Bodies that are begun and never ended. */
async function neverSend(engine) {
  const { hostname, port } = new URL(engine.url);
  const sockets = Array.from({ length: 64 }, () => {
    const socket = connect(Number(port), hostname);
    socket.on('error', () => {});
    socket.write('POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 15000000\r\n\r\n');
    socket.write(Buffer.alloc(4_000_000, 0x20));
    return socket;
  });
  await delay(3_000);
  for (const socket of sockets) socket.destroy();
  return [await engine.post('/v1/completions', JSON.stringify({ prompt: 'b', max_tokens: 1 }))];
}

async function mutated(engine, count, seed) {
  const next = seeded(seed);
  const answers = [];
  let left = count;
  const lane = async () => {
    while (left-- > 0 && !engine.hasEnded) {
      const { method, path, body } = mutatedRequest(next);
      const { status, text } = await engine.post(path, body, method);
      const isFault = isServersFault({ status, text });
      if (isFault)
        process.stderr.write(`${status} ${method} ${path} ${body?.toString('latin1').slice(0, 400)}\n${text}\n`);
      answers.push({ status, text: isFault ? text : '' });
    }
  };
  await Promise.all(Array.from({ length: 8 }, lane));
  return answers;
}

async function main() {
  const { values } = parseArgs({
    options: {
      bodies: { type: 'string', default: '30000' },
      seed: { type: 'string', default: '1' },
      'wait-ms': { type: 'string', default: '100' },
      only: { type: 'string', default: '' },
      engine: { type: 'string', default: fileURLToPath(new URL('../../cli/bin/warmpath.js', import.meta.url)) },
    },
  });
  const attacks = [
    { name: 'nothing, for comparison', run: async () => [await delay(NOTHING_MS, { status: '-', text: '' })] },
    ...HOSTILE.map(({ name, path, make }) => ({
      name,
      run: async (engine) => {
        const body = make(HOSTILE_BYTES);
        engine.begin();
        return [await engine.post(path, body)];
      },
    })),
    {
      name: 'each of these with 4 MB, 3 at once',
      run: async (engine) => {
        const answers = [];
        for (const { path, make } of HOSTILE) {
          const body = make(RECEIVED_BYTES);
          answers.push(...(await Promise.all(Array.from({ length: 3 }, () => engine.post(path, body)))));
        }
        return answers;
      },
    },
    ...[
      ['a prompt of spaces', HOSTILE_BYTES],
      ['empty messages', HOSTILE_BYTES],
      ['two-byte letters', RECEIVED_BYTES],
      ['500 kB of spaces', HOSTILE_BYTES],
    ].map(([wanted, bytes]) => ({
      name: `16 at once: ${wanted}`,
      run: async (engine) => {
        const { path, make } = HOSTILE.find(({ name }) => name === wanted);
        const body = make(bytes);
        engine.begin();
        return Promise.all(Array.from({ length: 16 }, () => engine.post(path, body)));
      },
    })),
    { name: '64 clients that do not read', run: neverRead },
    { name: '64 bodies that do not end', run: neverSend },
    {
      name: `${values.bodies} mutated bodies`,
      run: (engine) => mutated(engine, Number(values.bodies), Number(values.seed)),
      patienceMs: 3_600_000,
    },
  ].filter(({ name }) => name.includes(values.only));

  let engine;
  let health;
  const row = (...cells) =>
    console.log(`| ${cells.map((cell, index) => String(cell).padEnd([40, 30, 12, 12, 12, 12][index])).join(' | ')} |`);
  row('attack', 'status', 'health, ms', 'worker, MiB', 'front, MiB', 'workers lost');
  row(...Array.from({ length: 6 }, () => '---'));
  for (const { name, run, patienceMs = PATIENCE_MS } of attacks) {
    engine ??= await Engine.start(values.engine);
    health ??= new Worker(new URL(import.meta.url), { workerData: { url: engine.url } });
    engine.begin();
    const { worker } = engine;
    health.postMessage('begin');
    const ends = new AbortController();
    const late = delay(patienceMs, [{ status: `none in ${patienceMs / 1_000} s`, text: '' }], ends);
    const answers = await Promise.race([run(engine), late]);
    ends.abort();
    await delay(AFTERWARDS_MS);
    late.catch(() => {});
    health.postMessage('end');
    const [{ longestMs, lagMs }] = await once(health, 'message');
    const lost = engine.hasEnded ? 'the engine' : engine.findWorker() === worker ? 0 : 'yes';
    const isWrong =
      lost !== 0 ||
      longestMs - lagMs > Number(values['wait-ms']) ||
      answers.some((answer) => isServersFault(answer) || (name.endsWith('mutated bodies') && answer.status >= 500));
    if (isWrong) process.exitCode = 1;
    const counts = new Map();
    for (const { status } of answers) counts.set(status, (counts.get(status) ?? 0) + 1);
    const statuses = [...counts].map(([status, count]) => (count === 1 ? status : `${status} × ${count}`)).join(', ');
    row(name, statuses, `${longestMs.toFixed(0)} (${lagMs.toFixed(0)})`, ...engine.peaks(), lost);
    if (lost !== 0 || longestMs > 10_000) {
      await health.terminate();
      await engine.stop();
      engine = undefined;
      health = undefined;
    }
  }
  await health?.terminate();
  await engine?.stop();
}

if (isMainThread) {
  await main();
} else {
  askHealth();
}
