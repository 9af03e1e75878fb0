import { startGateway } from '@warmpath/gateway';
import { expect, it } from 'vitest';
import { startFakeEngine } from './fake-engine.js';
import { runCli } from './run-cli.js';

it('warmpath hash-key prints what a gateway knows the key by', { timeout: 60_000 }, async () => {
  const { code, stdout } = await runCli(['hash-key'], { input: 'the-key-of-a-client\n' });
  expect([code, stdout]).toEqual([0, expect.stringMatching(/^[0-9a-f]{64}\n$/)]);
  const json = await runCli(['hash-key', '--json'], { input: 'the-key-of-a-client' });
  expect(JSON.parse(json.stdout)).toEqual({ sha256: stdout.trim() });
  const engine = await startFakeEngine();
  const keys = [{ name: 'client', sha256: stdout.trim() }];
  const gateway = await startGateway({
    server: { port: 0, keys },
    upstream: { url: engine.url },
    log: { level: 'silent' },
  });
  try {
    const status = async (key: string) =>
      (await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })).status;
    expect(await status('another-key-of-a-client')).toBe(401);
    expect(await status('the-key-of-a-client')).not.toBe(401);
  } finally {
    await gateway.close();
    await engine.close();
  }
});

it.each(['', '\n', 'two words', 'two\nlines'])('warmpath hash-key refuses %j', { timeout: 60_000 }, async (input) => {
  const { code, stdout, stderr } = await runCli(['hash-key'], { input });
  expect([code, stdout]).toEqual([2, '']);
  expect(stderr).toContain('one key of visible ASCII characters');
});
