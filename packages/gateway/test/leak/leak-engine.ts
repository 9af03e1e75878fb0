import type { ServerResponse } from 'node:http';
import type { Answer } from '../fake-engine.js';

/** The engine of a world: says in each API, whole or as a stream, what it was told to say. */
export class LeakEngine {
  says = '';
  readonly #isNative: boolean;

  constructor(speaks: 'native' | 'translate') {
    this.#isNative = speaks === 'native';
  }

  readonly answer: Answer = (response, { path, body }) => {
    const api = path.slice('/v1/'.length);
    if (api !== 'chat/completions' && !this.#isNative) {
      response.writeHead(404, { 'content-type': 'application/json' }).end('{"detail":"Not Found"}');
      return;
    }
    const isStream = /"stream":\s*true/.test(body);
    if (api === 'messages') say(response, isStream, messageOf(this.says), messageEvents(this.says));
    else if (api === 'responses') say(response, isStream, responseOf(this.says), responseEvents(this.says));
    else say(response, isStream, chatOf(this.says), chatEvents(this.says));
  };
}

function say(response: ServerResponse, isStream: boolean, whole: object, events: readonly string[]): void {
  response.writeHead(200, { 'content-type': isStream ? 'text/event-stream' : 'application/json' });
  response.end(isStream ? events.join('') : JSON.stringify(whole));
}

function chatOf(content: string): object {
  return {
    id: 'c',
    object: 'chat.completion',
    choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
  };
}

function chatEvents(text: string): readonly string[] {
  const deltas = [{ delta: { role: 'assistant', content: text } }, { delta: {}, finish_reason: 'stop' }];
  const chunks = deltas.map((choice) => `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, ...choice }] })}\n\n`);
  return [...chunks, 'data: [DONE]\n\n'];
}

const MESSAGE = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'm',
  stop_reason: 'end_turn',
  stop_sequence: null,
};
const USAGE = { input_tokens: 9, output_tokens: 9 };

function messageOf(text: string): object {
  return { ...MESSAGE, content: [{ type: 'text', text }], usage: USAGE };
}

function messageEvents(text: string): readonly string[] {
  return [
    { type: 'message_start', message: { ...MESSAGE, content: [], stop_reason: null, usage: USAGE } },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: 9 } },
    { type: 'message_stop' },
  ].map(eventOf);
}

const RESPONSE = { id: 'resp_1', object: 'response', model: 'm' };

function responseOf(text: string): object {
  const item = {
    type: 'message',
    id: 'item_1',
    role: 'assistant',
    status: 'completed',
    content: [{ type: 'output_text', text, annotations: [] }],
  };
  return { ...RESPONSE, status: 'completed', output: [item], usage: { ...USAGE, total_tokens: 18 } };
}

function responseEvents(text: string): readonly string[] {
  return [
    { type: 'response.created', response: { ...RESPONSE, status: 'in_progress', output: [] } },
    { type: 'response.output_text.delta', item_id: 'item_1', output_index: 0, content_index: 0, delta: text },
    { type: 'response.completed', response: responseOf(text) },
  ].map(eventOf);
}

function eventOf(event: { readonly type: string }, index: number): string {
  return `event: ${event.type}\ndata: ${JSON.stringify({ ...event, sequence_number: index })}\n\n`;
}
