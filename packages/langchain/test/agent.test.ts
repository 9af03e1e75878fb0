import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { AIMessage, HumanMessage, type ToolMessage } from '@langchain/core/messages';
import { fakeModel } from '@langchain/core/testing';
import { tool } from '@langchain/core/tools';
import { MemorySaver } from '@langchain/langgraph';
import { ChatOpenAI } from '@langchain/openai';
import { LocalWarmpath } from '@warmpath/client';
import { createAgent } from 'langchain';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type AgentOptions, warmpathMiddleware } from '../src/agent.js';
import { labelsIn, passage } from './stand.js';

/** What the tool finds next, whatever it is asked. */
const finds: string[] = [];
const search = tool(
  async () => {
    const letters = finds.shift()!;
    return [`${letters.length} found`, [...letters].map(passage)];
  },
  {
    name: 'search',
    description: 'Finds documents.',
    schema: z.object({ words: z.string() }),
    responseFormat: 'content_and_artifact',
  },
);
const clock = tool(async () => 'noon', { name: 'clock', description: 'Tells the time.', schema: z.object({}) });

const answer = (cached: number) =>
  new AIMessage({
    content: 'Much.',
    usage_metadata: {
      input_tokens: 900,
      output_tokens: 1,
      total_tokens: 901,
      input_token_details: { cache_read: cached },
    },
  });

function agentOver(options: AgentOptions = {}) {
  const arranger = new LocalWarmpath();
  const model = fakeModel();
  const agent = createAgent({
    model,
    tools: [search, clock],
    systemPrompt: 'Be brief.',
    middleware: [warmpathMiddleware(arranger, options)],
    checkpointer: new MemorySaver(),
  });
  const ask = (thread: string, question = 'What was found?') =>
    agent.invoke({ messages: [new HumanMessage(question)] }, { configurable: { thread_id: thread } });
  const lookUp = (letters: string, words = 'found') => {
    finds.push(letters);
    return model.respondWithTools([{ name: 'search', args: { words } }]).respond(answer(0));
  };
  const toolText = (call: number) => model.calls[call]!.messages.findLast(({ type }) => type === 'tool')!.text;
  return { arranger, model, ask, lookUp, toolText };
}

describe('an agent with the middleware', () => {
  it('reads what its tool found in an order that was served, and repeats it to the byte', async () => {
    const { model, ask, lookUp, toolText } = agentOver();
    lookUp('ab');
    await ask('one');
    expect(labelsIn(toolText(1))).toBe('ab');
    lookUp('bca');
    const state = await ask('two');
    expect(labelsIn(toolText(3))).toBe('abc');
    expect(toolText(3)).toMatch(/relevance: \[c\] > \[a\]\.\n$/);
    const message = state.messages.find(({ type }) => type === 'tool') as ToolMessage;
    expect((message.artifact as { id: string }[]).map(({ id }) => id)).toEqual(['a', 'b', 'c']);
    expect(message.name).toBe('search');
    // The next turn of the same thread.
    const sent = toolText(3);
    model.respond(answer(0));
    await ask('two');
    expect(toolText(4)).toBe(sent);
  });

  it.each([
    ['question', 'What was lost?', 'found'],
    ['call', 'What was found?', 'lost'],
  ])(
    'keeps the retrieval order behind another %s, where the engine can hold nothing of it',
    async (_, question, words) => {
      const { arranger, ask, lookUp, toolText } = agentOver();
      lookUp('ab');
      await ask('one');
      for (let i = 0; i < 6; i++) {
        lookUp('bca', words);
        await ask(`thread ${i}`, `${question} ${i}`);
        expect(labelsIn(toolText(3 + 2 * i))).toBe('bca');
      }
      // That nothing was cached then says nothing of what the engine holds.
      expect(arranger.history.state).toBe('history');
      lookUp('ba');
      await ask('last');
      expect(labelsIn(toolText(15))).toBe('ab');
    },
  );

  it('leaves other tools alone', async () => {
    const { arranger, model, ask, toolText } = agentOver();
    model.respondWithTools([{ name: 'clock', args: {} }]).respond(answer(0));
    await ask('one');
    expect(toolText(1)).toBe('noon');
    expect(arranger.history.requests).toBe(0);
  });

  it('tells what was cached, and what failed', async () => {
    const { arranger, ask, lookUp } = agentOver();
    for (let i = 0; i < 6; i++) {
      lookUp('ab');
      await ask(`thread ${i}`);
    }
    expect(arranger.history.state).toBe('degraded');
    const failing = agentOver();
    finds.push('ab');
    failing.model
      .respondWithTools([{ name: 'search', args: { words: 'found' } }])
      .respond(new Error('The engine is gone.'));
    await expect(failing.ask('one')).rejects.toThrow('gone');
    expect(failing.arranger.history.tree.nodes).toBe(0);
  });

  it.each([
    ['its thread', {}, 'one'],
    ['a name of one’s own', { session: ({ thread_id }) => `user-7-${thread_id}` }, 'user-7-one'],
    ['nothing', { session: false }, undefined],
  ] as [string, AgentOptions, string | undefined][])('names %s to the gateway', async (_, options, session) => {
    const headers: IncomingHttpHeaders[] = [];
    const choices = [{ index: 0, message: { role: 'assistant', content: 'Much.' }, finish_reason: 'stop' }];
    const server = createServer((request, response) => {
      headers.push(request.headers);
      response.setHeader('content-type', 'application/json').end(JSON.stringify({ choices }));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const baseURL = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
    const model = new ChatOpenAI({ model: 'm', apiKey: 'none', configuration: { baseURL } });
    const agent = createAgent({
      model,
      tools: [clock],
      middleware: [warmpathMiddleware(new LocalWarmpath(), options)],
    });
    await agent.invoke({ messages: [new HumanMessage('Hello')] }, { configurable: { thread_id: 'one' } });
    server.closeAllConnections();
    server.close();
    expect(headers.map((sent) => sent['x-warmpath-session'])).toEqual([session]);
  });
});
