import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { type AnswerBeginning, type AnswerPart, answerReader } from '../../src/chat/answer-reader.js';
import { answerSyntax } from '../../src/chat/answer-syntax.js';
import type { ToolDefinition } from '../../src/chat/messages.js';
import type { TemplateTraits } from '../../src/chat/template-traits.js';

const SCHEMA = {
  type: 'object',
  properties: {
    what: { type: 'string' },
    count: { type: 'integer' },
    tags: { type: 'array' },
    note: { anyOf: [{ type: 'string' }, { type: 'null' }] },
    deep: { type: 'object' },
    exact: { type: 'boolean' },
  },
};
const TOOLS: ToolDefinition[] = ['find', 'get_weather-2'].map((name) => ({
  type: 'function',
  function: { name, parameters: SCHEMA },
}));

const syntaxOf = (source: string) =>
  answerSyntax(source, { isHarmony: source.includes('<|channel|>') } as TemplateTraits);

interface Said {
  readonly content: string;
  readonly reasoning: string;
  readonly calls: readonly { readonly name: string; readonly arguments: unknown }[];
}

function joined(parts: readonly AnswerPart[]): Said {
  const texts = (kind: string): string =>
    parts.map((part) => (part.kind === kind && 'text' in part ? part.text : '')).join('');
  const calls = parts.flatMap((part) =>
    part.kind === 'call' ? [{ name: part.call.name, arguments: JSON.parse(part.call.arguments) as unknown }] : [],
  );
  return { content: texts('content'), reasoning: texts('reasoning'), calls };
}

/** Reads an answer in pieces of the given sizes, over and over. */
function read(
  source: string,
  answer: string,
  {
    sizes = [answer.length + 1],
    begins = 'anew',
    tools = TOOLS,
  }: { sizes?: readonly number[]; begins?: AnswerBeginning; tools?: ToolDefinition[] } = {},
): Said {
  const reader = answerReader(syntaxOf(source), tools, begins);
  const parts: AnswerPart[] = [];
  for (let at = 0, index = 0; at < answer.length; at += sizes[index++ % sizes.length]!) {
    parts.push(...reader.push(answer.slice(at, at + sizes[index % sizes.length]!)));
  }
  return joined([...parts, ...reader.end()]);
}

type Call = { name: string; arguments: Record<string, unknown> };

const gemma = (value: unknown): string =>
  typeof value === 'string'
    ? `<|"|>${value}<|"|>`
    : Array.isArray(value)
      ? `[${value.map(gemma).join(',')}]`
      : typeof value === 'object' && value !== null
        ? `{${Object.entries(value)
            .map(([key, item]) => `${key}:${gemma(item)}`)
            .join(',')}}`
        : JSON.stringify(value);
const python = (value: unknown): string =>
  value === true
    ? 'True'
    : value === false
      ? 'False'
      : value === null
        ? 'None'
        : Array.isArray(value)
          ? `[${value.map(python).join(', ')}]`
          : typeof value === 'object'
            ? `{${Object.entries(value)
                .map(([key, item]) => `'${key}': ${python(item)}`)
                .join(', ')}}`
            : JSON.stringify(value);
const plain = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));
const json = (call: Call): string => JSON.stringify(call);
const entries = (call: Call, form: (key: string, value: unknown) => string): string =>
  Object.entries(call.arguments)
    .map(([key, value]) => form(key, value))
    .join('');

/** How the families write calls; `raw` where texts stand without quotes, so that no tag may stand in them. */
const FORMATS: Record<string, { source: string; write: (calls: Call[]) => string; isRaw?: true }> = {
  'Hermes and Qwen': {
    source: '<tool_call>',
    write: (calls) => calls.map((call) => `<tool_call>\n${json(call)}\n</tool_call>`).join('\n'),
  },
  'Qwen3-Coder': {
    source: '<tool_call><function=',
    isRaw: true,
    write: (calls) =>
      calls
        .map(
          (call) =>
            `<tool_call>\n<function=${call.name}>\n${entries(call, (key, value) => `<parameter=${key}>\n${plain(value)}\n</parameter>\n`)}</function>\n</tool_call>`,
        )
        .join('\n'),
  },
  GLM: {
    source: '<tool_call><arg_key>',
    isRaw: true,
    write: (calls) =>
      calls
        .map(
          (call) =>
            `<tool_call>${call.name}\n${entries(call, (key, value) => `<arg_key>${key}</arg_key>\n<arg_value>${plain(value)}</arg_value>\n`)}</tool_call>`,
        )
        .join(''),
  },
  'Llama 3': {
    source: '<|python_tag|>',
    write: (calls) => calls.map((call) => JSON.stringify({ name: call.name, parameters: call.arguments })).join('; '),
  },
  'Llama 3 behind its tag': {
    source: '<|python_tag|>',
    write: (calls) =>
      `<|python_tag|>${calls.map((call) => JSON.stringify({ name: call.name, parameters: call.arguments })).join('; ')}`,
  },
  'JSON in a fence': { source: '', write: (calls) => `\`\`\`json\n${JSON.stringify(calls, undefined, 2)}\n\`\`\`` },
  'Mistral Nemo': {
    source: '[TOOL_CALLS]',
    write: (calls) => `[TOOL_CALLS] ${JSON.stringify(calls.map((call) => ({ ...call, id: 'abcdefghi' })))}`,
  },
  'Mistral Small 3.2': {
    source: '[TOOL_CALLS]',
    write: (calls) =>
      calls.map((call) => `[TOOL_CALLS]${call.name}[CALL_ID]abcdefghi[ARGS]${JSON.stringify(call.arguments)}`).join(''),
  },
  'Ministral 3': {
    source: '[TOOL_CALLS]',
    write: (calls) => calls.map((call) => `[TOOL_CALLS]${call.name}[ARGS]${JSON.stringify(call.arguments)}`).join(''),
  },
  'Gemma 4': {
    source: '<|tool_call>',
    isRaw: true,
    write: (calls) => calls.map((call) => `<|tool_call>call:${call.name}${gemma(call.arguments)}<tool_call|>`).join(''),
  },
  'LFM 2': {
    source: '<|tool_list_start|>',
    write: (calls) =>
      `<|tool_call_start|>[${calls
        .map(
          (call) =>
            `${call.name}(${Object.entries(call.arguments)
              .map(([key, value]) => `${key}=${python(value)}`)
              .join(', ')})`,
        )
        .join(', ')}]<|tool_call_end|>`,
  },
  'DeepSeek R1': {
    source: '<｜tool▁calls▁begin｜>',
    write: (calls) =>
      `<｜tool▁calls▁begin｜>${calls.map((call) => `<｜tool▁call▁begin｜>function<｜tool▁sep｜>${call.name}\n\`\`\`json\n${JSON.stringify(call.arguments)}\n\`\`\`<｜tool▁call▁end｜>`).join('\n')}<｜tool▁calls▁end｜>`,
  },
  'DeepSeek V3.1': {
    source: '<｜tool▁calls▁begin｜>',
    write: (calls) =>
      `<｜tool▁calls▁begin｜>${calls.map((call) => `<｜tool▁call▁begin｜>${call.name}<｜tool▁sep｜>${JSON.stringify(call.arguments)}<｜tool▁call▁end｜>`).join('')}<｜tool▁calls▁end｜>`,
  },
  'DeepSeek V3.2': {
    source: 'DSML function_calls',
    isRaw: true,
    write: (calls) =>
      `<｜DSML｜function_calls>\n${calls.map((call) => `<｜DSML｜invoke name="${call.name}">\n${entries(call, (key, value) => `<｜DSML｜parameter name="${key}" string="${typeof value === 'string'}">${plain(value)}</｜DSML｜parameter>\n`)}</｜DSML｜invoke>\n`).join('')}</｜DSML｜function_calls>`,
  },
  'Kimi K2': {
    source: '<|tool_calls_section_begin|>',
    write: (calls) =>
      `<|tool_calls_section_begin|>${calls.map((call, index) => `<|tool_call_begin|>functions.${call.name}:${index}<|tool_call_argument_begin|>${JSON.stringify(call.arguments)}<|tool_call_end|>`).join('')}<|tool_calls_section_end|>`,
  },
  'Command R7B': {
    source: '<|START_ACTION|>',
    write: (calls) =>
      `<|START_ACTION|>${JSON.stringify(calls.map((call) => ({ tool_call_id: '0', tool_name: call.name, parameters: call.arguments })))}<|END_ACTION|>`,
  },
  'Granite 3': { source: '<|tool_call|>', write: (calls) => `<|tool_call|>${JSON.stringify(calls)}` },
  'Phi 4 mini': { source: '<|tool_call|>', write: (calls) => `<|tool_call|>${JSON.stringify(calls)}<|/tool_call|>` },
  Apertus: {
    source: '<|tools_prefix|>',
    write: (calls) =>
      `<|tools_prefix|>${JSON.stringify(calls.map((call) => ({ [call.name]: call.arguments })))}<|tools_suffix|>`,
  },
  'MiniMax M2': {
    source: '<minimax:tool_call>',
    isRaw: true,
    write: (calls) =>
      `<minimax:tool_call>\n${calls.map((call) => `<invoke name="${call.name}">\n${entries(call, (key, value) => `<parameter name="${key}">${plain(value)}</parameter>\n`)}</invoke>\n`).join('')}</minimax:tool_call>`,
  },
  'Functionary 3.1': {
    source: '<function=',
    write: (calls) =>
      calls.map((call) => `<function=${call.name}>${JSON.stringify(call.arguments)}</function>`).join(''),
  },
  'Solar Open': {
    source: '<|tool_calls|>',
    write: (calls) =>
      `<|tool_calls|>${calls.map((call, index) => `<|tool_call:begin|>id${index}<|tool_call:name|>${call.name}<|tool_call:args|>${JSON.stringify(call.arguments)}<|tool_call:end|>`).join('')}`,
  },
  FunctionGemma: {
    source: '<start_function_call>',
    isRaw: true,
    write: (calls) =>
      calls
        .map(
          (call) =>
            `<start_function_call>call:${call.name}${gemma(call.arguments).replaceAll('<|"|>', '<escape>')}<end_function_call>`,
        )
        .join(''),
  },
  'MiniCPM 5': {
    source: '<function name="',
    isRaw: true,
    write: (calls) =>
      calls
        .map(
          (call) =>
            `<function name="${call.name}">${entries(call, (key, value) => `<param name="${key}">${typeof value === 'string' ? `<![CDATA[${value}]]>` : plain(value)}</param>`)}</function>`,
        )
        .join('\n'),
  },
  'Seed OSS': {
    source: '<seed:tool_call>',
    isRaw: true,
    write: (calls) =>
      calls
        .map(
          (call) =>
            `<seed:tool_call>\n<function=${call.name}>\n${entries(call, (key, value) => `<parameter=${key}>${plain(value)}</parameter>\n`)}</function>\n</seed:tool_call>`,
        )
        .join('\n'),
  },
  'gpt-oss': {
    source: '<|channel|>',
    write: (calls) =>
      calls
        .map(
          (call) =>
            `<|channel|>commentary to=functions.${call.name} <|constrain|>json<|message|>${JSON.stringify(call.arguments)}<|call|>`,
        )
        .join('<|start|>assistant'),
  },
};

const raw = fc.stringMatching(/^[a-zé€😀 .,:'"\\/-]{0,20}$/u).map((text) => text.trim());
const tagged = fc
  .array(
    fc.constantFrom(
      '</tool_call>',
      '<tool_call>',
      '{"name":',
      '}',
      ']',
      '"',
      "'",
      '\\',
      '\n',
      ' a ',
      '😀',
      '[TOOL_CALLS]',
      '```',
    ),
    { maxLength: 6 },
  )
  .map((parts) => parts.join(''));
const argumentsOf = (text: fc.Arbitrary<string>): fc.Arbitrary<Record<string, unknown>> =>
  fc.record(
    {
      what: text,
      count: fc.integer(),
      tags: fc.array(fc.oneof(text, fc.integer(), fc.boolean()), { maxLength: 3 }),
      note: fc.oneof(
        text.filter((each) => each !== 'null'),
        fc.constant(null),
      ),
      deep: fc.record({
        inner: text,
        list: fc.array(fc.double({ noNaN: true, noDefaultInfinity: true }), { maxLength: 2 }),
      }),
      exact: fc.boolean(),
    },
    { requiredKeys: [] },
  );
const callsOf = (text: fc.Arbitrary<string>): fc.Arbitrary<Call[]> =>
  fc.array(fc.record({ name: fc.constantFrom('find', 'get_weather-2'), arguments: argumentsOf(text) }), {
    minLength: 1,
    maxLength: 3,
  });
const pieces = fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1, maxLength: 5 });
/** As JSON keeps it: no -0. */
const kept = (calls: Call[]): unknown => JSON.parse(JSON.stringify(calls));

describe('calls in an answer', () => {
  it.each(Object.entries(FORMATS))(
    'are read in the form of %s, in pieces of any size',
    (_, { source, write, isRaw }) => {
      fc.assert(
        fc.property(callsOf(isRaw === true ? raw : tagged), pieces, (calls, sizes) => {
          expect(read(source, write(calls), { sizes })).toEqual({ content: '', reasoning: '', calls: kept(calls) });
        }),
        { seed: 38, numRuns: runs(100) },
      );
    },
  );

  const marked = Object.entries(FORMATS).filter(([name]) => !['Llama 3', 'JSON in a fence', 'gpt-oss'].includes(name));

  it.each(marked)('stand behind text: %s', (_, { source, write }) => {
    const calls = [{ name: 'find', arguments: { what: 'hay' } }];
    const sizes = [3, 1, 4];
    expect(read(source, `Let me look. \n\n${write(calls)}`, { sizes })).toEqual({
      content: 'Let me look.',
      reasoning: '',
      calls,
    });
  });

  it.each(marked)('of unknown functions, and what is broken, stay text: %s', (_, { source, write }) => {
    const calls = [{ name: 'other', arguments: { what: 'hay' } }];
    const unknown = `Well: ${write(calls)}\nAnd so on.`;
    expect(read(source, unknown, { sizes: [2] })).toEqual({ content: unknown, reasoning: '', calls: [] });
    const whole = write([{ name: 'find', arguments: { what: 'hay' } }]);
    const cut = whole.slice(0, whole.indexOf('hay') + 2);
    expect(read(source, cut, { sizes: [5] })).toEqual({ content: cut, reasoning: '', calls: [] });
  });

  it('are read behind one that is broken', () => {
    const good = '<tool_call>{"name": "find", "arguments": {}}</tool_call>';
    expect(read('<tool_call>', `<tool_call>{"name": }</tool_call>${good} end`, { sizes: [4] })).toEqual({
      content: '<tool_call>{"name": }</tool_call>end',
      reasoning: '',
      calls: [{ name: 'find', arguments: {} }],
    });
  });

  it.each([
    ['a text for the arguments', '{"name": "find", "arguments": "{\\"what\\": \\"hay\\"}"}', { what: 'hay' }],
    ['no arguments', '{"name": "find"}', {}],
    ['null for them', '{"name": "find", "arguments": null}', {}],
    [
      'the shape of the API',
      '{"type": "function", "function": {"name": "find", "arguments": {"what": "hay"}}}',
      { what: 'hay' },
    ],
    ['line breaks in a text', '{"name": "find", "arguments": {"what": "a\nb"}}', { what: 'a\nb' }],
    [
      'quotes of Python',
      "{'name': 'find', 'arguments': {'what': 'it\\'s', 'exact': True}}",
      { what: "it's", exact: true },
    ],
  ])('may have %s', (_, text, expected) => {
    expect(read('<tool_call>', `<tool_call>${text}</tool_call>`).calls).toEqual([
      { name: 'find', arguments: expected },
    ]);
  });

  it('keep the digits of their numbers', () => {
    const reader = answerReader(syntaxOf('<tool_call>'), TOOLS, 'anew');
    const parts = reader.push(
      '<tool_call>{"name":"find","arguments":{"count":12345678901234567890,"deep":{"x":1.50}}}</tool_call>',
    );
    expect(parts).toEqual([
      { kind: 'call', call: { name: 'find', arguments: '{"count": 12345678901234567890, "deep": {"x": 1.50}}' } },
    ]);
  });

  it('are no calls in a request without functions', () => {
    const text = '<tool_call>{"name": "find", "arguments": {}}</tool_call>';
    expect(read('<tool_call>', text, { tools: [], sizes: [3] })).toEqual({ content: text, reasoning: '', calls: [] });
  });
});

describe('an answer without calls', () => {
  const words = fc.constantFrom(
    '<',
    '<tool',
    '<tool_',
    '</tool_call>',
    '{',
    '{"name": "x"}',
    '[',
    '\n',
    '  ',
    'word',
    '<think',
    '</think>',
    '`',
    '```json\n',
    '<|',
    '[TOOL',
    '😀',
    '{"name"',
    '"find"',
  );
  it.each([
    '<tool_call>',
    '[TOOL_CALLS]',
    '<|python_tag|>',
    '',
    '<tool_call><think></think>',
    '<｜tool▁calls▁begin｜>',
  ])('comes through byte for byte: %s', (source) => {
    fc.assert(
      fc.property(fc.array(words, { maxLength: 20 }), pieces, (parts, sizes) => {
        const text = parts.join('');
        fc.pre(!['<tool_call>', '[TOOL_CALLS]', '<think>'].some((mark) => text.includes(mark)));
        expect(read(source, text, { sizes })).toEqual({ content: text, reasoning: '', calls: [] });
      }),
      { seed: 38, numRuns: runs(200) },
    );
  });

  it('is passed on as it comes, but for what may be a tag', () => {
    const reader = answerReader(syntaxOf('<tool_call><think></think>'), TOOLS, 'anew');
    expect(['He', 'llo ', 'you <', 'b>', ' {"name"'].map((piece) => joined(reader.push(piece)).content)).toEqual([
      'He',
      'llo',
      ' you',
      ' <b>',
      ' {"name"',
    ]);
  });
});

describe('reasoning in an answer', () => {
  const THINK = '<think></think><tool_call>';
  const CALL = '<tool_call>{"name": "find", "arguments": {}}</tool_call>';

  it.each([
    ['between tags', THINK, '<think>\nWhy.\n</think>\n\nSo.', 'anew', 'Why.', 'So.'],
    ['that the prompt has opened', THINK, 'Why.\n</think>\n\nSo.', 'reasoning', 'Why.', 'So.'],
    ['that is cut off', THINK, 'Why <', 'reasoning', 'Why <', ''],
    ['that is empty', THINK, '<think>\n\n</think>\n\nSo.', 'anew', '', 'So.'],
    ['that is missing', THINK, ' So.', 'anew', '', ' So.'],
    ['with a tag in the text behind it', THINK, 'So <think> it.', 'anew', '', 'So <think> it.'],
    ['of Mistral', '[THINK][/THINK]', '[THINK]Why.[/THINK]So.', 'anew', 'Why.', 'So.'],
    ['of Gemma 4', '<|channel>thought<channel|>', '<|channel>thought\nWhy.<channel|>So.', 'anew', 'Why.', 'So.'],
    [
      'of gpt-oss',
      '<|channel|>',
      '<|channel|>analysis<|message|>Why.<|end|><|start|>assistant<|channel|>final<|message|>So.',
      'anew',
      'Why.',
      'So.',
    ],
    [
      'of gpt-oss with a preamble',
      '<|channel|>',
      '<|channel|>analysis<|message|>Why.<|end|><|start|>assistant<|channel|>commentary<|message|>So',
      'anew',
      'Why.',
      'So',
    ],
    [
      'of gpt-oss, gone on with',
      '<|channel|>',
      ' more.<|end|><|start|>assistant<|channel|>final<|message|>So.',
      'reasoning',
      ' more.',
      'So.',
    ],
    ['of gpt-oss, without a channel', '<|channel|>', 'So.', 'anew', '', 'So.'],
    ['of gpt-oss, in the middle of its content', '<|channel|>', ' it.', 'content', '', ' it.'],
  ] as const)('%s', (_, source, answer, begins, reasoning, content) => {
    for (const sizes of [[100], [1], [2, 5, 3]]) {
      expect(read(source, answer, { sizes, begins })).toEqual({ content, reasoning, calls: [] });
    }
  });

  it('stands before calls', () => {
    const calls = [{ name: 'find', arguments: {} }];
    expect(read(THINK, `Why.</think>\n\n${CALL}\n${CALL}\n`, { begins: 'reasoning', sizes: [3] })).toEqual({
      content: '',
      reasoning: 'Why.',
      calls: [...calls, ...calls],
    });
    const channels =
      '<|channel|>analysis<|message|>Why.<|end|><|start|>assistant to=functions.find<|channel|>commentary json<|message|>{}';
    expect(read('<|channel|>', channels, { sizes: [3] })).toEqual({ content: '', reasoning: 'Why.', calls });
  });
});
