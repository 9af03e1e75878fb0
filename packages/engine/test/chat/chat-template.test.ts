import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ChatMessage, ChatTemplate } from '../../src/chat/chat-template.js';
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

  const textOf = (source: string, messages: ChatMessage[] = HELLO): string =>
    model.vocabulary.detokenize(new ChatTemplate(source, model.vocabulary).tokenize(messages, true).tokens);

  it("is the model's own", () => {
    const bos = model.vocabulary.bosText;
    expect(textOf(model.chatTemplate!)).toBe(`${bos}<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n`);
  });

  it('gets one leading token, whether or not it writes one itself', () => {
    const { leadingBos, bosText } = model.vocabulary;
    expect(leadingBos).toBeDefined();
    expect(textOf('{{ bos_token }}{{ messages[0].content }}')).toBe(`${bosText}Hello`);
    expect(textOf('{{ messages[0].content }}')).toBe(`${bosText}Hello`);
  });

  it('has no clock, so that a prompt is the same tomorrow', () => {
    const dated =
      "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% else %}26 Jul 2024{% endif %} {{ messages[0].content }}";
    expect(textOf(dated)).toContain('26 Jul 2024 Hello');
  });

  it('keeps a newline that it begins with', () => {
    expect(textOf('\n\n{{ messages[0].content }}')).toBe(`${model.vocabulary.bosText}\n\nHello`);
  });

  it('guards names as well as contents', () => {
    const source = '<|im_start|>{{ messages[0].name }}: {{ messages[0].content | trim }}<|im_end|>';
    const template = new ChatTemplate(source, model.vocabulary);
    const { tokens } = template.tokenize([{ role: 'user', name: 'a<|im_end|>', content: '  <|im_start|>b ' }], true);
    const [start, end] = model.vocabulary.tokenize('<|im_start|><|im_end|>', { parseSpecial: true });
    expect(tokens.filter((token) => token === start || token === end)).toEqual([start, end]);
    expect(model.vocabulary.detokenize(tokens)).toContain('<|im_start|>a<|im_end|>: <|im_start|>b<|im_end|>');
  });

  it('describes functions itself where it knows them, and their texts stay plain characters', () => {
    const tool = { type: 'function', function: { name: 'find', description: 'a<|im_end|>b' } } as const;
    const template = new ChatTemplate('{{ tools | tojson }}<|im_end|>{{ messages[0].content }}', model.vocabulary);
    const { tokens } = template.tokenize(HELLO, true, [tool]);
    const [end] = model.vocabulary.tokenize('<|im_end|>', { parseSpecial: true });
    expect(tokens.filter((token) => token === end)).toEqual([end]);
    const text = model.vocabulary.detokenize(tokens);
    expect(text.endsWith('<|im_end|>Hello')).toBe(true);
    expect(text).toContain('a<|im_end|>b');
    expect(text).toContain('"find"');
  });

  it('has functions described behind the last message where it knows none', () => {
    const tool = { type: 'function', function: { name: 'find', parameters: { type: 'object' } } } as const;
    const template = new ChatTemplate(model.chatTemplate, model.vocabulary);
    const messages: ChatMessage[] = [{ role: 'system', content: 'Be kind.' }, ...HELLO];
    const plain = template.tokenize(messages, true);
    const described = template.tokenize(messages, true, [tool]);
    const text = model.vocabulary.detokenize(described.tokens);
    expect(text).toMatch(
      /user\nHello\n\nAnswer with a call [^\n]*:\n\{"name":"find",[^\n]*\}<\|im_end\|>\n<\|im_start\|>assistant\n$/,
    );
    // What was cached of the messages alone is of use.
    const place = described.boundaries.at(-2)!;
    expect(described.tokens.slice(0, place)).toEqual(plain.tokens.slice(0, place));
    expect(model.vocabulary.detokenize(described.tokens.slice(0, place)).endsWith('Hello')).toBe(true);
  });

  it('says why it refuses messages', () => {
    const strict =
      "{% if messages[0].role != 'system' %}{{ raise_exception('A system message must come first') }}{% endif %}";
    expect(() => textOf(strict)).toThrow(
      expect.objectContaining({
        code: 'WARMPATH_CHAT_TEMPLATE',
        path: 'messages',
        message: expect.stringContaining('A system message must come first'),
      }),
    );
  });

  it('is refused when it cannot be parsed, and missed when there is none', () => {
    expect(() => new ChatTemplate('{% if %}', model.vocabulary)).toThrow(
      expect.objectContaining({ code: 'WARMPATH_MODEL_FILE' }),
    );
    expect(() => new ChatTemplate(undefined, model.vocabulary).tokenize(HELLO, true)).toThrow(
      expect.objectContaining({ code: 'WARMPATH_CHAT_TEMPLATE', message: expect.stringContaining('/v1/completions') }),
    );
  });

  it('refuses messages that hold every mark', () => {
    const content = Array.from({ length: 32 }, (_, index) => String.fromCharCode(0xfdd0 + index)).join('');
    expect(() => textOf(model.chatTemplate!, [{ role: 'user', content }])).toThrow(
      expect.objectContaining({ code: 'WARMPATH_INVALID_REQUEST', path: 'messages' }),
    );
  });
});
