// The processes of the benchmarks: engine, gateway and those it is compared with, each in one of its own, so that
// its CPU time and memory are its own.
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const children = [];
let folder;

/** What /proc counts CPU time in, in microseconds: Linux has told programs of hundredths of a second for decades. */
const TICK_US = 10_000;
/** As long as a program may take until it listens. */
const READY_MS = 20_000;

/** Starts a file of this folder, which says where it listens. Rejects: it ended before. */
export async function start(file, ...args) {
  const child = started(fork(new URL(file, import.meta.url), args));
  const { url } = await messageFrom(child);
  return { child, url };
}

/** A process that ends with this one, also where a signal ends it. */
function started(child) {
  if (children.length === 0) {
    for (const signal of ['SIGINT', 'SIGTERM']) {
      process.once(signal, () => {
        stopAll();
        process.exit(1);
      });
    }
  }
  children.push(child);
  return child;
}

/** The next message of a process. Rejects: it ended. */
async function messageFrom(child) {
  const ended = new AbortController();
  const onExit = () => ended.abort(new Error(`${child.spawnargs.slice(1).join(' ')} ended`));
  child.once('exit', onExit);
  try {
    const [message] = await once(child, 'message', { signal: ended.signal });
    return message;
  } catch (error) {
    throw ended.signal.reason ?? error;
  } finally {
    child.off('exit', onExit);
  }
}

/**
 * Starts a program that is not ours, at a port of its own; `argumentsAt(port)` are its arguments. It is ready once it
 * accepts a connection. Throws: it ended before, or does not listen within `readyMs` milliseconds.
 */
export async function startForeign(program, argumentsAt, readyMs = READY_MS) {
  const port = await freePort();
  const child = started(spawn(program, argumentsAt(port), { stdio: ['ignore', 'ignore', 'inherit'] }));
  let failure;
  child.once('error', (error) => {
    failure = error;
  });
  child.once('exit', (code) => {
    failure ??= new Error(`${program} ended with ${code} before it was ready`);
  });
  const deadline = performance.now() + readyMs;
  while (!(await accepts(port))) {
    if (failure !== undefined) throw failure;
    if (performance.now() > deadline) throw new Error(`${program} does not listen after ${readyMs} ms`);
    await sleep(20);
  }
  return { child, url: `http://127.0.0.1:${port}` };
}

async function accepts(port) {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/**
 * `{cpuUs, residentBytes}` of a process since it began: as it says itself, or, of one that is not ours, as /proc says
 * of it and of the processes that it started. Rejects: it ended.
 */
export async function usageOf({ child }) {
  if (child.channel === undefined) return usageInProc(child.pid);
  if (!child.connected) throw new Error(`${child.spawnargs.slice(1).join(' ')} ended`);
  child.send('usage');
  return messageFrom(child);
}

/** What a gateway of the benchmarks keeps: `{heapBytes, bufferBytes}` after a collection. Rejects: it ended. */
export async function keptBy({ child }) {
  child.send('kept');
  return messageFrom(child);
}

function usageInProc(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The second field is the program's name, which may have spaces and brackets in it; behind it come state, parent, …
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [utime, stime] = [Number(fields[11]), Number(fields[12])];
  const resident = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  const below = startedUsage(pid);
  return {
    cpuUs: (utime + stime) * TICK_US + below.cpuUs,
    residentBytes: Number(resident[1]) * 1_024 + below.residentBytes,
  };
}

/** `{cpuUs, residentBytes}` of all processes that a process started, as /proc says. */
function startedUsage(pid) {
  const pids = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
  const sum = { cpuUs: 0, residentBytes: 0 };
  for (const { cpuUs, residentBytes } of pids.map(usageInProc)) {
    sum.cpuUs += cpuUs;
    sum.residentBytes += residentBytes;
  }
  return sum;
}

export async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  await once(probe, 'close');
  return port;
}

/** The folder for what programs read that are not ours; it is removed when this process ends. */
export function temporaryFolder() {
  if (folder === undefined) {
    folder = mkdtempSync(join(tmpdir(), 'warmpath-bench-'));
    process.once('exit', () => rmSync(folder, { recursive: true }));
  }
  return folder;
}

export function stopAll() {
  for (const child of children) child.kill();
}
