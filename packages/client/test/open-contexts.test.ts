import { estimateTokens } from '@warmpath/core';
import { describe, expect, it } from 'vitest';
import type { ArrangedContext, EngineUsage } from '../src/index.js';
import { OpenContexts } from '../src/open-contexts.js';

/** A context that keeps what it is told. */
function recording() {
  const told: (EngineUsage | 'failed')[] = [];
  const context = {
    completed: async (usage: EngineUsage) => void told.push(usage),
    failed: async () => void told.push('failed'),
  };
  return { told, context: context as Partial<ArrangedContext> as ArrangedContext };
}

describe('OpenContexts', () => {
  it('finds a context by its texts, all of them and in their order, once', () => {
    const open = new OpenContexts();
    const { context } = recording();
    open.add(context, ['one', 'two', 'two']);
    expect(open.take('one two').size).toBe(0);
    expect(open.take('two one two').size).toBe(0);
    expect(open.take('Say: one, two and two.').size).toBe(1);
    expect(open.take('Say: one, two and two.').size).toBe(0);
    open.add(context, ['ab', 'ba']);
    expect(open.take('aba').size).toBe(0);
    open.add(context, []);
    expect(open.take('anything').size).toBe(0);
  });

  it('takes off what stands in front of a context and was not known', async () => {
    const open = new OpenContexts();
    const [plain, behind] = [recording(), recording()];
    const system = 'You answer from the documents that follow. '.repeat(4);
    open.add(plain.context, ['one']);
    open.add(behind.context, ['two'], system);
    const sent = open.take(`${system}one and two`);
    expect(sent.size).toBe(2);
    await sent.completed({ promptTokens: 500, cachedTokens: 10 });
    const before = estimateTokens(system);
    expect(plain.told).toEqual([{ promptTokens: 500 - before, cachedTokens: 0 }]);
    // Of the second, what was known of the prompt is not taken off.
    expect(behind.told[0]).toMatchObject({ promptTokens: 500 - (estimateTokens(`${system}one and `) - before) });
    await sent.completed();
    expect(plain.told.at(-1)).toEqual({});
    await sent.failed();
    expect(behind.told.at(-1)).toBe('failed');
  });

  it('tells no counts of a context behind another text than the last, for it could not be cached', async () => {
    const open = new OpenContexts();
    const toldBehind = async (front: string, preamble?: string) => {
      const { context, told } = recording();
      open.add(context, ['one', 'two'], preamble);
      await open.take(`${front}one two`).completed({ cachedTokens: 7 });
      return told;
    };
    expect(await toldBehind('')).toEqual([{ cachedTokens: 7 }]);
    expect(await toldBehind('')).toEqual([{ cachedTokens: 7 }]);
    expect(await toldBehind('Question? ')).toEqual([{}]);
    expect(await toldBehind('Question? ', 'another')).toMatchObject([{ cachedTokens: expect.any(Number) as number }]);
    expect(await toldBehind('Question? ')).toMatchObject([{ cachedTokens: expect.any(Number) as number }]);
  });

  it('takes the last place of several: history is in front', async () => {
    const open = new OpenContexts();
    const { context, told } = recording();
    open.add(context, ['one', 'two']);
    const history = `one two ${'and what was said of them '.repeat(9)}`;
    await open.take(`${history}one two`).completed({ cachedTokens: 500 });
    expect(told).toEqual([{ cachedTokens: 500 - estimateTokens(history) }]);
  });

  it('remembers the 256 latest', () => {
    const open = new OpenContexts();
    for (let i = 0; i < 300; i++) open.add(recording().context, [`text ${i};`]);
    expect(open.take('text 43;').size).toBe(0);
    expect(open.take('text 44;').size).toBe(1);
    expect(open.take('text 299;').size).toBe(1);
  });
});
