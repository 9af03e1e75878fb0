import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isFull } from '../../../../test/suite.js';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { misfit, RECURSIVE_SCHEMAS, type TestSchema } from '../structured/random-schema.js';
import { type Chunk, EventLog, TestEngine, textOf } from '../support/engine.js';

const CHAT = '/v1/chat/completions';
const PLAIN = '/v1/completions';

const SCHEMA: TestSchema = {
  type: 'object',
  properties: {
    title: { type: 'string', maxLength: 12 },
    kind: { enum: ['city', 'river', null] },
    counts: { type: 'array', items: { type: 'integer', minimum: -5, maximum: 250 }, maxItems: 3 },
    inner: { type: 'object', properties: { a: { type: 'boolean' } }, additionalProperties: false },
  },
  required: ['title', 'kind', 'counts'],
  additionalProperties: false,
};

const TOOLS = [
  { type: 'function', function: { name: 'find', description: 'Finds a place.', parameters: SCHEMA } },
  { type: 'function', function: { name: 'stop' } },
];

interface Message {
  readonly content: string | null;
  readonly tool_calls?: { id: string; type: string; function: { name: string; arguments: string } }[];
}

const format = (schema: TestSchema) => ({ type: 'json_schema', json_schema: { name: 'answer', strict: true, schema } });
const ask = (fields: object) => ({ messages: [{ role: 'user', content: 'Where is it?' }], max_tokens: 300, ...fields });

/** One model says what it was trained for, the other anything. */
describe.each(isFull ? ['demo', 'random:1m'] : ['random:1m'])('structured answers of %s', (name) => {
  let engine: TestEngine;

  beforeAll(async () => {
    engine = await TestEngine.start({ model: await modelPath(name), contextTokens: 4096 });
  });
  afterAll(async () => {
    expect(await engine.metric('warmpath_engine_grammars')).toBe(0);
    await engine.close();
  });

  async function chat(fields: object): Promise<{ message: Message; finish_reason: string; logprobs: unknown }> {
    const { status, body } = await engine.call(CHAT, ask(fields));
    expect(status, JSON.stringify(body)).toBe(200);
    return (body as { choices: [never] }).choices[0];
  }

  async function streamed(fields: object): Promise<Chunk[]> {
    return engine.stream(CHAT, ask(fields)).rest();
  }

  it.each([
    ['greedy', { temperature: 0 }],
    ['at temperature 1', { temperature: 1 }],
    ['with top_p', { temperature: 1, top_p: 0.9 }],
    ['with top_k', { temperature: 1.5, top_k: 20 }],
    ['with penalties', { temperature: 1, presence_penalty: 1, frequency_penalty: 1, repetition_penalty: 1.2 }],
    ['with biases', { temperature: 1, logit_bias: { 40: 100, 41: 100 } }],
  ])('fit their schema: %s', async (_, sampling) => {
    for (let seed = 0; seed < (isFull ? 2 : 1); seed++) {
      const fields = { ...sampling, seed, response_format: format(SCHEMA) };
      const { message, finish_reason: reason } = await chat(fields);
      expect(reason).toBe('stop');
      expect(misfit(message.content!, SCHEMA)).toBeUndefined();
      // The same answer comes in pieces.
      expect(textOf(await streamed(fields))).toBe(message.content);
    }
  });

  it('are objects, or what is there of one, where no more is said', async () => {
    for (let seed = 0; seed < (isFull ? 2 : 1); seed++) {
      const { message, finish_reason: reason } = await chat({ seed, response_format: { type: 'json_object' } });
      expect(message.content!.startsWith('{')).toBe(true);
      expect(reason === 'length' || typeof JSON.parse(message.content!) === 'object').toBe(true);
    }
  });

  it.each(['json_schema', 'guided_json'])('fit the schema in %s, on both endpoints', async (field) => {
    const fields = { seed: 1, max_tokens: 300, [field]: SCHEMA };
    expect(misfit((await chat(fields)).message.content!, SCHEMA)).toBeUndefined();
    const plain = await engine.complete('Say something.', { temperature: 1, ...fields });
    expect(misfit(plain.choices[0]!.text!, SCHEMA)).toBeUndefined();
  });

  it('fit a schema that holds itself', async () => {
    const { message, finish_reason: reason } = await chat({
      seed: 2,
      structured_outputs: { json: RECURSIVE_SCHEMAS[1] },
    });
    expect(reason === 'length' || misfit(message.content!, RECURSIVE_SCHEMAS[1]!) === undefined).toBe(true);
  });

  it('that do not fit what is checked at the end are an error, and the error that ends a stream', async () => {
    const never = { type: 'boolean', not: { type: 'boolean' } };
    const fields = { temperature: 0, json_schema: never };
    const error = await engine.error(CHAT, ask(fields));
    expect(error).toMatchObject({ status: 422, code: 'json_validate_failed', type: 'invalid_request_error' });
    const chunks = await streamed(fields);
    expect(chunks.at(-1)!.error).toMatchObject({ code: 'json_validate_failed' });
    const tool = {
      type: 'function',
      function: { name: 'a', parameters: { properties: { b: never }, required: ['b'] } },
    };
    const call = await engine.error(CHAT, ask({ temperature: 0, tools: [tool], tool_choice: 'required' }));
    expect(call).toMatchObject({ code: 'json_validate_failed' });
    const cut = await chat({ ...fields, max_tokens: 1 });
    expect(cut.finish_reason).toBe('length');
  });

  it('that are cut begin as one that fits', async () => {
    const whole = await chat({ temperature: 0, response_format: format(SCHEMA) });
    const cut = await chat({ temperature: 0, max_tokens: 7, response_format: format(SCHEMA) });
    expect(cut.finish_reason).toBe('length');
    expect(whole.message.content!.startsWith(cut.message.content!)).toBe(true);
  });

  it('are calls of a function where one is forced', async () => {
    for (let seed = 0; seed < (isFull ? 4 : 2); seed++) {
      const { message, finish_reason: reason } = await chat({ seed, tools: TOOLS, tool_choice: 'required' });
      expect(reason).toBe('tool_calls');
      expect(message.content).toBeNull();
      const [call, ...others] = message.tool_calls!;
      expect(others).toEqual([]);
      expect(call).toMatchObject({ type: 'function', id: expect.stringMatching(/^call_/) });
      const { name: called, arguments: given } = call!.function;
      expect(
        misfit(given, called === 'find' ? SCHEMA : { type: 'object', additionalProperties: false }),
      ).toBeUndefined();
    }
  });

  it('are the call of the function that is named, in pieces as well', async () => {
    const fields = {
      seed: 5,
      temperature: 1,
      tools: TOOLS,
      tool_choice: { type: 'function', function: { name: 'find' } },
    };
    const { message } = await chat(fields);
    const call = message.tool_calls![0]!;
    expect(call.function.name).toBe('find');
    expect(misfit(call.function.arguments, SCHEMA)).toBeUndefined();

    const chunks = await streamed(fields);
    const deltas = chunks.flatMap(
      ({ choices: [choice] }) => (choice?.delta as Partial<Message> | undefined)?.tool_calls ?? [],
    );
    expect(deltas[0]).toMatchObject({ index: 0, type: 'function', function: { name: 'find' } });
    expect(deltas.slice(1).every(({ id, function: { name } }) => id === undefined && name === undefined)).toBe(true);
    expect(deltas.map((delta) => delta.function.arguments).join('')).toBe(call.function.arguments);
    expect(chunks.at(-1)!.choices[0]!.finish_reason).toBe('tool_calls');
    expect(textOf(chunks)).toBe('');
  });

  it('are held to a schema that was read before, as long as it is the same in the same place', async () => {
    const bytes = (): Promise<number> => engine.metric('warmpath_engine_grammar_bytes');
    const schema = (max: number): TestSchema => ({ type: 'string', minLength: 2, maxLength: max });
    const sizes: number[] = [];
    for (const fields of [
      { json_schema: schema(3) },
      { json_schema: schema(3) },
      { json_schema: schema(4) },
      { guided_json: schema(4) },
      ...[0, 1].map(() => ({ tools: TOOLS, tool_choice: 'required' })),
      { tools: TOOLS, tool_choice: { type: 'function', function: { name: 'stop' } } },
    ]) {
      await chat({ seed: 2, max_tokens: 30, ...fields });
      sizes.push(await bytes());
    }
    expect(sizes.map((size, index) => size > (sizes[index - 1] ?? 0))).toEqual([
      ...[true, false, true, true, false, false, true],
    ]);
  });

  it('are calls with an id of their own in each of several choices, in pieces as well', async () => {
    const fields = { seed: 5, n: 3, tools: TOOLS, tool_choice: 'required' };
    const { choices } = (await engine.call(CHAT, ask(fields))).body as { choices: { message: Message }[] };
    const whole = choices.map(({ message }) => message.tool_calls![0]!.id);
    const pieces = (await streamed(fields)).flatMap(
      ({ choices: [choice] }) => (choice?.delta as Partial<Message> | undefined)?.tool_calls ?? [],
    );
    for (const ids of [whole, pieces.map(({ id }) => id).filter((id) => id !== undefined)]) {
      expect(ids).toHaveLength(3);
      expect(new Set(ids).size).toBe(3);
    }
  });

  it('are calls that are cut, with all of their arguments so far', async () => {
    const fields = { temperature: 0, tools: TOOLS, tool_choice: { type: 'function', function: { name: 'find' } } };
    const whole = (await chat(fields)).message.tool_calls![0]!.function.arguments;
    for (const max of isFull ? [2, 20, 25, 30] : [2, 25]) {
      const { message, finish_reason: reason } = await chat({ ...fields, max_tokens: max });
      expect(reason).toBe('length');
      const given = message.tool_calls?.[0]?.function.arguments ?? '';
      expect(whole.startsWith(given)).toBe(true);
      const chunks = await streamed({ ...fields, max_tokens: max });
      const deltas = chunks.flatMap(
        ({ choices: [choice] }) => (choice?.delta as Partial<Message> | undefined)?.tool_calls ?? [],
      );
      expect(deltas.map((delta) => delta.function.arguments).join('')).toBe(given);
      expect(chunks.at(-1)!.choices[0]!.finish_reason).toBe('length');
    }
  });

  it('are texts where a call is not forced', async () => {
    const plain = await chat({ temperature: 0, max_tokens: 8 });
    expect(await chat({ temperature: 0, max_tokens: 8, tools: TOOLS, tool_choice: 'none' })).toEqual(plain);
    expect(await chat({ temperature: 0, max_tokens: 8, tools: [], tool_choice: 'auto' })).toEqual(plain);
    const { message, finish_reason: reason } = await chat({ temperature: 0, max_tokens: 8, tools: TOOLS });
    expect(['stop', 'length']).toContain(reason);
    expect(message).toEqual({ role: 'assistant', content: expect.stringMatching(/./) });
  });

  it('share the prompt of a chat with tools, whatever form its answers must have', async () => {
    const used = async (fields: object) => {
      const { body } = await engine.call(CHAT, ask({ max_tokens: 8, tools: TOOLS, ...fields }));
      return (body as { usage: { prompt_tokens: number } }).usage;
    };
    const { prompt_tokens: promptTokens } = await used({ temperature: 0.5 });
    for (const fields of [{ response_format: format(SCHEMA) }, { tool_choice: 'required' }]) {
      expect(await used({ seed: 1, ...fields })).toMatchObject({
        prompt_tokens: promptTokens,
        prompt_tokens_details: { cached_tokens: promptTokens - 1 },
      });
    }
  });

  it.each<[what: string, path: string, body: object, param: string]>([
    [
      'a keyword',
      CHAT,
      { response_format: format({ type: 'string', pattern: '(a' }) },
      'response_format.json_schema.schema.pattern',
    ],
    [
      'no schema',
      CHAT,
      { response_format: { type: 'json_schema', json_schema: {} } },
      'response_format.json_schema.schema',
    ],
    ['another format', CHAT, { response_format: { type: 'xml' } }, 'response_format.type'],
    ['a schema of llama-server', CHAT, { response_format: { type: 'json_object', schema: {} } }, 'response_format'],
    ['two forms', CHAT, { response_format: { type: 'json_object' }, json_schema: {} }, 'json_schema'],
    ['a schema that is none', PLAIN, { prompt: 'a', json_schema: 'x' }, 'json_schema'],
    ['a choice', PLAIN, { prompt: 'a', structured_outputs: { choice: ['a'] } }, 'structured_outputs'],
    ['a grammar', PLAIN, { prompt: 'a', grammar: 'root ::= "a"' }, 'grammar'],
    ['a call and a form', CHAT, { tools: TOOLS, tool_choice: 'required', json_schema: {} }, 'tool_choice'],
    ['a call of nothing', CHAT, { tool_choice: 'required' }, 'tools'],
    ['a call of no tool', CHAT, { tools: [], tool_choice: 'required' }, 'tools'],
    [
      'a call of another',
      CHAT,
      { tools: TOOLS, tool_choice: { type: 'function', function: { name: 'x' } } },
      'tool_choice.function.name',
    ],
    ['two of a name', CHAT, { tools: [...TOOLS, TOOLS[1]], tool_choice: 'required' }, 'tools[2].function.name'],
    [
      'a name with spaces',
      CHAT,
      { tools: [{ type: 'function', function: { name: 'a b' } }], tool_choice: 'required' },
      'tools[0].function.name',
    ],
    [
      'parameters',
      CHAT,
      { tools: [{ type: 'function', function: { name: 'a', parameters: { pattern: '(' } } }], tool_choice: 'required' },
      'tools[0].function.parameters.pattern',
    ],
    ['chances of a call', CHAT, { tools: TOOLS, tool_choice: 'required', logprobs: true }, 'logprobs'],
    ['another choice', CHAT, { tools: TOOLS, tool_choice: 'any' }, 'tool_choice'],
  ])('are refused with the path: %s', async (_, path, body, param) => {
    const error = await engine.error(path, path === CHAT ? ask(body) : body);
    expect(error).toMatchObject({ status: 400, code: 'WARMPATH_INVALID_REQUEST', param });
  });

  it('free their grammar when the client goes away, and when the answer is cut', async () => {
    const log = new EventLog();
    const stream = engine.stream(
      CHAT,
      ask({ max_tokens: 2000, json_schema: { type: 'array', items: {}, minItems: 900 } }),
    );
    await stream.next();
    await stream.next();
    expect(await engine.metric('warmpath_engine_grammars')).toBe(1);
    stream.destroy();
    await log.until(() => log.ends.some(({ outcome }) => outcome === 'aborted'));
    log.close();
    await chat({ max_tokens: 3, json_schema: {} });
    expect(await engine.metric('warmpath_engine_grammars')).toBe(0);
  });

  it('fit their schema when they lost their cells to others and went on', async () => {
    const narrow = await TestEngine.start({ model: await modelPath(name), contextTokens: 512, hostTier: 0 });
    const schema = { type: 'array', items: { type: 'integer', minimum: 0, maximum: 99 }, minItems: 80, maxItems: 80 };
    const answers = await Promise.all(
      Array.from({ length: 6 }, (_, seed) =>
        narrow.complete(`Say ${seed} numbers.`, { temperature: 1, seed, max_tokens: 450, json_schema: schema }),
      ),
    );
    expect(await narrow.metric('vllm:num_preemptions_total')).toBeGreaterThan(0);
    for (const { choices } of answers) {
      expect(choices[0]!.finish_reason).toBe('stop');
      expect(misfit(choices[0]!.text!, schema)).toBeUndefined();
    }
    expect(await narrow.metric('warmpath_engine_grammars')).toBe(0);
    await narrow.close();
  });

  it('cost nothing where nobody asks for them', async () => {
    const counts = async (): Promise<number> =>
      (await engine.metric('warmpath_engine_grammar_checks_total')) +
      (await engine.metric('warmpath_engine_grammar_masks_total'));
    const before = await counts();
    await chat({ temperature: 1, max_tokens: 20 });
    expect(await counts()).toBe(before);
  });

  it('tell how likely their tokens were, whole and in pieces', async () => {
    const fields = { temperature: 0, max_tokens: 12, logprobs: true, top_logprobs: 3 };
    interface Token {
      token: string;
      logprob: number;
      bytes: number[];
      top_logprobs: { token: string; logprob: number }[];
    }
    const { message, logprobs } = await chat(fields);
    const tokens = (logprobs as { content: Token[] }).content;
    expect(Buffer.from(tokens.flatMap(({ bytes }) => bytes)).toString()).toBe(message.content);
    for (const { token, logprob, top_logprobs: top } of tokens) {
      expect(top.length).toBe(3);
      // Greedy: the token is the likeliest one.
      expect(top[0]).toMatchObject({ token, logprob });
      expect(top.map((each) => each.logprob)).toEqual(top.map((each) => each.logprob).sort((a, b) => b - a));
      expect(logprob).toBeLessThanOrEqual(0);
    }
    const chunks = await streamed(fields);
    const pieces = chunks.flatMap(
      ({ choices: [choice] }) =>
        (choice as { logprobs?: { content: Token[] } | null } | undefined)?.logprobs?.content ?? [],
    );
    expect(pieces.map(({ token }) => token)).toEqual(tokens.map(({ token }) => token));
    expect((await chat({ ...fields, logprobs: false, top_logprobs: 0 })).logprobs).toBeNull();

    const plain = await engine.complete('Where is it?', { max_tokens: 6, logprobs: 2 });
    const { text, logprobs: listed } = plain.choices[0] as unknown as {
      text: string;
      logprobs: { tokens: string[]; token_logprobs: number[]; top_logprobs: object[]; text_offset: number[] };
    };
    expect(listed.tokens.length).toBe(listed.token_logprobs.length);
    expect(listed.top_logprobs.length).toBe(listed.tokens.length);
    if (!text.includes('\ufffd')) {
      expect(listed.tokens.join('')).toBe(text);
      expect(listed.text_offset).toEqual(
        listed.tokens.map((_, index) => listed.tokens.slice(0, index).join('').length),
      );
    }
  });
});
