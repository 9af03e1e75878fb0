import { arrange, WarmpathError } from '@warmpath/core';
import { describe, expect, it } from 'vitest';
import type { Arrange } from '../src/prompt/insert-slot.js';
import { CHAT_RESPONSE } from './fake-engine.js';
import { chat, DOCUMENTS, errorOf, labelsIn, send, stand, told } from './harness.js';

const PATH = '/v1/chat/completions';
const [VELKA, ORSIN] = DOCUMENTS;

function failing(): never {
  throw new TypeError('a defect');
}

/** Core's arrange with a policy that fails. */
const withFailingPolicy: Arrange = (request, view, now) =>
  arrange({ ...request, policy: { name: 'exact', arrange: failing } }, view, now);

/** An arrangement that cannot be rendered. */
const withTornArrangement: Arrange = (request, view, now) => {
  const arrangement = arrange(request, view, now);
  return { ...arrangement, documents: [...arrangement.documents, undefined as never] };
};

describe('a defect of the gateway never costs an answer', () => {
  it.each([
    ['a failing policy', withFailingPolicy, 'WARMPATH_INTERNAL'],
    ['a failing arrange', failing as Arrange, 'TypeError'],
    ['a torn arrangement', withTornArrangement, 'TypeError'],
  ])('%s: documents go out in retrieval order', async (_, arrangeInstead, reason) => {
    const { engine, gateway } = await stand(undefined, {}, { arrange: arrangeInstead });
    await send(gateway.url + PATH, chat([VELKA, ORSIN]));
    const reply = await send(gateway.url + PATH, chat([ORSIN, VELKA]));
    expect(reply.status).toBe(200);
    expect(reply.text).toBe(CHAT_RESPONSE);
    expect(told(reply).fallback).toBe('retrieval');
    expect(labelsIn(engine.last.body)).toEqual(['orsin', 'velka']);
    expect(engine.last.body).not.toContain('order of relevance');
    expect((await send(`${gateway.url}/metrics`)).text).toContain('warmpath_fail_open_total{fallback="retrieval"} 2');
    const record = await send(`${gateway.url}/v1/requests/${String(reply.headers['x-request-id'])}`);
    expect(JSON.parse(record.text)).toMatchObject({ failedOpen: [{ fallback: 'retrieval', reason }] });
    expect(record.text).not.toContain('a defect');
  });

  it('a defect that retrieval order does not mend: the original body goes out', async () => {
    const { engine, gateway } = await stand(undefined, {}, { arrange: failing as Arrange });
    const content = `<warmpath-documents>${DOCUMENTS.map((document) => `<document>${document.content}</document>`).join('')}</warmpath-documents>`;
    const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content }] });
    const reply = await send(gateway.url + PATH, body);
    expect(reply.text).toBe(CHAT_RESPONSE);
    expect(told(reply).fallback).toBe('original');
    expect(engine.last.body).toBe(body);
    expect((await send(`${gateway.url}/metrics`)).text).toContain('warmpath_fail_open_total{fallback="original"} 1');
  });

  it('bad input is still refused', async () => {
    const refuse: Arrange = () => {
      throw new WarmpathError('WARMPATH_INVALID_PIN', { path: 'pin[0]' });
    };
    const { gateway } = await stand(undefined, {}, { arrange: refuse });
    const reply = await send(gateway.url + PATH, chat());
    expect(reply.status).toBe(400);
    expect(errorOf(reply).code).toBe('WARMPATH_INVALID_PIN');
  });
});
