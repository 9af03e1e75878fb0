import { describe, expect, it } from 'vitest';
import { reachableSource, readCacheFacts } from '../src/dialects/cache-facts.js';
import { type DialectName, dialectOf, withBlocks } from '../src/dialects/dialects.js';
import { FakeEngine } from './fake-engine.js';
import { closing, gatewayAt, send, told } from './harness.js';

// What engines say about their caches.

function factsOf(name: DialectName, answers: Readonly<Record<string, string>>) {
  return readCacheFacts(dialectOf(name), async (path) => answers[path]);
}

const metrics = (labels: string) => ({ '/metrics': `# TYPE x gauge\nvllm:cache_config_info{${labels}} 1.0\n` });
const sources = (ranks: object) => ({ '/kv_event_sources': JSON.stringify(ranks) });
const publisher = { enable_kv_cache_events: true, publisher: 'zmq', endpoint: 'tcp://*:5557' };

describe('vLLM', () => {
  const BLOCKS = 'block_size="32",enable_prefix_caching="True",num_gpu_blocks="256"';

  it.each([
    ['its metrics', metrics(BLOCKS), { cacheSize: { blocks: 256, blockTokens: 32 }, isReused: true }],
    ['a cache that is off', metrics('enable_prefix_caching="False"'), { isReused: false }],
    ['a number of blocks that is not known', metrics('block_size="32",num_gpu_blocks="None"'), {}],
    ['metrics of another kind', { '/metrics': 'up 1\n' }, {}],
    [
      'its events',
      sources({ 0: { ...publisher, replay_endpoint: 'tcp://*:5558', topic: '' } }),
      { eventSources: [{ endpoint: 'tcp://*:5557', replayEndpoint: 'tcp://*:5558' }] },
    ],
    ['events without replays', sources({ 0: publisher }), { eventSources: [{ endpoint: 'tcp://*:5557' }] }],
    [
      'events of two ranks',
      sources({ 0: publisher, 1: { ...publisher, endpoint: 'tcp://*:5558' } }),
      { eventSources: [{ endpoint: 'tcp://*:5557' }, { endpoint: 'tcp://*:5558' }] },
    ],
    ['no events', sources({}), { eventSources: [] }],
    ['events that are off', sources({ 0: { ...publisher, enable_kv_cache_events: false } }), { eventSources: [] }],
    ['what is no object', sources([publisher]), {}],
    ['what is no JSON', { '/kv_event_sources': '<html>' }, {}],
    ['nothing', {}, {}],
  ])('says %s', async (_, answers, facts) => {
    expect(await factsOf('vllm', answers)).toEqual(facts);
  });
});

describe('SGLang', () => {
  const info = { page_size: 64, max_total_num_tokens: 6_450, disable_radix_cache: false };
  const told = (more: object, path = '/server_info') =>
    factsOf('sglang', { [path]: JSON.stringify({ ...info, ...more }) });

  it.each(['/server_info', '/get_server_info'])('says its pages, and whether it reuses any, at %s', async (path) => {
    const pages = { cacheSize: { blocks: 100, blockTokens: 64 } };
    expect(await told({}, path)).toEqual({ ...pages, isReused: true });
    expect(await told({ disable_radix_cache: true }, path)).toEqual({ ...pages, isReused: false });
  });

  it('is known by the size of its pages', () => {
    expect(withBlocks(dialectOf('sglang'), 64).reuse).toEqual({ kind: 'prefix', unit: 64 });
    // Its events are of blocks, and it reuses any token.
    expect(withBlocks(dialectOf('embedded'), 16).reuse).toEqual({ kind: 'prefix', unit: 1 });
  });
});

it.each([
  ['tcp://*:5557', 'http://gpu-1:8000/v1', 'tcp://gpu-1:5557'],
  ['tcp://0.0.0.0:5557', 'https://10.0.0.7', 'tcp://10.0.0.7:5557'],
  ['tcp://[::]:5557', 'http://[::1]:8000', 'tcp://[::1]:5557'],
  ['tcp://10.0.0.7:40123', 'http://10.0.0.7:8000', 'tcp://10.0.0.7:40123'],
  ['tcp://10.0.0.8:6379', 'http://10.0.0.7:8000', undefined],
  ['ipc:///run/docker.sock', 'http://127.0.0.1:8000', undefined],
  ['inproc://kv', 'http://127.0.0.1:8000', undefined],
  ['tcp://*:0', 'http://gpu-1:8000', undefined],
  ['tcp://*', 'http://gpu-1:8000', undefined],
])('events at %s of an engine at %s are read at %s', (endpoint, url, reached) => {
  const source = reachableSource({ endpoint, replayEndpoint: endpoint }, url);
  expect(source).toEqual(reached && { endpoint: reached, replayEndpoint: reached });
});

it.each([
  [1, 'generic'],
  [128, 'generic'],
  [128, 'vllm'],
  [64, 'sglang'],
] as const)(
  'blocks of %i tokens are seen by the counts of an engine that does not state them: %s',
  async (blockTokens, dialect) => {
    let prompts = 0;
    const engine = closing(
      await FakeEngine.start((response) => {
        // 900, 1_013, 1_126 … tokens were cached, in whole blocks.
        const held = 900 + 113 * prompts++;
        const usage = {
          prompt_tokens: 3_001,
          completion_tokens: 1,
          prompt_tokens_details: { cached_tokens: held - (held % blockTokens) },
        };
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ choices: [], usage }));
      }),
    );
    const gateway = closing(await gatewayAt(engine.url, { upstream: { dialect } }));
    const documents = ['a', 'b', 'c'].map((id) => ({ id, content: `Document ${id} says much. `.repeat(29) }));
    const ask = async (count: number) => {
      const body = { model: 'm', messages: [{ role: 'user', content: 'What?' }], documents: documents.slice(0, count) };
      return Number(told(await send(`${gateway.url}/v1/chat/completions`, body))['predicted']);
    };
    for (let prompt = 0; prompt < 12; prompt++) await ask(3);
    const predicted = [await ask(1), await ask(2), await ask(3)];
    expect(predicted.every((tokens) => tokens % blockTokens === 0)).toBe(true);
    expect(predicted.some((tokens) => tokens % Math.max(16, 2 * blockTokens) > 0)).toBe(true);
  },
);
