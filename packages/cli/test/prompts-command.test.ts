import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startGateway } from '@warmpath/gateway';
import { expect, it, onTestFinished } from 'vitest';
import { learnedKinds, numbered, questionLast, type WritePrompt } from '../../gateway/test/learned-kinds.js';
import { startFakeEngine } from './fake-engine.js';
import { runCli } from './run-cli.js';

const OPERATOR_KEY = 'the-key-of-the-operator';

type Kinds = readonly (readonly [tenant: string, write: WritePrompt])[];

async function gatewayWith(kinds: Kinds, fields: { readonly keys?: boolean; readonly isStored?: boolean } = {}) {
  const engine = await startFakeEngine();
  const stateFolder = await mkdtemp(join(tmpdir(), 'warmpath-prompts-'));
  const gateway = await startGateway(
    {
      server: {
        port: 0,
        ...(fields.keys === true && {
          keys: [{ name: 'acme', key: 'the-key-of-tenant-acme' }],
          operatorKey: { key: OPERATOR_KEY },
        }),
      },
      upstream: { url: engine.url },
      log: { level: 'silent' },
    },
    { promptKinds: learnedKinds(...kinds), ...(fields.isStored !== false && { stateFolder }) },
  );
  onTestFinished(async () => {
    await gateway.close();
    await engine.close();
    await rm(stateFolder, { recursive: true });
  });
  const environment = { OPERATOR: OPERATOR_KEY, CLIENT: 'the-key-of-tenant-acme' };
  const run = (...argv: string[]) => runCli(['prompts', ...argv, '--gateway', gateway.url], { environment });
  const json = async (...argv: string[]) => JSON.parse((await run(...argv, '--json')).stdout);
  return { gateway, run, json };
}

it('warmpath prompts lists kinds with what stands in the way, and their text', async () => {
  const { run, json } = await gatewayWith([
    ['anonymous', questionLast],
    ['anonymous', numbered],
  ]);
  const { data } = await json();
  const id = data.find((kind: { parts: unknown }) => JSON.stringify(kind.parts).includes('Helpful')).id as string;
  const { code, stdout, stderr } = await run();
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/^kind +state +gain +prompts\n/);
  expect(stdout).toContain(`${id.slice(0, 6)}   asking   not known yet`);
  expect(stdout).toMatch(/asking +none/);
  expect(stdout).toContain('no gain  The program labels its documents by position');
  expect(stdout).toContain('look  The program says something to the model. Read its text');
  const text = ['| Use the following context.', '| Be brief.', '> documents', '| Question:', '> text that changes'];
  expect(stdout).toContain([...text, '| Helpful Answer:'].map((line) => `    ${line}\n`).join(''));
  const shown = await run('show', id.slice(0, 3));
  expect(shown.stdout).toContain(text.join('\n    '));
  expect((await json('show', id)).id).toBe(id);
});

it('warmpath prompts allows, refuses and forgets', async () => {
  const { run, json } = await gatewayWith([['anonymous', questionLast]]);
  const { id } = (await json()).data[0];
  const prefix = id.slice(0, 4);
  for (const [argv, said, state, labels] of [
    [['allow', prefix], 'allowed', 'allowed', 'kept'],
    [['allow', prefix.toUpperCase(), '--labels', 'mapped'], 'allowed, labels mapped', 'allowed', 'mapped'],
    [['refuse', id], 'refused', 'refused', 'kept'],
    [['forget', id], 'asking', 'asking', 'kept'],
  ] as const) {
    expect(await run(...argv)).toEqual({ code: 0, stdout: `${id}: ${said}\n`, stderr: '' });
    expect((await json()).data).toMatchObject([{ id, state, labels }]);
  }
  expect(await json('allow', id)).toMatchObject({ object: 'prompt_kind', id, state: 'allowed' });
});

it('warmpath prompts says what is wrong with an id', async () => {
  const { run, json } = await gatewayWith(
    [
      ['acme', questionLast],
      ['other', questionLast],
    ],
    { keys: true },
  );
  const operator = ['--key-env', 'OPERATOR'];
  const { data } = await json(...operator);
  const { id } = data[0];
  const unknown = await run('allow', 'zzz', ...operator);
  expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('no prompt kind has an id')]);
  const twice = await run('allow', id, ...operator);
  expect([twice.code, twice.stderr]).toEqual([2, expect.stringContaining('name one with --tenant')]);
  expect((await run('allow', id, ...operator, '--tenant', 'acme')).code).toBe(0);
  const states = (await json(...operator)).data.map((kind: { tenant: string; state: string }) => [
    kind.tenant,
    kind.state,
  ]);
  expect(Object.fromEntries(states)).toEqual({ acme: 'allowed', other: 'asking' });
  expect((await run(...operator)).stdout).toMatch(/kind +state +gain +prompts +tenant\n/);
  const client = await run('refuse', id, '--key-env', 'CLIENT');
  expect([client.code, client.stderr]).toEqual([1, expect.stringContaining('WARMPATH_FORBIDDEN')]);
  expect((await run()).stderr).toContain('WARMPATH_UNAUTHORIZED');
});

it('warmpath prompts says where there is nothing yet, no gateway, and nothing that survives a restart', async () => {
  const empty = await gatewayWith([]);
  expect((await empty.run()).stdout).toContain('no prompt kind yet');
  await empty.gateway.close();
  expect((await empty.run()).stderr).toContain('no gateway answers at');
  const { run, json } = await gatewayWith([['anonymous', questionLast]], { isStored: false });
  const { id } = (await json()).data[0];
  expect((await run('allow', id)).stderr).toContain('no state folder');
});
