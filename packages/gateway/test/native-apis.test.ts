import { describe, expect, it } from 'vitest';
import { type ReceivedRequest, startStream } from './fake-engine.js';
import { DOCUMENTS, labelsIn, send, stand, told } from './harness.js';

const [VELKA, ORSIN, TAMIR] = DOCUMENTS;
const PATHS = { messages: '/v1/messages', responses: '/v1/responses' } as const;

/** Answers as an engine that speaks the API itself, in the shape of recorded answers. */
const ANSWERS = {
  messages: {
    whole: JSON.stringify({
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      model: 'm',
      content: [{ type: 'text', text: 'The weight is 42 kg.' }],
      stop_reason: 'end_turn',
      stop_sequence: null,
      usage: { input_tokens: 20, cache_creation_input_tokens: 4, cache_read_input_tokens: 96, output_tokens: 8 },
    }),
    stream: [
      [
        'message_start',
        '{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":20,"cache_creation_input_tokens":4,"cache_read_input_tokens":96,"output_tokens":1}}}',
      ],
      ['content_block_start', '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'],
      ['ping', '{"type": "ping"}'],
      [
        'content_block_delta',
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"The wéight is 42 kg. 🦀"}}',
      ],
      ['content_block_stop', '{"type":"content_block_stop","index":0}'],
      [
        'message_delta',
        '{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":8}}',
      ],
      ['message_stop', '{"type":"message_stop"}'],
    ],
  },
  responses: {
    whole: JSON.stringify({
      id: 'resp_1',
      object: 'response',
      status: 'completed',
      model: 'm',
      output: [
        {
          type: 'message',
          id: 'item_1',
          role: 'assistant',
          status: 'completed',
          content: [{ type: 'output_text', text: 'The weight is 42 kg.', annotations: [] }],
        },
      ],
      usage: { input_tokens: 120, input_tokens_details: { cached_tokens: 96 }, output_tokens: 8, total_tokens: 128 },
    }),
    stream: [
      [
        'response.created',
        '{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","output":[],"usage":null}}',
      ],
      [
        'response.output_text.delta',
        '{"type":"response.output_text.delta","sequence_number":1,"item_id":"item_1","output_index":0,"content_index":0,"delta":"The wéight is 42 kg. 🦀"}',
      ],
      [
        'response.completed',
        '{"type":"response.completed","sequence_number":2,"response":{"id":"resp_1","object":"response","status":"completed","output":[],"usage":{"input_tokens":120,"input_tokens_details":{"cached_tokens":96},"output_tokens":8,"total_tokens":128}}}',
      ],
    ],
  },
} as const;

/** A fake engine that speaks both APIs. */
function answerNatively(response: import('node:http').ServerResponse, { path, body }: ReceivedRequest): void {
  const { whole, stream } = ANSWERS[path.startsWith(PATHS.messages) ? 'messages' : 'responses'];
  if (!/"stream":\s*true/.test(body)) {
    response.writeHead(200, { 'content-type': 'application/json' }).end(whole);
    return;
  }
  startStream(response);
  response.end(sse(stream));
}

function sse(events: readonly (readonly [string, string])[]): string {
  return events.map(([event, data]) => `event: ${event}\ndata: ${data}\n\n`).join('');
}

const QUESTION = { role: 'user', content: 'What is the weight of Velka?' };

function ask(name: keyof typeof PATHS, documents: readonly object[], fields: object = {}) {
  const common = { model: 'm', documents, ...fields };
  if (name === 'messages') return { ...common, max_tokens: 9, system: 'Be brief.', messages: [QUESTION] };
  return { ...common, instructions: 'Be brief.', input: [QUESTION] };
}

describe.each(['messages', 'responses'] as const)('%s, towards an engine that speaks it', (name) => {
  const path = PATHS[name];

  it('a body without documents, and the answer, pass through byte for byte', async () => {
    const { engine, gateway } = await stand(answerNatively);
    const body = ` {"input": "x",  "seed":12345678901234567890 , "unknown":[1.0] ,}`;
    const headers = { 'x-api-key': 'k', 'anthropic-version': '2023-06-01', 'anthropic-beta': 'one,two' };
    const reply = await send(gateway.url + path, body, { headers });
    expect(reply.text).toBe(ANSWERS[name].whole);
    expect(engine.last).toMatchObject({ path, body });
    expect(engine.last.headers).toMatchObject(headers);
  });

  it('documents are arranged, the answer teaches what is cached', async () => {
    const { engine, gateway } = await stand(answerNatively);
    await send(gateway.url + path, ask(name, [VELKA, ORSIN]));
    const reply = await send(gateway.url + path, ask(name, [TAMIR, ORSIN, VELKA]));
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin', 'tamir']);
    expect(engine.last.body).not.toContain('"documents":');
    expect(Number(told(reply).predicted)).toBeGreaterThan(20);
    const metrics = (await send(`${gateway.url}/metrics`)).text;
    expect(metrics).toContain('warmpath_prompt_tokens_total 240');
    expect(metrics).toContain('warmpath_cached_tokens_total 192');
  });

  it('a stream is sent on byte for byte, and read along', async () => {
    const { gateway } = await stand(answerNatively);
    const reply = await send(gateway.url + path, ask(name, [VELKA, ORSIN], { stream: true }));
    expect(reply.text).toBe(sse(ANSWERS[name].stream));
    const metrics = (await send(`${gateway.url}/metrics`)).text;
    expect(metrics).toContain('warmpath_cached_tokens_total 96');
    expect(metrics).toContain('warmpath_prompt_tokens_total 120');
    expect(metrics).toContain('warmpath_ttft_seconds_count 1');
  });
});

describe('where the documents go', () => {
  const arranged = async (path: string, body: object, layout: 'question' | 'message' | 'system' = 'question') => {
    const { engine, gateway } = await stand(answerNatively, { arrange: { layout } });
    const reply = await send(gateway.url + path, { ...body, documents: [VELKA] });
    expect(reply.status).toBe(200);
    return engine.last.body.replace(/<document id=\\"velka.*?<\/document>\\n+/s, '<D>');
  };

  it('messages: behind the results of tools, before what the user says', async () => {
    const result = '{"type":"tool_result","tool_use_id":"t","content":"r","n":1.0}';
    const body = `{"max_tokens":1,"messages":[{"role":"user","content":"A"},{"role":"user", "x":2.50,"content":[${result} , {"type":"text","text":"Q"}]}]`;
    const { engine, gateway } = await stand(answerNatively);
    const documents = `"documents":${JSON.stringify([VELKA])}}`;
    await send(gateway.url + PATHS.messages, `${body},${documents}`);
    expect(engine.last.body.replace(/<document.*?<\/document>\\n+/s, '<D>')).toBe(
      `{"max_tokens":1,"messages":[{"role":"user","content":"A"},{"role":"user", "x":2.50,"content":[${result},{"type":"text","text":"<D>"} , {"type":"text","text":"Q"}]}]}`,
    );
    // Nothing but results: the question is further up, and the results keep their bytes.
    await send(gateway.url + PATHS.messages, `${body.replace(' , {"type":"text","text":"Q"}', '')},${documents}`);
    expect(engine.last.body.replace(/<document.*?<\/document>\\n+/s, '<D>')).toBe(
      `{"max_tokens":1,"messages":[{"role":"user","content":"<D>A"},{"role":"user", "x":2.50,"content":[${result}]}]}`,
    );
  });

  it('messages: in a message of their own', async () => {
    const results = [{ type: 'tool_result', tool_use_id: 't', content: 'r' }];
    const text = [{ type: 'text', text: 'Q' }];
    expect(JSON.parse(await arranged(PATHS.messages, { messages: [QUESTION] }, 'message'))).toEqual({
      messages: [{ role: 'user', content: '<D>' }, QUESTION],
    });
    const messages = [{ role: 'user', content: [...results, ...text] }];
    expect(JSON.parse(await arranged(PATHS.messages, { messages }, 'message'))).toEqual({
      // Results come first in their message, and messages of one role are joined: the documents stay in it.
      messages: [{ role: 'user', content: [...results, { type: 'text', text: '<D>' }, ...text] }],
    });
  });

  it.each([
    ['a string', 'Be brief.', 'Be brief.\n\n<D>'],
    ['missing', undefined, '<D>'],
    [
      'blocks',
      [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
      [
        { type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } },
        { type: 'text', text: '<D>' },
      ],
    ],
  ])('messages: in the system prompt that is %s', async (_, system, expected) => {
    expect(JSON.parse(await arranged(PATHS.messages, { system, messages: [QUESTION] }, 'system'))).toEqual({
      system: expected,
      messages: [QUESTION],
    });
  });

  it('responses: before a question that is one string, or the last message of the user', async () => {
    expect(JSON.parse(await arranged(PATHS.responses, { input: 'Q' }))).toEqual({ input: '<D>Q' });
    const call = { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' };
    const output = { type: 'function_call_output', call_id: 'c', output: 'r' };
    const parts = [{ type: 'input_image', image_url: 'https://x' }];
    const input = [{ role: 'user', content: parts }, call, output];
    expect(JSON.parse(await arranged(PATHS.responses, { input }))).toEqual({
      input: [{ role: 'user', content: [{ type: 'input_text', text: '<D>' }, ...parts] }, call, output],
    });
  });

  it('responses: in a message of their own, or in the instructions', async () => {
    expect(JSON.parse(await arranged(PATHS.responses, { input: 'Q' }, 'message'))).toEqual({
      input: [
        { role: 'user', content: '<D>' },
        { role: 'user', content: 'Q' },
      ],
    });
    expect(JSON.parse(await arranged(PATHS.responses, { input: 'Q', instructions: 'I' }, 'system'))).toEqual({
      input: 'Q',
      instructions: 'I\n\n<D>',
    });
    expect(JSON.parse(await arranged(PATHS.responses, { input: 'Q' }, 'system'))).toEqual({
      input: [
        { role: 'system', content: '<D>' },
        { role: 'user', content: 'Q' },
      ],
    });
    const input = [{ role: 'developer', content: [{ type: 'input_text', text: 'I' }] }, QUESTION];
    expect(JSON.parse(await arranged(PATHS.responses, { input }, 'system'))).toEqual({
      input: [
        {
          role: 'developer',
          content: [
            { type: 'input_text', text: 'I' },
            { type: 'input_text', text: '<D>' },
          ],
        },
        QUESTION,
      ],
    });
  });

  it('chat: images, calls of tools and unknown parts keep their bytes', async () => {
    const { engine, gateway } = await stand();
    const parts =
      '{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":1.0}} , {"type" : "new","x":12345678901234567890}';
    const calls =
      '{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\\"a\\": 1.0}"}}]}';
    const tool = '{"role":"tool","tool_call_id":"c",  "content":"r"}';
    const tools = '[{"type":"function","function":{"name":"f","parameters":{"type":"object","2":1,"1":2}}}]';
    const question = `{"role":"user", "seed":1.0,"content":[${parts},{"type":"text","text":"Q"}]}`;
    await send(
      `${gateway.url}/v1/chat/completions`,
      `{"messages":[${calls}, ${tool}, ${question}],"tools":${tools},"documents":${JSON.stringify([VELKA])}}`,
    );
    const added = '{"type":"text","text":"<D>"}';
    const expected = `{"role":"user", "seed":1.0,"content":[${added},${parts},{"type":"text","text":"Q"}]}`;
    expect(engine.last.body.replace(/<document.*?<\/document>\\n+/s, '<D>')).toBe(
      `{"messages":[${calls}, ${tool}, ${expected}],"tools":${tools}}`,
    );
  });
});
