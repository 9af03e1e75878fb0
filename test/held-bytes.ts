import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Bytes that something still needs, on the heap and in buffers beside it. */
export function heldBytes(): Promise<number> {
  return leastAfterCollections(({ heapUsed, external }) => heapUsed + external);
}

/** The same of the heap alone: objects and strings, without the bytes of buffers. */
export function heldHeapBytes(): Promise<number> {
  return leastAfterCollections(({ heapUsed }) => heapUsed);
}

/**
 * What weak references were asked for stays until the turn of the event loop is over; and what a collection finds of
 * buffers is freed on another thread, for which the next one waits.
 */
async function leastAfterCollections(bytesOf: (usage: NodeJS.MemoryUsage) => number): Promise<number> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  let least = Number.POSITIVE_INFINITY;
  for (let rounds = 0; rounds < 4; rounds++) {
    await turn();
    collect();
    least = Math.min(least, bytesOf(process.memoryUsage()));
  }
  return least;
}
