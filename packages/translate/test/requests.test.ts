import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { type TranslatedApi, TranslateError, translate } from '../src/index.js';

interface ChatBody {
  readonly messages: readonly {
    readonly role: string;
    readonly content: string | null | readonly Record<string, unknown>[];
    readonly reasoning_content?: string;
    readonly tool_call_id?: string;
    readonly tool_calls?: readonly { readonly id: string; readonly function: { name: string; arguments: string } }[];
  }[];
  readonly [field: string]: unknown;
}

function toChat(api: TranslatedApi, body: object | string): ChatBody {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return JSON.parse(translate({ api, body: Buffer.from(text) }).body) as ChatBody;
}

/** What a chat body says, piece by piece, as `role kind value`. */
function piecesOf({ messages }: ChatBody): string[] {
  return messages.flatMap(({ role, content, reasoning_content: reasoning, tool_calls: calls, tool_call_id: of }) => {
    const parts = typeof content === 'string' ? [{ type: 'text', text: content }] : (content ?? []);
    return [
      ...(reasoning === undefined ? [] : [`${role} reasoning ${reasoning}`]),
      ...parts.map((part) => `${role} ${pieceOf(part)}${of === undefined ? '' : ` of ${of}`}`),
      ...(calls ?? []).map(({ id, function: { name, arguments: text } }) => `${role} call ${id} ${name} ${text}`),
    ];
  });
}

function pieceOf(part: Record<string, unknown>): string {
  if (part['type'] === 'text') return `text ${part['text'] as string}`;
  if (part['type'] === 'image_url') return `image ${(part['image_url'] as { url: string }).url}`;
  return `${part['type'] as string} ${JSON.stringify(part['file'] ?? part['refusal'])}`;
}

/** A piece of a request: how the API writes it, and what must come out. */
interface Piece {
  readonly given: unknown;
  readonly pieces: readonly string[];
}

const short = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 12 });
/** Long ones are copied from the body. */
const word = fc.oneof({ weight: 4, arbitrary: short }, { weight: 1, arbitrary: short.map((it) => it.repeat(200)) });
const argumentsText = fc.dictionary(word, fc.jsonValue({ maxDepth: 1 })).map((value) => JSON.stringify(value));

describe('a Messages request', () => {
  const text: fc.Arbitrary<Piece> = word.map((it) => ({ given: { type: 'text', text: it }, pieces: [`text ${it}`] }));
  const image: fc.Arbitrary<Piece> = fc.constantFrom<Piece>(
    {
      given: { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA==' } },
      pieces: ['image data:image/png;base64,AA=='],
    },
    { given: { type: 'image', source: { type: 'url', url: 'https://x/y' } }, pieces: ['image https://x/y'] },
  );
  const document: fc.Arbitrary<Piece> = fc.tuple(word, word).map(([title, data]) => ({
    given: { type: 'document', title, source: { type: 'text', media_type: 'text/plain', data } },
    pieces: [`text ${title}`, `text ${data}`],
  }));
  const search: fc.Arbitrary<Piece> = fc.tuple(word, word).map(([title, data]) => ({
    given: { type: 'search_result', title, source: 'https://s', content: [{ type: 'text', text: data }] },
    pieces: [`text ${title}`, 'text https://s', `text ${data}`],
  }));
  const part = fc.oneof(text, image, document, search);
  const readable = fc.oneof(text, document, search);
  const result = fc.tuple(word, fc.oneof(word, fc.array(readable, { minLength: 1, maxLength: 3 }))).map(
    ([id, content]): Piece => ({
      given: {
        type: 'tool_result',
        tool_use_id: id,
        content: typeof content === 'string' ? content : content.map(({ given }) => given),
      },
      pieces: (typeof content === 'string' ? [`text ${content}`] : content.flatMap(({ pieces }) => pieces)).map(
        (piece) => `tool ${piece} of ${id}`,
      ),
    }),
  );
  const said = part.map((it): Piece => ({ given: it.given, pieces: it.pieces.map((piece) => `user ${piece}`) }));
  const user = fc
    .tuple(fc.array(result, { maxLength: 3 }), fc.array(said, { minLength: 1, maxLength: 4 }))
    .map(([results, own]) => [...results, ...own])
    .map(
      (blocks): Piece => ({
        given: { role: 'user', content: blocks.map(({ given }) => given) },
        pieces: blocks.flatMap(({ pieces }) => pieces),
      }),
    );
  const call = fc.tuple(word, word, argumentsText).map(
    ([id, name, input]): Piece => ({
      given: { type: 'tool_use', id, name, input: JSON.parse(input) as unknown },
      pieces: [`assistant call ${id} ${name} ${input}`],
    }),
  );
  const thinking = word.map(
    (it): Piece => ({
      given: { type: 'thinking', thinking: it, signature: 's' },
      pieces: [`assistant reasoning ${it}`],
    }),
  );
  const assistant = fc
    .tuple(fc.array(thinking, { maxLength: 1 }), fc.array(text, { maxLength: 2 }), fc.array(call, { maxLength: 3 }))
    .filter(([, texts, calls]) => texts.length + calls.length > 0)
    .map(([thoughts, texts, calls]): Piece => {
      const written = texts.map(({ given, pieces }) => ({ given, pieces: pieces.map((it) => `assistant ${it}`) }));
      const blocks = [...thoughts, ...written, ...calls];
      return {
        given: { role: 'assistant', content: blocks.map(({ given }) => given) },
        pieces: blocks.flatMap(({ pieces }) => pieces),
      };
    });
  const plain = fc
    .tuple(fc.constantFrom('user', 'assistant'), word)
    .map(([role, content]): Piece => ({ given: { role, content }, pieces: [`${role} text ${content}`] }));

  it('loses nothing: every text, image, call and result is there once, in its order', () => {
    fc.assert(
      fc.property(
        fc.oneof(word, fc.array(text, { minLength: 1, maxLength: 3 })),
        fc.array(fc.oneof(user, assistant, plain), { maxLength: 8 }),
        (system, messages) => {
          const chat = toChat('messages', {
            model: 'm',
            max_tokens: 5,
            system: typeof system === 'string' ? system : system.map(({ given }) => given),
            messages: messages.map(({ given }) => given),
          });
          const opening = typeof system === 'string' ? [`text ${system}`] : system.flatMap(({ pieces }) => pieces);
          expect(piecesOf(chat)).toEqual([
            ...opening.map((piece) => `system ${piece}`),
            ...messages.flatMap(({ pieces }) => pieces),
          ]);
        },
      ),
      { seed: 21, numRuns: runs(300) },
    );
  });

  it('keeps what stands between results of tools between them', () => {
    const text = (it: string) => ({ type: 'text', text: it });
    const result = (id: string) => ({ type: 'tool_result', tool_use_id: id, content: `result ${id}` });
    const content = [text('a'), result('b'), text('c'), text('d'), result('e')];
    expect(piecesOf(toChat('messages', { messages: [{ role: 'user', content }] }))).toEqual([
      'user text a',
      'tool text result b of b',
      'user text c',
      'user text d',
      'tool text result e of e',
    ]);
  });

  it('has the engine go on with what the assistant is to begin with', () => {
    const messages = [
      { role: 'user', content: 'Q' },
      { role: 'assistant', content: 'The answer is' },
    ];
    const goesOn = { continue_final_message: true, add_generation_prompt: false };
    expect(toChat('messages', { messages })).toMatchObject(goesOn);
    expect(toChat('messages', { messages: messages.slice(0, 1) })).not.toHaveProperty('continue_final_message');
    expect(toChat('messages', { messages: [...messages, messages[0]] })).not.toHaveProperty('continue_final_message');
  });

  it('keeps what the engine reads, says the rest in other words, and leaves unknown members as they were written', () => {
    const schema = '{"type":"object","properties":{"2":{},"1":{"default":12345678901234567890}}}';
    const chat = translate({
      api: 'messages',
      body: Buffer.from(`{"model":"m","max_tokens":7,"temperature":1.0,"top_k":3,"stop_sequences":["x"],"stream":true,
        "tools":[{"name":"f","description":"d","input_schema":${schema},"cache_control":{"type":"ephemeral"}}],
        "tool_choice":{"type":"any","disable_parallel_tool_use":true},"metadata":{"user_id":"u"},
        "thinking":{"type":"enabled","budget_tokens":1024},"service_tier":"auto","min_p":1e-2,
        "output_config":{"effort":"low","format":{"type":"json_schema","schema":${schema}}},
        "messages":[{"role":"user","content":"Q"},
          {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"n":12345678901234567890}}]},
          {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"no","is_error":true}]}],
        "documents":[{"content":"D"}],"warmpath":{"hints":false}}`),
    });
    expect(chat.warnings.map(({ path }) => path)).toEqual(['service_tier', 'thinking']);
    expect(chat.body).toBe(
      [
        '{"model":"m","messages":[{"role":"user","content":"Q"}',
        '{"role":"assistant","content":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{\\"n\\":12345678901234567890}"}}]}',
        '{"role":"tool","tool_call_id":"t","content":[{"type":"text","text":"Error:"},{"type":"text","text":"no"}]}]',
        `"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":${schema}}}]`,
        '"tool_choice":"required","parallel_tool_calls":false,"reasoning_effort":"low"',
        `"response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":${schema},"strict":true}}`,
        '"stop":["x"],"user":"u","max_tokens":7,"temperature":1.0,"top_k":3,"min_p":1e-2',
        '"documents":[{"content":"D"}],"warmpath":{"hints":false},"stream":true,"stream_options":{"include_usage":true}}',
      ].join(','),
    );
  });

  it.each([
    ['bash_20241022', 'bash', ['command', 'restart']],
    ['bash_20250124', 'bash', ['command', 'restart']],
    ['text_editor_20250124', 'str_replace_editor', ['command', 'path', 'old_str']],
    ['text_editor_20250728', 'str_replace_based_edit_tool', ['command', 'path', 'old_str']],
    ['memory_20250818', 'memory', ['command', 'path', 'insert_text']],
    ['computer_20251124', 'computer', ['action', 'coordinate']],
  ])('has a tool that the client runs as a function: %s', (type, name, members) => {
    const tool = { type, name, display_width_px: 800, display_height_px: 600, cache_control: { type: 'ephemeral' } };
    const request = { messages: [], tools: [tool], tool_choice: { type: 'tool', name } };
    const { body, warnings } = translate({ api: 'messages', body: Buffer.from(JSON.stringify(request)) });
    expect(warnings).toEqual([]);
    const chat = JSON.parse(body) as ChatBody;
    const [written] = chat['tools'] as { function: { description: string; parameters: { properties: object } } }[];
    expect(written).toMatchObject({ type: 'function', function: { name } });
    expect(Object.keys(written!.function.parameters.properties)).toEqual(expect.arrayContaining(members));
    expect(written!.function.description.includes('800 x 600')).toBe(true);
    expect(chat['tool_choice']).toEqual({ type: 'function', function: { name } });
  });

  it('is refused where the form of the answer has no equivalent', () => {
    const body = { messages: [], output_format: { type: 'grammar' } };
    expectRefusal('messages', body, 'WARMPATH_NOT_TRANSLATABLE', 'output_format.type');
  });

  const asked = (...content: object[]) => ({ messages: [{ role: 'user', content }] });
  const wrote = (...content: object[]) => ({ messages: [{ role: 'assistant', content }] });
  const A = { type: 'text', text: 'a' };

  it.each<[string, object, string[]]>([
    ['tools[0].type', { messages: [], tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, []],
    ['tools[0].type', { messages: [], tools: [{ type: 'code_execution_20250825', name: 'code_execution' }] }, []],
    ['tools[0].type', { messages: [], tools: [{ type: 'computer_toolset_20260801' }] }, []],
    ['tools[1].type', { messages: [], tools: [{ name: 'f' }, { type: 'mcp_toolset' }] }, []],
    ['container', { messages: [], container: 'c' }, []],
    ['mcp_servers', { messages: [], mcp_servers: [{ url: 'x' }] }, []],
    ['messages[0].content[1].type', asked(A, { type: 'new' }), ['user text a', 'user text [new left out]']],
    ['messages[0].content[0].type', wrote({ type: 'redacted_thinking', data: 'E' }, A), ['assistant text a']],
    ['messages[0].content[0].type', wrote({ type: 'thinking', thinking: '', signature: 'E' }, A), ['assistant text a']],
    [
      'messages[0].content[1].type',
      wrote(A, { type: 'server_tool_use', id: 's' }, A),
      ['assistant text a', 'assistant text a'],
    ],
    ['messages[0].content[0].type', wrote({ type: 'web_search_tool_result', content: [] }, A), ['assistant text a']],
    ['messages[0].content[0].type', wrote({ type: 'fallback' }, A), ['assistant text a']],
    [
      'messages[0].content[0].source.type',
      asked({ type: 'image', source: { type: 'file', file_id: 'f' } }),
      ['user text [image left out]'],
    ],
    [
      'messages[0].content[0].source.type',
      asked({ type: 'document', title: 't', source: { type: 'url', url: 'https://x' } }),
      ['user text t', 'user text [document left out]'],
    ],
    [
      'messages[0].content[0].citations',
      asked({ type: 'document', source: { type: 'text', data: 'd' }, citations: { enabled: true } }),
      ['user text d'],
    ],
    [
      'messages[0].content[0].content[1].type',
      asked({ type: 'tool_result', tool_use_id: 't', content: [A, { type: 'new' }] }),
      ['tool text a of t', 'tool text [new left out] of t'],
    ],
  ])('goes on without what has no equivalent, with a warning: %s in %j', (path, body, pieces) => {
    expectWarning('messages', body, path, pieces);
  });

  it('names each kind of what is left out once', () => {
    const thought = { role: 'assistant', content: [{ type: 'redacted_thinking' }, { type: 'server_tool_use' }] };
    const body = Buffer.from(JSON.stringify({ messages: [thought, thought, thought] }));
    expect(translate({ api: 'messages', body }).warnings.map(({ path }) => path)).toEqual([
      'messages[0].content[0].type',
      'messages[0].content[1].type',
    ]);
  });

  it('reads which tools a search has found', () => {
    const found = { type: 'tool_result', tool_use_id: 't', content: [{ type: 'tool_reference', tool_name: 'Weigh' }] };
    expect(piecesOf(toChat('messages', asked(found)))).toEqual(['tool text Weigh of t']);
  });

  it.each([
    ['messages', { messages: 'x' }],
    ['messages[0]', { messages: [3] }],
    ['messages[0].role', { messages: [{ role: 'tool', content: 'x' }] }],
    ['messages[0].content[0].text', { messages: [{ role: 'user', content: [{ type: 'text' }] }] }],
    ['messages[0].content', { messages: [{ role: 'user', content: 3 }] }],
    ['tools[0].name', { messages: [], tools: [{}] }],
    ['tool_choice.type', { messages: [], tool_choice: { type: 'x' } }],
    ['tools', { messages: [], tools: 'x' }],
  ])('is refused where it is wrong: %s', (path, body) => {
    expectRefusal('messages', body, 'WARMPATH_INVALID_REQUEST', path);
  });
});

describe('a Responses request', () => {
  const part = fc.oneof(
    word.map((it): Piece => ({ given: { type: 'input_text', text: it }, pieces: [`text ${it}`] })),
    fc.constant<Piece>({
      given: { type: 'input_image', image_url: 'https://x/y', detail: 'low' },
      pieces: ['image https://x/y'],
    }),
    fc.constant<Piece>({
      given: { type: 'input_file', filename: 'f', file_data: 'data:x' },
      pieces: ['file {"filename":"f","file_data":"data:x"}'],
    }),
  );
  const parts = fc.array(part, { minLength: 1, maxLength: 3 });
  const message = fc
    .tuple(fc.constantFrom('user', 'system', 'developer'), fc.oneof(word, parts), fc.boolean())
    .map(([role, content, typed]): Piece => {
      const said = role === 'developer' ? 'system' : role;
      return {
        given: {
          ...(typed && { type: 'message' }),
          role,
          content: typeof content === 'string' ? content : content.map(({ given }) => given),
        },
        pieces: (typeof content === 'string' ? [`text ${content}`] : content.flatMap(({ pieces }) => pieces)).map(
          (piece) => `${said} ${piece}`,
        ),
      };
    });
  const answer = word.map(
    (it): Piece => ({
      given: { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: it, annotations: [] }] },
      pieces: [`assistant text ${it}`],
    }),
  );
  const call = fc.tuple(word, word, argumentsText).map(
    ([id, name, text]): Piece => ({
      given: { type: 'function_call', id: 'fc', call_id: id, name, arguments: text, status: 'completed' },
      pieces: [`assistant call ${id} ${name} ${text}`],
    }),
  );
  const texts = fc.array(
    word.map((it): Piece => ({ given: { type: 'input_text', text: it }, pieces: [`text ${it}`] })),
    { minLength: 1, maxLength: 3 },
  );
  const output = fc.tuple(word, fc.oneof(word, texts)).map(
    ([id, content]): Piece => ({
      given: {
        type: 'function_call_output',
        call_id: id,
        output: typeof content === 'string' ? content : content.map(({ given }) => given),
      },
      pieces: (typeof content === 'string' ? [`text ${content}`] : content.flatMap(({ pieces }) => pieces)).map(
        (piece) => `tool ${piece} of ${id}`,
      ),
    }),
  );

  it('loses nothing: every text, image, file, call and result is there once, in its order', () => {
    fc.assert(
      fc.property(word, fc.array(fc.oneof(message, answer, call, output), { maxLength: 10 }), (instructions, items) => {
        const chat = toChat('responses', { instructions, input: items.map(({ given }) => given) });
        const opening = items.findIndex(({ pieces }) => !pieces[0]!.startsWith('system'));
        const behind = opening < 0 ? items.length : opening;
        expect(piecesOf(chat)).toEqual([
          `system text ${instructions}`,
          ...items.slice(0, behind).flatMap(({ pieces }) => pieces),
          // A later one keeps its place, not its role.
          ...items.slice(behind).flatMap(({ pieces }) => pieces.map((it) => it.replace(/^system/, 'user'))),
        ]);
        expect(chat.messages.filter(({ role }) => role === 'system')).toHaveLength(1);
        // Calls that follow each other are one turn, or their results would not stand behind them all.
        for (const [place, { tool_calls: calls }] of chat.messages.entries()) {
          if (calls !== undefined)
            expect(chat.messages[place + 1]?.tool_calls === undefined || hasText(chat, place + 1)).toBe(true);
        }
      }),
      { seed: 22, numRuns: runs(300) },
    );
  });

  const hasText = ({ messages }: ChatBody, place: number): boolean => (messages[place]?.content ?? null) !== null;

  it('a call without arguments has an empty object, which chat templates can parse', () => {
    const input = [{ type: 'function_call', call_id: 'c', name: 'now', arguments: '' }];
    expect(toChat('responses', { input })).toMatchObject({
      messages: [{ tool_calls: [{ function: { arguments: '{}' } }] }],
    });
  });

  it('what a model thought goes in front of what it then said', () => {
    const thought = { type: 'reasoning', id: 'rs', summary: [], content: [{ type: 'reasoning_text', text: 'T' }] };
    const summary = {
      type: 'reasoning',
      id: 'rs',
      summary: [{ type: 'summary_text', text: 'S' }],
      encrypted_content: 'E',
    };
    const said = { role: 'assistant', content: 'A' };
    expect(piecesOf(toChat('responses', { input: [thought, said, summary, said] }))).toEqual([
      'assistant reasoning T',
      'assistant text A',
      'assistant reasoning S',
      'assistant text A',
    ]);
  });

  it('keeps what the engine reads, says the rest in other words, and leaves unknown members as they were written', () => {
    const schema = '{"type":"object","2":1.0,"1":12345678901234567890}';
    const chat = translate({
      api: 'responses',
      body: Buffer.from(`{"model":"m","input":"Q","max_output_tokens":7,"temperature":1.0,"stream":true,"store":true,
        "tools":[{"type":"function","name":"f","description":null,"parameters":${schema},"strict":true}],
        "tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":false,"min_p":1e-2,
        "text":{"format":{"type":"json_schema","name":"n","schema":${schema}},"verbosity":"low"},
        "reasoning":{"effort":"low","summary":"auto"},"include":["reasoning.encrypted_content"],"metadata":{"a":"b"},
        "truncation":"auto","prompt_cache_key":"k","documents":[{"content":"D"}]}`),
    });
    expect(chat.warnings.map(({ path }) => path)).toEqual(['include', 'truncation', 'reasoning.summary']);
    expect(chat.body).toBe(
      [
        '{"model":"m","messages":[{"role":"user","content":"Q"}]',
        `"tools":[{"type":"function","function":{"name":"f","parameters":${schema},"strict":true}}]`,
        '"tool_choice":{"type":"function","function":{"name":"f"}}',
        `"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":${schema}}},"verbosity":"low"`,
        '"reasoning_effort":"low","max_tokens":7,"temperature":1.0,"parallel_tool_calls":false,"min_p":1e-2',
        '"prompt_cache_key":"k","documents":[{"content":"D"}],"stream":true,"stream_options":{"include_usage":true}}',
      ].join(','),
    );
  });

  it.each([
    ['previous_response_id', { previous_response_id: 'resp_1' }],
    ['conversation', { conversation: 'conv_1' }],
    ['prompt', { prompt: { id: 'p' } }],
    ['text.format.type', { text: { format: { type: 'grammar' } } }],
    ['input[0].type', { input: [{ type: 'item_reference', id: 'x' }] }],
  ])('is refused where there is no equivalent: %s', (path, fields) => {
    expectRefusal('responses', { input: 'Q', ...fields }, 'WARMPATH_NOT_TRANSLATABLE', path);
  });

  const Q = { role: 'user', content: 'Q' };

  it.each<[string, object, string[]]>([
    ['background', { input: 'Q', background: true }, ['user text Q']],
    ['tools[0].type', { input: 'Q', tools: [{ type: 'web_search' }] }, ['user text Q']],
    ['tools[0].type', { input: 'Q', tools: [{ type: 'code_interpreter' }] }, ['user text Q']],
    ['tools[0].type', { input: 'Q', tools: [{ type: 'file_search' }] }, ['user text Q']],
    [
      'tools[0].type',
      { input: 'Q', tools: [{ type: 'shell', environment: { type: 'container_auto' } }] },
      ['user text Q'],
    ],
    [
      'tools[0].tools[0].type',
      { input: 'Q', tools: [{ type: 'namespace', name: 'n', tools: [{ type: 'x' }] }] },
      ['user text Q'],
    ],
    ['input[0].tools[0].type', { input: [{ type: 'additional_tools', tools: [{ type: 'x' }] }, Q] }, ['user text Q']],
    ['input[0].type', { input: [{ type: 'web_search_call', id: 'w', action: {} }, Q] }, ['user text Q']],
    ['input[0].type', { input: [{ type: 'compaction', encrypted_content: 'E' }, Q] }, ['user text Q']],
    ['input[0].type', { input: [{ type: 'ghost_snapshot' }, Q] }, ['user text Q']],
    [
      'input[1].encrypted_content',
      { input: [Q, { type: 'reasoning', summary: [], encrypted_content: 'E' }] },
      ['user text Q'],
    ],
    [
      'input[0].content[0].type',
      { input: [{ role: 'user', content: [{ type: 'new' }] }] },
      ['user text [new left out]'],
    ],
    [
      'input[0].content[0].file_id',
      { input: [{ role: 'user', content: [{ type: 'input_image', file_id: 'f' }] }] },
      ['user text [input_image left out]'],
    ],
    [
      'input[0].content[0].file_url',
      { input: [{ role: 'user', content: [{ type: 'input_file', file_url: 'f' }] }] },
      ['user text [input_file left out]'],
    ],
  ])('goes on without what has no equivalent, with a warning: %s in %j', (path, body, pieces) => {
    expectWarning('responses', body, path, pieces);
  });

  it.each<[string, object, string]>([
    [
      'a call with a free text',
      { type: 'custom_tool_call', name: 'exec', input: 'a "b"' },
      'exec {"input":"a \\"b\\""}',
    ],
    [
      'a call of a namespace',
      { type: 'function_call', name: 'sleep', namespace: 'clock', arguments: '{}' },
      'clock__sleep {}',
    ],
    ['a call of MCP', { type: 'function_call', name: 'f', namespace: 'mcp__x__', arguments: '{}' }, 'mcp__x__f {}'],
    [
      'a call of a shell',
      { type: 'local_shell_call', id: 'l', status: 'completed', action: { type: 'exec', command: ['ls'], env: {} } },
      'local_shell {"action":{"command":["ls"]}}',
    ],
    [
      'a call of a shell with an environment',
      { type: 'local_shell_call', action: { env: { A: '1' }, command: ['ls'], timeout_ms: 9 } },
      'local_shell {"action":{"env":{"A":"1"},"command":["ls"],"timeout_ms":9}}',
    ],
    [
      'a patch',
      { type: 'apply_patch_call', status: 'completed', operation: { type: 'delete_file', path: 'a' } },
      'apply_patch {"operation":{"type":"delete_file","path":"a"}}',
    ],
    [
      'commands of a shell',
      {
        type: 'shell_call',
        environment: { type: 'local' },
        action: { timeout_ms: null, max_output_length: null, commands: ['ls'] },
      },
      'shell {"action":{"commands":["ls"]}}',
    ],
    [
      'actions on a screen',
      { type: 'computer_call', pending_safety_checks: [], actions: [{ type: 'screenshot' }] },
      'computer {"actions":[{"type":"screenshot"}]}',
    ],
    ['a call of a tool that the gateway does not know', { type: 'new_call', id: 'n', member: 1 }, 'new {"member":1}'],
    [
      'a search for tools',
      { type: 'tool_search_call', execution: 'client', arguments: { query: 'x' } },
      'tool_search {"query":"x"}',
    ],
  ])('has %s as a call', (_, item, expected) => {
    const input = [
      { call_id: 'c', ...item },
      { type: `${(item as { type: string }).type}_output`, call_id: 'c', output: 'R' },
    ];
    expect(piecesOf(toChat('responses', { input }))).toEqual([`assistant call c ${expected}`, 'tool text R of c']);
  });

  it('has the picture of a screen as an image, and the result of a local shell by its id', () => {
    const picture = { type: 'computer_screenshot', image_url: 'https://x' };
    const input = [
      { type: 'computer_call', call_id: 'c', action: { type: 'screenshot' } },
      { type: 'local_shell_call', call_id: 'l', action: {} },
      { type: 'local_shell_call_output', id: 'l', output: 'R' },
      { type: 'computer_call_output', call_id: 'c', output: picture },
      { type: 'shell_call_output', call_id: 's', output: [{ stdout: 'S' }] },
      { type: 'apply_patch_call_output', call_id: 'p', status: 'failed', output: 'no file' },
      { type: 'apply_patch_call_output', call_id: 'q', status: 'completed' },
    ];
    expect(piecesOf(toChat('responses', { input }))).toEqual([
      'assistant call c computer {"action":{"type":"screenshot"}}',
      'assistant call l local_shell {"action":{}}',
      'tool text R of l',
      'tool text [image in the next message] of c',
      'tool text [{"stdout":"S"}] of s',
      'tool text Error: of p',
      'tool text no file of p',
      'tool text completed of q',
      'user image https://x',
    ]);
  });

  it('has tools of namespaces, tools with a free text and tools that come as items as functions, each once', () => {
    const f = { type: 'function', name: 'f', parameters: {} };
    const exec = {
      type: 'custom',
      name: 'exec',
      description: 'D',
      format: { type: 'grammar', definition: 'start: X' },
    };
    const clock = { type: 'namespace', name: 'clock', tools: [f] };
    const functions = { type: 'namespace', name: 'functions', tools: [f, exec] };
    const input = [{ type: 'additional_tools', role: 'developer', tools: [functions, clock] }, Q];
    const chat = toChat('responses', { tools: [f], input });
    const written = chat['tools'] as { function: { name: string; description?: string; parameters: object } }[];
    expect(written.map((tool) => tool.function.name)).toEqual(['f', 'exec', 'clock__f']);
    expect(written[1]!.function).toEqual({
      name: 'exec',
      description: 'D',
      parameters: {
        type: 'object',
        properties: { input: { type: 'string', description: 'A text of this grammar:\nstart: X' } },
        required: ['input'],
      },
    });
  });

  const tools = ['f', 'g'].map((name) => ({ type: 'function', name, parameters: {} }));
  const called = (name: string) => ({ type: 'function', function: { name } });

  it('has a function without parameters where the client writes null', () => {
    const tool = { type: 'function', name: 'f', parameters: null, strict: null };
    expect(toChat('responses', { input: 'Q', tools: [tool] })['tools']).toEqual([called('f')]);
  });

  it.each<[object, unknown]>([
    [{ type: 'function', name: 'f' }, called('f')],
    [{ type: 'custom', name: 'x' }, called('x')],
    [{ type: 'function', name: 'none' }, undefined],
    [{ type: 'web_search' }, undefined],
    [{ type: 'local_shell' }, called('local_shell')],
    [{ type: 'apply_patch' }, undefined],
    [{ type: 'allowed_tools', mode: 'required', tools: [{ type: 'local_shell' }] }, called('local_shell')],
    [{ type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'f' }] }, 'auto'],
    [{ type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'f' }] }, called('f')],
    [
      { type: 'allowed_tools', mode: 'required', tools: tools.map(({ name }) => ({ type: 'function', name })) },
      'required',
    ],
    [{ type: 'allowed_tools', mode: 'auto', tools: [{ type: 'web_search' }] }, 'none'],
  ])('leaves all tools in the prompt, whichever may be called: %j', (choice, expected) => {
    const chat = toChat('responses', {
      input: 'Q',
      tools: [...tools, { type: 'custom', name: 'x' }, { type: 'local_shell' }],
      tool_choice: choice,
    });
    expect(chat['tools']).toHaveLength(4);
    expect(chat['tool_choice']).toEqual(expected);
  });

  it.each([
    ['input', {}],
    ['input[0]', { input: ['x'] }],
    ['input[0].role', { input: [{ role: 'x', content: 'y' }] }],
    ['input[0].call_id', { input: [{ type: 'function_call', name: 'f', arguments: '' }] }],
    ['instructions', { input: 'x', instructions: 3 }],
  ])('is refused where it is wrong: %s', (path, body) => {
    expectRefusal('responses', body, 'WARMPATH_INVALID_REQUEST', path);
  });
});

describe.each(['messages', 'responses'] as const)('%s: what chat templates take', (api) => {
  it('a choice of tools goes with the tools', () => {
    const choice = api === 'messages' ? { type: 'auto', disable_parallel_tool_use: true } : 'auto';
    const given = { tools: [], tool_choice: choice, parallel_tool_calls: false };
    const body = api === 'messages' ? { messages: [], ...given } : { input: 'Q', ...given };
    for (const name of ['tools', 'tool_choice', 'parallel_tool_calls'])
      expect(toChat(api, body)).not.toHaveProperty(name);
  });

  const image = (url: string) =>
    api === 'messages' ? { type: 'image', source: { type: 'url', url } } : { type: 'input_image', image_url: url };
  const text = (it: string) => ({ type: api === 'messages' ? 'text' : 'input_text', text: it });
  /** Calls, results and words, one element each, in the API. */
  const bodyOf = (steps: readonly (readonly [kind: string, id: string, content?: readonly object[]])[]): object => {
    if (api === 'responses') {
      const items = steps.map(([kind, id, content]) => {
        if (kind === 'call') return { type: 'function_call', call_id: id, name: 'f', arguments: '{}' };
        if (kind === 'result') return { type: 'function_call_output', call_id: id, output: content ?? id };
        return { role: kind, content: id };
      });
      return { input: items };
    }
    const messages = steps.map(([kind, id, content]) => {
      if (kind === 'call') return { role: 'assistant', content: [{ type: 'tool_use', id, name: 'f', input: {} }] };
      if (kind !== 'result') return { role: kind, content: id };
      return { role: 'user', content: [{ type: 'tool_result', tool_use_id: id, content: content ?? id }] };
    });
    return { messages };
  };

  it("images of results come behind the last result, as the user's", () => {
    const steps = [
      ['call', 'a'],
      ['result', 'a', [text('t'), image('https://1')]],
      ['result', 'b', [image('https://2')]],
    ] as const;
    const pieces = [
      'assistant call a f {}',
      'tool text t of a',
      'tool text [image in the next message] of a',
      'tool text [image in the next message] of b',
      'user image https://1',
      'user image https://2',
    ];
    expect(piecesOf(toChat(api, bodyOf(steps)))).toEqual(pieces);
    const next = toChat(api, bodyOf([...steps, ['user', 'Q']]));
    expect(piecesOf(next)).toEqual([...pieces, 'user text Q']);
    expect(next.messages.filter(({ role }) => role === 'user')).toHaveLength(1);
  });

  it('results stand behind their calls, whatever stands between them and however ids repeat', () => {
    const steps = [
      ['user', 'Q'],
      ['call', 'x'],
      ['user', 'wait'],
      ['result', 'x'],
      ['result', 'late'],
      ['call', 'late'],
      ['call', 'x'],
      ['result', 'x'],
      ['result', 'orphan'],
    ] as const;
    const roles = toChat(api, bodyOf(steps)).messages.map(({ role, tool_call_id: id }) => `${role} ${id ?? ''}`.trim());
    const calls =
      api === 'messages'
        ? ['assistant', 'tool late', 'assistant', 'tool x']
        : // Calls in a row are one turn.
          ['assistant', 'tool late', 'tool x'];
    expect(roles).toEqual(['user', 'assistant', 'tool x', 'user', ...calls, 'tool orphan']);
  });

  it("there is one system message, at the beginning; a later one keeps its place as the user's", () => {
    const steps = [
      ['system', 'b'],
      ['user', 'Q'],
      ['system', 'c'],
      ['assistant', 'A'],
      ['system', 'd'],
      ['user', 'R'],
      ['system', 'e'],
    ] as const;
    const body = { [api === 'messages' ? 'system' : 'instructions']: 'a', ...bodyOf(steps) };
    const { messages } = toChat(api, body);
    expect(messages.map(({ role }) => role)).toEqual(['system', 'user', 'assistant', 'user']);
    const said = ['system text a', 'system text b', 'user text Q', 'user text c', 'assistant text A'];
    expect(piecesOf(toChat(api, body))).toEqual([...said, 'user text d', 'user text R', 'user text e']);
    const kept = translate({ api, body: Buffer.from(JSON.stringify(body)), keepSystem: true });
    expect((JSON.parse(kept.body) as ChatBody).messages.filter(({ role }) => role === 'system')).toHaveLength(5);
    expect(kept.movedSystem).toBe(0);
    expect(translate({ api, body: Buffer.from(JSON.stringify(body)) }).movedSystem).toBe(3);
  });

  it('what was sent of a session stays as it was when the session goes on', () => {
    const step = fc.oneof(
      fc.constantFrom('user', 'assistant', 'system').map((role) => [role, 'words'] as const),
      fc.constantFrom('call', 'result').map((kind) => [kind, 'x'] as const),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 8 }), (given) => {
        const withAnswer = [['user', 'Q'], ...given, ['user', 'R']] as const;
        const before = piecesOf(toChat(api, bodyOf(withAnswer)));
        const after = piecesOf(
          toChat(api, bodyOf([...withAnswer, ['assistant', 'A'], ['system', 's'], ['user', 'S']])),
        );
        expect(after.slice(0, before.length)).toEqual(before);
      }),
      { seed: 24, numRuns: runs(200) },
    );
  });
});

function expectWarning(api: TranslatedApi, body: object, path: string, pieces: readonly string[]): void {
  const { body: chat, warnings } = translate({ api, body: Buffer.from(JSON.stringify(body)) });
  expect(warnings).toMatchObject([{ code: 'WARMPATH_NOT_TRANSLATABLE', path }]);
  expect(piecesOf(JSON.parse(chat) as ChatBody)).toEqual(pieces);
}

function expectRefusal(api: TranslatedApi, body: object, code: string, path: string): void {
  try {
    toChat(api, body);
  } catch (error) {
    if (!TranslateError.isInstance(error)) throw error;
    expect({ code: error.code, path: error.path }).toEqual({ code, path });
    return;
  }
  expect.fail('It was translated.');
}

it.each(['messages', 'responses'] as const)('whatever a %s body is, it is translated or refused with a path', (api) => {
  const names = [
    'messages',
    'input',
    'system',
    'instructions',
    'tools',
    'tool_choice',
    'text',
    'reasoning',
    'metadata',
  ];
  const inner = ['type', 'role', 'content', 'text', 'source', 'output', 'summary', 'format', 'citations', 'name', 'id'];
  const words = [
    'user',
    'assistant',
    'text',
    'image',
    'document',
    'tool_result',
    'tool_use',
    'function_call',
    'reasoning',
  ];
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 5 },
      fc.constantFrom(...words),
      fc.jsonValue({ maxDepth: 0 }),
      tie('list'),
      tie('object'),
    ),
    list: fc.array(tie('value'), { maxLength: 3 }),
    object: fc.dictionary(fc.constantFrom(...inner), tie('value'), { maxKeys: 4 }),
  }));
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom(...names), value), (body) => {
      try {
        toChat(api, body);
      } catch (error) {
        expect(TranslateError.isInstance(error) && error.path !== undefined).toBe(true);
      }
    }),
    { seed: 23, numRuns: runs(2_000) },
  );
});

describe('a long text', () => {
  const written = `"${'caf\\u00e9 \\/ \\n '.repeat(30)}"`;
  const cases: readonly (readonly [string, TranslatedApi, string])[] = [
    ['a message', 'messages', `{"messages":[{"role":"user","content":${written}}]}`],
    ['a block', 'messages', `{"messages":[{"role":"user","content":[{"type":"text","text":${written}}]}]}`],
    ['a system prompt', 'messages', `{"system":${written},"messages":[]}`],
    [
      'a result',
      'messages',
      `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":${written}}]}]}`,
    ],
    [
      'the last of two members of one name',
      'messages',
      `{"messages":[{"role":"user","content":"a","content":${written}}]}`,
    ],
    ['an input', 'responses', `{"input":${written}}`],
    ['instructions', 'responses', `{"instructions":${written},"input":"a"}`],
    ['an output', 'responses', `{"input":[{"type":"function_call_output","call_id":"c","output":${written}}]}`],
    ['arguments', 'responses', `{"input":[{"type":"function_call","call_id":"c","name":"f","arguments":${written}}]}`],
  ];

  it.each(cases)('is copied as the client wrote it: %s', (_, api, body) => {
    const chat = translate({ api, body: Buffer.from(body) }).body;
    expect(chat).toContain(written);
    expect(JSON.stringify(JSON.parse(chat))).toContain(JSON.stringify(JSON.parse(written)));
  });
});
