import {
  type Arrangement,
  arrange,
  type ChatMessage,
  type LayoutName,
  prepareRequest,
  renderChat,
  renderDocument,
  ServedHistory,
} from '@warmpath/core';
import { type ChatEdit, type ContentPart, chatEdits, LAYOUT_NAMES } from '@warmpath/core/internal';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { applyEdits as applyChatEdits } from '../../core/src/render/layout.js';
import { anyText } from '../../core/test/arbitraries.js';
import { chatApi, messagesApi, responsesApi } from '../src/apis/prompt-apis.js';
import { type PromptApi, PromptView, type ViewedMessages } from '../src/apis/prompt-view.js';
import { applyEdits, BodyView, type ByteEdit, escaped } from '../src/json/json-body.js';
import { DOCUMENTS_PLACE, type DocumentsText, insertDocuments, PLAIN } from '../src/prompt/insert-documents.js';

const SEED = { seed: 20261122 };
const OWN_FIELDS: ReadonlySet<string> = new Set(['documents', 'warmpath']);

/** A number that JavaScript cannot hold. */
const SEED_JSON = '12345678901234567890';

/** Ways in which clients write the same JSON. */
const STYLES = {
  plain: (value: unknown) => JSON.stringify(value),
  indented: (value: unknown) => JSON.stringify(value, null, 2),
  tabbed: (value: unknown) => ` ${JSON.stringify(value, null, '\t')}\r\n`,
  ascii: (value: unknown) =>
    JSON.stringify(value).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  // Of a key that occurs twice the last one counts.
  repeated: (value: unknown) => JSON.stringify(value).replace(/^\{(?=.*"content":)/s, '{"content":[1.0], '),
} as const;
type Style = keyof typeof STYLES;
const style = fc.constantFrom(...(Object.keys(STYLES) as Style[]));

const part: fc.Arbitrary<ContentPart> = fc.oneof(
  fc.record({ type: fc.constant('text'), text: anyText({ maxLength: 6 }) }),
  fc.constant({ type: 'image_url', image_url: { url: 'data:,' } }),
  fc.constant({ type: 'new', content: [{ type: 'tool_result' }] }),
);
const result = fc.record({
  type: fc.constant('tool_result'),
  tool_use_id: fc.constantFrom('a', 'b'),
  content: fc.oneof(anyText(), fc.constant([{ type: 'text', text: 'r' }])),
});
const parts = fc.array(part, { maxLength: 3 });
const anyContent = fc.oneof(
  anyText({ maxLength: 6 }),
  fc.constant(''),
  parts,
  fc.constant(null),
  fc.constant(undefined),
);

/** A message as the client has it, and how it writes it. */
interface Written {
  readonly message: ChatMessage;
  readonly style: Style;
}

function written(roles: readonly string[], content: fc.Arbitrary<unknown>): fc.Arbitrary<Written> {
  const message = fc
    .record({ role: fc.constantFrom(...roles), content, name: fc.constantFrom(undefined, 'é"\\') })
    // Without the members that are not there.
    .map((value) => JSON.parse(JSON.stringify(value)) as ChatMessage);
  return fc.record({ message, style });
}

const item = fc.record({
  message: fc.constantFrom(
    { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' },
    { type: 'function_call_output', call_id: 'c', output: 'r' },
  ) as unknown as fc.Arbitrary<ChatMessage>,
  style,
});

/** Of each API: what may stand in its list of messages, and before it. */
const APIS = {
  chat: {
    api: chatApi as PromptApi,
    message: written(['system', 'developer', 'user', 'assistant', 'tool'], anyContent),
  },
  messages: {
    api: messagesApi as PromptApi,
    message: written(
      ['user', 'assistant'],
      fc.oneof(
        anyContent,
        fc.tuple(fc.array(result, { maxLength: 2 }), parts, fc.array(result, { maxLength: 1 })).map(flat),
      ),
    ),
  },
  responses: {
    api: responsesApi as PromptApi,
    message: fc.oneof({ weight: 3, arbitrary: written(['system', 'user', 'assistant'], anyContent) }, item),
  },
} as const;
type Name = keyof typeof APIS;

function flat(lists: readonly (readonly ContentPart[])[]): readonly ContentPart[] {
  return lists.flat();
}

interface Prompt {
  readonly name: Name;
  readonly opening: unknown;
  readonly messages: readonly Written[] | string;
  /** The members of the body, in their order. */
  readonly order: readonly string[];
  readonly style: Style;
}

function prompt(name: Name): fc.Arbitrary<Prompt> {
  const asked = written(['user'], anyContent);
  const list = fc
    .tuple(fc.array(APIS[name].message, { maxLength: 3 }), asked, fc.array(APIS[name].message, { maxLength: 2 }))
    .map(([before, question, behind]) => [...before, question, ...behind]);
  const text = anyText();
  const openings = {
    chat: fc.constant(undefined),
    messages: fc.oneof(text, parts, fc.constant(null), fc.constant(undefined)),
    responses: fc.oneof(text, fc.constant(null), fc.constant(undefined)),
  };
  return fc.record({
    name: fc.constant(name),
    opening: openings[name],
    messages: name === 'responses' ? fc.oneof({ weight: 3, arbitrary: list }, text) : list,
    order: fc.shuffledSubarray(['opening', 'messages', 'documents', 'warmpath', 'seed', 'tools'], { minLength: 6 }),
    style,
  });
}

const anyPrompt = fc.constantFrom(...(Object.keys(APIS) as Name[])).chain(prompt);

/** What the client sends. */
function bodyOf({ name, opening, messages, order, style: own }: Prompt): Buffer {
  const { members } = PromptMembers[name];
  const list =
    typeof messages === 'string'
      ? STYLES[own](messages)
      : `[${messages.map((each) => STYLES[each.style](each.message)).join(' ,')} ]`;
  const values: Readonly<Record<string, string | undefined>> = {
    [members.messages]: list,
    ...(members.opening !== undefined && opening !== undefined && { [members.opening]: STYLES[own](opening) }),
    documents: '[{"content": "…"}]',
    warmpath: '{ }',
    seed: SEED_JSON,
    tools: '[ {"n":1.0,  "2":1,"1":[]} ]',
  };
  const keys = order.map((key) => (key === 'opening' ? members.opening : key === 'messages' ? members.messages : key));
  const written = keys.flatMap((key) =>
    key === undefined || values[key] === undefined ? [] : [`${JSON.stringify(key)} :${values[key]}`],
  );
  return Buffer.from(` {${written.join(own === 'plain' ? ',' : ' ,\n')}} `);
}

const PromptMembers = {
  chat: { members: chatApi.conversation! },
  messages: { members: messagesApi.conversation as NonNullable<PromptApi['conversation']> },
  responses: { members: responsesApi.conversation as NonNullable<PromptApi['conversation']> },
} as const;

const arrangement: fc.Arbitrary<Arrangement> = fc
  .record({
    contents: fc.array(anyText({ minLength: 1 }), { minLength: 1, maxLength: 3 }),
    hints: fc.boolean(),
  })
  .map(({ contents, hints }) => {
    const documents = contents.map((content, at) => ({ id: `${9 - at}`, content: `x${content}` }));
    const request = prepareRequest({ documents });
    return arrange({ ...request, policy: 'sorted', hints }, new ServedHistory(), 0);
  });

/** The body as it goes to the engine, and what was added to it. */
function inserted(
  prompt: Prompt,
  conversationEdits: (viewed: ViewedMessages) => readonly ChatEdit[],
  documents: DocumentsText,
): { readonly body: Buffer; readonly sent: Buffer; readonly edits: readonly ByteEdit[] } {
  const body = bodyOf(prompt);
  const read = new BodyView(body);
  const view = PromptView.of(read, APIS[prompt.name].api)!;
  const viewed = view.view(0);
  const marks = { member: '"cache_control":{"type":"ephemeral"}', message: undefined };
  const edits = insertDocuments(view, viewed, conversationEdits(viewed), documents, marks);
  return { body, sent: applyEdits(body, [...read.without(OWN_FIELDS), ...edits]), edits };
}

function arranged(prompt: Prompt, layout: LayoutName, arranged: Arrangement, documents: DocumentsText) {
  const options = { layout, template: 'xml', documentsText: DOCUMENTS_PLACE } as const;
  return inserted(prompt, ({ messages }) => chatEdits(messages, arranged, options), documents);
}

const rendered = ({ documents }: Arrangement) => documents.map((document) => escaped(renderDocument(document, 'xml')));

/** What core makes of the prompt, in the words of its API. */
function expected({ name, opening, messages }: Prompt, layout: LayoutName, arranged: Arrangement): object {
  const { members } = PromptMembers[name];
  const given = typeof messages === 'string' ? [asUser(messages)] : messages.map(({ message }) => message);
  const hasOpening = opening !== undefined && opening !== null;
  const halves = name === 'messages' ? given.flatMap(split) : given;
  const system = hasOpening ? [{ role: 'system', content: opening } as ChatMessage] : [];
  const chat = renderChat([...system, ...halves], arranged, { layout, template: 'xml' });
  const isNew = name === 'messages' && !hasOpening && layout === 'system';
  const list = hasOpening || isNew ? chat.slice(1) : chat;
  const isStillText = typeof messages === 'string' && list.length === 1;
  return {
    seed: Number(SEED_JSON),
    tools: [{ n: 1, 1: [], 2: 1 }],
    ...(members.opening !== undefined && opening !== undefined && { [members.opening]: opening }),
    ...((hasOpening || isNew) && { [members.opening!]: named(members.partType, chat[0]!.content) }),
    [members.messages]: isStillText
      ? list[0]!.content
      : joined(list).map((message) => named(members.partType, message)),
  };
}

const asUser = (content: string): ChatMessage => ({ role: 'user', content });

const RESULTS = 'results of tools, the beginning of a message';
const RESULTS_ALONE = 'results of tools, a whole message';

/** Anthropic's results of tools stand in the message of the user's words. */
function split(message: ChatMessage): readonly ChatMessage[] {
  const { role, content } = message;
  const end = Array.isArray(content) ? content.findLastIndex(({ type }) => type === 'tool_result') + 1 : 0;
  if (role !== 'user' || end === 0) return [message];
  const own = content as readonly ContentPart[];
  const words = end < own.length ? [{ ...message, content: own.slice(end) }] : [];
  return [{ ...message, role: words.length > 0 ? RESULTS : RESULTS_ALONE, content: own.slice(0, end) }, ...words];
}

/** One message again of what `split` made two, and of documents that came between them. */
function joined(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const list: ChatMessage[] = [];
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at]!;
    if (message.role === RESULTS_ALONE) {
      list.push({ ...message, role: 'user' });
      continue;
    }
    if (message.role !== RESULTS) {
      list.push(message);
      continue;
    }
    const content = [...(message.content as readonly ContentPart[])];
    let isText: boolean;
    do {
      const next = messages[++at]!.content;
      isText = typeof next === 'string';
      content.push(...(typeof next === 'string' ? [{ type: 'text', text: next }] : (next as readonly ContentPart[])));
    } while (isText);
    list.push({ ...message, role: 'user', content });
  }
  return list;
}

/** With the API's name for the text parts that core adds: documents and hints. */
function named<Value>(partType: string, value: Value): Value {
  const name = (each: unknown) =>
    (each as ContentPart).type === 'text' && /<document|order of relevance/.test(String((each as ContentPart).text))
      ? { ...(each as ContentPart), type: partType }
      : each;
  if (Array.isArray(value)) return value.map(name) as Value;
  const { content } = (value ?? {}) as { content?: unknown };
  return Array.isArray(content) ? { ...value, content: content.map(name) } : value;
}

/** A content as what the model reads of it: texts that stand side by side are one. */
function asRead(content: unknown): readonly unknown[] {
  const pieces: unknown[] = [];
  const given = typeof content === 'string' ? [{ type: 'text', text: content }] : ((content ?? []) as ContentPart[]);
  for (const each of given) {
    if (!/^(input_)?text$/.test(each.type)) pieces.push(each);
    else if (typeof pieces.at(-1) === 'string') pieces.push(`${String(pieces.pop())}${each.text}`);
    else if (each.text !== '') pieces.push(each.text);
  }
  return pieces;
}

function readBody(body: object): object {
  return JSON.parse(JSON.stringify(body), (key, value: unknown) => {
    if (key === 'system' || key === 'instructions') return asRead(value);
    const isMessage = typeof value === 'object' && value !== null && 'role' in value;
    return isMessage ? { ...value, content: asRead((value as { content?: unknown }).content) } : value;
  }) as object;
}

/** Every byte of the client's is still there: only what is no text is replaced. */
function expectOnlyInsertions(body: Buffer, edits: readonly ByteEdit[]): void {
  for (const { start, end } of edits) expect(['', 'null', '""']).toContain(body.toString('utf8', start, end));
}

function expectOtherMembersKept(name: Name, body: Buffer, sent: Buffer): void {
  const [before, after] = [new BodyView(body), new BodyView(sent)];
  const { members } = PromptMembers[name];
  for (const { key } of before.members) {
    if (key === members.messages || key === members.opening) continue;
    expect(after.raw(key)).toBe(OWN_FIELDS.has(key) ? undefined : before.raw(key));
  }
  const kept = before.members.filter(({ key }) => !OWN_FIELDS.has(key)).map(({ key }) => key);
  expect(after.members.map(({ key }) => key).slice(0, kept.length)).toEqual(kept);
}

describe('documents in the bytes of a body', () => {
  it('are what core makes of the parsed messages, and all else stays as the client wrote it', () => {
    fc.assert(
      fc.property(anyPrompt, fc.constantFrom(...LAYOUT_NAMES), arrangement, (given, layout, order) => {
        const whole = { ...PLAIN, groups: rendered(order) };
        const { body, sent, edits } = arranged(given, layout, order, whole);
        expect(JSON.parse(sent.toString())).toEqual(expected(given, layout, order));
        expectOnlyInsertions(body, edits);
        expectOtherMembersKept(given.name, body, sent);
      }),
      { ...SEED, numRuns: runs(2_000) },
    );
  });

  it('read the same where each is a content part of its own, or ends in a breakpoint', () => {
    const form = fc.oneof(
      fc.record({ given: prompt('chat'), how: fc.constant('cut') }),
      fc.record({ given: prompt('messages'), how: fc.constantFrom('cut and marked', 'marked') }),
    );
    fc.assert(
      fc.property(form, fc.constantFrom(...LAYOUT_NAMES), arrangement, ({ given, how }, layout, order) => {
        const groups = rendered(order);
        const marked = new Set(how === 'cut' ? [] : groups.keys());
        const documents = { groups, isCut: how !== 'marked', marked };
        const { body, sent, edits } = arranged(given, layout, order, documents);
        const text = sent.toString();
        expect(readBody(JSON.parse(text))).toEqual(readBody(expected(given, layout, order)));
        expectOnlyInsertions(body, edits);
        expectOtherMembersKept(given.name, body, sent);
        const { partType } = PromptMembers[given.name].members;
        const mark = ',"cache_control":{"type":"ephemeral"}';
        expect(text.split(mark).length - 1).toBe(how === 'cut' ? 0 : how === 'marked' ? 1 : groups.length);
        if (how === 'marked') return;
        const own = groups.map((group) => `{"type":"${partType}","text":"${group}"${how === 'cut' ? '' : mark}}`);
        expect(text).toContain(own.join(','));
      }),
      { ...SEED, numRuns: runs(1_500) },
    );
  });

  it('and texts of earlier turns stand where core puts them: in a message, before it or behind it', () => {
    const edit = fc.record({
      at: fc.nat(5),
      add: fc.constantFrom('text-before', 'text-after', 'message-before', 'message-after') as fc.Arbitrary<
        ChatEdit['add']
      >,
      text: anyText({ minLength: 1 }),
      role: fc.constantFrom('user', 'system'),
    });
    const edits = fc.uniqueArray(edit, { selector: ({ at }) => at, maxLength: 4 });
    fc.assert(
      fc.property(prompt('chat'), edits, (given, all) => {
        const messages = (given.messages as readonly Written[]).map(({ message }) => message);
        const here = all.filter(({ at }) => at < messages.length);
        const none = PLAIN;
        const { body, sent, edits } = inserted(given, () => here, none);
        expect((JSON.parse(sent.toString()) as { messages: object }).messages).toEqual(applyChatEdits(messages, here));
        expectOnlyInsertions(body, edits);
      }),
      { ...SEED, numRuns: runs(1_000) },
    );
  });

  it('are refused where a content is neither text nor parts', () => {
    for (const [name, fields, path] of [
      ['chat', { messages: [{ role: 'user', content: 7 }] }, 'messages[0].content'],
      ['messages', { system: 7, messages: [asUser('q')] }, 'system'],
      ['responses', { input: [{ role: 'user', content: {} }] }, 'input[0].content'],
    ] as const) {
      const view = PromptView.of(new BodyView(Buffer.from(JSON.stringify(fields))), APIS[name].api)!;
      expect(() => view.view(0)).toThrow(expect.objectContaining({ code: 'WARMPATH_INVALID_REQUEST', path }));
    }
  });
});
