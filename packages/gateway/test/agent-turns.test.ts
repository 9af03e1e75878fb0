import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { chatOnlyEngine } from './chat-only-engine.js';
import { send, stand } from './harness.js';

/** Requests of real agents, in the order in which they came: long texts are cut to their beginning and a digest. */
interface AgentTurn {
  readonly agent: string;
  readonly api: 'chat' | 'messages' | 'responses';
  readonly body: object;
}

const TURNS = readFileSync(join(import.meta.dirname, 'fixtures/agent-turns.jsonl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as AgentTurn);
const AGENTS = [...new Set(TURNS.map(({ agent }) => agent))];
const PATHS = { chat: '/v1/chat/completions', messages: '/v1/messages', responses: '/v1/responses' };
const KEEPERS = ['billing-line', 'cache-marks', 'system-messages', 'tool-order'];
/** Characters of a turn that the next one must begin with, as a share. */
const SHARED = 0.95;

/** Claude Code writes another `cch` into each request where it is told so by Anthropic. */
function inTurn(body: object, turn: number): string {
  return JSON.stringify(body).replace(/(x-anthropic-billing-header: [^"]*)/, `$1 cch=${turn.toString(16).repeat(5)};`);
}

/** The prompt as most chat templates write it: tools, then messages. */
function promptOf(body: string): string {
  const { tools, messages } = JSON.parse(body) as {
    readonly tools?: unknown;
    readonly messages: readonly { role: string; content?: unknown; tool_calls?: unknown }[];
  };
  const written = messages.map(({ role, content, tool_calls: calls }) => {
    const parts = Array.isArray(content) ? (content as { text?: string }[]).map(({ text }) => text ?? '') : [content];
    return `\n<${role}>${parts.join('\n')}${calls === undefined ? '' : JSON.stringify(calls)}`;
  });
  return JSON.stringify(tools) + written.join('');
}

function sharedPart(before: string, after: string): number {
  let length = 0;
  while (length < before.length && before[length] === after[length]) length++;
  return length / before.length;
}

/** For each turn behind the first, the part of the turn before it that it begins with, as the engine got them. */
async function sharedParts(agent: string, config: object): Promise<readonly number[]> {
  const { engine, gateway } = await stand(chatOnlyEngine(), config);
  const prompts: string[] = [];
  for (const [turn, { api, body }] of TURNS.filter((it) => it.agent === agent).entries()) {
    const reply = await send(gateway.url + PATHS[api], inTurn(body, turn));
    expect(reply.status, reply.text).toBe(200);
    prompts.push(promptOf(engine.last.body));
  }
  return prompts.slice(1).map((prompt, at) => sharedPart(prompts[at]!, prompt));
}

describe('turns of real agents', () => {
  it.each(AGENTS)('%s: each begins with the one before it', async (agent) => {
    const parts = await sharedParts(agent, {});
    expect(parts.length).toBeGreaterThan(0);
    for (const part of parts) expect(part).toBeGreaterThanOrEqual(SHARED);
  });

  it('Claude Code without the prefix keepers: the billing line parts them', async () => {
    for (const part of await sharedParts(AGENTS[0]!, { unchanged: KEEPERS })) expect(part).toBeLessThan(SHARED);
  });
});
