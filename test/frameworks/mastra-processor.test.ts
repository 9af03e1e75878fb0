import { Agent } from '@mastra/core/agent';
import { MockMemory } from '@mastra/core/memory';
import { RequestContext } from '@mastra/core/request-context';
import { MastraLanguageModelV2Mock } from '@mastra/core/test-utils/llm-mock';
import { createTool } from '@mastra/core/tools';
import { LocalWarmpath } from '@warmpath/client';
import { type WarmpathContext, warmpathProcessor } from '@warmpath/mastra';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';

const passage = (id: string) => ({ id, content: `${id} was found in a year of many rains. `.repeat(8) });
function context(ids: string, fields: Partial<WarmpathContext> = {}): RequestContext {
  const requestContext = new RequestContext();
  requestContext.set('warmpath', { documents: [...ids].map(passage), ...fields });
  return requestContext;
}

const labelsIn = (text: string) => [...text.matchAll(/<document id="(\w+)"/g)].map((match) => match[1]).join('');

interface Prompted {
  readonly role: string;
  readonly content: string | readonly { readonly text?: string }[];
}

type Step = 'text' | 'tool' | 'fails';

const clock = createTool({
  id: 'clock',
  description: 'Tells the time.',
  inputSchema: z.object({}),
  execute: async () => ({ time: 'noon' }),
});

/** An agent whose model takes these steps, one a call, and afterwards answers with text. */
function agentOver(cachedInputTokens: number, steps: readonly Step[] = [], memory?: MockMemory) {
  const warmpath = new LocalWarmpath();
  const forgotten: string[] = [];
  const prompts: Prompted[][] = [];
  const usage = { inputTokens: 400, outputTokens: 2, totalTokens: 402, cachedInputTokens };
  const model = new MastraLanguageModelV2Mock({
    doStream: async ({ prompt }) => {
      const step = steps[prompts.length] ?? 'text';
      prompts.push(prompt as Prompted[]);
      if (step === 'fails') throw new Error('The engine is gone.');
      const parts =
        step === 'tool'
          ? [
              { type: 'tool-call' as const, toolCallId: '1', toolName: 'clock', input: '{}' },
              { type: 'finish' as const, finishReason: 'tool-calls' as const, usage },
            ]
          : [
              { type: 'text-start' as const, id: '0' },
              { type: 'text-delta' as const, id: '0', delta: 'Much.' },
              { type: 'text-end' as const, id: '0' },
              { type: 'finish' as const, finishReason: 'stop' as const, usage },
            ];
      const stream = new ReadableStream({
        start(controller) {
          for (const part of [{ type: 'stream-start' as const, warnings: [] }, ...parts]) controller.enqueue(part);
          controller.close();
        },
      });
      return { stream };
    },
  });
  const agent = new Agent({
    id: 'reader',
    name: 'reader',
    instructions: 'Be brief.',
    model,
    maxRetries: 0,
    tools: { clock },
    inputProcessors: [warmpathProcessor(warmpath, { onForgotten: (session) => forgotten.push(session) })],
    ...(memory !== undefined && { memory }),
  });
  const ask = async (
    messages: Parameters<typeof agent.stream>[0],
    requestContext?: RequestContext,
    thread?: { readonly thread: string; readonly resource: string },
  ) => {
    const output = await agent.stream(messages, {
      ...(requestContext !== undefined && { requestContext }),
      ...(thread !== undefined && { memory: thread }),
    });
    return output.text;
  };
  const questionOf = (call: number) => {
    const { content } = prompts[call]!.findLast(({ role }) => role === 'user')!;
    return typeof content === 'string' ? content : content.map(({ text }) => text ?? '').join('');
  };
  return { warmpath, prompts, ask, questionOf, forgotten };
}

describe('an agent with the processor', () => {
  it('has the documents before the question, in an order that was served', async () => {
    const { ask, questionOf, prompts } = agentOver(0);
    expect(await ask('What was found?', context('ab'))).toBe('Much.');
    await ask('What was found?', context('bca'));
    expect(labelsIn(questionOf(1))).toBe('abc');
    expect(questionOf(1)).toMatch(/relevance: \[c\] > \[a\]\.\nWhat was found\?$/);
    expect(prompts[1]![0]).toMatchObject({ role: 'system', content: 'Be brief.' });
    await ask('What was found?');
    expect(questionOf(2)).toBe('What was found?');
  });

  it('begins later steps of a request with the same bytes', async () => {
    const { ask, prompts } = agentOver(0, ['tool']);
    await ask('What was found?', context('ab'));
    expect(prompts).toHaveLength(2);
    expect(prompts[1]!.slice(0, prompts[0]!.length)).toEqual(prompts[0]);
    expect(prompts[1]!.slice(prompts[0]!.length).map(({ role }) => role)).toEqual(['assistant', 'tool']);
  });

  it('repeats a conversation to the byte, and sends no document twice', async () => {
    const { ask, prompts, questionOf } = agentOver(0);
    await ask('What was found?', context('ab', { session: 's' }));
    const history = [
      { role: 'user' as const, content: 'What was found?' },
      { role: 'assistant' as const, content: 'Much.' },
      { role: 'user' as const, content: 'And then?' },
    ];
    await ask(history, context('bc', { session: 's' }));
    expect(prompts[1]!.slice(0, prompts[0]!.length)).toEqual(prompts[0]);
    expect(labelsIn(questionOf(1))).toBe('c');
    expect(questionOf(1)).toMatch(/earlier.*\[b\]/);
  });

  it('knows a conversation by the thread and the resource of its memory', async () => {
    const { ask, prompts, questionOf, forgotten } = agentOver(0, [], new MockMemory());
    const ada = { thread: 't', resource: 'ada' };
    await ask('What was found?', context('ab'), ada);
    await ask('And then?', context('bc'), ada);
    expect(prompts[1]!.slice(0, prompts[0]!.length)).toEqual(prompts[0]);
    expect(labelsIn(questionOf(1))).toBe('c');
    await ask('And after that?', undefined, ada);
    expect(prompts[2]!.slice(0, prompts[1]!.length)).toEqual(prompts[1]);
    expect(forgotten).toEqual([]);
    // The same history under another name, or of another user, is another conversation.
    const history = [
      { role: 'user' as const, content: 'What was found?' },
      { role: 'assistant' as const, content: 'Much.' },
      { role: 'user' as const, content: 'And then?' },
    ];
    await ask(history, context('bc'), { thread: 'u', resource: 'bob' });
    expect(labelsIn(questionOf(3))).toBe('bc');
    expect(forgotten).toEqual(['u']);
  });

  it('tells what was cached, and what failed', async () => {
    const { ask, warmpath } = agentOver(0);
    for (let i = 0; i < 6; i++) await ask('What was found?', context('ab'));
    expect(warmpath.history.state).toBe('degraded');
    const failing = agentOver(0, ['fails']);
    await failing.ask('What was found?', context('ab')).catch(() => undefined);
    expect(failing.warmpath.history.tree.nodes).toBe(0);
  });
});
