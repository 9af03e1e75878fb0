import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ResponseSniffer } from '../src/answer/read-answer.js';
import { CHAT_RESPONSE, CHAT_STREAM } from './fake-engine.js';

const USAGE = { promptTokens: 120, cachedTokens: 96 };
const STREAM = { 'content-type': 'text/event-stream' };
const JSON_TYPE = { 'content-type': 'application/json' };

/** Reads the text in chunks cut at the given places; the clock counts chunks. */
function sniff(text: string, headers: Record<string, string>, cuts: readonly number[]): ResponseSniffer {
  const bytes = Buffer.from(text);
  let clock = 0;
  const sniffer = new ResponseSniffer(() => clock);
  sniffer.head(200, headers);
  const places = [0, ...[...cuts].sort((a, b) => a - b), bytes.length];
  for (let i = 1; i < places.length; i++) {
    clock = i;
    sniffer.data(bytes.subarray(places[i - 1], places[i]));
  }
  sniffer.end();
  return sniffer;
}

/** What the embedded engine sent to the byte. */
const recorded = (name: string) => readFileSync(new URL(`fixtures/${name}`, import.meta.url), 'utf8');

const cutsOf = (text: string) => fc.array(fc.nat(Buffer.byteLength(text)), { maxLength: 40 });

describe('ResponseSniffer', () => {
  it.each([
    ['LF', CHAT_STREAM],
    ['CRLF', CHAT_STREAM.replaceAll('\n', '\r\n')],
    ['no line end after the last event', CHAT_STREAM.slice(0, CHAT_STREAM.indexOf('data: [DONE]')).trimEnd()],
  ])('finds the usage of a stream (%s) cut at any bytes', (_, stream) => {
    fc.assert(
      fc.property(cutsOf(stream), (cuts) => {
        expect(sniff(stream, STREAM, cuts).usage).toEqual(USAGE);
      }),
      { seed: 7, numRuns: 300 },
    );
  });

  it('finds the usage in what a real engine sent, cut at any bytes', () => {
    const [stream, response] = [recorded('chat-stream.sse'), recorded('chat-response.json')];
    fc.assert(
      fc.property(cutsOf(stream), cutsOf(response), (streamCuts, responseCuts) => {
        const usage = { promptTokens: 52, cachedTokens: 51 };
        expect(sniff(stream, STREAM, streamCuts)).toMatchObject({ usage, prefilled: true });
        expect(sniff(response, JSON_TYPE, responseCuts)).toMatchObject({ usage, prefilled: true });
      }),
      { seed: 9, numRuns: 200 },
    );
  });

  it('finds the usage of a whole response cut at any bytes', () => {
    fc.assert(
      fc.property(cutsOf(CHAT_RESPONSE), (cuts) => {
        expect(sniff(CHAT_RESPONSE, JSON_TYPE, cuts).usage).toEqual(USAGE);
      }),
      { seed: 8, numRuns: 100 },
    );
  });

  it('takes the first generated content, not the role event, as the end of prefill', () => {
    const bytes = Buffer.from(CHAT_STREAM);
    const content = bytes.indexOf('data:', 10);
    const sniffer = sniff(CHAT_STREAM, STREAM, [content, bytes.indexOf('data:', content + 10)]);
    expect(sniffer.firstContentAt).toBe(2);
    expect(sniff(CHAT_STREAM.slice(0, content), STREAM, []).prefilled).toBe(false);
  });

  it.each([
    ['text of a completion', '{"choices":[{"text":"x"}]}', true],
    ['reasoning', '{"choices":[{"delta":{"reasoning_content":"x"}}]}', true],
    ['a tool call', '{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}', true],
    ['nulls', '{"choices":[{"delta":{"role":"assistant","content":null}}]}', false],
    ['no choices', '{"choices":[]}', false],
    ['not an object', '7', false],
    ['not JSON', '{"choices":', false],
  ])('content: %s', (_, event, content) => {
    expect(sniff(`data: ${event}\n\n`, STREAM, []).prefilled).toBe(content);
  });

  it.each([
    ['compressed', { ...JSON_TYPE, 'content-encoding': 'gzip' }],
    ['foreign', { 'content-type': 'text/plain' }],
  ])('does not read a %s response', (_, headers) => {
    expect(sniff(CHAT_RESPONSE, headers, []).usage).toBeUndefined();
  });

  it('believes no usage that is not one', () => {
    for (const usage of [
      'null',
      '{}',
      '{"prompt_tokens":-1}',
      '{"prompt_tokens":"9"}',
      '[]',
      '{"prompt_tokens":1.5}',
    ]) {
      expect(sniff(`{"usage":${usage}}`, JSON_TYPE, []).usage).toBeUndefined();
    }
    expect(sniff('{"usage":{"prompt_tokens":9}}', JSON_TYPE, []).usage).toEqual({
      promptTokens: 9,
      cachedTokens: undefined,
    });
    const excessive = '{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":90}}}';
    expect(sniff(excessive, JSON_TYPE, []).usage?.cachedTokens).toBe(9);
  });

  it('holds no more than its limit and reads on after a line beyond it', () => {
    const longLine = `data: {"choices":[{"delta":{"content":"${'x'.repeat(3_000_000)}"}}]}\n\n`;
    const cuts = Array.from({ length: 3_000 }, (_, i) => i * 1_000);
    expect(sniff(longLine + CHAT_STREAM, STREAM, cuts).usage).toEqual(USAGE);
    const longBody = CHAT_RESPONSE.replace('The weight', 'x'.repeat(3_000_000));
    expect(sniff(longBody, JSON_TYPE, cuts).usage).toBeUndefined();
  });

  it.each<[string, string, string | undefined]>([
    ['a finish reason', '{"choices":[{"delta":{"content":"x"},"finish_reason":"length"}]}', undefined],
    [
      'a finish reason of another engine',
      '{"choices":[{"delta":{"content":"x"},"finish_reason": "eos_token"}]}',
      undefined,
    ],
    ['[DONE]', '{"choices":[{"delta":{"content":"x"}}]}\n\ndata: [DONE]', undefined],
    [
      'the end of Messages',
      '{"type":"content_block_delta","delta":{"text":"x"}}\n\ndata: {"type":"message_delta","delta":{"stop_reason":"pause_turn"}}',
      undefined,
    ],
    [
      'the end of Responses',
      '{"type":"response.output_text.delta","delta":"x"}\n\ndata: {"type":"response.completed","response":{"error":null}}',
      undefined,
    ],
    ['no end', '{"choices":[{"delta":{"content":"x"},"finish_reason":null}]}', 'WARMPATH_UPSTREAM_CUT'],
    ['an empty end', '{"choices":[{"delta":{"content":"x"},"finish_reason":""}]}', 'WARMPATH_UPSTREAM_CUT'],
    ['no end of Messages', '{"type":"content_block_delta","delta":{"text":"x"}}', 'WARMPATH_UPSTREAM_CUT'],
    [
      'an abort',
      '{"choices":[{"delta":{"content":"x"}}]}\n\ndata: {"choices":[{"delta":{},"finish_reason":"abort"}]}\n\ndata: [DONE]',
      'WARMPATH_UPSTREAM_ERROR',
    ],
    [
      'an error',
      '{"choices":[{"delta":{"content":"x"}}]}\n\ndata: {"error":{"message":"boom"}}\n\ndata: [DONE]',
      'WARMPATH_UPSTREAM_ERROR',
    ],
    [
      'an error of Messages',
      '{"type":"error","error":{"type":"overloaded_error","message":"boom"}}',
      'WARMPATH_UPSTREAM_ERROR',
    ],
    [
      'an error of Responses',
      '{"type":"response.output_text.delta","delta":"x"}\n\ndata: {"type":"response.failed","response":{"error":{"message":"boom"}}}',
      'WARMPATH_UPSTREAM_ERROR',
    ],
    [
      'an event that is called an error',
      '{"choices":[{"delta":{"content":"x"}}]}\n\nevent: error\ndata: boom',
      'WARMPATH_UPSTREAM_ERROR',
    ],
    ['events of none of the APIs', '{"type":"speech.audio.delta","audio":"x"}', undefined],
  ])('a stream with %s', (_, events, failure) => {
    expect(sniff(`data: ${events}\n\n`, STREAM, []).failure).toBe(failure);
  });

  it('an object with an error is no answer', () => {
    for (const body of ['{"error":{"message":"boom"}}', '{"object":"error","message":"boom"}'])
      expect(sniff(body, JSON_TYPE, [])).toMatchObject({ failure: 'WARMPATH_UPSTREAM_ERROR', prefilled: false });
    expect(sniff(CHAT_RESPONSE, JSON_TYPE, []).failure).toBeUndefined();
  });

  it.each(['Text/Event-Stream', 'text/plain', 'application/json', ''])(
    'reads a stream of the content type `%s`',
    (type) => {
      for (const before of ['', '\uFEFF'])
        expect(sniff(before + CHAT_STREAM, { 'content-type': type }, [1, 2, 3, 4])).toMatchObject({
          usage: USAGE,
          prefilled: true,
        });
      if (type !== 'text/plain' && type !== '')
        expect(sniff(`\uFEFF${CHAT_RESPONSE}`, { 'content-type': type }, [1, 2]).usage).toEqual(USAGE);
    },
  );
});
