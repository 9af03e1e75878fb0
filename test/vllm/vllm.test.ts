import { execFile } from 'node:child_process';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { EngineReport, Report, RunningGateway } from '../../packages/gateway/src/index.js';
import { startGateway } from '../../packages/gateway/src/index.js';
import { closing, openRequest, type Reply, send, told, untilMetric } from '../../packages/gateway/test/harness.js';
import { BLOCK_TOKENS, BLOCKS, isVllmSetUp, KEPT_BATCHES, VllmProcess } from './vllm-process.js';

// `npm run test:vllm`: the gateway before a real vLLM.

if (!isVllmSetUp)
  process.stderr.write('Skipped: vLLM is not set up. test/vllm/setup.sh does that (1 GB, four minutes).\n');

const run = promisify(execFile);
const CLI = join(import.meta.dirname, '../../packages/cli/dist/main.js');

/** Reports cached tokens. */
let vllm: VllmProcess;
/** Does not, and publishes no KV events. */
let silent: VllmProcess;

type Source = readonly [topic: string, number: number];

function passage([topic, number]: Source) {
  const sentence = `Passage ${number} tells how the ${topic} was found, and what it was worth in year ${17 * number}.`;
  return { id: `${topic}-${number}`, content: Array(4).fill(sentence).join(' ') };
}

const passages = (topic: string, ...numbers: readonly number[]) => numbers.map((number) => passage([topic, number]));

let questions = 0;
/** No two prompts end alike. */
const question = () => `What was found, in case ${++questions}?`;

async function gatewayBefore(
  engines: readonly VllmProcess[],
  { config = {} as object, reports = [] as Report[] } = {},
): Promise<RunningGateway> {
  let isFound: () => void = () => {};
  const found = new Promise<void>((resolve) => {
    isFound = resolve;
  });
  let up = 0;
  const listed = engines.map(({ url }, place) => ({ name: 'ab'[place]!, url }));
  const gateway = closing(
    await startGateway(
      { server: { port: 0 }, log: { level: 'silent' }, engines: listed, ...config },
      {
        onEngine: ({ state }) => void (state === 'up' && ++up === engines.length && isFound()),
        onRequest: (report) => reports.push(report),
      },
    ),
  );
  await found;
  for (const [place, engine] of engines.entries()) {
    if (engine !== silent) await expect.poll(() => sample(gateway.url, exact('ab'[place]!))).not.toBeNaN();
  }
  return gateway;
}

const exact = (name: string) => new RegExp(`warmpath_kv_events_exact\\{engine="${name}"\\} (\\d)`);

interface Counted {
  readonly predicted: number;
  readonly cached: number | undefined;
  readonly engine: string | undefined;
}

const BODIES: Readonly<Record<string, (fields: { system: string; text: string }) => object>> = {
  'chat/completions': ({ system, text }) => ({
    messages: [
      { role: 'system', content: system },
      { role: 'user', content: text },
    ],
    max_tokens: 2,
  }),
  completions: ({ text }) => ({ prompt: text, max_tokens: 2 }),
  messages: ({ system, text }) => ({ system, messages: [{ role: 'user', content: text }], max_tokens: 2 }),
  responses: ({ system, text }) => ({ instructions: system, input: text, max_output_tokens: 2 }),
};

function read(reply: Reply): Counted {
  expect(reply.status, reply.text).toBe(200);
  const { usage } = JSON.parse(reply.text) as {
    usage: Record<string, Record<string, number>> & Record<string, number>;
  };
  const details = usage['prompt_tokens_details'] ?? usage['input_tokens_details'];
  const cached = details?.['cached_tokens'] ?? usage['cache_read_input_tokens'];
  return { predicted: Number(told(reply)['predicted']), cached, engine: told(reply)['engine'] };
}

async function ask(
  gateway: RunningGateway,
  documents: readonly object[],
  { api = 'chat/completions', system = 'Answer from the documents.', headers = {} } = {},
): Promise<Counted> {
  const body = { model: 'tiny', documents, ...BODIES[api]!({ system, text: question() }) };
  return read(await send(`${gateway.url}/v1/${api}`, body, { headers }));
}

/** The gateway knows the tokens of all prompts. */
const settled = (gateway: RunningGateway) => untilMetric(gateway, 'warmpath_kv_prompts_waiting', 0);
const isExact = (gateway: RunningGateway, name = 'a') =>
  untilMetric(gateway, `warmpath_kv_events_exact{engine="${name}"}`, 1);

async function sample(url: string, line: RegExp): Promise<number> {
  return Number(line.exec((await send(`${url}/metrics`)).text)?.[1]);
}

async function reset({ url }: VllmProcess): Promise<void> {
  await send(`${url}/reset_prefix_cache`, '');
}

describe.skipIf(!isVllmSetUp)('before vLLM', () => {
  beforeAll(async () => {
    const port = await VllmProcess.freePorts();
    const other = await VllmProcess.freePorts();
    [vllm, silent] = await Promise.all([
      VllmProcess.start({ port }),
      VllmProcess.start({ port: other, isSilent: true }),
    ]);
  });

  afterAll(async () => {
    await Promise.all([vllm?.stop(), silent?.stop()]);
  });

  it('the doctor reports kind, block size, counts and tokenizer, and what is missing', async () => {
    const examine = async (url: string) => {
      const { stdout } = await run(process.execPath, [CLI, 'doctor', '--engine', url, '--json']);
      const { checks } = JSON.parse(stdout) as { checks: { name: string; verdict: string; finding: string }[] };
      return new Map(checks.map((check) => [check.name, check]));
    };
    const checks = await examine(vllm.url);
    expect(checks.get('kind of engine')!.finding).toContain('vLLM');
    expect(checks.get('KV events')!.finding).toBe(`published at ${vllm.eventsEndpoint}: the gateway follows them`);
    expect(checks.get('block size')!.finding).toContain(`${BLOCK_TOKENS} tokens`);
    for (const name of ['prefix caching', 'cached tokens, unstreamed', 'cached tokens, streamed', '/tokenize']) {
      expect(checks.get(name), name).toMatchObject({ verdict: 'ok' });
    }
    const missing = await examine(silent.url);
    expect(missing.get('cached tokens, unstreamed')).toMatchObject({
      verdict: 'warning',
      advice: expect.stringContaining('prompt-tokens-details'),
    });
    expect(missing.get('prefix caching')).toMatchObject({ verdict: 'ok', finding: 'on, as the engine says' });
    expect(missing.get('KV events')).toMatchObject({ finding: 'off', advice: expect.stringContaining('kv-events') });
  });

  it('the gateway learns kind, block size and number of blocks', async () => {
    const found: EngineReport[] = [];
    closing(
      await startGateway(
        { server: { port: 0 }, log: { level: 'silent' }, upstream: { url: vllm.url } },
        { onEngine: (report) => found.push(report) },
      ),
    );
    await expect.poll(() => found.length).toBeGreaterThan(0);
    expect(found[0]).toMatchObject({ state: 'up', models: ['tiny'], dialect: { name: 'vllm' } });
    expect(found[0]!.facts.cacheSize).toEqual({ blocks: BLOCKS, blockTokens: BLOCK_TOKENS });
  });

  it('an idle engine is known exactly from the start', async () => {
    await reset(vllm);
    const gateway = await gatewayBefore([vllm]);
    await isExact(gateway);
  });

  it.each(Object.keys(BODIES))('predicts to the block what vLLM has cached of prompts on /v1/%s', async (api) => {
    const gateway = await gatewayBefore([vllm]);
    const system = `On ${api}, answer from the documents, and mind the rules of the house. `.repeat(3);
    for (const numbers of [
      [0, 1, 2],
      [2, 0, 1],
      [3, 1, 0],
      [0, 2, 4],
    ]) {
      const { predicted, cached } = await ask(gateway, passages(api, ...numbers), { api, system });
      await settled(gateway);
      expect(Math.abs(predicted - cached!), `${numbers}: ${predicted}, ${cached}`).toBeLessThanOrEqual(BLOCK_TOKENS);
    }
    const last = await ask(gateway, passages(api, 0, 2, 4), { api, system });
    expect(last.predicted % BLOCK_TOKENS).toBe(0);
    expect(last.predicted).toBeGreaterThan(2 * BLOCK_TOKENS);
    expect(await sample(gateway.url, /kind="unlearned"\} (\d+)/)).toBe(0);
    expect(await sample(gateway.url, exact('a'))).toBe(1);
  });

  it('streams are counted without a word to the client', async () => {
    const reports: Report[] = [];
    const gateway = await gatewayBefore([vllm], { reports });
    const body = () => ({
      model: 'tiny',
      documents: passages('stream', 0, 1, 2),
      stream: true,
      ...BODIES['chat/completions']!({ system: 'Stream.', text: question() }),
    });
    for (let i = 0; i < 2; i++) {
      const { text } = await send(`${gateway.url}/v1/chat/completions`, body());
      expect(text).not.toContain('"usage":{');
      expect(text).toContain('[DONE]');
    }
    await expect.poll(() => reports.length).toBe(2);
    expect(reports[1]!.cachedTokens).toBeGreaterThan(2 * BLOCK_TOKENS);
  });

  it('an engine that reports no cached tokens is believed to hold what it was served', async () => {
    const reports: Report[] = [];
    const gateway = await gatewayBefore([silent], { reports });
    for (let i = 0; i < 6; i++) {
      const { predicted, cached } = await ask(gateway, passages('silent', i % 3, (i + 1) % 3, (i + 2) % 3));
      expect(cached).toBeUndefined();
      if (i > 0) expect(predicted).toBeGreaterThan(2 * BLOCK_TOKENS);
    }
    await expect.poll(() => reports.length).toBe(6);
    expect(reports.slice(1).map(({ cachedTokens }) => cachedTokens)).toEqual(new Array(5).fill(undefined));
  });

  it('tenants share nothing with a key for salts', async () => {
    const gateway = await gatewayBefore([vllm], { config: { upstream: { cacheSaltKey: 'a secret of the gateways' } } });
    const cachedFor = async (tenant: string) =>
      (await ask(gateway, passages('salt', 0, 1, 2), { headers: { authorization: `Bearer ${tenant}` } })).cached!;
    expect(await cachedFor('one')).toBe(0);
    expect(await cachedFor('two')).toBe(0);
    await settled(gateway);
    expect(await cachedFor('one')).toBeGreaterThan(2 * BLOCK_TOKENS);
  });

  it('a reset of the prefix cache is noticed', async () => {
    const gateway = await gatewayBefore([vllm]);
    const documents = passages('reset', 0, 1, 2);
    await ask(gateway, documents);
    await settled(gateway);
    expect((await ask(gateway, documents)).predicted).toBeGreaterThan(2 * BLOCK_TOKENS);
    await reset(vllm);
    // vLLM tells of the reset with its next step.
    await ask(gateway, passages('another', 0));
    await settled(gateway);
    const { predicted, cached } = await ask(gateway, documents);
    expect(cached).toBeLessThanOrEqual(BLOCK_TOKENS);
    expect(predicted).toBeLessThanOrEqual(BLOCK_TOKENS);
    await isExact(gateway);
  });

  it('a gateway that starts later hears what vLLM keeps, and is exact again once the known blocks fill the cache', async () => {
    await reset(vllm);
    const before = await gatewayBefore([vllm]);
    for (let i = 0; i < 3; i++) await ask(before, passages('early', i));
    const early = await gatewayBefore([vllm]);
    await isExact(early);
    for (let i = 0; i < KEPT_BATCHES + 5; i++) await ask(before, passages('filler', 3 * i, 3 * i + 1));
    const late = await gatewayBefore([vllm]);
    await expect.poll(() => sample(late.url, /kind="losses"\} (\d+)/)).toBeGreaterThan(0);
    expect(await sample(late.url, exact('a'))).toBe(0);
    let prompts = 0;
    while ((await sample(late.url, exact('a'))) === 0 && prompts < 120) {
      await ask(late, passages('fresh', 4 * prompts, 4 * prompts + 1, 4 * prompts + 2, 4 * prompts + 3));
      await settled(late);
      prompts++;
    }
    expect(prompts).toBeLessThan(120);
    for (const [topic, numbers] of [
      ['early', [0, 1]],
      ['fresh', [4 * prompts - 4, 4 * prompts - 3]],
      ['fresh', [4 * prompts - 2, 4 * prompts - 3]],
    ] as const) {
      const { predicted, cached } = await ask(late, passages(topic, ...numbers));
      await settled(late);
      expect(Math.abs(predicted - cached!), `${topic} ${numbers}`).toBeLessThanOrEqual(BLOCK_TOKENS);
    }
  });

  it('two replicas each keep the documents of their own topic', async () => {
    const gateway = await gatewayBefore([vllm, silent]);
    const served = new Map<string, (string | undefined)[]>();
    for (const numbers of [
      [0, 1, 2, 3],
      [3, 1, 0, 2],
      [4, 2, 0, 1],
    ]) {
      for (const topic of ['granite', 'harbour']) {
        const { engine } = await ask(gateway, passages(topic, ...numbers), { system: topic });
        await settled(gateway);
        served.set(topic, [...(served.get(topic) ?? []), engine]);
      }
    }
    const [granite, harbour] = [new Set(served.get('granite')), new Set(served.get('harbour'))];
    expect([granite.size, harbour.size]).toEqual([1, 1]);
    expect(granite).not.toEqual(harbour);
  });

  it('aborts reach it, streamed and unstreamed', async () => {
    const gateway = await gatewayBefore([vllm]);
    const running = () => sample(vllm.url, /vllm:num_requests_running\{[^}]*\} (\d+)/);
    const endless = (stream: boolean) => ({
      model: 'tiny',
      messages: [{ role: 'user', content: question() }],
      max_tokens: 3_000,
      ignore_eos: true,
      stream,
    });
    for (const isStreamed of [true, false]) {
      const request = openRequest(`${gateway.url}/v1/chat/completions`, endless(isStreamed)).on('error', () => {});
      if (isStreamed) {
        const [response] = (await once(request, 'response')) as [IncomingMessage];
        response.on('error', () => {});
        await once(response, 'data');
      } else await expect.poll(running).toBe(1);
      request.destroy();
      await expect.poll(running).toBe(0);
    }
  });

  it('a restart is noticed, also while it is idle', async () => {
    const gateway = await gatewayBefore([vllm]);
    const documents = passages('restart', 0, 1, 2);
    await ask(gateway, documents);
    await settled(gateway);
    expect((await ask(gateway, documents)).predicted).toBeGreaterThan(2 * BLOCK_TOKENS);
    await settled(gateway);
    const port = Number(new URL(vllm.url).port);
    await vllm.stop();
    vllm = await VllmProcess.start({ port });
    await untilMetric(gateway, 'warmpath_kv_events_total{engine="a",kind="restarts"}', 1);
    await isExact(gateway);
    const { predicted, cached } = await ask(gateway, documents);
    expect([predicted, cached]).toEqual([0, 0]);
  });
});
