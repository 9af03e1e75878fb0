import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { Agent } from '@mastra/core/agent';
import { RequestContext } from '@mastra/core/request-context';
import { createTool } from '@mastra/core/tools';
import type { EngineUsage } from '@warmpath/client';
import { warmpathProcessor } from '@warmpath/mastra';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { ListeningWarmpath } from '../listening-warmpath.js';
import {
  callsTool,
  failsWith,
  lettersIn,
  passages,
  type RealGateway,
  realGateway,
  textOf,
  timesIn,
} from '../real-gateway.js';

let gateway: RealGateway;
beforeAll(async () => {
  gateway = await realGateway();
});
afterEach(() => gateway.forget());
afterAll(() => gateway.close());

const clock = createTool({
  id: 'clock',
  description: 'Tells the time.',
  inputSchema: z.object({}),
  execute: async () => ({ time: 'noon' }),
});

describe.each([
  ['generate', false],
  ['stream', true],
])('an agent behind a gateway, by %s', (_, streaming) => {
  /** Each is a tenant of its own. */
  function agentOf(name: string) {
    const warmpath = new ListeningWarmpath();
    // Streams state usage only where it is asked for.
    const provider = createOpenAICompatible({
      name: 'gateway',
      baseURL: `${gateway.url}/v1`,
      apiKey: `${name} ${streaming}`,
      includeUsage: true,
    });
    const agent = new Agent({
      id: 'reader',
      name: 'reader',
      instructions: 'Answer from the documents.',
      model: provider('warmpath-tiny'),
      maxRetries: 0,
      tools: { clock },
      inputProcessors: [warmpathProcessor(warmpath)],
    });
    const ask = async (messages: Parameters<typeof agent.stream>[0], letters: string, abortSignal?: AbortSignal) => {
      const requestContext = new RequestContext();
      requestContext.set('warmpath', { documents: passages(letters), session: 'one' });
      const options = {
        requestContext,
        modelSettings: { maxOutputTokens: 12, temperature: 0 },
        ...(abortSignal !== undefined && { abortSignal }),
      };
      return streaming
        ? await (await agent.stream(messages, options)).text
        : (await agent.generate(messages, options)).text;
    };
    return { warmpath, ask };
  }

  it('the second turn repeats the first to the byte and sends no document twice; counts are told', async () => {
    const { warmpath, ask } = agentOf('turns');
    const question = { role: 'user' as const, content: 'What is the weight of Velka?' };
    const answer = await ask([question], 'vo');
    expect(answer).toContain('42');
    const next = { role: 'user' as const, content: 'What is the weight of Tamir?' };
    expect(await ask([question, { role: 'assistant', content: answer }, next], 'otv')).toContain('8 kg');
    const [first, second] = gateway.prompts();
    expect(lettersIn(first!)).toBe('vo');
    expect(second!.messages.slice(0, 2)).toEqual(first!.messages);
    expect([...'vot'].map((letter) => timesIn(second!, letter))).toEqual([1, 1, 1]);
    expect(textOf(second!.messages.at(-1)!.content)).toContain('Given earlier in this conversation: [orsin], [velka].');
    expect(warmpath.told).toHaveLength(2);
    const [, told] = warmpath.told as EngineUsage[];
    expect(told!.cachedTokens).toBeGreaterThan(200);
    expect(told!.promptTokens).toBeGreaterThan(told!.cachedTokens!);
  });

  it('a call of a tool goes on behind the same bytes', async () => {
    const { warmpath, ask } = agentOf('tools');
    gateway.script(callsTool('clock', {}, streaming));
    await ask('What is the weight of Velka?', 'vo');
    const [before, after] = gateway.prompts();
    expect(after!.messages.slice(0, before!.messages.length)).toEqual(before!.messages);
    expect(after!.messages.slice(before!.messages.length).map(({ role }) => role)).toEqual(['assistant', 'tool']);
    expect(warmpath.told).toHaveLength(2);
  });

  it('an error of the engine reaches the caller in its words, and is told', async () => {
    const { warmpath, ask } = agentOf('errors');
    gateway.script(failsWith(400, 'The engine is out of memory.'));
    await expect(ask('What is the weight of Velka?', 'vo')).rejects.toThrow('The engine is out of memory.');
    expect(warmpath.told).toEqual(['failed']);
    expect(warmpath.history.tree.nodes).toBe(0);
  });

  it('an abort reaches the engine', async () => {
    const { ask } = agentOf('aborts');
    const leaving = new AbortController();
    gateway.script(() => leaving.abort());
    await ask('What is the weight of Velka?', 'vo', leaving.signal).catch(() => undefined);
    await gateway.left(0);
  });
});

it('a stream without usage tells no counts', async () => {
  const warmpath = new ListeningWarmpath();
  const agent = new Agent({
    id: 'reader',
    name: 'reader',
    instructions: 'Answer from the documents.',
    model: { id: 'warmpath/warmpath-tiny', url: `${gateway.url}/v1`, apiKey: 'none' },
    inputProcessors: [warmpathProcessor(warmpath)],
  });
  const requestContext = new RequestContext();
  requestContext.set('warmpath', { documents: passages('vo') });
  await (await agent.stream('What is the weight of Velka?', { requestContext })).text;
  expect(warmpath.told).toEqual([{}]);
});
