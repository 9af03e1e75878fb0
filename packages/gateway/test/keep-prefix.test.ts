import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { chatApi, messagesApi, responsesApi } from '../src/apis/prompt-apis.js';
import type { PromptApi } from '../src/apis/prompt-view.js';
import type { PrefixKeeperName } from '../src/config/schema.js';
import { PrefixKeeper } from '../src/prompt/keep-prefix.js';
import { chatOnlyEngine } from './chat-only-engine.js';
import { send, stand, told } from './harness.js';

interface KeepOptions {
  readonly api?: PromptApi;
  readonly tenant?: string;
}

/** What a gateway sends of the bodies that it gets one after the other. */
function keeper(unchanged: readonly PrefixKeeperName[] = [], readsMarks = false) {
  const prefixKeeper = new PrefixKeeper({
    config: { unchanged: [...unchanged] },
    maxBytes: 1_000_000,
    readsMarks: () => readsMarks,
    readsBillingLine: () => readsMarks,
  });
  return (body: object | string, { api = messagesApi, tenant = 't' }: KeepOptions = {}) => {
    const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
    const { body: kept, kept: by } = prefixKeeper.keep({ tenant, api, body: bytes });
    return { text: kept.toString(), kept: by, isSame: kept === bytes };
  };
}

const billing = (values: string) => `x-anthropic-billing-header: ${values}`;
const mark = { cache_control: { type: 'ephemeral' } };
const text = (it: string, fields: object = {}) => ({ type: 'text', text: it, ...fields });
const messages = [{ role: 'user', content: 'Q' }];

describe("the billing line of Claude Code's system prompt", () => {
  const forms: readonly (readonly [string, PromptApi, (line: string) => object])[] = [
    ['parts', messagesApi, (line) => ({ system: [text(line), text('You are.')], messages })],
    ['a text', messagesApi, (line) => ({ system: `${line}\nYou are "it".`, messages })],
    ['chat', chatApi, (line) => ({ messages: [{ role: 'system', content: `${line}\nYou are.` }, ...messages] })],
    ['parts of chat', chatApi, (line) => ({ messages: [{ role: 'system', content: [text(line)] }, ...messages] })],
    ['instructions', responsesApi, (line) => ({ instructions: line, input: 'Q' })],
    ['an item', responsesApi, (line) => ({ input: [{ role: 'system', content: line }, ...messages] })],
  ];

  it.each(forms)('has constant values: %s', (_, api, bodyOf) => {
    const keep = keeper();
    const values = [
      'cc_version=2.1.37.3a3; cc_entrypoint=cli; cch=00000;',
      'cc_version=2.1.38.aaa; cch=fa690; new=1;',
      '',
    ];
    const [first, ...others] = values.map((it) => keep(bodyOf(billing(it)), { api }));
    expect(first!.kept).toEqual(['billing-line']);
    expect(first!.text).toBe(JSON.stringify(bodyOf('x-anthropic-billing-header: constant;')));
    for (const { text: written } of others) expect(written).toBe(first!.text);
  });

  it.each([
    ['of a user', { messages: [{ role: 'user', content: billing('cch=1;') }] }],
    ['within a text', { system: `See ${billing('cch=1;')}`, messages }],
    ['of an engine that reads it', undefined],
    ['that is switched off', undefined],
    ['of a request that is to be sent as it is', { system: billing('cch=1;'), messages, warmpath: { bypass: true } }],
  ])('stays as it is where it is the text %s', (kind, body) => {
    const keep = keeper(kind.includes('switched') ? ['billing-line'] : [], kind.includes('engine'));
    const options = { api: kind === 'of a user' ? responsesApi : messagesApi };
    expect(keep(body ?? { system: billing('cch=1;'), messages }, options).isSame).toBe(true);
  });
});

describe('marks for a cache that the engine does not read', () => {
  const variants = (at: number) => {
    const own = (place: number) => (place === at ? mark : {});
    const result = { type: 'tool_result', tool_use_id: 'c', content: [text('r', own(3))], ...own(4) };
    return {
      tools: [{ name: 'f', input_schema: { properties: { cache_control: { type: 'string' } } }, ...own(1) }],
      system: [text('a', own(0)), text('b')],
      messages: [
        { role: 'user', content: [text('Q', own(2))] },
        {
          role: 'assistant',
          content: [{ type: 'tool_use', id: 'c', name: 'f', input: { cache_control: 1 }, ...own(5) }],
        },
        { role: 'user', content: [result, text('R', own(6))] },
      ],
      ...own(7),
    };
  };

  it('change nothing, wherever they stand', () => {
    const keep = keeper();
    const written = [0, 1, 2, 3, 4, 5, 6, 7].map((at) => keep(variants(at)));
    expect(new Set(written.map((it) => it.text)).size).toBe(1);
    expect(written.map(({ kept }) => kept)).toEqual(written.map(() => ['cache-marks']));
    // Data of the client is no mark.
    expect(written[0]!.text.match(/"cache_control":(?:1|\{"type":"string"\})/g)).toHaveLength(2);
    expect(JSON.parse(written[0]!.text)).toMatchObject({
      messages: [{ content: 'Q' }, {}, { content: [{ content: 'r' }, text('R')] }],
    });
  });

  it('a text that gets a mark is the text without', () => {
    const keep = keeper();
    const marked = (content: unknown) =>
      keep(
        {
          messages: [
            { role: 'user', content },
            { role: 'user', content: [text('R', mark)] },
          ],
        },
        { api: chatApi },
      );
    expect(marked('Q').text).toBe(marked([text('Q')]).text);
    expect(marked([text('Q', mark)]).text).toBe(marked('Q').text);
  });

  it('stay where the engine reads them, and where that is switched off', () => {
    expect(keeper([], true)(variants(2)).isSame).toBe(true);
    expect(keeper(['cache-marks'])(variants(2)).isSame).toBe(true);
  });
});

describe('tools in another order', () => {
  const schema = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 1 }), { maxKeys: 3 });
  const list = fc.uniqueArray(fc.record({ name: fc.string(), input_schema: schema }), {
    minLength: 1,
    maxLength: 6,
    selector: ({ name }) => name,
  });

  it('go out in the bytes that were sent first, for each tenant', () => {
    fc.assert(
      fc.property(list, fc.infiniteStream(fc.nat()), (tools, picks) => {
        const keep = keeper();
        const first = keep({ tools, messages });
        expect(first.isSame).toBe(true);
        const order = tools.map((tool) => [picks.next().value, tool] as const).sort(([one], [other]) => one - other);
        const shuffled = order.map(([, { name, input_schema }]) => ({ input_schema, name }));
        expect(keep({ tools: shuffled, messages }).text).toBe(first.text);
        expect(keep({ tools: shuffled, messages }, { tenant: 'other' }).isSame).toBe(true);
      }),
      { seed: 41, numRuns: runs(100) },
    );
  });

  it('are others where one differs, is missing or comes twice', () => {
    const f = { name: 'f', input_schema: { type: 'object', required: [] } };
    const keep = keeper();
    const others = [
      [f],
      [f, f],
      [{ ...f, description: 'D' }],
      [{ ...f, strict: false }],
      [{ ...f, input_schema: { type: 'object' } }],
      [],
    ];
    for (const tools of others) expect(keep({ tools, messages }).isSame).toBe(true);
  });

  const named = (names: string, fields: object = {}) => [...names].map((name) => ({ name, ...fields }));
  const namesIn = (body: string) =>
    (JSON.parse(body) as { tools: { name: string }[] }).tools.map(({ name }) => name).join('');

  it.each([
    ['one that comes later stands behind those sent first', ['bde', 'abde'], 'bdea'],
    ['one in the middle', ['abd', 'abcd'], 'abdc'],
    ['several, in the order of the client', ['bd', 'abcd'], 'bdac'],
    ['the next ones behind those', ['bd', 'abd', 'abcd'], 'bdac'],
    ['one that goes away again', ['bd', 'abd', 'bd'], 'bd'],
    ['one in the place of another', ['abd', 'acd'], 'acd'],
    ['a list that begins with another tool', ['xy', 'abx'], 'xab'],
    ['lists of a sub-agent between', ['abcd', 'ab', 'abxcd'], 'abcdx'],
    ['tools of which none was sent', ['xy', 'ab'], 'ab'],
    ['tools that come twice', ['ab', 'xabb'], 'xabb'],
  ])('%s: %j', (_, lists, expected) => {
    const keep = keeper();
    const written = lists.map((names) => keep({ tools: named(names, { input_schema: {} }), messages }).text);
    expect(namesIn(written.at(-1)!)).toBe(expected);
    const again = keep({ tools: named(lists.at(-1)!, { input_schema: {} }), messages });
    expect(again.text).toBe(written.at(-1));
    expect(namesIn(keep({ tools: named(lists.at(-1)!), messages }, { tenant: 'other' }).text)).toBe(lists.at(-1));
  });

  it('lists that grow keep the bytes that were sent as their beginning', () => {
    fc.assert(
      fc.property(list, list, fc.infiniteStream(fc.nat()), (earlier, added, picks) => {
        const keep = keeper();
        const first = JSON.parse(keep({ tools: earlier, messages }).text) as { tools: object[] };
        const news = added.filter(({ name }) => earlier.every((tool) => tool.name !== name));
        const order = [...earlier, ...news].map((tool) => [picks.next().value, tool] as const);
        const mixed = order.sort(([one], [other]) => one - other).map(([, tool]) => tool);
        const sent = (JSON.parse(keep({ tools: mixed, messages }).text) as { tools: object[] }).tools;
        expect(sent.slice(0, earlier.length)).toEqual(first.tools);
        const rest = sent.slice(earlier.length);
        expect(rest).toEqual(mixed.filter((tool) => news.includes(tool)));
      }),
      { seed: 43, numRuns: runs(100) },
    );
  });

  it('lists with marks for the cache keep the order of the client', () => {
    const keep = keeper([], true);
    keep({ tools: named('bd'), messages });
    expect(keep({ tools: [...named('a'), { name: 'b' }, { name: 'd', ...mark }], messages }).isSame).toBe(true);
  });

  it('have as many marks for the cache as the client set', () => {
    const keep = keeper([], true);
    const tool = (name: string, fields = {}) => ({ name, ...fields });
    const first = keep({ tools: [tool('a'), tool('b', mark)], messages });
    expect(keep({ tools: [tool('b'), tool('a', mark)], messages }).text).toBe(first.text);
    expect(keep({ tools: [tool('b'), tool('a')], messages }).isSame).toBe(true);
  });

  it('stay where that is switched off', () => {
    const keep = keeper(['tool-order']);
    keep({ tools: [{ name: 'a' }, { name: 'b' }], messages });
    expect(keep({ tools: [{ name: 'b' }, { name: 'a' }], messages })).toMatchObject({ isSame: true, kept: [] });
  });
});

it('a body that cannot be read is not changed', () => {
  const bodies = [
    '{"tools":[',
    '{"tools":{"a":1}}',
    '"tools"',
    `{"system":"${billing('')}`,
    '{"tools":[1,null,"x"],"cache_control":1',
  ];
  for (const body of bodies) expect(keeper()(body).isSame).toBe(true);
});

it('a gateway keeps the prefix before it translates, and says and counts how', async () => {
  const { engine, gateway } = await stand(chatOnlyEngine());
  const ask = async (line: string, tools: readonly string[], marks: object) => {
    const body = {
      model: 'm',
      max_tokens: 9,
      system: [text(billing(line)), text('You are.', marks)],
      tools: tools.map((name) => ({ name, input_schema: {} })),
      messages: [...messages, { role: 'system', content: 'Now.' }],
    };
    const reply = await send(`${gateway.url}/v1/messages`, body);
    return [told(reply).kept, engine.last.body] as const;
  };
  const [, first] = await ask('cch=1;', ['a', 'b'], mark);
  const [kept, second] = await ask('cch=2;', ['b', 'a'], mark);
  expect(second).toBe(first);
  // A translation has no marks.
  expect(kept).toBe('billing-line, tool-order, system-messages');
  const metrics = (await send(`${gateway.url}/metrics`)).text;
  expect(metrics).toContain('warmpath_prefix_kept_total{keeper="billing-line"} 2');
  expect(metrics).toContain('warmpath_prefix_kept_total{keeper="tool-order"} 1');
});

it.each<['vllm' | 'llama-server' | 'anthropic' | 'generic', boolean]>([
  ['vllm', false],
  ['llama-server', false],
  ['anthropic', true],
  // A proxy of Anthropic's API, for instance.
  ['generic', true],
])('an engine of the kind %s gets marks as the client set them: %s', async (dialect, isKept) => {
  const { engine, gateway } = await stand(chatOnlyEngine(), { upstream: { dialect } }, { apiRoute: 'native' });
  const system = [text(billing('cch=1;')), text('You are.', mark)];
  await send(`${gateway.url}/v1/messages`, { model: 'm', max_tokens: 9, system, messages });
  expect(engine.last.body.includes('cache_control')).toBe(isKept);
  expect(engine.last.body.includes('cch=1;')).toBe(dialect === 'anthropic');
});
