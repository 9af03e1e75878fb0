// What engines answer: however a stream is cut into chunks, it says the same.
import assert from 'node:assert/strict';
import { SseReader } from '@warmpath/core/internal';
import { TranslateError, translate } from '@warmpath/translate';
import { ResponseSniffer } from '../../../packages/gateway/dist/answer/read-answer.js';

const DELTAS = [
  '{"choices":[{"index":0,"delta":{"role":"assistant"}}]}',
  '{"choices":[{"index":0,"delta":{"content":"Hé"}}]}',
  '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]}}]}',
  '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}',
  '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
  '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}',
  '[DONE]',
];
const STREAM = DELTAS.map((data) => `data: ${data}\n\n`).join('');
const WHOLE = JSON.stringify({
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hi', tool_calls: [] }, finish_reason: 'length' }],
  usage: { prompt_tokens: 3, completion_tokens: 1 },
});
const STREAMS = [STREAM, STREAM.replaceAll('\n', '\r\n'), ': ping\n\nevent: x\ndata: a\ndata: b\n\ndata\n\ndata:c'];

/** The chunks of a stream, none empty, in three cuts: whole, byte by byte, and where the bytes themselves say. */
function cuts(bytes) {
  const drawn = [];
  for (let at = 0; at < bytes.length; ) {
    const length = 1 + (bytes[at] % 23);
    drawn.push(bytes.subarray(at, at + length));
    at += length;
  }
  const whole = bytes.length === 0 ? [] : [bytes];
  return [whole, [...bytes].map((_, at) => bytes.subarray(at, at + 1)), drawn];
}

/** The same answer for every cut. */
function sameForAllCuts(bytes, answerTo) {
  const [first, ...others] = cuts(bytes).map(answerTo);
  for (const other of others) assert.deepEqual(other, first);
  return first;
}

export function sse() {
  return {
    seeds: STREAMS,
    run(bytes) {
      for (const limit of [16, 65_536]) {
        const events = sameForAllCuts(bytes, (chunks) => {
          const said = [];
          const reader = new SseReader(
            {
              onData: (data) => said.push(Buffer.from(data).toString('latin1')),
              onComment: () => said.push(undefined),
              onTooLong: () => said.push('too long'),
            },
            limit,
          );
          // The reader may keep nothing of a chunk: what was given is written over.
          for (const chunk of chunks) {
            const lent = Uint8Array.from(chunk);
            reader.read(lent);
            lent.fill(0x78);
          }
          reader.end();
          return said;
        });
        if (limit > bytes.length) assert.deepEqual(events, plainEvents(bytes.toString('latin1')));
      }
    },
  };
}

/** The events of a stream, read the slow and simple way. */
function plainEvents(text) {
  const events = [];
  let data = [];
  const lines = text.split('\n').map((line) => (line.endsWith('\r') ? line.slice(0, -1) : line));
  for (const [place, line] of lines.entries()) {
    const isLast = place === lines.length - 1;
    if (line === '' || isLast) {
      if (isLast && line.startsWith(':')) events.push(undefined);
      if (isLast && (line === 'data' || line.startsWith('data:'))) data.push(line.slice(5).replace(/^ /, ''));
      if (data.join('\n') !== '') events.push(data.join('\n'));
      data = [];
    } else if (line.startsWith(':')) events.push(undefined);
    else if (line === 'data' || line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
  }
  return events;
}

export function sniffer() {
  return {
    seeds: [...STREAMS, WHOLE],
    run(bytes) {
      for (const type of ['text/event-stream', 'application/json']) {
        sameForAllCuts(bytes, (chunks) => {
          const read = new ResponseSniffer(() => 1, true);
          read.head(200, { 'content-type': type });
          for (const chunk of chunks) read.data(chunk);
          read.end();
          const { usage, completionTokens, prefilled, firstContentAt, answers } = read;
          assert(usage === undefined || usage.cachedTokens === undefined || usage.cachedTokens <= usage.promptTokens);
          return { usage, completionTokens, prefilled, firstContentAt, answers };
        });
      }
    },
  };
}

const MESSAGES_REQUEST = {
  model: 'm',
  max_tokens: 9,
  system: [{ type: 'text', text: 's' }],
  messages: [
    { role: 'user', content: [{ type: 'text', text: 'q' }] },
    { role: 'assistant', content: [{ type: 'tool_use', id: 't', name: 'f', input: { a: 1 } }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't', content: 'r' }] },
  ],
  tools: [{ name: 'f', description: 'd', input_schema: { type: 'object' } }],
  tool_choice: { type: 'auto' },
  stop_sequences: ['x'],
};
const RESPONSES_REQUEST = {
  model: 'm',
  instructions: 'i',
  input: [
    { role: 'user', content: [{ type: 'input_text', text: 'q' }] },
    { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' },
    { type: 'function_call_output', call_id: 'c', output: 'r' },
  ],
  tools: [{ type: 'function', name: 'f', parameters: {} }],
  text: { format: { type: 'json_schema', name: 'n', schema: {} } },
};
/** Between the request and the engine's answer to it: a sign that JSON does not have. */
const BETWEEN = 0x01;

export function translation() {
  const requests = [MESSAGES_REQUEST, RESPONSES_REQUEST];
  const streamed = requests.map((request) => ({ ...request, stream: true }));
  const seeds = [...requests, ...streamed].flatMap((request) =>
    [STREAM, WHOLE].map((answer) => `${JSON.stringify(request)}${String.fromCharCode(BETWEEN)}${answer}`),
  );
  return {
    seeds,
    run(bytes) {
      const between = bytes.indexOf(BETWEEN);
      const body = between < 0 ? bytes : bytes.subarray(0, between);
      const answer = between < 0 ? Buffer.from(STREAM) : bytes.subarray(between + 1);
      for (const api of ['messages', 'responses']) {
        const translated = errorOr(() => translate({ api, body }));
        if (translated.error !== undefined) continue;
        JSON.parse(translated.value.body);
        for (const contentType of ['text/event-stream', 'application/json']) {
          for (const status of [200, 400]) {
            sameForAllCuts(answer, (chunks) => answered({ api, body }, { status, contentType }, chunks));
          }
        }
      }
    },
  };
}

/** All that a client gets of an answer, without what is drawn or told by the clock, and the error that ends it. */
function answered(request, response, chunks) {
  const { answer } = translate(request);
  let text = '';
  const { error } = errorOr(() => {
    answer.start(response);
    for (const chunk of chunks) text += answer.write(chunk);
    text += answer.end();
  });
  if (error !== undefined) text += answer.fail({ code: error, message: 'm' });
  const withoutIds = text.replaceAll(/(?:resp|msg|fc|rs|toolu|call)_[0-9a-zA-Z-]+/g, 'id');
  return { text: withoutIds.replaceAll(/"created_at":\d+/g, '"created_at":0'), error };
}

/** What a call answers, or the code of the documented error that it refuses with. */
function errorOr(call) {
  try {
    return { value: call(), error: undefined };
  } catch (error) {
    if (TranslateError.isInstance(error)) return { value: undefined, error: error.code };
    throw error;
  }
}
