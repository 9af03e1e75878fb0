import { describe, expect, it } from 'vitest';
import { answerReader } from '../../src/chat/answer-reader.js';
import { answerSyntax } from '../../src/chat/answer-syntax.js';
import type { TemplateTraits } from '../../src/chat/template-traits.js';
import { chatFormat } from '../../src/http/formats.js';
import type { ChosenToken, GenerationResult } from '../../src/loop/generation.js';

const SYNTAX = answerSyntax('<think></think><tool_call>', { isHarmony: false } as TemplateTraits);
const TOOLS = [{ type: 'function', function: { name: 'find', parameters: {} } }] as const;
const CALL = (what: string): string => `<tool_call>{"name": "find", "arguments": {"what": "${what}"}}</tool_call>`;
const ANSWER = `<think>\nWhy.\n</think>\n\nLook.\n${CALL('a')}\n${CALL('b')}`;

function result(fields: Partial<GenerationResult> = {}): GenerationResult {
  return {
    finishReason: 'stop',
    stopString: undefined,
    promptTokens: 1,
    completionTokens: 1,
    cachedTokens: 0,
    ...fields,
  } as GenerationResult;
}

function formatOf({ hasLogprobs = false, isParallel = true } = {}) {
  const reader = answerReader(SYNTAX, TOOLS, 'anew');
  return chatFormat({ id: 'x1', created: 1, model: 'm' }, { hasLogprobs, isParallel, callIds: 'call_x1', reader });
}

interface Choice {
  readonly message: object;
  readonly delta: {
    readonly content?: string;
    readonly reasoning_content?: string;
    readonly tool_calls?: readonly object[];
  };
  readonly finish_reason: string | null;
  readonly logprobs: { readonly content: readonly object[] } | null;
}
const choiceOf = (told: object | undefined): Choice => (told as { choices: readonly Choice[] }).choices[0]!;

const CALLS = ['a', 'b'].map((what, index) => ({
  id: `call_x1_${index}`,
  type: 'function',
  function: { name: 'find', arguments: `{"what": "${what}"}` },
}));

describe('an answer of a chat', () => {
  it('is told in its parts', () => {
    const { message, finish_reason: reason } = choiceOf(formatOf().whole(ANSWER, result(), []));
    expect(message).toEqual({ role: 'assistant', content: 'Look.', reasoning_content: 'Why.', tool_calls: CALLS });
    expect(reason).toBe('tool_calls');
    const alone = choiceOf(formatOf().whole(CALL('a'), result(), []));
    expect(alone.message).toEqual({ role: 'assistant', content: null, tool_calls: [CALLS[0]] });
  });

  it('is told in the same parts as it comes', () => {
    const format = formatOf();
    const pieces = ANSWER.match(/[\s\S]{1,7}/g)!;
    const told = [...pieces.map((piece) => format.piece(piece, [])), format.closing(result())];
    const deltas = told.filter((each) => each !== undefined).map((each) => choiceOf(each).delta);
    expect(deltas.map(({ content = '' }) => content).join('')).toBe('Look.');
    expect(deltas.map(({ reasoning_content: text = '' }) => text).join('')).toBe('Why.');
    expect(deltas.flatMap(({ tool_calls: calls = [] }) => calls)).toEqual(
      CALLS.map((call, index) => ({ index, ...call })),
    );
    expect(choiceOf(told.at(-1)).finish_reason).toBe('tool_calls');
  });

  it('has one call where no more are wanted', () => {
    expect(choiceOf(formatOf({ isParallel: false }).whole(ANSWER, result(), [])).message).toMatchObject({
      tool_calls: [CALLS[0]],
    });
  });

  it('that is cut off or stopped says so, calls or not', () => {
    expect(choiceOf(formatOf().whole(ANSWER, result({ finishReason: 'length' }), [])).finish_reason).toBe('length');
    expect(choiceOf(formatOf().whole(ANSWER, result({ stopString: 'x' }), [])).finish_reason).toBe('stop');
    expect(choiceOf(formatOf().whole('Plain.', result(), [])).finish_reason).toBe('stop');
  });

  it('tells the chances of every token once, also of tokens that were held back', () => {
    const format = formatOf({ hasLogprobs: true });
    const token = (text: string): ChosenToken => ({ bytes: Buffer.from(text), logprob: -1, top: [] });
    const pieces = ANSWER.match(/[\s\S]{1,7}/g)!;
    const told = [...pieces.map((piece) => format.piece(piece, [token(piece)])), format.closing(result())];
    const tokens = told.flatMap((each) => (each === undefined ? [] : (choiceOf(each).logprobs?.content ?? [])));
    expect(tokens).toEqual(pieces.map((piece) => expect.objectContaining({ token: piece })));
  });
});
