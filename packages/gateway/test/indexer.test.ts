import type { ServerResponse } from 'node:http';
import { describe, expect, it } from 'vitest';
import { resolveConfig } from '../src/config/load.js';
import { Indexer } from '../src/engines/indexer/indexer.js';
import { startGateway } from '../src/start-gateway.js';
import { answerJson, FakeEngine, type ReceivedRequest } from './fake-engine.js';
import { chat, closing, gatewayAt, labelsIn, metricOf, send, told } from './harness.js';

const CHAT = '/v1/chat/completions';
const BLOCK = 16;

interface Token {
  readonly id: number;
  readonly piece: string;
}

/** Tokens of four characters each, as a fake engine makes them. */
function tokensOf(body: string): Token[] {
  const { messages } = JSON.parse(body) as { messages: { role: string; content: string }[] };
  const text = `${messages.map(({ role, content }) => `<${role}>${content}`).join('')}<assistant>`;
  return (text.match(/[\s\S]{1,4}/g) ?? []).map((piece) => {
    return { id: [...piece].reduce((sum, character) => (sum * 131 + character.charCodeAt(0)) % 1_000_003, 7), piece };
  });
}

/** What engines hold, as their events would tell an index: whole blocks, by salt. */
class HeldBlocks {
  readonly #sequences: { readonly instance: string; readonly salt: string; readonly ids: readonly number[] }[] = [];

  holds(instance: string, body: string): void {
    const { cache_salt: salt = '' } = JSON.parse(body) as { cache_salt?: string };
    this.#sequences.push({ instance, salt, ids: tokensOf(body).map(({ id }) => id) });
  }

  clear(): void {
    this.#sequences.length = 0;
  }

  /** `salt`: left out, all salts count as one. */
  matches(asked: readonly number[], salt?: string): Map<string, number> {
    const found = new Map<string, number>();
    for (const { instance, salt: own, ids } of this.#sequences) {
      if (salt !== undefined && salt !== own) continue;
      let common = 0;
      while (common < asked.length && asked[common] === ids[common]) common++;
      common -= common % BLOCK;
      if (common > (found.get(instance) ?? 0)) found.set(instance, common);
    }
    return found;
  }
}

type Speaks = (held: HeldBlocks, body: Readonly<Record<string, unknown>>) => object;

const scoresOf = (found: ReadonlyMap<string, number>) =>
  Object.fromEntries([...found].map(([instance, tokens]) => [instance, { '0': tokens }]));

/** The wire formats as their documentation has them, older versions included. */
const SPEAKERS = {
  'dynamo 1.0': (held, { token_ids, tenant_id }) => {
    expect(tenant_id).toBeUndefined();
    // It does not know of salts.
    return { scores: scoresOf(held.matches(token_ids as number[])), frequencies: [], tree_sizes: {} };
  },
  'dynamo 1.5': (held, { token_ids, cache_salt = '' }) => {
    const found = held.matches(token_ids as number[], cache_salt as string);
    const instances = [...found].map(([instance, tokens]) => {
      return [instance, { longest_matched: tokens, gpu: tokens, dp: { '0': tokens }, cpu: tokens, disk: tokens }];
    });
    return { scores: scoresOf(found), frequencies: [], instances: Object.fromEntries(instances) };
  },
  lmcache: (held, { tokens }) => {
    const layout = [...held.matches(tokens as number[])].map(([instance, count]) => [instance, ['LocalCPU', count]]);
    return { event_id: 'Lookup1', layout_info: Object.fromEntries(layout) };
  },
  'lmcache, first version': (held, { tokens }) => {
    const layout = [...held.matches(tokens as number[])].map(([instance, count]) => [instance, ['cpu', count]]);
    return Object.fromEntries(layout);
  },
} satisfies Record<string, Speaks>;

type Version = keyof typeof SPEAKERS;
const kindOf = (version: Version) => (version.startsWith('dynamo') ? 'dynamo' : 'lmcache');

interface Questioned {
  readonly token_ids?: number[];
  readonly tokens?: number[];
  readonly cache_salt?: string;
  readonly model_name?: string;
}

interface FleetOptions {
  readonly cacheSaltKey?: string;
  readonly timeoutMs?: number;
  readonly isAsked?: boolean;
}

/** Engines `a` and `b`, an index that hears what they got, and a gateway of which it may say more than it saw. */
async function fleet(version: Version, { timeoutMs = 60_000, isAsked = true, ...upstream }: FleetOptions = {}) {
  const held = new HeldBlocks();
  const engines: FakeEngine[] = [];
  const broken = { tokenizer: undefined as number | undefined };
  for (const [place, instance] of ['7', '8'].entries()) {
    const answer = (response: ServerResponse, request: ReceivedRequest): void => {
      if (request.path === '/tokenize') {
        if (broken.tokenizer !== undefined) response.writeHead(broken.tokenizer).end('{}');
        else response.end(JSON.stringify({ tokens: tokensOf(request.body) }));
      } else if (request.path === '/v1/models') response.end('{"data":[{"id":"m"}]}');
      else {
        held.holds(instance, request.body);
        answerJson(response);
      }
    };
    engines[place] = closing(await FakeEngine.start(answer));
  }
  const speak: Speaks = SPEAKERS[version];
  const usual = (response: ServerResponse, { body }: ReceivedRequest): void => {
    response.end(JSON.stringify(speak(held, JSON.parse(body) as Record<string, unknown>)));
  };
  const index = closing(await FakeEngine.start(usual));
  const clock = { ms: 0 };
  const listed = engines.map(({ url }, i) => ({ name: 'ab'[i]!, url, instance: '78'[i]! }));
  const gateway = closing(
    await startGateway(
      {
        server: { port: 0 },
        log: { level: 'silent' },
        health: { checkMs: 3_600_000 },
        upstream,
        engines: listed,
        arrange: { hints: false },
        residency: isAsked ? { indexer: { kind: kindOf(version), url: index.url, timeoutMs } } : {},
      },
      { now: () => clock.ms },
    ),
  );
  /** What another gateway, which this one does not know, sends to engine `b`. */
  const other = closing(await gatewayAt(engines[1]!.url, { upstream, arrange: { hints: false } }));
  const ask = async (documents: readonly object[], fields: object = {}, key = 'one', url = gateway.url) => {
    const reply = await send(url + CHAT, chat(documents, fields), { headers: { authorization: key } });
    expect(reply.status).toBe(200);
    return told(reply)['engine'];
  };
  const elsewhere = (documents: readonly object[], fields: object = {}, key = 'one') =>
    ask(documents, fields, key, other.url);
  const outcome = (name: string) => metricOf(gateway, `warmpath_indexer_prompts_total{outcome="${name}"`);
  const questions = () => index.received.map(({ body }) => JSON.parse(body) as Questioned);
  return { engines, index, usual, held, broken, gateway, clock, ask, elsewhere, outcome, questions };
}

const passage = (id: string) => ({ id, content: `What is known of ${id}: ${`${id} `.repeat(60)}` });
const [x, y, z] = ['x', 'y', 'z'].map(passage) as [object, object, object];
const question = (content: string) => ({
  messages: [
    { role: 'system', content: 'Answer from the documents.' },
    { role: 'user', content },
  ],
});
const VERSIONS = Object.keys(SPEAKERS) as Version[];

describe.each(VERSIONS)('an index that speaks as %s', (version) => {
  it('says which engine holds a prompt that another gateway sent, and how far', async () => {
    const { engines, gateway, ask, elsewhere, outcome, index } = await fleet(version);
    await elsewhere([x, y, z]);
    const summary = told(
      await send(gateway.url + CHAT, chat([x, y, z], question('How heavy?')), { headers: { authorization: 'one' } }),
    );
    expect(summary).toMatchObject({ engine: 'b' });
    expect(Number(summary['predicted'])).toBeGreaterThan(100);
    expect(index.last.path).toBe(kindOf(version) === 'dynamo' ? '/query' : '/lookup');
    // Its answer is in the tree: the same documents in another order go there in the one that is held.
    expect(await ask([z, y, x], question('How old?'))).toBe('b');
    expect(labelsIn(engines[1]!.last.body)).toEqual(['x', 'y', 'z']);
    expect(await outcome('answered')).toBe(2);
  });

  it('says it of prompts without documents, too', async () => {
    const { ask, elsewhere } = await fleet(version);
    const long = question(`Tell me all about this: ${'words and more words '.repeat(50)}`);
    await elsewhere([], { ...long, documents: undefined });
    expect(await ask([], { ...long, documents: undefined })).toBe('b');
  });

  it('asks the engine once for the tokens of the same prompt', async () => {
    const { engines, ask, questions } = await fleet(version);
    for (let round = 0; round < 3; round++) await ask([x, y]);
    const asked = engines.flatMap(({ received }) => received.filter(({ path }) => path === '/tokenize'));
    expect(asked).toHaveLength(1);
    expect(questions()).toHaveLength(3);
  });

  it('is not asked about a prompt that is too long, or of which the engine does not say the tokens', async () => {
    const { broken, ask, outcome, questions } = await fleet(version);
    await ask([x], question('word '.repeat(60_000)));
    broken.tokenizer = 404;
    for (let round = 0; round < 5; round++) await ask([x], question(`Round ${round}?`));
    expect(questions()).toHaveLength(0);
    expect(await outcome('untokenised')).toBe(5);
    expect(await outcome('paused')).toBe(0);
  });

  it.each<[string, string]>([
    ['no JSON', 'nothing'],
    ['a list', '[]'],
    ['a word', '"7"'],
    ['nothing', 'null'],
    ['counts that are none', '{"scores":{"8":{"0":-1}},"layout_info":{"8":["cpu",-1]}}'],
    ['fractions', '{"scores":{"8":{"0":0.5}},"layout_info":{"8":["cpu",0.5]}}'],
    ['more tokens than were asked about', '{"scores":{"8":{"0":1000000}},"layout_info":{"8":["cpu",1000000]}}'],
    ['other shapes', '{"scores":{"8":16},"layout_info":{"8":16}}'],
    ['too many instances', JSON.stringify(tooMany())],
    ['an answer without an end', `{"scores":{"8":{"0":16}${' '.repeat(1_200_000)}`],
  ])('is left alone for a while after %s', async (_, text) => {
    const { index, usual, clock, ask, elsewhere, outcome, questions } = await fleet(version);
    await elsewhere([x, y, z]);
    index.answer = (response) => response.end(text);
    for (let round = 0; round < 3; round++) await ask([x, y, z], question(`Round ${round}?`));
    expect(await outcome('unreadable')).toBe(3);
    await ask([x, y, z], question('Later?'));
    expect(questions()).toHaveLength(3);
    expect(await outcome('paused')).toBe(1);
    index.answer = usual;
    clock.ms += 10_000;
    await ask([x, y, z], question('Much later?'));
    expect(await outcome('answered')).toBe(1);
  });

  it.each<[string, number, (response: ServerResponse) => void]>([
    ['fails', 60_000, (response) => response.writeHead(503).end()],
    ['cuts the connection', 60_000, (response) => response.destroy()],
    ['never answers', 50, () => {}],
    ['never ends its answer', 50, (response) => response.write('{')],
  ])('costs no answer where it %s', async (_, timeoutMs, fails) => {
    const { index, ask, outcome, questions } = await fleet(version, { timeoutMs });
    index.answer = fails;
    for (let round = 0; round < 4; round++) await ask([x, y], question(`Round ${round}?`));
    expect([await outcome('failed'), await outcome('paused')]).toEqual([3, 1]);
    expect(questions().length).toBeLessThanOrEqual(3);
  });

  it('costs no answer where nobody listens any more', async () => {
    const { index, ask, outcome } = await fleet(version);
    await index.close();
    index.close = () => Promise.resolve();
    for (let round = 0; round < 4; round++) await ask([x, y], question(`Round ${round}?`));
    expect([await outcome('failed'), await outcome('paused')]).toEqual([3, 1]);
  });

  it('says nothing where it names none of the engines, however often', async () => {
    const { index, ask, outcome } = await fleet(version);
    const body = JSON.stringify(
      kindOf(version) === 'dynamo'
        ? { scores: { '99': { '0': BLOCK } }, frequencies: [] }
        : { layout_info: { '99': ['cpu', BLOCK] } },
    );
    index.answer = (response, { path }) => (path === '/' ? response.end() : response.end(body));
    for (let round = 0; round < 5; round++) await ask([x, y], question(`Round ${round}?`));
    expect(await outcome('silent')).toBe(5);
    index.answer = (response) => response.writeHead(404).end('{"error":"no indexer for that model"}');
    for (let round = 0; round < 5; round++) await ask([x, y], question(`Round ${round}!`));
    expect([await outcome('silent'), await outcome('paused')]).toEqual([10, 0]);
  });
});

it('is asked by 64 prompts at once, and by one while it has failed', async () => {
  const clock = { ms: 0 };
  const { upstream } = resolveConfig({ upstream: { url: 'http://127.0.0.1:1' } });
  const settings = { kind: 'dynamo', url: 'http://127.0.0.1:2', timeoutMs: 200 } as const;
  const indexer = new Indexer(settings, upstream.timeouts, { now: () => clock.ms, maxBytes: 1_000 });
  closing(indexer);
  const turns = Array.from({ length: 64 }, () => indexer.turn()!);
  expect(indexer.turn()).toBeUndefined();
  for (const turn of turns) turn.end('answered');
  const again = indexer.turn()!;
  clock.ms += 150;
  expect(again.leftMs()).toBe(50);
  again.end('answered');
  for (let time = 0; time < 3; time++) indexer.turn()!.end('failed');
  expect(indexer.turn()).toBeUndefined();
  clock.ms += 10_000;
  const probe = indexer.turn()!;
  expect(indexer.turn()).toBeUndefined();
  probe.end('failed');
  expect(indexer.turn()).toBeUndefined();
  clock.ms += 10_000;
  indexer.turn()!.end('silent');
  expect([indexer.turn(), indexer.turn()]).not.toContain(undefined);
  expect(indexer.counts).toMatchObject({ busy: 2, paused: 2, failed: 4 });
});

describe('salts', () => {
  const cacheSaltKey = 'a key of more than sixteen characters';

  it('keep tenants apart: an index that knows them is asked with them', async () => {
    const { ask, elsewhere, outcome, questions } = await fleet('dynamo 1.5', { cacheSaltKey });
    await elsewhere([x, y, z], {}, 'one');
    expect(await ask([x, y, z], question('Of another?'), 'two')).toBe('a');
    expect(await outcome('silent')).toBe(1);
    expect(await ask([x, y, z], question('Of mine?'), 'one')).toBe('b');
    // Once it was seen that a salt of nobody's finds nothing, that holds.
    const salts = questions().map(({ cache_salt }) => cache_salt);
    expect(new Set(salts).size).toBe(3);
    expect(salts).toHaveLength(3);
    expect(await ask([x, y, z], question('Again?'), 'one')).toBe('b');
    expect(questions()).toHaveLength(4);
    expect(await outcome('answered')).toBe(2);
  });

  it('are not believed of an index that leaves them out', async () => {
    const { ask, elsewhere, outcome, questions } = await fleet('dynamo 1.0', { cacheSaltKey });
    await elsewhere([x, y, z], {}, 'one');
    for (const tenant of ['two', 'one', 'three']) {
      expect(['a', 'b']).toContain(await ask([x, y, z], question(`Of ${tenant}?`), tenant));
    }
    expect(await outcome('salted')).toBe(3);
    expect(await outcome('answered')).toBe(0);
    // The prompt, and the same with a salt of nobody's.
    expect(questions()).toHaveLength(2);
  });

  it('let nobody go where another tenant has been, by an index that leaves them out', async () => {
    const where = async (isSentBefore: boolean) => {
      const { ask, elsewhere } = await fleet('dynamo 1.0', { cacheSaltKey });
      if (isSentBefore) await elsewhere([x, y, z], {}, 'one');
      return [await ask([x, y, z], {}, 'two'), await ask([y, x], {}, 'two'), await ask([z], {}, 'two')];
    };
    expect(await where(true)).toEqual(await where(false));
  });

  it('of clients are not asked about where the index cannot be told', async () => {
    const { ask, outcome, questions } = await fleet('lmcache');
    await ask([x], { cache_salt: 'mine' });
    expect(questions()).toHaveLength(0);
    expect(await outcome('salted')).toBe(1);
  });

  it('do not go with an index by tokens alone', () => {
    const engines = [{ name: 'a', url: 'http://127.0.0.1:1' }];
    const indexer = { kind: 'lmcache' as const, url: 'http://127.0.0.1:2' };
    const config = { engines, upstream: { cacheSaltKey }, residency: { indexer } };
    expect(() => resolveConfig(config)).toThrow('residency.indexer.kind');
  });
});

it('forgets what the index does not find any more, but not what was sent of late', async () => {
  const { ask, held, clock, elsewhere } = await fleet('dynamo 1.5');
  const documents = [x, ...['u', 'v', 'w', 'q', 'r'].map(passage)];
  const next = () => ask(documents, question(`At ${clock.ms}?`));
  expect(await next()).toBe('a');
  const lose = async () => {
    held.clear();
    await elsewhere([x, z]);
  };
  await lose();
  // What the engine was just given may not be in the index yet.
  expect(await next()).toBe('a');
  await lose();
  clock.ms += 60_000;
  expect(await next()).toBe('b');
});

it('changes nothing of prompts and of what is said of them where it says nothing', { timeout: 30_000 }, async () => {
  const played = async (answer: 'unconfigured' | 'cut' | 'of nobody'): Promise<unknown[]> => {
    const { engines, index, gateway } = await fleet('dynamo 1.5', { isAsked: answer !== 'unconfigured' });
    index.answer = (response) => (answer === 'cut' ? response.destroy() : response.end('{"scores":{}}'));
    const random = randomOf(11);
    const summaries: unknown[] = [];
    for (let turn = 0; turn < 40; turn++) {
      const ids = ['k', 'l', 'm', 'n', 'o'].filter(() => random() < 0.6);
      const written = ids.map((id) => `<document id="${id}">${passage(id).content}</document>`).join('\n');
      const session = `s${Math.floor(random() * 3)}`;
      const said = question(`Question ${Math.floor(random() * 4)}?`);
      const body = [
        () => chat(ids.map(passage), said),
        () => chat(ids.map(passage), { ...said, warmpath: { session, forgotten: 'mark' } }),
        () => ({ model: 'm', ...question(`${written}\n\nHow heavy?`), warmpath: { recognise: 'conservative' } }),
        () => chat(ids.map(passage), { ...said, warmpath: { policy: 'greedy', pin: ids.slice(0, 1) } }),
      ][Math.floor(random() * 4)]!();
      const reply = await send(gateway.url + CHAT, body, { headers: { authorization: `t${turn % 2}` } });
      const { overhead: _, ...summary } = told(reply);
      summaries.push([reply.status, summary]);
    }
    const prompts = engines.map(({ received }) => received.filter(({ path }) => path === CHAT).map(({ body }) => body));
    return [summaries, prompts];
  };
  const alone = await played('unconfigured');
  expect(await played('cut')).toEqual(alone);
  expect(await played('of nobody')).toEqual(alone);
  expect(alone[0]).toHaveLength(40);
  expect((alone[0] as [number][]).filter(([status]) => status === 200).length).toBeGreaterThan(30);
});

it('refuses two engines of one instance', () => {
  const engines = ['a', 'b'].map((name, port) => ({ name, url: `http://127.0.0.1:${port + 1}`, instance: '1' }));
  expect(() => resolveConfig({ engines })).toThrow('engines.1.instance');
});

/** A linear congruential generator: numbers from 0 to 1. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

function tooMany(): object {
  const names = Array.from({ length: 5_000 }, (_, i) => String(i));
  const scores = Object.fromEntries(names.map((name) => [name, { '0': 0 }]));
  return { scores, layout_info: Object.fromEntries(names.map((name) => [name, ['cpu', 0]])) };
}
