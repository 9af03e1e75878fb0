// The processes of the benchmarks: engine, gateway and plain proxy, each in one of its own, so that its CPU time and memory are its own.
import { fork } from 'node:child_process';
import { once } from 'node:events';

const children = [];

/** Starts a file of this folder, which says where it listens. */
export async function start(file, ...args) {
  const child = fork(new URL(file, import.meta.url), args);
  children.push(child);
  const [{ url }] = await once(child, 'message');
  return { child, url };
}

/** `{cpuUs, residentBytes}` of a process since it began. */
export async function usageOf({ child }) {
  child.send('usage');
  const [usage] = await once(child, 'message');
  return usage;
}

export function stopAll() {
  for (const child of children) child.kill();
}
