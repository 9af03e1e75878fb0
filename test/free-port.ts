import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * Below the ports that a system gives to whoever asks for any, connections included: none of those takes it between two
 * uses. A node of a Redis cluster uses the port 10,000 above its own as well.
 */
const [FIRST, BEHIND_LAST] = [10_000, 22_000];

/**
 * A port that nobody listens at, for what must be told one, or is to stand again where it was closed; the first of so
 * many in a row.
 */
export async function freePort(count = 1): Promise<number> {
  for (;;) {
    const first = randomInt(FIRST, BEHIND_LAST);
    const ports = Array.from({ length: count }, (_, place) => first + place);
    if ((await Promise.all(ports.map(isFree))).every(Boolean)) return first;
  }
}

async function isFree(port: number): Promise<boolean> {
  const probe = createServer().listen(port, '127.0.0.1');
  try {
    await once(probe, 'listening');
  } catch {
    return false;
  }
  probe.close();
  await once(probe, 'close');
  return true;
}
