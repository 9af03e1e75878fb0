import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { freePort } from '../../../../test/free-port.js';
import { engineSettings, type GatewayConfigInput } from '../../src/config/schema.js';
import { decodeBatch, noDecodeAnomalies } from '../../src/engines/kv-events/decode-batch.js';
import { resolveConfig, startGateway } from '../../src/index.js';
import { FakeEngine } from '../fake-engine.js';
import { closing, send, told } from '../harness.js';
import { ANSWER, publisher, stored, tokenised } from './published-events.js';

interface WireFixture {
  readonly version: string;
  /** The third frame, as it comes over the wire. */
  readonly payload: string;
  readonly events: readonly Readonly<Record<string, unknown>>[];
  /** The rank that sent it, where it says so. */
  readonly rank?: number;
  readonly otherGroups?: number;
}

const FIXTURES = JSON.parse(
  readFileSync(new URL('wire-fixtures.json', import.meta.url), 'utf8'),
) as readonly WireFixture[];

/** JSON has no `undefined`. */
function written(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value), (_, each: unknown) => each ?? null);
}

describe('bytes of every version', () => {
  test.each(FIXTURES)('$version', ({ payload, events, rank, otherGroups = 0 }) => {
    for (const listened of [undefined, rank ?? 0]) {
      const anomalies = noDecodeAnomalies();
      const read = decodeBatch(Buffer.from(payload, 'hex'), anomalies, listened);
      expect((written(read) as object[]).map((event) => ({ parent: null, ...event }))).toEqual(
        events.map((event) => ({ parent: null, ...event })),
      );
      expect(anomalies).toEqual({ ...noDecodeAnomalies(), otherGroups });
    }
  });

  test.each(FIXTURES.filter(({ rank }) => rank !== undefined))('$version, of another rank', ({ payload, rank }) => {
    const anomalies = noDecodeAnomalies();
    expect(decodeBatch(Buffer.from(payload, 'hex'), anomalies, rank! + 1)).toEqual([]);
    expect(anomalies).toEqual({ ...noDecodeAnomalies(), otherRanks: 1 });
  });
});

describe('data-parallel ranks', () => {
  const resolve = (config: GatewayConfigInput) => engineSettings(resolveConfig(config));
  const events = { endpoint: 'tcp://e:5557', replayEndpoint: 'tcp://e:6000', ranks: 3 };

  test('are engines of their own, each with the ports behind those of the one before', () => {
    const settings = resolve({ upstream: { url: 'http://e', kvEvents: events } });
    expect(settings.map(({ name, url, kvEvents }) => [name, url, kvEvents])).toEqual(
      [0, 1, 2].map((rank) => [
        `engine-rank-${rank}`,
        'http://e',
        { endpoint: `tcp://e:${5_557 + rank}`, replayEndpoint: `tcp://e:${6_000 + rank}`, rank },
      ]),
    );
    const [only] = resolve({ upstream: { url: 'http://e', kvEvents: { ...events, ranks: 1 } } });
    expect([only!.name, only!.kvEvents!.rank]).toEqual(['engine', undefined]);
  });

  test.each<[string, GatewayConfigInput, RegExp]>([
    ['no port', { upstream: { url: 'http://e', kvEvents: { ...events, endpoint: 'ipc://x' } } }, /kvEvents\.endpoint/],
    [
      'no port left',
      { upstream: { url: 'http://e', kvEvents: { ...events, endpoint: 'tcp://e:65534' } } },
      /kvEvents\.endpoint/,
    ],
    [
      'a name that a rank has',
      {
        engines: [
          { name: 'a', url: 'http://a', kvEvents: events },
          { name: 'a-rank-1', url: 'http://b' },
        ],
      },
      /engines.*a-rank-1/,
    ],
    [
      'more than there may be',
      {
        engines: [...Array(5).keys()].map((number) => ({
          name: `e${number}`,
          url: `http://e${number}`,
          kvEvents: { ...events, ranks: 64 },
        })),
      },
      /engines.*256/,
    ],
  ])('with %s are refused', (_, config, message) => {
    expect(() => resolve(config)).toThrow(message);
  });

  test('are heard one by one, and a request goes to the rank that holds its documents', async () => {
    const port = await freePort(2);
    const publishers = await Promise.all([0, 1].map((rank) => publisher(port + rank)));
    const ranks: (string | undefined)[] = [];
    const engine = closing(
      await FakeEngine.start((response, { path, body, headers }) => {
        const isQuestion = path === '/v1/chat/completions';
        if (isQuestion) ranks.push(headers['x-data-parallel-rank'] as string | undefined);
        const answer = isQuestion ? ANSWER : path === '/tokenize' ? tokenised(body) : { data: [{ id: 'm' }] };
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
      }),
    );
    const gateway = closing(
      await startGateway({
        server: { port: 0 },
        upstream: { url: engine.url, kvEvents: { endpoint: `tcp://127.0.0.1:${port}`, ranks: 2 } },
        log: { level: 'silent' },
      }),
    );
    // Each is joined before anything is published.
    await Promise.all(publishers.map(({ joined }) => joined));
    const documents = ['a', 'b', 'c'].map((id) => ({ id, content: `Document ${id}. `.repeat(30) }));
    const ask = async (own: readonly object[], headers: Record<string, string> = {}) => {
      const body = { model: 'm', messages: [{ role: 'user', content: 'What?' }], documents: own };
      return told(await send(`${gateway.url}/v1/chat/completions`, body, { headers }));
    };
    const sample = async (name: string) => {
      const { text } = await send(`${gateway.url}/metrics`);
      const line = text.split('\n').find((each) => each.startsWith(name)) ?? '';
      return Number(line.slice(line.lastIndexOf(' ') + 1));
    };
    const heard = async (rank: number, kind: string, count: number) => {
      while ((await sample(`warmpath_kv_events_total{engine="engine-rank-${rank}",kind="${kind}"}`)) < count);
    };
    // The block size is known with the first event.
    for (const { publish } of publishers) await publish([stored([1, 2, 3, 4])]);
    for (const rank of [0, 1]) await heard(rank, 'batches', 1);
    const first = (await ask(documents))['engine'];
    const own = Number(/\d$/.exec(first!)![0]);
    const other = 1 - own;
    const { body } = engine.received.findLast(({ path }) => path === '/v1/chat/completions')!;
    const tokens = tokenised(body).tokens.map(({ id }) => id);
    await publishers[own]!.publish([stored(tokens)], own);
    // What is another rank's is not believed of this one.
    await publishers[other]!.publish([stored(tokens)], own);
    await heard(own, 'batches', 2);
    await heard(other, 'otherRanks', 1);
    while ((await sample(`warmpath_kv_prompts_waiting{engine="engine-rank-${own}`)) > 0);
    // A client's own word for the rank is not passed on.
    for (let round = 0; round < 3; round++) {
      const { engine: chosen, predicted } = await ask(documents, { 'x-data-parallel-rank': String(other) });
      expect(chosen).toBe(first);
      expect(Number(predicted)).toBeGreaterThan(100);
    }
    expect(new Set(ranks)).toEqual(new Set([String(own)]));
  });
});
