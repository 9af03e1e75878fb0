import { expect, it, vi } from 'vitest';
import { send, stand } from './harness.js';

vi.mock('@warmpath/dashboard', () => ({ loadDashboardPage: async () => undefined }));

it('says how to build a page that is not there', async () => {
  const { gateway } = await stand();
  const reply = await send(`${gateway.url}/ui`);
  expect([reply.status, reply.headers['content-type']]).toEqual([404, 'text/plain; charset=utf-8']);
  expect(reply.text).toContain('npm run build');
});
