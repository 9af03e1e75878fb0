import { once } from 'node:events';
import { createServer, request as httpRequest } from 'node:http';
import { spawnEngine } from '@warmpath/engine';
import { askedPassage } from './questions.js';

/**
 * The embedded engine, whose counts of cached tokens are exact, behind a stand-in for the model's words: it cites the
 * passage that is asked for by the label that stands there in the prompt that it received.
 */
export async function citingEngine({ label, cite = (name) => `[${name}]` } = {}) {
  const engine = await spawnEngine({ port: 0, model: 'demo', threads: 1 });
  const served = [];
  const proxy = await listening(async (request, response) => {
    const body = await bodyOf(request);
    if (request.method !== 'POST' || !request.url.endsWith('/chat/completions')) {
      forward(engine.url, { request, response, body });
      return;
    }
    const { tools, tool_choice: _choice, stream: _stream, stream_options: _options, ...asked } = JSON.parse(body);
    const prompt = asked.messages.map(({ content }) => textOf(content)).join('\n');
    const answer = await fetch(`${engine.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ ...asked, messages: asked.messages.map(plain), max_tokens: 1 }),
    });
    const completion = await answer.json();
    if (!answer.ok) {
      response.writeHead(answer.status, { 'content-type': 'application/json' }).end(JSON.stringify(completion));
      return;
    }
    const { prompt_tokens: tokens, prompt_tokens_details: details } = completion.usage;
    served.push({ body, prompt, tokens, cached: details?.cached_tokens ?? 0 });
    const calls = tools !== undefined && asked.messages.at(-1).role === 'user';
    completion.choices[0] = calls ? toolCall(tools[0]) : said(citation(prompt, label, cite));
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(completion));
  });
  return {
    url: proxy.url,
    served,
    close: async () => {
      proxy.close();
      await engine.stop();
    },
  };
}

/** Stands before a gateway and keeps the bodies that clients sent. */
export async function bodyWitness(target) {
  const bodies = [];
  const proxy = await listening(async (request, response) => {
    const body = await bodyOf(request);
    if (request.url.endsWith('/chat/completions')) bodies.push(body);
    forward(target, { request, response, body });
  });
  return { ...proxy, bodies };
}

async function listening(handle) {
  const server = createServer((request, response) => {
    handle(request, response).catch((error) => {
      response.writeHead(500).end(JSON.stringify({ error: { message: String(error) } }));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}`, close };
}

async function bodyOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

function forward(target, { request, response, body }) {
  const { 'transfer-encoding': _, ...headers } = request.headers;
  const onward = httpRequest(`${target}${request.url}`, { method: request.method, headers, agent: false });
  onward.on('error', () => response.destroy());
  onward.on('response', (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  onward.end(body);
}

const textOf = (content) =>
  typeof content === 'string' ? content : (content ?? []).map(({ text }) => text ?? '').join('');

/** A message for the demo model, whose template knows no tools. */
function plain({ role, content, tool_calls: calls }) {
  const text = calls === undefined ? textOf(content) : JSON.stringify(calls[0].function);
  return { role: role === 'tool' ? 'user' : role === 'developer' ? 'system' : role, content: text };
}

function citation(prompt, label, cite) {
  const passage = askedPassage(prompt);
  if (passage === undefined) return 'I do not know.';
  const written = [passage.text, JSON.stringify(passage.text).slice(1, -1)].find((text) => prompt.includes(text));
  if (written === undefined) return 'No passage says so.';
  const before = prompt.slice(0, prompt.indexOf(written));
  const source = label === undefined ? `the passage of ${passage.topic}` : cite(label.exec(before)?.[1]);
  return `It was built in ${passage.year} ${source}.`;
}

const said = (content) => ({ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' });

function toolCall({ function: { name } }) {
  const call = { id: `call_${name}`, type: 'function', function: { name, arguments: '{"query":"when"}' } };
  const message = { role: 'assistant', content: null, tool_calls: [call] };
  return { index: 0, message, finish_reason: 'tool_calls' };
}
