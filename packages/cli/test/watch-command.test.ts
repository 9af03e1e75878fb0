import { expect, it } from 'vitest';
import { LOST_SESSION, standWithSession } from '../../gateway/test/lost-session.js';
import { runCli, startCli } from './run-cli.js';

const [FIRST, SECOND] = LOST_SESSION;

it('warmpath watch lists the sessions, and says what each break cost and where it is', async () => {
  const { gateway, ask } = await standWithSession({ prices: [{ input: 2, cached: 0.2 }] });
  const run = (...argv: string[]) => runCli(['watch', '--once', '--gateway', gateway.url, ...argv]);
  expect((await run()).stdout).toContain('The gateway has seen no session yet');
  await ask(FIRST!);
  await ask(SECOND!);
  const { code, stdout, stderr } = await run();
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/^session +client +prompts +tokens +cached +written +lost +cost +of lost\n/);
  expect(stdout).toMatch(/^[0-9a-f]{16} +opencode +2 +24,500 +2 % +0 +\d+,\d+ +0\.0481 +0\.0\d+\n/m);
  expect(stdout).toMatch(
    /^[0-9a-f]{16} {2}system-prompt at messages\[0\]\.content, character 0: \d+,\d+ tokens, 0\.0\d+ /m,
  );
  expect(stdout).toContain('\n  Another system prompt. ');
  const { data } = JSON.parse((await run('--json')).stdout);
  expect(data).toMatchObject([{ client: 'opencode', sums: { prompts: 2 }, breaks: [{ cause: 'system-prompt' }] }]);
});

it('warmpath watch tells breaks as they come, until it is interrupted', async () => {
  const { gateway, ask } = await standWithSession();
  const watching = startCli(['watch', '--gateway', gateway.url]);
  await watching.waitFor(/no session yet/);
  await ask(FIRST!);
  await ask(SECOND!);
  await watching.waitFor(/system-prompt at/);
  watching.process.kill('SIGINT');
  expect((await watching.ended).code).toBe(130);
});
