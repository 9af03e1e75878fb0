import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Explanation, startGateway } from '@warmpath/gateway';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { startFakeEngine } from './fake-engine.js';
import { runCli } from './run-cli.js';

const passage = (name: string) =>
  `The ${name} was built of oak in the year of the flood, and it is repaired every spring. `.repeat(2);
const documents = (...names: string[]) =>
  names.map((name) => `<document id="${name}">${passage(name)}</document>`).join('\n');
const chat = (system: string, content: string) => ({
  model: 'm',
  messages: [
    { role: 'system', content: system },
    { role: 'user', content },
  ],
});

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-explain-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function file(name: string, body: object | string): Promise<string> {
  const path = join(folder, name);
  await writeFile(path, typeof body === 'string' ? body : JSON.stringify(body));
  return path;
}

describe('warmpath explain', () => {
  it('says what moves and what that saves', async () => {
    const before = await file('before.json', chat('Answer.', `${documents('mill', 'pier')}\nWhat of the mill?`));
    const now = await file('now.json', chat('Answer.', `${documents('barn', 'pier', 'mill')}\nWhat of the barn?`));
    const { code, stdout } = await runCli(['explain', now, '--after', before, '--json']);
    expect(code).toBe(0);
    const { api, blocks, prefix } = JSON.parse(stdout) as Explanation;
    expect(api).toBe('chat');
    expect(blocks).toMatchObject([
      { place: 'messages[1].content', format: 'tags', decided: 'arranged', order: [2, 1, 0] },
    ]);
    expect(prefix!.arrangedSharedTokens).toBeGreaterThan(prefix!.sharedTokens + 50);
    expect(prefix!.break).toMatchObject({ cause: 'documents-changed', piece: 'messages[1].content', exact: true });
    const forPeople = await runCli(['explain', now, '--after', before]);
    expect(forPeople.stdout).toMatch(/would stand +mill, pier, barn/);
    expect(forPeople.stdout).toMatch(/saves +\d+ tokens/);
  });

  it('explains a request that a gateway has captured', async () => {
    const engine = await startFakeEngine();
    const key = 'the-key-of-the-operator';
    const server = { port: 0, operatorKey: { key } };
    const gateway = await startGateway({ server, upstream: { url: engine.url }, log: { level: 'silent' } });
    onTestFinished(async () => {
      await gateway.close();
      await engine.close();
    });
    const post = (path: string, body: object, headers: object = {}) =>
      fetch(gateway.url + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      });
    const asked = { ...chat('Answer.', `${documents('barn', 'pier')}\nWhat of the barn?`), model: 'fake-model' };
    const run = (id: string, environment: Record<string, string> = { OPERATOR: key }) =>
      runCli(['explain', '--request', id, '--gateway', gateway.url, '--key-env', 'OPERATOR', '--json'], {
        environment,
      });
    const before = await post('/v1/chat/completions', asked, { 'x-request-id': 'before' });
    expect(before.status).toBe(200);
    expect(JSON.parse((await run('before')).stdout)).toMatchObject({ error: { code: 'WARMPATH_NOT_FOUND' } });
    expect((await post('/v1/capture', { requests: 1 }, { authorization: `Bearer ${key}` })).status).toBe(200);
    await post('/v1/chat/completions', asked, { 'x-request-id': 'captured' });
    const { code, stdout } = await run('captured');
    expect(code, stdout).toBe(0);
    const { api, blocks } = JSON.parse(stdout) as Explanation;
    expect(api).toBe('chat');
    expect(blocks.map((block) => block.documents.map(({ id }) => id))).toEqual([['barn', 'pier']]);
    const foreign = await run('captured', { OPERATOR: 'another-key-of-somebody' });
    expect(JSON.parse(foreign.stdout)).toMatchObject({ error: { code: 'WARMPATH_FORBIDDEN' } });
    const both = await runCli(['explain', 'now.json', '--request', 'captured', '--json']);
    expect(JSON.parse(both.stdout)).toMatchObject({ error: { code: 'WARMPATH_USAGE' } });
  });

  it('refuses a configuration that is wrong, or not there', async () => {
    const config = join(folder, 'wrong.yaml');
    await writeFile(config, 'upstream:\n  url: http://127.0.0.1:8000\nrecognise:\n  mode: conservative\n');
    const body = await file('plain.json', chat('x', 'Why?'));
    const wrong = await runCli(['explain', body, '--config', config]);
    expect(wrong.code).not.toBe(0);
    expect(wrong.stderr).toContain('`warmpath prompts`');
    const missing = await runCli(['explain', body, '--config', join(folder, 'none.yaml')]);
    expect(missing.stderr).toContain('WARMPATH_CONFIG_NOT_FOUND');
  });

  it('names a timestamp to the character', async () => {
    const at = (time: string) => chat(`You are a keeper. It is ${time}. Answer.`, 'Why?');
    const before = await file('eight.json', at('2026-11-21T08:31:07Z'));
    const now = await file('nine.json', at('2026-11-21T09:02:44Z'));
    const { stdout } = await runCli(['explain', now, '--after', before]);
    expect(stdout).toContain(
      `messages[0].content, character ${'You are a keeper. It is 2026-11-21T0'.length}: timestamp`,
    );
    expect(stdout).toContain('Put it behind the documents');
  });

  it('says when a request continues the other, and when nothing was found', async () => {
    const before = await file('one.json', chat('Use the following context: much.', 'Why?'));
    const body = chat('Use the following context: much.', 'Why?');
    const now = await file('two.json', {
      ...body,
      messages: [...body.messages, { role: 'assistant', content: 'So.' }],
    });
    const { stdout } = await runCli(['explain', now, '--after', before]);
    expect(stdout).toContain('no documents recognised');
    expect(stdout).toContain('<warmpath-documents>');
    expect(stdout).toContain('continues the earlier request');
  });

  it.each([
    [{ prompt: `${documents('a b', 'c d')}\nWhy?` }, 'completions', 'prompt'],
    [{ input: 'Why?', instructions: documents('a b', 'c d') }, 'responses', 'instructions'],
    [
      { system: documents('a b', 'c d'), max_tokens: 1, messages: [{ role: 'user', content: 'Why?' }] },
      'messages',
      'system',
    ],
  ])('finds the API out: %#', async (body, api, place) => {
    const { stdout } = await runCli(['explain', '--json', '-'], { input: JSON.stringify(body) });
    expect(JSON.parse(stdout)).toMatchObject({ api, blocks: [{ place }], prefix: null });
  });

  const said = [{ role: 'user', content: 'Why?' }];
  const part = (type: string) => [{ role: 'user', content: [{ type, source: { type: 'text', data: 'x' } }] }];
  it.each([
    [{ model: 'claude-opus-4-5', max_tokens: 9, messages: said }, 'messages'],
    [{ model: 'm', max_tokens: 9, messages: part('document') }, 'messages'],
    [{ model: 'm', max_tokens: 9, messages: part('search_result') }, 'messages'],
    [{ model: 'm', max_tokens: 9, thinking: { type: 'enabled' }, messages: said }, 'messages'],
    [{ anthropic_version: 'bedrock-2023-05-31', max_tokens: 9, messages: said }, 'messages'],
    [{ model: 'm', max_tokens: 9, messages: said, tools: [{ name: 's', input_schema: {} }] }, 'messages'],
    [
      { model: 'claude-opus-4-5', max_tokens: 9, messages: [{ role: 'system', content: 'Be short.' }, ...said] },
      'chat',
    ],
    [{ model: 'claude-opus-4-5', max_tokens: 9, messages: said, tools: [{ function: { name: 's' } }] }, 'chat'],
    [{ model: 'm', max_tokens: 9, messages: said }, 'chat'],
    [{ path: '/v1/messages?beta=true', body: { model: 'm', messages: said } }, 'messages'],
    [{ custom_id: '1', method: 'POST', url: '/v1/responses', body: { model: 'm', input: 'Why?' } }, 'responses'],
    [{ custom_id: '1', params: { model: 'm', max_tokens: 9, system: 'x', messages: said } }, 'messages'],
    [
      {
        request: {
          url: 'https://e.example/v1/messages',
          postData: { mimeType: 'application/json', text: JSON.stringify({ model: 'm', messages: said }) },
        },
      },
      'messages',
    ],
  ])('tells the API by what only it has, or by the path of a record: %#', async (body, api) => {
    const { stdout } = await runCli(['explain', '--json', '-'], { input: JSON.stringify(body) });
    expect(JSON.parse(stdout)).toMatchObject({ api, givenDocuments: 0 });
    expect((JSON.parse(stdout) as Explanation).promptTokens).toBeGreaterThan(0);
  });

  it('says why documents that answers cite stay', async () => {
    const cited = (title: string) => ({
      type: 'document',
      title,
      citations: { enabled: true },
      source: { type: 'text', media_type: 'text/plain', data: passage(title) },
    });
    const asks = (...parts: object[]) => ({ model: 'm', max_tokens: 9, messages: [{ role: 'user', content: parts }] });
    const before = await file('cited.json', asks(cited('mill'), cited('pier')));
    const now = await file('recited.json', asks(cited('pier'), cited('mill')));
    const { stdout } = await runCli(['explain', now, '--after', before]);
    expect(stdout).toMatch(/by number \(`citations`\)\. The gateway does not change them\./);
    expect(stdout).toContain('documents-order');
  });

  it('reports what it cannot read', async () => {
    const { code, stdout } = await runCli(['explain', '--json'], { input: '{' });
    expect(code).toBe(1);
    expect(stdout).toContain('WARMPATH_INVALID_JSON');
    expect((await runCli(['explain', '-', '--after', '-'], { input: '{}' })).code).toBe(2);
    expect((await runCli(['explain', join(folder, 'none.json')])).code).toBe(2);
  });
});
