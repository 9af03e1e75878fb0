import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { freePort } from '../../../test/free-port.js';
import { findLlamaServer, startLlamaServer } from '../../engine/bench/llama-server.js';
import { modelPath } from '../../engine/bench/random-model/src/model-path.js';
import { beliefOf, dialectOf, withSlots } from '../src/dialects/dialects.js';
import { HEALTH_SETTINGS } from '../src/engines/engine-health.js';
import type { EngineReport } from '../src/index.js';
import { FakeEngine } from './fake-engine.js';
import { closing, gatewayAt, send } from './harness.js';

/** What a llama-server answered at `/props`, byte for byte: started with `-np 2`, and without a word on slots. */
const TWO_SLOTS = readFileSync(new URL('fixtures/llama-server-props-np2.json', import.meta.url));
const UNTOLD = readFileSync(new URL('fixtures/llama-server-props.json', import.meta.url));

const MODELS = { object: 'list', data: [{ id: 'm', owned_by: 'llamacpp' }] };
const ANSWER = { choices: [], usage: { prompt_tokens: 400, prompt_tokens_details: null } };

/** Topics that share nothing, each with documents that fill its prompt. */
const topics = ['granite', 'harbour', 'orchard', 'lantern', 'meadow'].map((topic) =>
  [0, 1].map((number) => ({ id: `${topic}-${number}`, content: `${topic} ${number} `.repeat(60) })),
);

interface Props {
  readonly status?: number;
  readonly bytes: string | Buffer;
}

/** An engine whose slots nobody sees: it says what it is and answers every prompt. */
function llamaServer(props: () => Props): Promise<FakeEngine> {
  return FakeEngine.start((response, { path }) => {
    if (path === '/props') {
      const { status = 200, bytes } = props();
      response.writeHead(status, { 'content-type': 'application/json' }).end(bytes);
      return;
    }
    const body = path === '/v1/models' ? MODELS : ANSWER;
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
}

/** A gateway that has found the engine at that address, and what it found. */
async function found(url: string, upstream: { dialect?: 'llama-server' } = {}) {
  let told = (_: EngineReport): void => {};
  const reports = new Promise<EngineReport>((resolve) => {
    told = resolve;
  });
  const gateway = closing(await gatewayAt(url, { upstream }, { onEngine: told }));
  return { gateway, report: await reports };
}

interface Seen {
  readonly predicted: number;
  readonly cached: number;
}

/** A question about each of the topics in turn. */
async function ask(url: string, order: readonly number[]): Promise<Seen[]> {
  const seen: Seen[] = [];
  for (const topic of order) {
    const messages = [{ role: 'user', content: `Question ${seen.length}?` }];
    const body = { model: 'm', messages, documents: topics[topic], max_tokens: 1 };
    const { headers, text } = await send(`${url}/v1/chat/completions`, body);
    const predicted = Number(/predicted=(\d+)/.exec(String(headers['x-warmpath']))![1]);
    seen.push({ predicted, cached: JSON.parse(text).usage.prompt_tokens_details?.cached_tokens ?? 0 });
  }
  return seen;
}

describe('the slots of a llama-server', () => {
  it.each([
    ['two', TWO_SLOTS, 2],
    ['as many as it takes by itself', UNTOLD, 4],
    ['no JSON', 'two', undefined],
    ['no object', 'null', undefined],
    ['no number', '{"total_slots":"2"}', undefined],
    ['none', '{"total_slots":0}', undefined],
    ['more than there can be', '{"total_slots":1000000000}', undefined],
    ['half a slot', '{"total_slots":2.5}', undefined],
    ['an answer without end', `{"total_slots":2,"chat_template":"${' '.repeat(4_200_000)}"}`, undefined],
  ])('are read where it says them: %s', async (_, bytes, slots) => {
    const engine = closing(await llamaServer(() => ({ bytes })));
    const { report } = await found(engine.url);
    expect([report.state, report.facts.slots]).toEqual(['up', slots]);
  });

  it('are not asked of an engine that has none, and need not be said', async () => {
    const refusing = closing(await llamaServer(() => ({ status: 401, bytes: '{"error":{"code":401}}' })));
    expect((await found(refusing.url)).report).toMatchObject({ state: 'up', facts: {} });
    const engine = closing(await FakeEngine.start());
    await found(engine.url);
    expect(engine.received.map(({ path }) => path)).not.toContain('/props');
  });

  it('are asked of an engine that a proxy hides, by what the configuration says', async () => {
    const engine = closing(
      await FakeEngine.start((response, { path }) => {
        const models = JSON.stringify({ object: 'list', data: [{ id: 'm', owned_by: 'somebody' }] });
        response.writeHead(200, { 'content-type': 'application/json' }).end(path === '/props' ? TWO_SLOTS : models);
      }),
    );
    expect((await found(engine.url, { dialect: 'llama-server' })).report.facts.slots).toBe(2);
  });

  it('decide what is believed', () => {
    const slots = (said: number) => beliefOf(withSlots(dialectOf('llama-server'), said).reuse).slots;
    expect(slots(4)).toEqual({ slots: 4 });
    expect(slots(2)).toEqual({ slots: 2 });
    expect(withSlots(dialectOf('vllm'), 2)).toEqual(dialectOf('vllm'));
  });

  it('are followed anew when an engine comes back with another number of them', async () => {
    let bytes = UNTOLD;
    const engine = closing(await llamaServer(() => ({ bytes })));
    const other = closing(await FakeEngine.start());
    const engines = [
      { name: 'one', url: engine.url, models: ['m'] },
      { name: 'other', url: other.url, models: ['other'] },
    ];
    const upstream = { url: undefined };
    const gateway = closing(
      await gatewayAt('', { upstream, engines }, { health: { ...HEALTH_SETTINGS, checkMs: 20 } }),
    );
    const asked = () => engine.received.filter(({ path }) => path === '/props').length;
    const heard = async () => {
      // The second question from now on is asked when the answer to the first was heard.
      for (const enough = asked() + 2; asked() < enough; ) await once(engine.events, 'request');
    };
    await heard();
    expect((await ask(gateway.url, [0, 1, 2, 0]))[3]!.predicted).toBeGreaterThan(100);
    bytes = TWO_SLOTS;
    await heard();
    const [first] = await ask(gateway.url, [0]);
    expect(first!.predicted).toBe(0);
  });
});

const server = findLlamaServer();

// A peer that is built, not installed: without it there is nothing to compare with.
if (server !== undefined) {
  describe('a real llama-server', () => {
    it.each<[flags: string[], slots: number]>([
      [[], 4],
      [['-np', '2'], 2],
      [['-np', '1'], 1],
    ])('reuses what is predicted: %j', async (flags, slots) => {
      const given = { model: await modelPath('random:1m'), port: await freePort(), flags };
      const { child, url: listening } = startLlamaServer(server, given);
      closing({ close: async () => void child.kill('SIGKILL') });
      const url = await listening;
      const { gateway, report } = await found(url);
      expect(report.facts.slots).toBe(slots);
      const order = [0, 1, 2, 3, 0, 1, 4, 0, 0, 2, 1, 2, 3, 0, 4, 4, 2, 1];
      const seen = await ask(gateway.url, order);
      expect(seen.some(({ cached }) => cached > 100)).toBe(true);
      for (const [at, { predicted, cached }] of seen.entries()) {
        // Words are counted by estimates: whether there is a prompt to go on from is what the slots decide.
        expect(predicted > 100, `request ${at} of ${JSON.stringify(seen)}`).toBe(cached > 100);
      }
    });
  });
}
