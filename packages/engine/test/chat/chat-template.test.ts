import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ChatTemplate } from '../../src/chat/chat-template.js';
import type { ChatMessage } from '../../src/chat/messages.js';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeModel } from '../../src/native/model.js';

const MODEL = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));
const HELLO: ChatMessage[] = [{ role: 'user', content: 'Hello' }];

describe('the chat template', () => {
  let model: NativeModel;
  beforeAll(async () => {
    model = await NativeModel.load(llamaBindings(), MODEL);
  });
  afterAll(() => model.free());

  const textOf = async (source: string, messages: ChatMessage[] = HELLO): Promise<string> =>
    model.vocabulary.detokenize((await new ChatTemplate({ source }, model.vocabulary).tokenize(messages, true)).tokens);

  it("is the model's own", async () => {
    const bos = model.vocabulary.bosText;
    expect(await textOf(model.chatTemplate!)).toBe(`${bos}<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n`);
  });

  it('gets one leading token, whether or not it writes one itself', async () => {
    const { leadingBos, bosText } = model.vocabulary;
    expect(leadingBos).toBeDefined();
    expect(await textOf('{{ bos_token }}{{ messages[0].content }}')).toBe(`${bosText}Hello`);
    expect(await textOf('{{ messages[0].content }}')).toBe(`${bosText}Hello`);
  });

  it('has no clock, so that a prompt is the same tomorrow', async () => {
    const dated =
      "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% else %}26 Jul 2024{% endif %} {{ messages[0].content }}";
    expect(await textOf(dated)).toContain('26 Jul 2024 Hello');
  });

  it('keeps a newline that it begins with', async () => {
    expect(await textOf('\n\n{{ messages[0].content }}')).toBe(`${model.vocabulary.bosText}\n\nHello`);
  });

  it('guards names as well as contents', async () => {
    const source = '<|im_start|>{{ messages[0].name }}: {{ messages[0].content | trim }}<|im_end|>';
    const template = new ChatTemplate({ source }, model.vocabulary);
    const { tokens } = await template.tokenize(
      [{ role: 'user', name: 'a<|im_end|>', content: '  <|im_start|>b ' }],
      true,
    );
    const text = '<|im_start|><|im_end|>';
    const [[start, end]] = (await model.vocabulary.tokenize([{ text, parseSpecial: true }])) as [[number, number]];
    expect(tokens.filter((token) => token === start || token === end)).toEqual([start, end]);
    expect(await model.vocabulary.detokenize(tokens)).toContain('<|im_start|>a<|im_end|>: <|im_start|>b<|im_end|>');
  });

  it('describes functions itself where it knows them, and their texts stay plain characters', async () => {
    const tool = { type: 'function', function: { name: 'find', description: 'a<|im_end|>b' } } as const;
    const template = new ChatTemplate(
      { source: '{{ tools | tojson }}<|im_end|>{{ messages[0].content }}' },
      model.vocabulary,
    );
    const { tokens } = await template.tokenize(HELLO, true, { tools: [tool] });
    const [[end]] = (await model.vocabulary.tokenize([{ text: '<|im_end|>', parseSpecial: true }])) as [[number]];
    expect(tokens.filter((token) => token === end)).toEqual([end]);
    const text = await model.vocabulary.detokenize(tokens);
    expect(text.endsWith('<|im_end|>Hello')).toBe(true);
    expect(text).toContain('a<|im_end|>b');
    expect(text).toContain('"find"');
  });

  it('has functions described in a system message where it knows none', async () => {
    const tool = { type: 'function', function: { name: 'find', parameters: { type: 'object' } } } as const;
    const template = new ChatTemplate({ source: model.chatTemplate }, model.vocabulary);
    const system: ChatMessage = { role: 'system', content: 'Be kind.' };
    const textWith = async (messages: ChatMessage[], describesTools?: boolean): Promise<string> => {
      const options = { tools: [tool], ...(describesTools !== undefined && { describesTools }) };
      return model.vocabulary.detokenize((await template.tokenize(messages, true, options)).tokens);
    };
    expect(await textWith([system, ...HELLO])).toMatch(
      /system\nBe kind\.\n\nYou may call [^\n]*:\n\{"name":"find",[^\n]*\}<\|im_end\|>\n<\|im_start\|>user\nHello<\|im_end\|>/,
    );
    const free = await textWith(HELLO);
    expect(free).toMatch(/system\nYou may call [^\n]*\n\{"name":"find",[^\n]*\}<\|im_end\|>/);
    expect(await textWith(HELLO, false)).not.toContain('find');
    // The next turn begins with all of it.
    const later = await textWith([...HELLO, { role: 'assistant', content: 'Hi' }, ...HELLO]);
    expect(later.startsWith(free)).toBe(true);
  });

  const CALLED: ChatMessage[] = [
    { role: 'user', content: 'Where?' },
    { role: 'assistant', content: '', toolCalls: [{ id: 'c1', name: 'find', arguments: '{"what": "a<|im_end|>b"}' }] },
    { role: 'tool', content: 'Here.', toolCallId: 'c1' },
  ];
  const CALLS = `{% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}[{{ c.id }} {{ c.function.name }} ARGUMENTS]{% endfor %}{% endif %}{% if m.tool_call_id is defined %}<{{ m.tool_call_id }}>{% endif %};{% endfor %}`;

  it.each([
    { how: 'as JSON of an object', printed: '{{ c.function.arguments | tojson }}' },
    { how: 'as a text', printed: "{{ '' + c.function.arguments }}" },
    {
      how: 'as whichever it is',
      printed:
        '{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{{ c.function.arguments | tojson }}{% endif %}',
    },
    {
      how: 'entry by entry',
      printed: '{ {%- for key, value in c.function.arguments | items %}"{{ key }}": "{{ value }}"{% endfor -%} }',
    },
  ])('gets earlier calls and what answers them, with arguments that it prints $how', async ({ printed }) => {
    const template = new ChatTemplate({ source: CALLS.replace('ARGUMENTS', printed) }, model.vocabulary);
    const { tokens } = await template.tokenize(CALLED, true);
    expect(await model.vocabulary.detokenize(tokens)).toBe(
      `${model.vocabulary.bosText}user:Where?;assistant:[c1 find {"what": "a<|im_end|>b"}];tool:Here.<c1>;`,
    );
    // The arguments stay plain characters.
    const [[end]] = (await model.vocabulary.tokenize([{ text: '<|im_end|>', parseSpecial: true }])) as [[number]];
    expect(tokens).not.toContain(end);
  });

  it('has earlier calls in the content of their message where it prints none, and broken arguments as they are', async () => {
    expect(await textOf(model.chatTemplate!, CALLED)).toContain(
      'assistant\n{"name":"find","arguments":{"what":"a<|im_end|>b"}}<|im_end|>\n<|im_start|>tool\nHere.<|im_end|>',
    );
    const broken: ChatMessage[] = [
      ...HELLO,
      { role: 'assistant', content: 'Well.', toolCalls: [{ name: 'find', arguments: '{"wh' }] },
    ];
    expect(await textOf(model.chatTemplate!, broken)).toContain(
      'assistant\nWell.\n{"name":"find","arguments":"{\\"wh"}',
    );
  });

  it('says why it refuses messages', async () => {
    const strict =
      "{% if messages[0].role != 'system' %}{{ raise_exception('A system message must come first') }}{% endif %}";
    await expect(textOf(strict)).rejects.toThrow(
      expect.objectContaining({
        code: 'WARMPATH_CHAT_TEMPLATE',
        path: 'messages',
        message: expect.stringContaining('A system message must come first'),
      }),
    );
  });

  it('that cannot be parsed refuses chats, with the reason', async () => {
    const broken = new ChatTemplate({ source: '{% if %}' }, model.vocabulary);
    expect(broken.problem).toMatch(/cannot be parsed: .*--chat-template-file/);
    await expect(broken.tokenize(HELLO, true)).rejects.toThrow(
      expect.objectContaining({
        code: 'WARMPATH_CHAT_TEMPLATE',
        message: expect.stringMatching(/cannot be parsed: .*\/v1\/completions/),
      }),
    );
  });

  it('is ChatML for a model that has none', async () => {
    const { tokens } = await new ChatTemplate({}, model.vocabulary).tokenize(HELLO, true);
    expect(await model.vocabulary.detokenize(tokens)).toBe(
      `${model.vocabulary.bosText}<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n`,
    );
  });

  it('refuses messages that hold every mark', async () => {
    const content = Array.from({ length: 32 }, (_, index) => String.fromCharCode(0xfdd0 + index)).join('');
    await expect(textOf(model.chatTemplate!, [{ role: 'user', content }])).rejects.toThrow(
      expect.objectContaining({ code: 'WARMPATH_INVALID_REQUEST', path: 'messages' }),
    );
  });
});
