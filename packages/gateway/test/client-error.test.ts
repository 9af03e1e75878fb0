import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { send, stand } from './harness.js';

it('an error about files of the server names no path to a client', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'warmpath-private-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const { gateway } = await stand(undefined, { collections: { folder } });
  const documents = { documents: [{ id: 'a', content: 'A text.' }] };
  await rm(folder, { recursive: true });
  await writeFile(folder, 'no folder');
  const search = ['/v1/collections/c/search', { query: 'x' }] as const;
  for (const [path, body] of [['/v1/collections'], ['/v1/collections/c/documents', documents], search] as const) {
    const reply = await send(gateway.url + path, body);
    if (path.endsWith('documents')) expect(reply.status).toBe(500);
    expect(reply.text).not.toContain('warmpath-private');
    expect(reply.text).not.toContain(tmpdir());
  }
});
