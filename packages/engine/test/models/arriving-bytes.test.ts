import { once } from 'node:events';
import { PassThrough, Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { ArrivingBytes } from '../../src/models/hub-request.js';

const CHUNK = Buffer.alloc(64 * 1024, 'x');

async function countAll(bytes: ArrivingBytes): Promise<number> {
  let total = 0;
  for (let chunk = await bytes.next(); chunk !== undefined; chunk = await bytes.next()) total += chunk.length;
  return total;
}

describe('bytes that arrive', () => {
  it('are bounded while nobody takes them, and all come through', async () => {
    let produced = 0;
    const body = new Readable({
      read() {
        this.push(produced < 100 ? CHUNK : null);
        produced++;
      },
    });
    const paused = once(body, 'pause');
    const bytes = new ArrivingBytes(body);
    await paused;
    expect(produced).toBeLessThanOrEqual(20);
    expect(await countAll(bytes)).toBe(100 * CHUNK.length);
  });

  it('are all given out before what broke the connection is raised', async () => {
    const body = new Readable({ read: () => undefined });
    const bytes = new ArrivingBytes(body);
    body.push('one');
    body.push('two');
    expect(String(await bytes.next())).toBe('one');
    const closed = new Promise((resolve) => body.on('close', resolve));
    body.push('three');
    body.destroy(new Error('cut'));
    await closed;
    expect(String(await bytes.next())).toBe('two');
    expect(String(await bytes.next())).toBe('three');
    await expect(bytes.next()).rejects.toThrow('cut');
  });

  it('end with an error when the body closes without an end', async () => {
    const body = new PassThrough();
    const bytes = new ArrivingBytes(body);
    bytes.drop();
    await expect(bytes.next()).rejects.toThrow('the connection closed');
  });
});
