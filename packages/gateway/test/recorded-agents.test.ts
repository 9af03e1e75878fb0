import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { answerJson } from './fake-engine.js';
import { send, stand } from './harness.js';

/** Turns of a session as an agent sent them, with long texts and lists of tools cut. */
interface RecordedSession {
  readonly client: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Members of every turn, but for those that a turn has itself. */
  readonly base: object;
  readonly turns: readonly object[];
}

interface SentMessage {
  readonly role: string;
  readonly content?: unknown;
  readonly tool_calls?: readonly { readonly id: string }[];
  readonly tool_call_id?: string;
}

const fixture = new URL('fixtures/coding-agents.jsonl', import.meta.url);
const SESSIONS = (await readFile(fixture, 'utf8'))
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as RecordedSession);

/** Of the earlier turn's characters, at least. */
const MIN_SHARED = 0.95;

function sharedShare(earlier: string, later: string): number {
  let length = 0;
  while (length < earlier.length && earlier[length] === later[length]) length++;
  return length / earlier.length;
}

/** Claude Code writes another `cch` into each request where Anthropic tells it to. */
function bodyOf(base: object, turn: object, number: number): string {
  const body = JSON.stringify({ ...base, ...turn, stream: false });
  return body.replace(/(x-anthropic-billing-header: [^"]*)/, `$1 cch=${number.toString(16).repeat(5)};`);
}

/** What an engine of chat completions gets of a session, turn by turn. */
async function promptsOf({ path, headers, base, turns }: RecordedSession, config: object = {}) {
  const { engine, gateway } = await stand(answerJson, config, { apiRoute: 'translate' });
  const prompts: { readonly messages: readonly SentMessage[]; readonly text: string }[] = [];
  for (const [number, turn] of turns.entries()) {
    const answer = await send(`${gateway.url}${path}`, bodyOf(base, turn, number), { headers });
    expect([answer.status, answer.text.slice(0, 300)]).toEqual([200, expect.anything()]);
    const { messages, tools } = JSON.parse(engine.last.body) as { messages: readonly SentMessage[]; tools: unknown };
    prompts.push({ messages, text: JSON.stringify([tools, ...messages]).slice(0, -1) });
  }
  return prompts;
}

it.each(SESSIONS.map((session) => [session.client, session] as const))(
  '%s: an engine of chat completions gets every turn, well-formed, behind the bytes of the turn before',
  async (_, session) => {
    const prompts = await promptsOf(session);
    for (const [at, { messages, text }] of prompts.entries()) {
      expect(messages.findLastIndex(({ role }) => role === 'system')).toBeLessThanOrEqual(0);
      expectResultsBehindCalls(messages);
      if (at > 0) expect(sharedShare(prompts[at - 1]!.text, text)).toBeGreaterThanOrEqual(MIN_SHARED);
    }
  },
);

it('Claude Code without the prefix keepers: the billing line parts its turns', async () => {
  const unchanged = ['billing-line', 'cache-marks', 'system-messages', 'tool-order'];
  const [first, ...others] = await promptsOf(SESSIONS[0]!, { unchanged });
  for (const { text } of others) expect(sharedShare(first!.text, text)).toBeLessThan(MIN_SHARED);
});

/** Each call has its result behind it, before anybody else speaks. */
function expectResultsBehindCalls(messages: readonly SentMessage[]): void {
  let open: string[] = [];
  for (const { role, tool_calls: calls, tool_call_id: id } of messages) {
    if (role === 'tool') {
      expect(open).toContain(id);
      open = open.filter((each) => each !== id);
      continue;
    }
    expect(open).toEqual([]);
    open = (calls ?? []).map((call) => call.id);
  }
}
