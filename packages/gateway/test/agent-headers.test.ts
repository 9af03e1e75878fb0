import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { AGENT_HEADERS, agentSessionOf } from '../src/intake/headers.js';
import type { Report } from '../src/shapes/shapes.js';
import { errorOf, send, stand, told } from './harness.js';

const SESSION = '4ef5ae36-3c48-4dbd-a58a-797d6cc3c82c';
const OTHER = '01a21e4f-9157-7743-b745-2445e8d66938';

/** Headers as clients sent them, and what they name: header, session, agent, and the same of its parent. */
const CLIENTS: readonly (readonly [
  title: string,
  headers: Readonly<Record<string, string>>,
  client: string,
  name: readonly string[],
  parent?: readonly string[],
])[] = [
  [
    'Claude Code 2.1.197, the main agent',
    { 'x-claude-code-session-id': SESSION, 'x-app': 'cli' },
    'claude-code',
    ['x-claude-code-session-id', SESSION],
  ],
  [
    'Claude Code 2.1.197, an agent',
    { 'x-claude-code-session-id': SESSION, 'x-claude-code-agent-id': 'a1aff6e447c8acd38' },
    'claude-code',
    ['x-claude-code-session-id', SESSION, 'a1aff6e447c8acd38'],
    ['x-claude-code-session-id', SESSION],
  ],
  [
    'Claude Code 2.1.197, an agent of an agent',
    {
      'x-claude-code-session-id': SESSION,
      'x-claude-code-agent-id': 'b2',
      'x-claude-code-parent-agent-id': 'a1aff6e447c8acd38',
    },
    'claude-code',
    ['x-claude-code-session-id', SESSION, 'b2'],
    ['x-claude-code-session-id', SESSION, 'a1aff6e447c8acd38'],
  ],
  [
    'Codex 0.171.0, the main agent',
    {
      'session-id': SESSION,
      'thread-id': SESSION,
      'x-client-request-id': SESSION,
      'x-codex-window-id': `${SESSION}:0`,
    },
    'codex',
    ['session-id', SESSION],
  ],
  [
    'Codex 0.171.0, an agent',
    { 'session-id': SESSION, 'thread-id': OTHER, 'x-codex-parent-thread-id': SESSION, 'x-openai-subagent': 'review' },
    'codex',
    ['session-id', SESSION, OTHER],
    ['session-id', SESSION],
  ],
  [
    'OpenCode 1.18.33, the main agent',
    { 'x-session-affinity': 'ses_a', 'x-session-id': 'ses_a' },
    'opencode',
    ['x-session-id', 'ses_a'],
  ],
  [
    'OpenCode 1.18.33, an agent',
    { 'x-parent-session-id': 'ses_a', 'x-session-affinity': 'ses_b', 'x-session-id': 'ses_b' },
    'opencode',
    ['x-session-id', 'ses_b'],
    ['x-session-id', 'ses_a'],
  ],
  [
    'a client of Dynamo',
    { 'x-dynamo-session-id': 'run-7', 'x-dynamo-parent-session-id': 'run-1' },
    'dynamo',
    ['x-dynamo-session-id', 'run-7'],
    ['x-dynamo-session-id', 'run-1'],
  ],
  ['another client', { 'x-session-affinity': 's-9' }, 'other', ['x-session-affinity', 's-9']],
  [
    'a session that says it started itself',
    { 'x-session-id': 'ses_a', 'x-parent-session-id': 'ses_a' },
    'opencode',
    ['x-session-id', 'ses_a'],
  ],
];

describe('the session that headers name', () => {
  it.each(CLIENTS.map((row) => ({ title: row[0], row })))('$title', ({ row: [, headers, client, name, parent] }) => {
    expect(agentSessionOf(headers)).toEqual({
      client,
      name: JSON.stringify(name),
      parent: parent === undefined ? undefined : JSON.stringify(parent),
    });
  });

  it('every header of the table is one that a client was seen to send', () => {
    const seen = new Set(CLIENTS.flatMap(([, headers]) => Object.keys(headers)));
    const listed = AGENT_HEADERS.flatMap((row) => Object.entries(row).filter(([key]) => !/client|version/.test(key)));
    expect(listed.filter(([, header]) => !seen.has(header!))).toEqual([]);
  });

  it.each([
    ['no header', {}],
    ['an empty one', { 'session-id': '' }],
    ['an agent without a session', { 'x-claude-code-agent-id': 'a1' }],
    ['a routing hint', { 'x-client-request-id': SESSION, 'x-correlation-id': SESSION }],
  ])('is none with %s', (_, headers) => {
    expect(agentSessionOf(headers)).toBeUndefined();
  });

  it('has a short name, and never that of another id, agent or header', () => {
    const id = fc.oneof(fc.string({ minLength: 1, maxLength: 300, unit: 'binary-ascii' }), fc.constantFrom('a', 'a"]'));
    const header = fc.constantFrom('x-claude-code', 'codex');
    const sent = fc.record({ header, session: id, agent: fc.option(id, { nil: undefined }) });
    const nameOf = ({ header: kind, session, agent }: { header: string; session: string; agent: string | undefined }) =>
      agentSessionOf(
        kind === 'codex'
          ? { 'session-id': session, ...(agent !== undefined && { 'thread-id': agent }) }
          : {
              'x-claude-code-session-id': session,
              ...(agent !== undefined && { 'x-claude-code-agent-id': agent }),
            },
      )!.name;
    fc.assert(
      fc.property(sent, sent, (one, other) => {
        const isSame =
          one.header === other.header &&
          one.session === other.session &&
          (one.agent ?? one.session) === (other.agent ?? other.session);
        expect(nameOf(one).length).toBeLessThan(900);
        expect(nameOf(one) === nameOf(other)).toBe(isSame);
      }),
      { numRuns: runs(1_000), seed: 39 },
    );
  });
});

const CHAT = '/v1/chat/completions';
const ASKED = { model: 'm', messages: [{ role: 'user', content: 'Hello.' }] };

async function asking(config: Parameters<typeof stand>[1] = {}) {
  const reports: Report[] = [];
  const onRequest = (report: Report) => void (report.tenant !== undefined && reports.push(report));
  const { gateway, engine } = await stand(undefined, config, { onRequest });
  const ask = async (headers: Readonly<Record<string, string>>, body: object | string = ASKED) => {
    const before = reports.length;
    const reply = await send(gateway.url + CHAT, body, { headers });
    while (reports.length === before) await new Promise((resolve) => setImmediate(resolve));
    return { reply, session: reports.at(-1)!.session };
  };
  return { ask, engine };
}

describe('a request of an agent', () => {
  it('belongs to one session with the others of it, and to that alone', async () => {
    const { ask, engine } = await asking();
    const named = { 'x-session-id': 'ses_a' };
    const { reply, session } = await ask(named);
    expect(session).toMatchObject({ client: 'opencode', parent: undefined });
    expect(told(reply)).toMatchObject({ session: session!.id, conversation: 'new' });
    expect(engine.received.at(-1)!.headers['x-session-id']).toBe('ses_a');
    const again = await ask(named, { ...ASKED, temperature: 0 });
    expect(again.session).toEqual(session);
    const child = await ask({ 'x-session-id': 'ses_b', 'x-parent-session-id': 'ses_a' });
    expect(child.session).toMatchObject({ parent: session!.id });
    const others = [
      await ask({ 'x-session-affinity': 'ses_a' }),
      await ask(named, { ...ASKED, user: 'ann' }),
      await ask({ ...named, authorization: 'Bearer another' }),
      await ask({ 'x-warmpath-session': JSON.stringify(['x-session-id', 'ses_a']) }),
      child,
    ];
    expect(new Set([session, ...others.map((other) => other.session)].map((each) => each!.id)).size).toBe(6);
    expect((await ask({})).session).toBeUndefined();
  });

  it('is of no session where the end user is not known and should be', async () => {
    const { ask } = await asking({ server: { trustedHeaders: { endUser: 'x-user' } } });
    expect((await ask({ 'x-session-id': 'a' })).session).toBeUndefined();
    const [ann, bob] = [
      await ask({ 'x-session-id': 'a', 'x-user': 'ann' }),
      await ask({ 'x-session-id': 'a', 'x-user': 'bob' }),
    ];
    expect(ann.session!.id).not.toBe(bob.session!.id);
  });

  it.each<readonly [string, object | string]>([
    ['an end user that is none', { ...ASKED, user: { name: 'ann' } }],
    ['messages that the gateway does not know', { model: 'm', messages: [{ content: 'no role' }, 7] }],
    ['a content that is neither text nor parts', { model: 'm', messages: [{ role: 'user', content: { a: 1 } }] }],
    ['messages that are none', { model: 'm', messages: 'none' }],
    ['a deep body', `{"model":"m","messages":${'['.repeat(3_000)}${']'.repeat(3_000)}}`],
  ])('goes to the engine as it came with %s', async (_, body) => {
    const { ask, engine } = await asking();
    const { reply } = await ask({ 'session-id': 'a' }, body);
    expect(reply.status, reply.text).toBe(200);
    expect(engine.received.at(-1)!.body).toBe(typeof body === 'string' ? body : JSON.stringify(body));
  });

  it('is answered where its earlier turns are forgotten', async () => {
    const { ask } = await asking();
    const messages = [...ASKED.messages, { role: 'assistant', content: 'Yes.' }, { role: 'user', content: 'And?' }];
    const { reply } = await ask({ 'session-id': 'a' }, { ...ASKED, messages });
    expect(told(reply)['conversation']).toBe('forgotten');
    const own = await ask({ 'session-id': 'a' }, { ...ASKED, messages, warmpath: { session: 'b' } });
    expect(errorOf(own.reply).code).toBe('WARMPATH_CONVERSATION_FORGOTTEN');
  });
});
