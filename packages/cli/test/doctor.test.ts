import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { type FakeEngine, type FakeEngineOptions, startFakeEngine } from './fake-engine.js';
import { MAIN, runCli } from './run-cli.js';

/** Real prefill of some 10,000 tokens, on a machine that may be busy. */

interface DoctorAnswer {
  readonly model: string;
  readonly healthy: boolean;
  readonly checks: readonly { readonly name: string; readonly verdict: string; readonly advice?: string }[];
  readonly facts: { readonly blockSize?: number; readonly repeat: { readonly cachedTokens?: number } };
}

async function listening(answer: (response: ServerResponse) => void) {
  const server = createServer((_, response) => answer(response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close };
}

let engine: FakeEngine | undefined;

afterEach(async () => {
  await engine?.close();
  engine = undefined;
});

async function examine(options: FakeEngineOptions, args: readonly string[] = [], environment = {}) {
  engine = await startFakeEngine(options);
  const { code, stdout } = await runCli(['doctor', '--engine', engine.url, ...args, '--json'], { environment });
  const answer = JSON.parse(stdout) as DoctorAnswer;
  const check = (name: string) => answer.checks.find((each) => each.name === name);
  return { code, answer, check };
}

describe('warmpath doctor', () => {
  it.runIf(isFull)('finds caching, block size and reports of the embedded engine', async () => {
    const { code, stdout } = await runCli(['doctor', '--json']);
    const { healthy, facts, checks } = JSON.parse(stdout) as DoctorAnswer;
    expect({ code, healthy, blockSize: facts.blockSize }).toEqual({ code: 0, healthy: true, blockSize: 1 });
    expect(facts.repeat.cachedTokens).toBeGreaterThan(1_000);
    for (const name of [
      'prefix caching',
      'shared prefix',
      'block size',
      'cached tokens, streamed',
      'CPU code',
      '/tokenize',
    ]) {
      expect(checks.find((check) => check.name === name)).toMatchObject({ verdict: 'ok' });
    }
  });

  it.each([1, 16, 64])('finds a block size of %i, over any OpenAI-compatible engine', async (blockSize) => {
    const { code, answer } = await examine({ blockSize });
    expect({ code, model: answer.model, blockSize: answer.facts.blockSize }).toEqual({
      code: 0,
      model: 'fake-model',
      blockSize,
    });
  });

  it('fails an engine without a prefix cache, with advice in its own terms', async () => {
    const { code, answer, check } = await examine({ caches: false, owner: 'sglang' });
    expect({ code, healthy: answer.healthy }).toEqual({ code: 1, healthy: false });
    expect(check('prefix caching')).toMatchObject({ verdict: 'failed', advice: expect.stringContaining('radix') });
  });

  it('tells how to have cached tokens reported', async () => {
    const { check } = await examine({ reports: false, owner: 'vllm' });
    expect(check('cached tokens, unstreamed')).toMatchObject({
      verdict: 'warning',
      advice: expect.stringContaining('--enable-prompt-tokens-details'),
    });
    expect(check('/tokenize')).toMatchObject({ verdict: 'warning', advice: expect.stringContaining('KV events') });
  });

  it.each<[string, NonNullable<FakeEngineOptions['tokenizes']>, string, RegExp | undefined]>([
    [
      'chats with the texts of tokens',
      ({ messages }) => (messages === undefined ? {} : { tokens: [1, 2], token_strs: ['<user>', 'one two three'] }),
      'ok',
      undefined,
    ],
    ['chats without the texts of tokens', () => ({ tokens: [1, 2, 3] }), 'warning', /chats/],
    ['texts alone', ({ prompt }) => (prompt === undefined ? { error: 'x' } : { tokens: [1] }), 'warning', /chats/],
    ['nothing, with a body of another kind', () => ({ tokens: [] }), 'warning', /let it through/],
  ])('tells whether KV events can be followed, of a tokenizer of %s', async (_, tokenizes, verdict, advice) => {
    const { check } = await examine({ owner: 'vllm', tokenizes });
    expect(check('/tokenize')).toMatchObject({ verdict, ...(advice && { advice: expect.stringMatching(advice) }) });
  });

  it('sends the key from the variable that is named, and names the model that is asked for', async () => {
    const { code, answer } = await examine(
      { apiKey: 'secret-key' },
      ['--key-env', 'TEST_ENGINE_KEY', '--model', 'other'],
      { TEST_ENGINE_KEY: 'secret-key' },
    );
    expect({ code, model: answer.model }).toEqual({ code: 0, model: 'other' });
    expect(engine?.received.every(({ model }) => model === 'other')).toBe(true);
  });

  it('names the option for a key that the engine wants', async () => {
    engine = await startFakeEngine({ apiKey: 'secret-key' });
    const { code, stdout, stderr } = await runCli(['doctor', '--engine', engine.url]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toContain('status 401');
    expect(stderr).toContain('--key-env NAME');
  });

  it.each([
    ['a page', '<!doctype html><p>Hi', 200, 'a page of HTML'],
    ['another path', '{}', 404, 'base URL of the engine'],
  ])('says what is wrong with %s', async (_, answer, status, words) => {
    const server = await listening((response) => response.writeHead(status).end(answer));
    const { code, stderr } = await runCli(['doctor', '--engine', server.url]);
    expect([code, stderr]).toEqual([1, expect.stringContaining(words)]);
    await server.close();
  });

  it('gives up on an engine that does not answer, and says so', async () => {
    const server = await listening(() => {});
    const { code, stderr } = await runCli(['doctor', '--engine', server.url, '--timeout', '1']);
    expect([code, stderr]).toEqual([1, expect.stringMatching(/did not answer within 1 s/)]);
    await server.close();
    const gone = await runCli(['doctor', '--engine', server.url]);
    expect(gone.stderr).toContain(`${server.url} cannot be reached (ECONNREFUSED)`);
  });

  it('prints a table for people, without colours where there is no terminal', async () => {
    engine = await startFakeEngine({ blockSize: 16 });
    const { code, stdout } = await runCli(['doctor', '--engine', engine.url]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^ {2}ok {7}block size +about 16 tokens$/m);
    expect(stdout).not.toContain('\u001b');
  });

  it('shows on a terminal how far it is, and leaves no bar behind', async () => {
    engine = await startFakeEngine({ blockSize: 16 });
    const command = `stty cols 100; exec ${process.execPath} ${MAIN} doctor --engine ${engine.url}`;
    const env = { ...process.env, TERM: 'xterm', NO_COLOR: '1' };
    // A terminal of its own, by util-linux.
    const terminal = spawn('script', ['-qefc', command, '/dev/null'], { env, stdio: ['ignore', 'pipe', 'inherit'] });
    const said = await text(terminal.stdout);
    expect(said).toMatch(/requests [█░]+ \d+ of \d+/);
    const report = said.slice(said.indexOf('Engine at'));
    expect(report).toMatch(/ok {7}block size +about 16 tokens/);
    expect(report).not.toMatch(/[█░]/);
  });

  it("passes the engine's error on", async () => {
    engine = await startFakeEngine({ failsWith: 500 });
    const { code, stderr } = await runCli(['doctor', '--engine', engine.url]);
    expect(code).toBe(1);
    expect(stderr).toContain('WARMPATH_UPSTREAM_ERROR');
    expect(stderr).toContain('out of order');
  });
});
