import type { ServerResponse } from 'node:http';
import { type Answer, type ReceivedRequest, startStream } from './fake-engine.js';

/** What a model that calls tools says: some words, then two calls. In the shape of recorded answers of vLLM. */
const TOOL_CALLS = [
  { id: 'call_a', name: 'weigh', arguments: '{"id": "velka", "n": 12345678901234567890}' },
  { id: 'call_b', name: 'weigh', arguments: '{"id": "orsin"}' },
];
const TEXT = 'Let me wéigh them. 🦀';
const HEAD = { id: 'chatcmpl-tools', created: 1_790_000_000, model: 'm' };
const USAGE = {
  prompt_tokens: 120,
  completion_tokens: 8,
  total_tokens: 128,
  prompt_tokens_details: { cached_tokens: 96 },
};

/**
 * In place of an engine that speaks chat completions only and calls tools, which the demo model cannot. Says 404 to
 * every other path, as FastAPI does; answers results of tools with a sentence.
 */
export function chatOnlyEngine(then: Answer = answerWithTools): Answer {
  return (response, request) => {
    if (request.path === '/v1/chat/completions') then(response, request);
    else response.writeHead(404, { 'content-type': 'application/json' }).end('{"detail":"Not Found"}');
  };
}

function answerWithTools(response: ServerResponse, request: ReceivedRequest): void {
  const { stream, messages } = JSON.parse(request.body) as { stream?: boolean; messages: { role: string }[] };
  const calls = messages.some(({ role }) => role === 'tool') ? [] : TOOL_CALLS;
  const content = calls.length > 0 ? TEXT : 'They weigh 59 kg.';
  const finish = calls.length > 0 ? 'tool_calls' : 'stop';
  if (stream === true) {
    startStream(response);
    response.end(chunks(content, calls, finish));
    return;
  }
  const tools = calls.map(({ id, ...called }) => ({ id, type: 'function', function: called }));
  const message = { role: 'assistant', content, ...(tools.length > 0 && { tool_calls: tools }) };
  const choices = [{ index: 0, message, finish_reason: finish }];
  response.writeHead(200, { 'content-type': 'application/json', 'x-engine': 'yes' });
  response.end(JSON.stringify({ ...HEAD, object: 'chat.completion', choices, usage: USAGE }));
}

function chunks(content: string, calls: typeof TOOL_CALLS, finish: string): string {
  const deltas: object[] = [{ role: 'assistant', content: '' }];
  for (const word of content.split(/(?<= )/)) deltas.push({ content: word });
  for (const [index, { id, name, arguments: text }] of calls.entries()) {
    deltas.push({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] });
    for (let at = 0; at < text.length; at += 7) {
      deltas.push({ tool_calls: [{ index, function: { arguments: text.slice(at, at + 7) } }] });
    }
  }
  const events = [
    ...deltas.map((delta) => ({ ...HEAD, choices: [{ index: 0, delta, finish_reason: null }] })),
    { ...HEAD, choices: [{ index: 0, delta: {}, finish_reason: finish }] },
    { ...HEAD, choices: [], usage: USAGE },
  ];
  return `${events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('')}data: [DONE]\n\n`;
}
