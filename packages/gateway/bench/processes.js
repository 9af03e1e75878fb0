// The processes of the benchmarks: engine, gateway and those it is compared with, each in one of its own, so that
// its CPU time and memory are its own.
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';

const children = [];

/** What /proc counts CPU time in, in microseconds: Linux has told programs of hundredths of a second for decades. */
const TICK_US = 10_000;

/** Starts a file of this folder, which says where it listens. */
export async function start(file, ...args) {
  const child = fork(new URL(file, import.meta.url), args);
  children.push(child);
  const [{ url }] = await once(child, 'message');
  return { child, url };
}

/**
 * Starts a program that is not ours, at a port of its own. `arguments_(port)` are its arguments; it listens once it has
 * printed `ready`.
 */
export async function startForeign(program, { arguments_, ready }) {
  const port = await freePort();
  const child = spawn(process.execPath, [program, ...arguments_(port)], { stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  const lines = createInterface(child.stdout);
  let isReady = false;
  for await (const line of lines) {
    isReady = line.includes(ready);
    if (isReady) break;
  }
  if (!isReady) throw new Error(`${program} ended before it was ready`);
  child.stdout.resume();
  return { child, url: `http://127.0.0.1:${port}` };
}

/**
 * `{cpuUs, residentBytes}` of a process since it began: as it says itself, or, of one that is not ours, as /proc says.
 */
export async function usageOf({ child }) {
  if (child.channel === undefined) return usageInProc(child.pid);
  child.send('usage');
  const [usage] = await once(child, 'message');
  return usage;
}

function usageInProc(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The second field is the program's name, which may have spaces and brackets in it; behind it come state, parent, …
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [utime, stime] = [Number(fields[11]), Number(fields[12])];
  const resident = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return { cpuUs: (utime + stime) * TICK_US, residentBytes: Number(resident[1]) * 1_024 };
}

export async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  await once(probe, 'close');
  return port;
}

export function stopAll() {
  for (const child of children) child.kill();
}
