import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { resolveModel } from '@warmpath/engine';
import { request } from 'undici';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../test/free-port.js';
import { startFakeEngine } from './fake-engine.js';
import { MAIN, type RunningCli, runCli, startCli } from './run-cli.js';

const DOCUMENTS = [
  { id: 'velka', title: 'Velka', content: 'The weight of Velka is 42 kg. The colour of Velka is teal.' },
  { id: 'orsin', title: 'Orsin', content: 'The weight of Orsin is 17 kg. The founder of Orsin is Mirela.' },
];

interface Usage {
  readonly usage: {
    readonly prompt_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
}

/** An engine starts eight times, later each time. */

const started: RunningCli[] = [];

function start(args: readonly string[], environment: Readonly<Record<string, string>> = {}): RunningCli {
  const cli = startCli(args, { environment });
  started.push(cli);
  return cli;
}

afterEach(async () => {
  for (const { process, ended } of started.splice(0)) {
    process.kill('SIGTERM');
    await ended;
  }
});

async function ask(url: string, documents: readonly object[]): Promise<Usage> {
  const { statusCode, body } = await request(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      messages: [{ role: 'user', content: 'What is the weight of Velka?' }],
      documents,
      max_tokens: 4,
    }),
  });
  expect(statusCode).toBe(200);
  return (await body.json()) as Usage;
}

/** What computes for a command is a child of it. */
async function killChildrenOf(pid: number): Promise<void> {
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8');
  for (const child of children.trim().split(' ')) {
    process.kill(Number(child), 'SIGKILL');
  }
}

const metricsOf = (url: string) => request(`${url}/metrics`).then(({ body }) => body.text());

const isListening = (url: string) =>
  request(`${url}/healthz`).then(
    ({ body }) => body.dump().then(() => true),
    () => false,
  );

describe('collections', () => {
  let folder: string;
  let environment: Record<string, string>;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-up-collections-'));
    environment = { WARMPATH_DATA_DIR: folder };
    for (const [name, text] of [
      ['handbook', 'The weight of Velka is 42 kg.'],
      ['warmpath-tiny', 'A collection with the name of the model.'],
    ]) {
      await writeFile(join(folder, `${name}.md`), text!);
      const ingested = await runCli(['ingest', join(folder, `${name}.md`), '--collection', name!], { environment });
      expect(ingested.code).toBe(0);
    }
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  it('are offered as models by `warmpath up`', async () => {
    const cli = start(['up', '--port', '0', '--json'], environment);
    const { url } = JSON.parse((await cli.waitFor(/^.+\n/))[0]) as { url: string };
    const listed = (await (await request(`${url}/v1/models`)).body.json()) as { data: { id: string }[] };
    expect(listed.data.map(({ id }) => id).sort()).toEqual(['handbook', 'warmpath-tiny']);
    const { statusCode, body } = await request(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'handbook',
        max_tokens: 2,
        messages: [{ role: 'user', content: 'weight of Velka' }],
      }),
    });
    expect(statusCode).toBe(200);
    expect(await body.text()).toContain('The weight of Velka is 42 kg.');
  });

  it('are asked without a gateway: one is started for the question, and said', async () => {
    const asked = await runCli(['ask', 'weight of Velka', '--collection', 'handbook'], { environment });
    expect(asked).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('The weight of Velka is 42 kg.') as string,
    });
    expect(asked.stderr).toMatch(/No gateway runs here: one is started[\s\S]*Starting the embedded engine/);
    const missing = await runCli(['ask', 'weight of Velka', '--collection', 'none'], { environment });
    expect(missing).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('there is no collection "none"') as string,
    });
    expect(missing.stderr).not.toContain('Starting');
  });
});

describe('warmpath up', () => {
  it('serves questions with documents, reuses what it holds, and stops both on SIGINT with exit code 0', async () => {
    const cli = start(['up', '--port', '0', '--json']);
    const [line] = await cli.waitFor(/^.+\n/);
    const ready = JSON.parse(line) as { url: string; engine: string; model: string; metrics: string };
    expect(ready).toMatchObject({ model: 'warmpath-tiny', metrics: `${ready.url}/metrics` });
    const first = await ask(ready.url, DOCUMENTS);
    const second = await ask(ready.url, DOCUMENTS.toReversed());
    // Both documents stand where they stood; what follows them (hint and question) is new.
    expect(second.usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(first.usage.prompt_tokens / 2);
    // What the engine holds is heard, not guessed.
    while (!(await metricsOf(ready.url)).includes('warmpath_kv_events_exact{engine="engine"} 1'));
    cli.process.kill('SIGINT');
    const { code, stdout } = await cli.ended;
    expect({ code, stdout }).toEqual({ code: 0, stdout: line });
    expect([await isListening(ready.url), await isListening(ready.engine)]).toEqual([false, false]);
  });

  it('starts an engine that answers its own gateway only', async () => {
    const cli = start(['up', '--port', '0', '--json']);
    const [line] = await cli.waitFor(/^.+\n/);
    const { url, engine } = JSON.parse(line) as { url: string; engine: string };
    for (const [method, path] of [
      ['POST', '/v1/chat/completions'],
      ['POST', '/kv/flush'],
      ['GET', '/kv'],
      ['GET', '/metrics'],
      ['GET', '/v1/models'],
    ] as const) {
      expect([path, (await request(engine + path, { method })).statusCode]).toEqual([path, 401]);
    }
    const health = await request(`${engine}/health`);
    expect([health.statusCode, await health.body.json()]).toEqual([200, { status: 'ok' }]);
    expect((await request(`${url}/v1/models`)).statusCode).toBe(200);
  });

  it('prints plain lines for people, with a curl line that can be pasted', async () => {
    const cli = start(['up', '--port', '0']);
    const [, url, body] = await cli.waitFor(
      /^curl -s (\S+)\/v1\/chat\/completions -H 'content-type: application\/json' -d '(.+)'$/m,
    );
    const { statusCode, body: answer } = await request(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: body!,
    });
    expect(statusCode).toBe(200);
    expect(JSON.stringify(await answer.json())).toContain('42 kg');
    expect(cli.stdout()).toContain(`${url}/metrics`);
    expect(cli.stdout()).not.toContain('\u001b');
    cli.process.kill('SIGTERM');
    expect((await cli.ended).code).toBe(0);
  });

  it('prints a curl line that works for a model whose template cannot be parsed', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-up-'));
    try {
      const bytes = await readFile((await resolveModel('demo')).path);
      bytes.write('{%{', bytes.indexOf('{%', bytes.indexOf('tokenizer.chat_template')));
      const model = join(folder, 'untemplated.gguf');
      await writeFile(model, bytes);
      const cli = start(['up', '--port', '0', '--model', model]);
      const [, path, body] = await cli.waitFor(/^curl -s (\S+) -H 'content-type: application\/json' -d '(.+)'$/m);
      const { statusCode, body: answer } = await request(path!, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: body!,
      });
      expect([statusCode, path]).toEqual([200, expect.stringMatching(/\/v1\/completions$/)]);
      await answer.dump();
      expect(cli.stdout()).toMatch(/^ {2}template {2}The model's chat template cannot be parsed/m);
      expect(cli.stdout()).toMatch(/^ {2}reuse {5}every prefix/m);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it.each([
    ['--port', ['up', '--port']],
    ['--port', ['serve', '--engine', 'http://127.0.0.1:9', '--port']],
    ['--port', ['engine', '--port']],
  ])('says that the port is taken, and by which option (%s of %j)', async (param, args) => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const port = String((other.address() as AddressInfo).port);
    try {
      const { code, stdout } = await runCli([...args, port, '--json']);
      expect(code).toBe(78);
      expect(JSON.parse(stdout)).toMatchObject({
        error: { code: 'WARMPATH_PORT_IN_USE', param, message: expect.stringContaining(port) },
      });
    } finally {
      other.close();
    }
  });

  it("refuses an address that is not this machine's", async () => {
    const { code, stdout } = await runCli(['up', '--host', '192.0.2.1', '--json']);
    expect(code).toBe(78);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'WARMPATH_CONFIG_INVALID', param: '--port' } });
  });

  it('starts an engine again that dies, and says so and fails when it cannot be started', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-up-'));
    try {
      const model = join(folder, 'model.gguf');
      await copyFile((await resolveModel('demo')).path, model);
      const cli = start(['up', '--port', '0', '--json', '--model', model]);
      const [line] = await cli.waitFor(/^.+\n/);
      const { url, engine, enginePid } = JSON.parse(line) as { url: string; engine: string; enginePid: number };
      process.kill(enginePid, 'SIGKILL');
      await ask(url, DOCUMENTS);
      // Another worker answered that question, behind the same socket.
      expect((await request(`${engine}/health`)).statusCode).toBe(200);
      await rm(model);
      // The next one cannot load it.
      await killChildrenOf(cli.process.pid!);
      const { code, stdout } = await cli.ended;
      expect(code).toBe(1);
      expect(JSON.parse(stdout.slice(line.length))).toMatchObject({ error: { code: 'WARMPATH_ENGINE_EXITED' } });
      expect(await isListening(url)).toBe(false);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('answers a model that is none with exit code 78', async () => {
    const { code, stdout } = await runCli(['up', '--port', '0', '--model', 'no-such-file.gguf', '--json']);
    expect(code).toBe(78);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'WARMPATH_MODEL_FILE' } });
  });

  it('reads the gateway part of a configuration, with its own engine behind it', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-up-'));
    try {
      const file = join(folder, 'warmpath.yaml');
      await writeFile(
        file,
        'upstream:\n  url: http://127.0.0.1:9\nserver:\n  port: 0\narrange:\n  policy: retrieval\n',
      );
      const cli = start(['up', '--config', file, '--json']);
      // The file's log level applies, so lines of the log stand before it.
      const [line] = await cli.waitFor(/^\{"url".+\n/m);
      const { url } = JSON.parse(line) as { url: string };
      const { headers, statusCode } = await request(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ messages: [{ role: 'user', content: 'Hi' }], documents: DOCUMENTS, max_tokens: 1 }),
      });
      expect([statusCode, /policy=(\w+)/.exec(String(headers['x-warmpath']))?.[1]]).toEqual([200, 'retrieval']);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});

describe('a line for each request', () => {
  it('stands on standard output where it is asked for, with what was reused', async () => {
    const cli = start(['up', '--port', '0', '--live']);
    const [, url] = await cli.waitFor(/gateway +(http:\S+)/);
    await ask(url!, DOCUMENTS);
    await ask(url!, DOCUMENTS.toReversed());
    await cli.waitFor(/(?:tokens reused.* ms\n[\s\S]*){2}/);
    const said = cli.stdout().slice(cli.stdout().indexOf('Ctrl-C'));
    const line =
      /^[\d:]{8} {2}200 {2}chat\/completions {2}2 documents {3}(\d+) of \d+ tokens reused \(\d+ %\) {2}\d+ ms$/gm;
    const reused = [...said.matchAll(line)].map(([, tokens]) => Number(tokens));
    expect(reused).toHaveLength(2);
    expect(reused[1]).toBeGreaterThan(reused[0]! + 20);
    expect(said).not.toMatch(/Velka|kg|\[3\dm/);
    cli.process.kill('SIGINT');
    expect((await cli.ended).stderr).toMatch(/^Starting the embedded engine/);
  });

  it.each([
    ['with colours', {}, true],
    ['without, where NO_COLOR says so', { NO_COLOR: '1' }, false],
  ])('stands on a terminal unasked, %s', async (_, environment, isColoured) => {
    const engine = await startFakeEngine();
    // A terminal of its own, by util-linux.
    const serve = `${process.execPath} ${MAIN} serve --engine ${engine.url} --port 0`;
    const env = { ...process.env, TERM: 'xterm', NO_COLOR: '', ...environment };
    const terminal = spawn('script', ['-qfec', serve, '/dev/null'], { env, stdio: ['pipe', 'pipe', 'inherit'] });
    try {
      let said = '';
      const shows = async (pattern: RegExp) => {
        for (;;) {
          const match = pattern.exec(said);
          if (match !== null) return match;
          said += String((await once(terminal.stdout, 'data'))[0]);
        }
      };
      const [, url] = await shows(/base URL for clients: (\S+?)\/v1/);
      await ask(url!, DOCUMENTS);
      const [line] = await shows(/\n[^\n]*tokens reused[^\n]*\n/);
      expect(line.includes('\u001b[32m200')).toBe(isColoured);
      expect(said).not.toContain('"msg"');
      // Ctrl-C.
      terminal.stdin.write('\u0003');
      await once(terminal, 'close');
    } finally {
      terminal.kill();
      await engine.close();
    }
  });

  it('is not printed where nobody watches', async () => {
    const engine = await startFakeEngine();
    try {
      const cli = start(['serve', '--engine', engine.url, '--port', '0']);
      const [, url] = await cli.waitFor(/listens at (\S+)/);
      await ask(url!, DOCUMENTS);
      // The log has it, as JSON.
      await cli.waitFor(/"msg":"request"/);
      expect(cli.stdout()).not.toContain('tokens reused');
    } finally {
      await engine.close();
    }
  });
});

describe('warmpath serve', () => {
  it('says at once what is wrong with the engine, waits for it, and says when it is there', async () => {
    const port = await freePort();
    const cli = start(['serve', '--engine', `http://user:hidden@127.0.0.1:${port}`, '--port', '0']);
    await cli.waitForNote(
      /The engine at http:\/\/127\.0\.0\.1:\d+: The engine cannot be reached: nothing listens.*\n {2}remedy {2}Start the engine/,
    );
    const engine = await startFakeEngine({ port });
    try {
      await cli.waitForNote(/is there; it serves fake-model\./);
    } finally {
      await engine.close();
    }
    cli.process.kill('SIGTERM');
    const { code, stdout, stderr } = await cli.ended;
    expect([code, (stdout + stderr).includes('hidden')]).toEqual([0, false]);
  });

  it('takes the key of an engine that wants one from the variable that is named', async () => {
    const engine = await startFakeEngine({ apiKey: 'secret-key' });
    try {
      const without = start(['serve', '--engine', engine.url, '--port', '0']);
      await without.waitForNote(/needs a key.*status 401[\s\S]*--key-env NAME/);
      const args = ['serve', '--engine', engine.url, '--port', '0', '--key-env', 'TEST_ENGINE_KEY', '--json'];
      const cli = start(args, { TEST_ENGINE_KEY: 'secret-key' });
      const [line] = await cli.waitFor(/^\{"url".+\n/m);
      await ask((JSON.parse(line) as { url: string }).url, DOCUMENTS);
      expect(cli.stdout()).not.toContain('secret-key');
    } finally {
      await engine.close();
    }
  });

  it('reads the configuration again on SIGHUP, and keeps the old one where the file is wrong', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-serve-'));
    const [one, other] = [await startFakeEngine(), await startFakeEngine()];
    try {
      const file = join(folder, 'warmpath.yaml');
      const write = (...engines: string[]) =>
        writeFile(file, `server: { port: 0 }\nengines: [${engines.join(', ')}]\n`);
      const entry = (name: string, url: string) => `{ name: ${name}, url: '${url}' }`;
      await write(entry('one', one.url));
      const cli = start(['serve', '--config', file]);
      const [, url = ''] = await cli.waitFor(/listens at (http:\S+) in front of http/);
      await ask(url, DOCUMENTS);
      await write(entry('other', other.url));
      cli.process.kill('SIGHUP');
      await cli.waitForNote(/Configuration read again: engines changed/);
      await ask(url, DOCUMENTS);
      expect([one.received.length, other.received.length]).toEqual([1, 1]);
      await write(entry('other', other.url), entry('other', one.url));
      cli.process.kill('SIGHUP');
      await cli.waitForNote(/The configuration stays as it was: .*engines\.1\.name/);
      await ask(url, DOCUMENTS);
      expect([one.received.length, other.received.length]).toEqual([1, 2]);
      cli.process.kill('SIGTERM');
      expect((await cli.ended).code).toBe(0);
    } finally {
      await one.close();
      await other.close();
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('refuses to be its own engine', async () => {
    const { code, stderr } = await runCli(['serve', '--engine', 'http://localhost:8080']);
    expect([code, stderr]).toEqual([78, expect.stringMatching(/127\.0\.0\.1:8080.*--port[\s\S]*WARMPATH_LOOP/)]);
  });

  it('puts the gateway in front of an engine that runs, and stops on SIGTERM', async () => {
    const engine = await startFakeEngine();
    try {
      const cli = start(['serve', '--engine', engine.url, '--port', '0', '--json']);
      const [line] = await cli.waitFor(/^\{"url".+\n/m);
      const { url } = JSON.parse(line) as { url: string };
      await ask(url, DOCUMENTS);
      expect(engine.received[0]?.messages[0]?.content).toContain('<document id="velka"');
      cli.process.kill('SIGTERM');
      expect((await cli.ended).code).toBe(0);
    } finally {
      await engine.close();
    }
  });
});

describe('warmpath engine', () => {
  it('serves the model it is given, and stops on SIGINT', async () => {
    const cli = start(['engine', '--port', '0', '--context-tokens', '2048', '--json']);
    const [line] = await cli.waitFor(/^.+\n/);
    const { url, model, cells } = JSON.parse(line) as { url: string; model: string; cells: number };
    expect(cells).toBe(2_048);
    const { body } = await request(`${url}/v1/models`);
    expect(await body.json()).toMatchObject({ data: [{ id: model }] });
    cli.process.kill('SIGINT');
    expect((await cli.ended).code).toBe(0);
  });

  it('refuses options that do not go together, with exit code 78', async () => {
    const { code, stdout } = await runCli([
      'engine',
      '--port',
      '0',
      '--batch-tokens',
      '32',
      '--max-running',
      '64',
      '--json',
    ]);
    expect(code).toBe(78);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'WARMPATH_CONFIG_INVALID', param: 'batchTokens' } });
  });
});
