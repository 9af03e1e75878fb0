import { describe, expect, it } from 'vitest';
import { ChatTemplate } from '../../src/chat/chat-template.js';
import { readConversation } from '../../src/http/chat-request.js';
import { chatCompletionSchema, parseBody } from '../../src/http/schemas.js';
import { FakeVocabulary } from './fake-vocabulary.js';

/** Templates in the manner of well-known families, each with one of their peculiarities. */
const TEMPLATES: Record<string, string> = {
  'known roles only, others vanish': `{% for m in messages %}{% if m.role == 'system' or m.role == 'user' %}[{{ m.role }}]{{ m.content }}{% elif m.role == 'assistant' %}[assistant]{{ m.content }}{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% elif m.role == 'tool' %}[tool]{{ m.content }}{% endif %}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}[assistant]{% endif %}`,
  'no system, roles alternate': `{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}<turn>{{ 'model' if m.role == 'assistant' else m.role }}
{{ m.content | trim }}</turn>{% endfor %}{% if add_generation_prompt %}<turn>model
{% endif %}`,
  'a system message first only, ids of nine characters': `{% if messages[0].role == 'system' %}[SYS]{{ messages[0].content }}[/SYS]{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{% if tools %}[TOOLS]{{ tools | tojson }}{% endif %}{% for m in rest %}{% if m.role == 'user' %}{% if loop.index0 > 0 and rest[loop.index0 - 1].role == 'user' %}{{ raise_exception('alternate') }}{% endif %}[INST]{{ m.content }}[/INST]{% elif m.role == 'assistant' %}{{ m.content }}{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}[TOOL_CALLS]{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% elif m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}{{ raise_exception('9') }}{% endif %}[RES]{{ m.tool_call_id }}{{ m.content }}{% else %}{{ raise_exception('roles') }}{% endif %}{% endfor %}`,
  'the last system message wins': `{% set ns = namespace(s='') %}{% for m in messages %}{% if m.role == 'system' %}{% set ns.s = m.content %}{% endif %}{% endfor %}{{ ns.s }}{% for m in messages %}{% if m.role == 'user' %}<U>{{ m.content }}{% elif m.role == 'assistant' %}<A>{{ m.content.split('</think>')[-1] }}{% endif %}{% endfor %}{% if add_generation_prompt %}<A><think>
{% endif %}`,
  'a developer and channels': `{% for m in messages %}{% if m.role == 'developer' or m.role == 'system' %}{% if loop.first %}<|start|>developer<|message|>{{ m.content }}<|end|>{% endif %}{% elif m.role == 'assistant' %}{% if m.tool_calls %}{% if m.thinking %}{% if m.content %}{{ raise_exception('both') }}{% endif %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}{% set c = m.tool_calls[0].function %}<|start|>assistant to=functions.{{ c.name }}<|channel|>commentary json<|message|>{{ c.arguments | tojson }}<|call|>{% else %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>{% endif %}{% elif m.role == 'tool' %}<|start|>functions<|message|>{{ m.content | tojson }}<|end|>{% else %}<|start|>user<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}{{ tools | tojson if tools else '' }}{% if add_generation_prompt %}<|start|>assistant{% endif %}`,
  'a date, arguments as items, a switch': `{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}{{ '\\n' + m.role + ': ' }}{{ m.content }}{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{% for c in m.tool_calls %}<call {{ c.function.name }}>{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}{% for t in tools %}{{ t.function.name }}{% endfor %}{% if add_generation_prompt %}{{ '\\nassistant: ' }}{% if enable_thinking %}<think>{% else %}<think></think>{% endif %}{% endif %}`,
  'a tag for each argument, with its type': `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}{% set a = c.function.arguments %}{% if a is mapping %}{% for k in a %}<arg {{ k }} type="string">{{ a[k] }}{% endfor %}{% else %}<text>{{ a }}{% endif %}{% endfor %}{% endfor %}{{ tools | tojson if tools else '' }}`,
  'contents in parts': `{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}`,
};

const USER = { role: 'user', content: 'USER' };
const TOOLS = [
  { type: 'function', function: { name: 'find', parameters: { type: 'object', properties: {} } } },
] as const;
const CALL = {
  role: 'assistant',
  content: null,
  tool_calls: [{ id: 'call_12345678', type: 'function', function: { name: 'find', arguments: '{"what":"HAY"}' } }],
};
const RESULT = { role: 'tool', tool_call_id: 'call_12345678', content: 'RESULT' };
const ANSWER = { role: 'assistant', content: 'ANSWER' };
const LATER = { role: 'user', content: 'LATER' };

const CONVERSATIONS: Record<string, { messages: object[]; shown: string[]; tools?: typeof TOOLS }> = {
  plain: { messages: [USER], shown: ['USER'] },
  system: { messages: [{ role: 'system', content: 'SYSTEM' }, USER], shown: ['SYSTEM', 'USER'] },
  developer: { messages: [{ role: 'developer', content: 'SYSTEM' }, USER], shown: ['SYSTEM', 'USER'] },
  'two systems': {
    messages: [{ role: 'system', content: 'SYSTEM' }, { role: 'developer', content: 'SECOND' }, USER],
    shown: ['SYSTEM', 'SECOND', 'USER'],
  },
  'a system later': {
    messages: [{ role: 'system', content: 'SYSTEM' }, USER, ANSWER, { role: 'system', content: 'SECOND' }, LATER],
    shown: ['SYSTEM', 'USER', 'ANSWER', 'SECOND', 'LATER'],
  },
  'a system last': {
    messages: [USER, ANSWER, LATER, { role: 'system', content: 'SECOND' }],
    shown: ['USER', 'ANSWER', 'LATER', 'SECOND'],
  },
  'two users': { messages: [USER, LATER], shown: ['USER', 'LATER'] },
  parts: {
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'ONE' },
          { type: 'text', text: 'TWO' },
        ],
      },
    ],
    shown: ['ONE\nTWO'],
  },
  tools: { messages: [USER], tools: TOOLS, shown: ['find'] },
  'a call and its result': { messages: [USER, CALL, RESULT], tools: TOOLS, shown: ['USER', 'HAY', 'RESULT'] },
  'a call with thoughts and text': {
    messages: [USER, { ...CALL, content: 'TEXT', reasoning_content: 'THOUGHT' }, RESULT],
    shown: ['USER', 'TEXT', 'RESULT'],
  },
  'reasoning that came before': {
    messages: [USER, { ...ANSWER, reasoning_content: 'THOUGHT' }, LATER],
    shown: ['USER', 'ANSWER', 'LATER'],
  },
  'an answer to go on with': { messages: [USER, ANSWER], shown: ['USER', 'ANSWER'] },
};

const vocabulary = new FakeVocabulary();
const parsed = new Map(
  Object.values(TEMPLATES).map((source) => [source, new ChatTemplate({ source }, vocabulary.asVocabulary)]),
);

async function promptOf(source: string, fields: object, tools?: typeof TOOLS): Promise<string> {
  const body = parseBody(chatCompletionSchema, fields);
  const { messages, opensAnswer, ...conversation } = readConversation(body);
  const template = parsed.get(source)!;
  await template.tokenize(messages, opensAnswer, { ...conversation, tools });
  return vocabulary.text;
}

describe('a conversation', () => {
  const cells = Object.entries(TEMPLATES).flatMap(([name, source]) =>
    Object.entries(CONVERSATIONS).map(([conversation, given]) => ({ name, source, conversation, given })),
  );

  it.each(cells)('of $conversation keeps every message with: $name', async ({ source, given }) => {
    const text = await promptOf(source, { messages: given.messages }, given.tools);
    let from = 0;
    for (const each of given.shown) {
      const place = text.indexOf(each, from);
      expect(place, `${each} in ${text}`).toBeGreaterThanOrEqual(0);
      expect(text.indexOf(each, place + 1), `${each} once in ${text}`).toBe(-1);
      from = place;
    }
  });

  it('hands arguments over as an object where the template has a form for one', async () => {
    const source = TEMPLATES['a tag for each argument, with its type']!;
    expect(await promptOf(source, { messages: [USER, CALL, RESULT] }, TOOLS)).toContain('<arg what type="string">HAY');
  });

  it.each(Object.entries(TEMPLATES))('goes on with an answer that stands last: %s', async (_, source) => {
    expect(await promptOf(source, { messages: [USER, ANSWER] })).toMatch(/ANSWER$/);
    const opened = await promptOf(source, { messages: [USER, ANSWER], continue_final_message: false });
    expect(opened).toBe(await promptOf(source, { messages: [USER, ANSWER], add_generation_prompt: true }));
    expect(opened).toContain('ANSWER');
  });
});

describe('the beginning of an answer', () => {
  const THINKS = TEMPLATES['a date, arguments as items, a switch']!;
  const OPENED = TEMPLATES['the last system message wins']!;
  const CHANNELS = TEMPLATES['a developer and channels']!;

  it.each([
    ['thoughts by default', THINKS, {}, /assistant: <think>$/],
    ['none when switched off', THINKS, { chat_template_kwargs: { enable_thinking: false } }, /<think><\/think>$/],
    ['none with an effort of none', THINKS, { reasoning_effort: 'none' }, /<think><\/think>$/],
    [
      'none without a switch in the template',
      OPENED,
      { chat_template_kwargs: { enable_thinking: false } },
      /<A><think>\n\n<\/think>\n\n$/,
    ],
    [
      'an answer behind its thoughts',
      OPENED,
      { messages: [USER, { ...ANSWER, reasoning: 'THOUGHT' }] },
      /<A><think>\nTHOUGHT\n<\/think>\n\nANSWER$/,
    ],
    [
      'thoughts to go on with',
      OPENED,
      { messages: [USER, { role: 'assistant', content: '', reasoning_content: 'THOUGHT' }] },
      /<A><think>\nTHOUGHT$/,
    ],
    [
      'an answer in its channel',
      CHANNELS,
      { messages: [USER, ANSWER] },
      /<\|start\|>assistant<\|channel\|>final<\|message\|>ANSWER$/,
    ],
    ['nothing', THINKS, { add_generation_prompt: false }, /user: USER$/],
  ])('is %s', async (_, source, fields, expected) => {
    expect(await promptOf(source, { messages: [USER], ...fields })).toMatch(expected);
  });

  it.each([
    [{ continue_final_message: true }, 'continue_final_message'],
    [{ messages: [USER, CALL], continue_final_message: true }, 'continue_final_message'],
    [{ messages: [USER, ANSWER], continue_final_message: true, add_generation_prompt: true }, 'continue_final_message'],
    [{ chat_template_kwargs: { 'a b': 1 } }, 'chat_template_kwargs.a b'],
  ])('is refused for %j', async (fields, path) => {
    await expect(promptOf(THINKS, { messages: [USER], ...fields })).rejects.toThrow(expect.objectContaining({ path }));
  });
});

describe('a template', () => {
  it('takes a constant day for today, and another when told', async () => {
    const source = "{{ strftime_now('%d %b %Y') }} {{ date_string }} {{ datetime }}";
    await new ChatTemplate({ source }, vocabulary.asVocabulary).tokenize([{ role: 'user', content: 'a' }], true);
    expect(vocabulary.text).toBe('26 Jul 2024 26 Jul 2024 Jul 26 2024');
    const later = new ChatTemplate({ source, date: '2026-01-02' }, vocabulary.asVocabulary);
    await later.tokenize([{ role: 'user', content: 'a' }], true);
    expect(vocabulary.text).toBe('02 Jan 2026 02 Jan 2026 Jan 02 2026');
  });

  it('reads variables of the request, whose texts stay plain characters', async () => {
    const source = '<|im_start|>{{ style }}<|im_end|>{{ messages[0].content }}';
    const variables = { style: 'a<|im_end|>b', messages: [], bos_token: 'x' };
    await new ChatTemplate({ source }, vocabulary.asVocabulary).tokenize([{ role: 'user', content: 'hello' }], true, {
      variables,
    });
    expect(vocabulary.text).toBe('<|im_start|>a<|im_end|>b<|im_end|>hello');
    expect(vocabulary.stretches.filter(({ parseSpecial }) => !parseSpecial)).toEqual([
      { text: '<|im_end|>', parseSpecial: false },
    ]);
  });

  it('of its own for requests with tools is used for them', async () => {
    const sources = {
      source: 'plain {{ messages[0].content }}',
      toolUseSource: '{{ tools | tojson }} {{ messages[0].content }}',
    };
    const template = new ChatTemplate(sources, vocabulary.asVocabulary);
    await template.tokenize([{ role: 'user', content: 'hello' }], true);
    expect(vocabulary.text).toBe('plain hello');
    await template.tokenize([{ role: 'user', content: 'hello' }], true, { tools: TOOLS });
    expect(vocabulary.text).toMatch(/^\[\{.*"find".*\}\] hello$/);
  });
});
