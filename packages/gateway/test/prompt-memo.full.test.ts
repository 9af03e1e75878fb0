import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { heldBytes } from '../../../test/held-bytes.js';
import {
  type FoundDocuments,
  findDocuments,
  type SearchedBody,
  type UnchangedBody,
} from '../src/arrange/found/find-documents.js';
import { PromptMemo } from '../src/arrange/found/prompt-memo.js';
import { SentOrders } from '../src/arrange/found/sent-orders.js';
import { hasMessages, type MessageApi } from '../src/intake/apis/prompt-api.js';
import { chatApi, messagesApi } from '../src/intake/apis/prompt-apis.js';
import type { GatewayParts } from '../src/start-gateway.js';
import { afterStep, type Message, PASSAGES, type Passage, type Step, steps, write } from './agent-conversations.js';
import { type Answer, answerAsAsked, CHAT_RESPONSE } from './fake-engine.js';
import { type Reply, type Stand, type StandConfig, send, stand, told } from './harness.js';

const SEED = 20_261_122;
const ROUTES = { chat: '/v1/chat/completions', messages: '/v1/messages', responses: '/v1/responses' } as const;
type Route = keyof typeof ROUTES;

/** A memory in which nothing finds room. */
const NO_MEMORY = 1;

/** A gateway that remembers so many bytes of prompts, and `sentMessages` orders where it is told. */
async function remembering(answer: Answer, maxBytes: number, more: StandConfig = {}, sentMessages?: number) {
  const promptMemo = new PromptMemo({ maxBytes, maxAgeMs: more.session?.maxAgeMs ?? 3_600_000 });
  const config: StandConfig = {
    ...more,
    recognise: { chat: 'conservative', messages: 'conservative', responses: 'marked', ...more.recognise },
    upstream: { messages: 'native', responses: 'native', ...more.upstream },
  };
  const sentOrders = sentMessages === undefined ? undefined : new SentOrders(800 * sentMessages);
  const parts: GatewayParts = { promptMemo, ...(sentOrders && { sentOrders }) };
  return { ...(await stand(answer, config, parts)), memo: promptMemo };
}

/** The same conversation in the words of an API. */
function fieldsOf(route: Route, messages: readonly Message[]): object {
  if (route === 'chat') return { messages };
  const [first, ...others] = messages;
  const hasSystem = first?.role === 'system';
  const said = hasSystem ? others : messages;
  if (route === 'messages') {
    const written = said.map(({ role, content, tool_call_id: id }) =>
      role === 'tool'
        ? { role: 'user', content: [{ type: 'tool_result', tool_use_id: id, content }] }
        : { role, content },
    );
    return { ...(hasSystem && { system: first.content }), max_tokens: 64, messages: written };
  }
  const input = said.map(({ role, content, tool_call_id: id }) =>
    role === 'tool' ? { type: 'function_call_output', call_id: id, output: content } : { role, content },
  );
  return { ...(hasSystem && { instructions: first.content }), input };
}

const marked = (content: string, id: number) =>
  `<<<EXTERNAL_UNTRUSTED_CONTENT id="mark${id}">>>\n${content}\n<<<END_EXTERNAL_UNTRUSTED_CONTENT id="mark${id}">>>`;

/** What a client may do to a message beside what a step says. */
const TWISTS = {
  none: (content: string) => content,
  speaksOfOrder: (content: string) => `${content}\nStart with the first document.`,
  speaksOfLabels: (content: string) => `${content}\nCite your sources.`,
  hasMarks: (content: string) => `<warmpath-documents>${content}</warmpath-documents>`,
  isResult: (_content: string, turn: number) => `Run ${turn % 2} of the mill took long.`.repeat(30),
  hasExternalMarkers: (content: string, turn: number) => marked(content, turn),
} as const;

interface Turn {
  readonly step: Step;
  readonly twist: keyof typeof TWISTS;
  /** Which of the conversations, which are alike at first. */
  readonly line: number;
  readonly tenant: string;
  readonly own: object | undefined;
  /** The client goes back by so many messages first. */
  readonly back: number;
  /** The request is sent once in each. */
  readonly forms: readonly Form[];
}

type Form = 'plain' | 'indented' | 'messages last' | 'cut off' | 'stray comma';

const form = fc.oneof(
  { weight: 8, arbitrary: fc.constant<Form>('plain') },
  fc.constantFrom<Form>('indented', 'messages last', 'cut off', 'stray comma'),
);

const turnOf = (step: Step): fc.Arbitrary<Turn> =>
  fc.record({
    step: fc.constant(step),
    twist: fc.oneof(
      { weight: 12, arbitrary: fc.constant('none' as const) },
      { weight: 1, arbitrary: fc.constant('isResult' as const) },
      { weight: 1, arbitrary: fc.constantFrom(...(Object.keys(TWISTS) as (keyof typeof TWISTS)[])) },
    ),
    line: fc.oneof({ weight: 4, arbitrary: fc.constant(0) }, fc.constantFrom(1, 2)),
    tenant: fc.oneof({ weight: 6, arbitrary: fc.constant('one') }, fc.constant('other')),
    own: fc.oneof(
      { weight: 12, arbitrary: fc.constant(undefined) },
      fc.constantFrom({ deduplicate: false }, { recognise: 'marked' }, { policy: 'sorted' }, { blocks: true }),
    ),
    back: fc.oneof({ weight: 5, arbitrary: fc.constant(0) }, fc.constantFrom(2, 3)),
    forms: fc.array(form, { minLength: 1, maxLength: 2 }),
  });

const turns: fc.Arbitrary<readonly Turn[]> = fc
  .tuple(steps, steps)
  .chain(([some, others]) => fc.tuple(...[...some, ...others].map(turnOf)));

function written(route: Route, messages: readonly Message[], own: Turn['own'], form: Form): string {
  const fields = fieldsOf(route, messages);
  const rest = { model: 'm', ...(own !== undefined && { warmpath: own }) };
  if (form === 'messages last') return JSON.stringify({ temperature: 0, ...rest, ...fields });
  if (form === 'indented') return JSON.stringify({ ...rest, ...fields, stop: null }, null, 1);
  const body = JSON.stringify({ ...rest, ...fields });
  if (form === 'cut off') return body.slice(0, -1);
  return form === 'stray comma' ? body.replace(/\](\}*)$/, ',]$1') : body;
}

const OPENING: readonly Message[] = [
  { role: 'system', content: 'Search, then answer.' },
  { role: 'user', content: 'What is known of 0?' },
];

/** The bodies of several conversations as their turns come, each with its tenant. */
function* bodiesOf(route: Route, all: readonly Turn[]): Generator<{ readonly body: string; readonly tenant: string }> {
  const lines = new Map<number, readonly Message[]>();
  for (const [turn, each] of all.entries()) {
    const reached = lines.get(each.line) ?? OPENING;
    const before = each.back === 0 ? reached : afterStep(reached, { kind: 'back', messages: each.back }, turn);
    const next = afterStep(before, each.step, turn);
    const last = next.at(-1)!;
    const grown = next.length > before.length;
    const twisted = grown ? [...next.slice(0, -1), { ...last, content: TWISTS[each.twist](last.content, turn) }] : next;
    lines.set(each.line, twisted);
    for (const as of each.forms) yield { body: written(route, twisted, each.own, as), tenant: each.tenant };
  }
}

/** All that is said of a request but for its times. */
async function allSaid({ gateway, engine }: Stand, reply: Reply, tenant: string): Promise<object> {
  const { headers } = reply;
  const { overhead: _ownTime, ...summary } = told(reply);
  const record = await send(`${gateway.url}/v1/requests/${String(headers['x-request-id'])}`, undefined, {
    headers: { authorization: `Bearer ${tenant}` },
  });
  const {
    id: _id,
    receivedMs: _received,
    durationMs: _duration,
    overheadMs: _overhead,
    ttftMs: _ttft,
    queuedMs: _queued,
    ...counts
  } = JSON.parse(record.text);
  return {
    status: reply.status,
    text: reply.text,
    body: engine.last?.body,
    sent: { ...engine.last?.headers, host: undefined, 'x-request-id': undefined, 'x-warmpath-via': undefined },
    summary,
    counts,
  };
}

/** Metrics but for times and memory. */
async function metricsOf({ gateway }: Stand): Promise<readonly string[]> {
  const { text } = await send(`${gateway.url}/metrics`);
  const own = text.split('\n').filter((line) => line.startsWith('warmpath_'));
  return own.filter((line) => !/_seconds|memory_bytes|memo_bytes|heap_/.test(line));
}

async function gauge({ gateway }: Stand, name: string): Promise<number> {
  const { text } = await send(`${gateway.url}/metrics`);
  return Number(new RegExp(`^warmpath_${name} (\\d+)`, 'm').exec(text)?.[1]);
}

async function expectSame(
  route: Route,
  all: readonly Turn[],
  { sentMessages, ...more }: StandConfig & { readonly sentMessages?: number },
  memoBytes: number,
): Promise<void> {
  const remembers = await remembering(answerAsAsked, memoBytes, more, sentMessages);
  const forgets = await remembering(answerAsAsked, NO_MEMORY, more, sentMessages);
  let count = 0;
  for (const { body, tenant } of bodiesOf(route, all)) {
    const options = { headers: { authorization: `Bearer ${tenant}`, 'x-request-id': `request-${count++}` } };
    const [one, other] = await Promise.all(
      [remembers, forgets].map(async (each) =>
        allSaid(each, await send(`${each.gateway.url}${ROUTES[route]}`, body, options), tenant),
      ),
    );
    expect(one).toEqual(other);
  }
  expect(await metricsOf(remembers)).toEqual(await metricsOf(forgets));
  expect(forgets.memo.bytes).toBe(0);
}

describe('what is remembered of a conversation changes nothing but time', () => {
  it.each([
    ['chat', {}, 1e8, 25],
    ['messages', {}, 1e8, 12],
    ['responses', {}, 1e8, 8],
    ['chat', { sentMessages: 3 }, 1e8, 12],
    ['chat', { recognise: { relabel: false }, session: { maxAgeMs: 1 } }, 1e8, 10],
    ['chat', { arrange: { policy: 'sorted' } }, 90_000, 12],
    ['chat', { session: { blocks: true } }, 1e8, 5],
    ['chat', { session: { deduplicate: false } }, 1e8, 10],
  ] as const)(
    '%s, %j, %d bytes',
    async (route, more, memoBytes, numRuns) => {
      await fc.assert(
        fc.asyncProperty(turns, async (all) => expectSame(route, all, more, memoBytes)),
        { seed: SEED, numRuns },
      );
    },
    240_000,
  );
});

const PAIRS = [
  [PASSAGES[0]!, PASSAGES[1]!],
  [PASSAGES[1]!, PASSAGES[2]!],
  [PASSAGES[4]!, PASSAGES[0]!],
  [PASSAGES[5]!, PASSAGES[1]!, PASSAGES[4]!],
] as const;

/** A conversation with a search in every turn. */
function searched(turnsOf: readonly (readonly Passage[])[]): readonly Message[] {
  return turnsOf.reduce<readonly Message[]>(
    (messages, passages, turn) => afterStep(messages, { kind: 'tool', format: 'tags', passages }, turn),
    OPENING,
  );
}

it('requests of one conversation that wait for the engine together are sent as if nothing was remembered', async () => {
  const bodies: string[][] = [];
  for (const memoBytes of [1e8, NO_MEMORY]) {
    const held: (() => void)[] = [];
    const one = await remembering((response, request) => held.push(() => answerAsAsked(response, request)), memoBytes, {
      upstream: { maxConcurrent: 1 },
    });
    const ask = (messages: readonly Message[]) =>
      send(`${one.gateway.url}${ROUTES.chat}`, JSON.stringify({ model: 'm', messages }));
    const started = ask(searched(PAIRS.slice(0, 2)));
    await one.engine.until('request', 1);
    held.shift()!();
    await started;
    const replies = [ask(searched(PAIRS.slice(1, 3)))];
    await one.engine.until('request', 2);
    // The second goes on from the first, the third from where both began; the fourth is the second once more.
    const waiting = [PAIRS.slice(0, 3), [...PAIRS.slice(0, 2), PAIRS[3]!], PAIRS.slice(0, 3), PAIRS];
    for (const [place, turnsOf] of waiting.entries()) {
      replies.push(ask(searched(turnsOf)));
      while ((await gauge(one, 'queue_depth')) <= place) await new Promise(setImmediate);
    }
    for (let answered = 0; answered < replies.length; answered++) {
      await one.engine.until('request', answered + 2);
      held.shift()!();
    }
    await Promise.all(replies);
    bodies.push(one.engine.received.map(({ body }) => body));
  }
  expect(bodies[0]).toHaveLength(6);
  expect(bodies[0]).toEqual(bodies[1]);
});

describe('only new messages are read', () => {
  const TENANT = { tenant: 't', switches: '' };
  const OPTIONS = { mode: 'conservative', maxDocuments: 100, blocks: false } as const;

  function look(
    memo: PromptMemo,
    messages: readonly Message[],
    api: MessageApi,
    own: { readonly tenant?: string; readonly switches?: string } = {},
  ): FoundDocuments | undefined {
    const body = Buffer.from(JSON.stringify({ model: 'm', messages }));
    return findAndKeep(memo, { body, api, options: OPTIONS, scope: { ...TENANT, api, ...own } }, 0);
  }

  /** As if the request went out at once. */
  function findAndKeep(memo: PromptMemo, searched: SearchedBody, now: number): FoundDocuments | undefined {
    const found = findDocuments(memo, searched, now);
    if (found === undefined || !('keep' in found)) return found;
    found.keep(now);
    return undefined;
  }

  /** The chat API, and how many messages it has parsed since that was last asked. */
  function countingApi(): { readonly api: MessageApi; readonly parsed: () => number } {
    if (!hasMessages(chatApi)) throw new TypeError('chat has messages');
    let count = 0;
    const messages: MessageApi['messages'] = (body) => {
      const all = chatApi.messages(body);
      count += all.length;
      return all;
    };
    const parsed = (): number => {
      const before = count;
      count = 0;
      return before;
    };
    return { api: { ...chatApi, messages }, parsed };
  }

  it('of a conversation without documents', () => {
    const memo = new PromptMemo({ maxBytes: 1e6, maxAgeMs: 1e6 });
    const { api, parsed } = countingApi();
    const said = (count: number) =>
      Array.from({ length: count }, (_, i): Message => ({ role: i % 2 === 0 ? 'user' : 'assistant', content: `${i}` }));
    for (const count of [3, 5, 7, 9, 7, 11]) expect(look(memo, said(count), api)).toBeUndefined();
    // The second time, seven are one of the ends from which the conversation can go on.
    expect(parsed()).toBe(3 + 2 + 2 + 2 + 0 + 2);
    // What another tenant, or a request that asks for something else, would gain is nobody's to see.
    look(memo, said(11), api, { tenant: 'other' });
    look(memo, said(11), api, { switches: 'other' });
    expect(parsed()).toBe(22);
    look(memo, said(11), api);
    expect(parsed()).toBe(0);
    expect(memo.size).toBe(3);
    expect(memo.bytes).toBeGreaterThan(0);
  });

  it.each([
    ['with room to spare', 65_536, 100, 2_000],
    ['in memory that they share', 0, 100, 2_000],
    ['behind a long system prompt', 20_500, 20_000, 400],
  ])('take what they say: conversations %s', async (_, room, opening, count) => {
    if (!hasMessages(messagesApi)) throw new TypeError('these have messages');
    const memo = new PromptMemo({ maxBytes: 1e9, maxAgeMs: 1e6 });
    const before = await heldBytes();
    for (let number = 0; number < count; number++) {
      const messages = ['Hello', 'Hi', `Number ${number}.`].map((content, i) => ({
        role: i % 2 === 0 ? 'user' : 'assistant',
        content,
      }));
      const text = JSON.stringify({ system: `${number} `.repeat(opening).slice(0, opening), messages });
      // Bodies come in buffers that grow by doubling; small ones are pieces of memory that others share.
      const memory = room === 0 ? Buffer.from(text) : Buffer.allocUnsafeSlow(room);
      const body = room === 0 ? memory : memory.subarray(0, memory.write(text));
      if (room === 0) for (let other = 0; other < 8; other++) Buffer.from('x'.repeat(1_000));
      findAndKeep(memo, { body, api: messagesApi, options: OPTIONS, scope: { ...TENANT, api: messagesApi } }, 0);
    }
    expect(memo.size).toBe(count);
    expect((await heldBytes()) - before).toBeLessThan(memo.bytes);
  });

  it('and nothing is remembered of a request that has not gone out', () => {
    const memo = new PromptMemo({ maxBytes: 1e6, maxAgeMs: 1e6 });
    const { api, parsed } = countingApi();
    const find = (words: readonly string[]) => {
      const messages = words.map((content, i) => ({ role: i % 2 === 0 ? 'user' : 'assistant', content }));
      const body = Buffer.from(JSON.stringify({ messages }));
      return findDocuments(memo, { body, api, options: OPTIONS, scope: { ...TENANT, api } }, 0);
    };
    const opening = ['Hello', 'Hi', 'One'];
    for (let tries = 0; tries < 2; tries++) {
      expect(find(opening)).toMatchObject({ keep: expect.any(Function) });
      expect(parsed()).toBe(3);
      expect(memo.size).toBe(0);
    }
    const keep = (found: ReturnType<typeof find>) => (found as UnchangedBody).keep(0);
    keep(find(opening));
    // Two go on from there at the same time: whoever goes out last is remembered, and neither twice.
    const [left, right] = [find([...opening, 'Yes', 'Left']), find([...opening, 'No', 'Right'])];
    keep(left);
    keep(right);
    keep(left);
    expect(memo.size).toBe(1);
    parsed();
    expect(find([...opening, 'Yes', 'Left'])).toBeUndefined();
    expect(parsed()).toBe(0);
  });

  it('and what is kept is bounded in bytes and in time', () => {
    const memo = new PromptMemo({ maxBytes: 100_000, maxAgeMs: 1_000 });
    if (!hasMessages(chatApi)) throw new TypeError('chat has messages');
    const scope = { ...TENANT, api: chatApi };
    const ask = (name: number, length: number, now: number) => {
      const messages = [
        { role: 'user', content: `Question ${name}` },
        { role: 'assistant', content: 'x'.repeat(length) },
        { role: 'user', content: 'And now?' },
      ];
      const body = Buffer.from(JSON.stringify({ messages }));
      findAndKeep(memo, { body, api: chatApi, options: OPTIONS, scope }, now);
    };
    for (let name = 0; name < 50; name++) {
      ask(name, 1_000 * (name % 10), 0);
      expect(memo.bytes).toBeLessThanOrEqual(100_000);
    }
    expect(memo.size).toBeGreaterThan(5);
    const { size } = memo;
    // Larger than its part of the memory.
    ask(51, 50_000, 0);
    expect(memo.size).toBe(size);
    ask(52, 10, 1_001);
    expect(memo.size).toBe(1);
  });

  it('and of large ones that look alike the latest, not none', () => {
    const memo = new PromptMemo({ maxBytes: 100_000, maxAgeMs: 1_000 });
    const { api, parsed } = countingApi();
    // Told apart by what is neither at the beginning nor at the end of a message.
    const said = (name: number): readonly Message[] => [
      { role: 'user', content: 'Question' },
      { role: 'assistant', content: `${'x'.repeat(8_000)}${name}${'x'.repeat(8_000)}` },
      { role: 'user', content: 'And now?' },
    ];
    for (let name = 0; name < 5; name++) look(memo, said(name), api);
    expect(parsed()).toBe(15);
    expect(memo.size).toBeGreaterThan(0);
    expect(memo.bytes).toBeLessThanOrEqual(100_000);
    look(memo, said(4), api);
    expect(parsed()).toBe(0);
    look(memo, said(0), api);
    expect(parsed()).toBe(3);
  });

  it('and no tenant pushes out what another has', () => {
    const memo = new PromptMemo({ maxBytes: 100_000, maxAgeMs: 1_000 });
    const said = (name: string): readonly Message[] => [
      { role: 'user', content: `Question ${name}` },
      { role: 'assistant', content: 'x'.repeat(3_000) },
      { role: 'user', content: 'And now?' },
    ];
    const { api, parsed } = countingApi();
    look(memo, said('of the quiet one'), api, { tenant: 'quiet' });
    for (let name = 0; name < 200; name++) look(memo, said(`${name}`), api, { tenant: 'loud' });
    expect(memo.bytes).toBeLessThanOrEqual(100_000);
    parsed();
    look(memo, said('of the quiet one'), api, { tenant: 'quiet' });
    expect(parsed()).toBe(0);
    look(memo, said('0'), api, { tenant: 'loud' });
    expect(parsed()).toBe(3);
  });
});

it.each([
  ['', 1],
  [' \u2019', 2],
])('a conversation with documents takes no more than is said, whatever its characters (%j)', async (character) => {
  const stood = await remembering((response) => response.end(CHAT_RESPONSE), 1e9);
  const { gateway, engine, memo } = stood;
  const passages = (number: number) =>
    Array.from({ length: 4 }, (_, i) => ({
      id: `p${number}-${i}`,
      text: `${i} of ${number}. `.repeat(1_500) + character,
    }));
  const ask = async (number: number) => {
    const messages = searched([passages(number) as readonly Passage[]]);
    // As Python writes JSON: without a character that is not ASCII.
    const body = JSON.stringify({ model: 'm', messages }).replaceAll('\u2019', '\\u2019');
    await send(`${gateway.url}${ROUTES.chat}`, body);
    engine.received.length = 0;
  };
  /** Of all parts: the request has a record, its documents a place in a tree. */
  const said = async () => {
    const { text } = await send(`${gateway.url}/metrics`);
    return [...text.matchAll(/^warmpath_memory_bytes\{.*\} (\d+)/gm)].reduce(
      (sum, [, bytes]) => sum + Number(bytes),
      0,
    );
  };
  for (let number = 0; number < 20; number++) await ask(number);
  const [heldBefore, saidBefore] = [await heldBytes(), await said()];
  for (let number = 20; number < 100; number++) await ask(number);
  expect(memo.size).toBe(100);
  // Less than one byte a character of all documents; code that is compiled meanwhile is held as well.
  expect((await heldBytes()) - heldBefore - 1e6).toBeLessThan((await said()) - saidBefore);
});

it('documents before the messages are sent the same with every request, and a prompt that changes there is read anew', async () => {
  const opening = (passages: readonly Passage[]) => write('tags', passages);
  const given = [PAIRS[3], PAIRS[3], [...PAIRS[3], PASSAGES[2]!], PAIRS[3]].map(opening);
  const bodies: string[][] = [];
  for (const memoBytes of [1e8, NO_MEMORY]) {
    const one = await remembering(answerAsAsked, memoBytes, { arrange: { policy: 'sorted' } });
    for (const [turn, system] of given.entries()) {
      const { messages } = fieldsOf('messages', searched(PAIRS.slice(0, turn + 1))) as { messages: readonly object[] };
      await send(`${one.gateway.url}${ROUTES.messages}`, { model: 'm', max_tokens: 64, system, messages });
    }
    bodies.push(one.engine.received.map(({ body }) => body));
  }
  expect(bodies[0]).toEqual(bodies[1]);
  const sent = bodies[0]!.map((body) => (JSON.parse(body) as { system: string }).system);
  expect(sent[1]).toBe(sent[0]);
  for (const [turn, system] of given.entries()) expect(sent[turn]).not.toBe(system);
});
