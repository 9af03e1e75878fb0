import { once } from 'node:events';
import { createServer } from 'node:http';

/** How engines speak: all APIs; chat completions alone; and these as some engines write them. */
export const FORMS = ['native', 'chat', 'loose'];

const ROUNDS = 4;

/** The tool calls of the next turn. A program's tool is `lookup`; agents get a session over the file notes.txt. */
function nextCalls(tools, turns) {
  const named = (pattern) => tools.find(({ name }) => pattern.test(name));
  const lookup = named(/^lookup$/);
  if (lookup !== undefined) {
    return turns > 0 ? [] : [1, 2].map((x) => ({ name: 'lookup', input: { x } }));
  }
  const shell = named(/^(bash|exec_command|shell|shell_command)$/i);
  if (shell === undefined || turns >= ROUNDS) return [];
  const run = (command) => ({ name: shell.name, input: { command, cmd: command, description: 'Run' } });
  return turns === 0 ? [run('cat notes.txt'), run('ls')] : [run('cat notes.txt')];
}

const id = (kind, n) => `${kind}_${String(n).padStart(24, '0')}`;

/** Turns of the assistant behind the last words of the user. */
function turnsIn(messages, isWords) {
  const last = messages.findLastIndex(isWords);
  const isTurn = (message, before) => message?.role === 'assistant' && before?.role !== 'assistant';
  return messages.slice(last).filter((message, at, rest) => isTurn(message, rest[at - 1])).length;
}

function sendEvents(response, events, named) {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for (const event of events) {
    response.write(`${named ? `event: ${event.type}\n` : ''}data: ${JSON.stringify(event)}\n\n`);
  }
  response.end(named ? '' : 'data: [DONE]\n\n');
}

function sendJson(response, status, body) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

const TEXT = 'The answer is 42.';
const COUNTS = { prompt: 100, cached: 64, answer: 8 };

function answerChat(body, response, { form, n }) {
  const tools = (body.tools ?? []).map((tool) => tool.function ?? tool);
  const turns = turnsIn(body.messages, ({ role }) => role === 'user');
  const calls = nextCalls(tools, turns).map(({ name, input }, index) => ({
    // Some engines number all calls 0, write arguments as objects, and end every chunk with an empty reason.
    index: form === 'loose' ? 0 : index,
    id: id('call', 10 * n + index),
    type: 'function',
    function: { name, arguments: form === 'loose' ? input : JSON.stringify(input) },
  }));
  const { prompt, cached, answer } = COUNTS;
  const usage = {
    prompt_tokens: prompt,
    completion_tokens: answer,
    total_tokens: prompt + answer,
    ...(form === 'loose' ? { prompt_cache_hit_tokens: cached } : { prompt_tokens_details: { cached_tokens: cached } }),
  };
  const head = { id: id('chatcmpl', n), object: 'chat.completion', created: 1, model: body.model };
  const finish_reason = calls.length > 0 ? 'tool_calls' : 'stop';
  if (!body.stream) {
    const message = { role: 'assistant', content: TEXT, ...(calls.length > 0 && { tool_calls: calls }) };
    return sendJson(response, 200, { ...head, choices: [{ index: 0, message, finish_reason }], usage });
  }
  const open = form === 'loose' ? '' : null;
  const chunk = (delta, reason = open) => ({
    ...head,
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta, finish_reason: reason }],
  });
  const parts = [{ role: 'assistant', content: TEXT }, ...calls.map((call) => ({ tool_calls: [call] }))];
  sendEvents(response, [
    ...parts.map((part) => chunk(part)),
    chunk({}, finish_reason),
    { ...head, choices: [], usage },
  ]);
}

function answerMessages(body, response, { n }) {
  const isWords = ({ role, content }) =>
    role === 'user' && !(Array.isArray(content) && content.some(({ type }) => type === 'tool_result'));
  const calls = nextCalls(body.tools ?? [], turnsIn(body.messages, isWords)).map(({ name, input }, at) => ({
    type: 'tool_use',
    id: id('toolu', 10 * n + at),
    name,
    input,
  }));
  const content = [{ type: 'text', text: TEXT }, ...calls];
  const { prompt, cached, answer } = COUNTS;
  const usage = {
    input_tokens: prompt - cached,
    cache_read_input_tokens: cached,
    cache_creation_input_tokens: 0,
    output_tokens: answer,
  };
  const stop_reason = calls.length > 0 ? 'tool_use' : 'end_turn';
  const head = { id: id('msg', n), type: 'message', role: 'assistant', model: body.model, stop_sequence: null };
  if (!body.stream) return sendJson(response, 200, { ...head, content, stop_reason, usage });
  const blocks = content.flatMap((block, index) => {
    const delta =
      block.type === 'text'
        ? { type: 'text_delta', text: block.text }
        : { type: 'input_json_delta', partial_json: JSON.stringify(block.input) };
    const start = block.type === 'text' ? { type: 'text', text: '' } : { ...block, input: {} };
    return [
      { type: 'content_block_start', index, content_block: start },
      { type: 'content_block_delta', index, delta },
      { type: 'content_block_stop', index },
    ];
  });
  const message = { ...head, content: [], stop_reason: null, usage };
  const end = { type: 'message_delta', delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: answer } };
  sendEvents(response, [{ type: 'message_start', message }, ...blocks, end, { type: 'message_stop' }], true);
}

function answerResponses(body, response, { n }) {
  const input = typeof body.input === 'string' ? [{ role: 'user', content: body.input }] : body.input;
  const added = input.flatMap(({ type, tools }) => (type === 'additional_tools' ? tools : []));
  const tools = [...(body.tools ?? []), ...added];
  const calls = nextCalls(
    tools,
    turnsIn(input, ({ role }) => role === 'user'),
  ).map(({ name, input }, at) => ({
    id: id('fc', 10 * n + at),
    type: 'function_call',
    status: 'completed',
    call_id: id('call', 10 * n + at),
    name,
    arguments: JSON.stringify(input),
  }));
  const content = [{ type: 'output_text', text: TEXT, annotations: [] }];
  const output = [{ id: id('msg', n), type: 'message', role: 'assistant', status: 'completed', content }, ...calls];
  const { prompt, cached, answer } = COUNTS;
  const usage = {
    input_tokens: prompt,
    input_tokens_details: { cached_tokens: cached },
    output_tokens: answer,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: prompt + answer,
  };
  const whole = { id: id('resp', n), object: 'response', created_at: 1, status: 'completed', model: body.model };
  const done = { ...whole, output, usage, parallel_tool_calls: true, tool_choice: 'auto', tools: [] };
  if (!body.stream) return sendJson(response, 200, done);
  const items = output.flatMap((item, output_index) => {
    const added = { type: 'response.output_item.added', output_index, item };
    const delta = { type: 'response.output_text.delta', item_id: item.id, output_index, content_index: 0, delta: TEXT };
    return [added, ...(item.type === 'message' ? [delta] : []), { ...added, type: 'response.output_item.done' }];
  });
  const events = [
    { type: 'response.created', response: { ...done, status: 'in_progress', output: [] } },
    ...items,
    { type: 'response.completed', response: done },
  ];
  sendEvents(
    response,
    events.map((event, sequence_number) => ({ ...event, sequence_number })),
    true,
  );
}

const ANSWERS = {
  '/v1/chat/completions': [answerChat, 'messages'],
  '/v1/messages': [answerMessages, 'messages'],
  '/v1/responses': [answerResponses, 'input'],
};

/** An engine of one of `FORMS` that serves the model `local-model`, and keeps the requests that it got. */
export async function scriptedEngine(form) {
  const requests = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request.setEncoding('utf8')) text += chunk;
    const path = new URL(request.url, 'http://engine').pathname;
    if (path === '/v1/models') {
      return sendJson(response, 200, { object: 'list', data: [{ id: 'local-model', object: 'model' }] });
    }
    const [answer, needed] = (form === 'native' || path === '/v1/chat/completions' ? ANSWERS[path] : undefined) ?? [];
    if (answer === undefined) return sendJson(response, 404, { error: { message: 'There is no such path.' } });
    const body = JSON.parse(text);
    if (body[needed] === undefined) return sendJson(response, 400, { error: { message: `${needed}: missing` } });
    if (body.model === 'busy') return sendJson(response, 429, { error: { message: 'Too many requests.' } });
    requests.push({ path, headers: request.headers, body });
    answer(body, response, { form, n: requests.length });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    requests,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
