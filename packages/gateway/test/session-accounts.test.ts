import { hash } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import type { SessionList } from '@warmpath/dashboard';
import { describe, expect, it } from 'vitest';
import type { Report } from '../src/shapes/shapes.js';
import { startGateway } from '../src/start-gateway.js';
import { FakeEngine } from './fake-engine.js';
import { closing, metricOf, type StandConfig, send, stand, told } from './harness.js';

const CHAT = '/v1/chat/completions';
const MESSAGES = '/v1/messages';
const AGENT = { 'x-session-id': 'ses_a' };
const words = (topic: string, count: number) =>
  Array.from({ length: count }, (_, i) => `${topic} ${i} stands.`).join(' ');
const tool = (name: string) => ({ type: 'function', function: { name, description: words(name, 30) } });
const TOOLS = [tool('read'), tool('write')];
const SYSTEM = { role: 'system', content: words('The rule', 200) };
const QUESTION = { role: 'user', content: 'Mend it.' };
const turn = (number: number) => [
  {
    role: 'assistant',
    content: null,
    tool_calls: [{ id: `c${number}`, type: 'function', function: { name: 'read', arguments: `{"file":"${number}"}` } }],
  },
  { role: 'tool', tool_call_id: `c${number}`, content: words(`Line ${number}`, 120) },
];
const FIRST = { model: 'm', tools: TOOLS, messages: [SYSTEM, QUESTION, ...turn(1)] };
const SECOND = { ...FIRST, messages: [...FIRST.messages, ...turn(2)] };

interface Counts {
  readonly prompt: number;
  readonly cached: number;
  readonly written?: number;
}

/** Answers with these counts, one after another. */
async function counted(config: StandConfig = {}, parts: object = {}) {
  const reports: Report[] = [];
  const onRequest = (report: Report) => void (report.tenant !== undefined && reports.push(report));
  const clock = { now: 1_000 };
  let counts: Counts = { prompt: 1, cached: 0 };
  const answer = (response: ServerResponse, { path }: { readonly path: string }) => {
    const { prompt, cached, written = 0 } = counts;
    const usage = path.includes('messages')
      ? {
          input_tokens: prompt - cached - written,
          cache_read_input_tokens: cached,
          cache_creation_input_tokens: written,
          output_tokens: 1,
        }
      : { prompt_tokens: prompt, completion_tokens: 1, prompt_tokens_details: { cached_tokens: cached } };
    response.writeHead(200, { 'content-type': 'application/json' });
    const message = { role: 'assistant', content: 'Yes.' };
    response.end(JSON.stringify({ type: 'message', content: [], choices: [{ index: 0, message }], usage }));
  };
  const { gateway, engine } = await stand(answer, config, { onRequest, now: () => clock.now, ...parts });
  const ask = async (
    body: object,
    given: Counts,
    {
      headers = AGENT,
      path = CHAT,
    }: { readonly headers?: Readonly<Record<string, string>>; readonly path?: string } = {},
  ) => {
    counts = given;
    const before = reports.length;
    clock.now += 1_000;
    const reply = await send(gateway.url + path, body, { headers });
    expect(reply.status, reply.text).toBe(200);
    while (reports.length === before) await new Promise((resolve) => setImmediate(resolve));
    return reports.at(-1)!.sessionBreak;
  };
  const list = async (headers: Readonly<Record<string, string>> = {}) => {
    const reply = await send(`${gateway.url}/v1/sessions`, undefined, { headers });
    expect(reply.status, reply.text).toBe(200);
    return (JSON.parse(reply.text) as SessionList).data;
  };
  return { gateway, engine, clock, ask, list, reports };
}

describe('the account of a session', () => {
  it('has what was read from the cache, written and computed, and what was lost and why', async () => {
    const { ask, list, gateway } = await counted({
      upstream: { dialect: 'vllm' },
      unchanged: ['tool-order'],
      prices: [{ input: 4, cached: 1, cacheWrite: 5 }],
    });
    expect(await ask(FIRST, { prompt: 2_000, cached: 0 })).toBeUndefined();
    expect(await ask(SECOND, { prompt: 2_600, cached: 1_984 })).toBeUndefined();
    const shuffled = { ...SECOND, tools: TOOLS.toReversed(), messages: [...SECOND.messages, ...turn(3)] };
    const lost = await ask(shuffled, { prompt: 3_200, cached: 16 });
    expect(lost).toMatchObject({ cause: 'tools-order', piece: 'tools', isAvoidable: true });
    expect(lost!.lostTokens).toBe(2_592 - 16);
    expect(lost!.cost).toBeCloseTo((2_576 * 3) / 1e6, 12);
    const [account, ...others] = await list();
    expect(others).toEqual([]);
    expect(account).toMatchObject({ client: 'opencode', startedBy: null, model: 'm' });
    expect(account!.sums).toMatchObject({
      prompts: 3,
      promptTokens: 7_800,
      cachedTokens: 2_000,
      cacheWriteTokens: 0,
      computedTokens: 5_800,
      breaks: 1,
      lostTokens: 2_576,
    });
    expect(account!.sums.cost).toBeCloseTo((4 * 5_800 + 2_000) / 1e6, 12);
    expect(account!.breaks).toHaveLength(1);
    expect(account!.breaks[0]).toMatchObject({ ...lost, agoMs: expect.any(Number), requestId: expect.any(String) });
    expect(await metricOf(gateway, 'warmpath_session_breaks_total{cause="tools-order"}')).toBe(1);
    expect(await metricOf(gateway, 'warmpath_session_lost_tokens_total{cause="tools-order"}')).toBe(2_576);
    expect(await metricOf(gateway, 'warmpath_session_tokens_total{client="opencode"')).toBe(7_800);
    expect(await metricOf(gateway, 'warmpath_session_accounts')).toBe(1);
    expect(JSON.stringify(await list())).not.toMatch(/ses_a|stands/);
  });

  it('has no break where agents with the same tools and rules take turns, and where the client starts anew', async () => {
    const { ask } = await counted({ upstream: { dialect: 'vllm' } });
    const of = (question: string, ...numbers: number[]) => {
      const messages = [SYSTEM, { role: 'user', content: question }, ...numbers.flatMap(turn)];
      return { model: 'm', tools: TOOLS, messages };
    };
    const prompts: readonly (readonly [object, prompt: number, cached: number])[] = [
      [of('Find A.'), 1_400, 0],
      [of('Find B.'), 1_400, 1_376],
      [of('Find A.', 1), 2_000, 1_392],
      [of('Find B.', 2), 2_000, 1_392],
      [of('Find A.', 1, 3), 2_600, 1_984],
      [of('Find C.'), 1_400, 1_376],
      [of('Find B.', 2, 4), 2_600, 1_984],
    ];
    for (const [body, prompt, cached] of prompts) expect(await ask(body, { prompt, cached })).toBeUndefined();
    // Each goes on with its own: what one lost is not what another had.
    const lost = await ask(of('Find A.', 1, 3, 5), { prompt: 3_200, cached: 1_376 });
    expect(lost).toMatchObject({ cause: 'evicted', lostTokens: 2_592 - 1_376 });
  });

  it('knows the time for which a hosted API keeps a prompt', async () => {
    const { ask, clock } = await counted({ upstream: { dialect: 'openai' } });
    await ask({ ...FIRST, model: 'gpt-5' }, { prompt: 2_000, cached: 0 });
    clock.now += 20 * 60_000;
    expect(await ask({ ...SECOND, model: 'gpt-5' }, { prompt: 2_600, cached: 0 })).toMatchObject({ cause: 'expired' });
    const headers = { 'x-session-id': 'ses_b' };
    await ask({ ...FIRST, model: 'gpt-5.6' }, { prompt: 2_000, cached: 0 }, { headers });
    clock.now += 20 * 60_000;
    const lost = await ask({ ...SECOND, model: 'gpt-5.6' }, { prompt: 2_600, cached: 0 }, { headers });
    expect(lost).toMatchObject({ cause: 'evicted', piece: null, isAvoidable: false });
  });

  it('does not take a moved breakpoint for another prompt, and counts what was written', async () => {
    const { ask, list } = await counted(
      { upstream: { dialect: 'anthropic' }, prices: [{ input: 4, cached: 0.4, cacheWrite: 5 }] },
      { apiRoute: 'native' },
    );
    const mark = { cache_control: { type: 'ephemeral' } };
    const part = (type: string, fields: object) => ({ type, ...fields });
    const call = (id: string) => part('tool_use', { id, name: 'read', input: { file: id } });
    const result = (id: string) => part('tool_result', { tool_use_id: id, content: words(id, 80) });
    const base = { model: 'claude', max_tokens: 9, system: [part('text', { text: SYSTEM.content })] };
    const prompt = (ids: readonly string[]) => ({
      ...base,
      messages: ids.flatMap((id, i) => [
        ...(i === 0 ? [{ role: 'user', content: 'Mend it.' }] : []),
        { role: 'assistant', content: [call(id)] },
        { role: 'user', content: [{ ...result(id), ...(i === ids.length - 1 && mark) }] },
      ]),
    });
    const path = MESSAGES;
    expect(await ask(prompt(['a']), { prompt: 2_000, cached: 0, written: 1_990 }, { path })).toBeUndefined();
    expect(await ask(prompt(['a', 'b']), { prompt: 2_500, cached: 1_990, written: 500 }, { path })).toBeUndefined();
    const edited = prompt(['a', 'b', 'c']);
    (edited.messages[1] as { content: object[] }).content = [part('tool_use', { id: 'a', name: 'read', input: {} })];
    const lost = await ask(edited, { prompt: 3_000, cached: 900, written: 2_090 }, { path });
    expect(lost).toMatchObject({ cause: 'history-changed', piece: 'messages[1]' });
    expect(lost!.cost).toBeCloseTo((lost!.lostTokens * 4.6) / 1e6, 12);
    expect((await list())[0]!.sums).toMatchObject({ cachedTokens: 2_890, cacheWriteTokens: 4_580, computedTokens: 30 });
  });

  it('follows short prompts beside the main one, and prompts that are under way together', async () => {
    const { ask } = await counted();
    await ask(FIRST, { prompt: 2_000, cached: 0 });
    const title = { model: 'm', messages: [{ role: 'system', content: 'Write a title.' }, QUESTION] };
    expect(await ask(title, { prompt: 40, cached: 0 })).toBeUndefined();
    expect(await ask(SECOND, { prompt: 2_600, cached: 1_990 })).toBeUndefined();
  });

  it('is not mixed with that of another tenant, end user or agent, and the tenant sees its own', async () => {
    const keys = ['acme', 'other'].map((name) => ({ name, sha256: digestOf(name) }));
    const { ask, list } = await counted({ server: { keys, operatorKey: { sha256: digestOf('operator') } } });
    const as = (key: string) => ({ headers: { ...AGENT, authorization: `Bearer ${key}` } });
    await ask(FIRST, { prompt: 2_000, cached: 0 }, as('acme'));
    await ask({ ...FIRST, user: 'ann' }, { prompt: 2_000, cached: 0 }, as('acme'));
    await ask(SECOND, { prompt: 2_600, cached: 0 }, as('other'));
    expect((await list({ authorization: 'Bearer acme' })).map(({ tenant }) => tenant)).toEqual(['acme', 'acme']);
    const all = await list({ authorization: 'Bearer operator' });
    expect(all.map(({ tenant, sums }) => [tenant, sums.prompts, sums.breaks])).toEqual([
      ['other', 1, 0],
      ['acme', 1, 0],
      ['acme', 1, 0],
    ]);
  });

  it('is bounded, whatever names clients invent', async () => {
    const { ask, gateway } = await counted({ limits: { memoryBytes: 16_777_216 } });
    for (let i = 0; i < 60; i++) {
      await ask(SECOND, { prompt: 2_600, cached: 0 }, { headers: { 'x-session-id': `${i}${'x'.repeat(2_000)}` } });
    }
    const budget = await metricOf(gateway, 'warmpath_memory_budget_bytes{part="sessions"}');
    expect(await metricOf(gateway, 'warmpath_memory_bytes{part="sessions"}')).toBeLessThanOrEqual(budget);
    const { text } = await send(`${gateway.url}/metrics`);
    expect(text).not.toContain('xxx');
    expect(text.match(/^warmpath_session_tokens_total/gm)!.length).toBe(3);
  });
});

describe('the engine of a session', () => {
  const answered = (response: ServerResponse) => {
    const usage = { prompt_tokens: 2_000, prompt_tokens_details: { cached_tokens: 0 } };
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ choices: [{ index: 0, message: { role: 'assistant', content: 'Yes.' } }], usage }));
  };
  async function ofThree() {
    const engines = await Promise.all([0, 1, 2].map(async () => closing(await FakeEngine.start(answered))));
    const listed = engines.map(({ url }, place) => ({ name: `e${place}`, url }));
    const gateway = closing(
      await startGateway({
        server: { port: 0 },
        log: { level: 'silent' },
        engines: listed,
        upstream: { dialect: 'vllm' },
      }),
    );
    /** The engine that gets it. */
    return async (body: object, headers: Readonly<Record<string, string>> = {}): Promise<string> => {
      const reply = await send(gateway.url + CHAT, body, { headers });
      expect(reply.status, reply.text).toBe(200);
      return told(reply)['engine']!;
    };
  }
  /** Prompts whose bytes begin otherwise each time. */
  const varied = (place: number) => ({ [`field${place}`]: 1, ...FIRST });

  it('is that of the prompt before, where the bytes of its bodies do not tell', async () => {
    const ask = await ofThree();
    const others = new Set<string>();
    const own = new Set<string>();
    for (let place = 0; place < 9; place++) {
      others.add(await ask(varied(100 + place)));
      own.add(await ask(varied(place), AGENT));
    }
    expect(others.size).toBe(3);
    expect(own.size).toBe(1);
  });

  it('is that of its parent, for an agent that begins with the bytes of its parent', async () => {
    const ask = await ofThree();
    for (let place = 0; place < 4; place++) await ask(varied(100 + place));
    const parent = await ask(FIRST, { 'x-claude-code-session-id': 's' });
    for (let place = 0; place < 4; place++) {
      await ask(varied(200 + place));
      const headers = { 'x-claude-code-session-id': 's', 'x-claude-code-agent-id': `a${place}` };
      expect(await ask({ ...FIRST, messages: [...FIRST.messages, ...turn(20 + place)] }, headers)).toBe(parent);
    }
  });
});

function digestOf(key: string): string {
  return hash('sha256', key);
}
