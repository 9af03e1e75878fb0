import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { PassThrough } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BodyMemory, type ReceivedBody, RequestBodies } from '../src/intake/request-body.js';
import { type ErrorBody, send, stand } from './harness.js';

const CHAT = '/v1/chat/completions';
const BUDGET = 16_777_216;
/** The part of the budget that is for bodies. */
const BODIES = (BUDGET * 24) / 64;

async function bytesHeld(url: string): Promise<number> {
  const { text } = await send(`${url}/metrics`);
  return Number(/^warmpath_memory_bytes\{part="bodies"\} (\d+)$/m.exec(text)?.[1]);
}

/** A client that says how long its body will be, and sends no byte of it. */
async function announce(url: string, bytes: number, key = 'one') {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  let answer = '';
  socket.setEncoding('latin1').on('data', (text: string) => {
    answer += text;
  });
  const head = [
    `POST ${CHAT} HTTP/1.1`,
    'host: localhost',
    'content-type: application/json',
    `authorization: ${key}`,
    `content-length: ${bytes}`,
  ];
  socket.write(`${head.join('\r\n')}\r\n\r\n`);
  return { socket, answered: once(socket, 'close').then(() => answer) };
}

describe('bodies over real connections', () => {
  it('are refused before they are read where they exceed the budget, and taken again when others are over', async () => {
    const { engine, gateway } = await stand(undefined, { limits: { memoryBytes: BUDGET } });
    const first = await announce(gateway.url, Math.floor(BODIES * 0.8));
    while ((await bytesHeld(gateway.url)) === 0);
    const second = await announce(gateway.url, 1_000_000);
    const answer = await second.answered;
    expect(answer).toMatch(/^HTTP\/1\.1 429 /);
    expect(answer).toContain('retry-after: 1');
    expect(answer.toLowerCase()).toContain('connection: close');
    expect((JSON.parse(answer.split('\r\n\r\n')[1]!) as ErrorBody).error.code).toBe('WARMPATH_OVERLOADED');
    // There is room for another tenant.
    const other = await send(gateway.url + CHAT, '{"model":"m"}', { headers: { authorization: 'two' } });
    expect(other.status).toBe(200);
    first.socket.destroy();
    while ((await bytesHeld(gateway.url)) > 0);
    expect((await send(gateway.url + CHAT, '{"model":"m"}', { headers: { authorization: 'one' } })).status).toBe(200);
    expect(engine.received).toHaveLength(2);
  });

  it('count until their answer is over', async () => {
    const held: (() => void)[] = [];
    const { engine, gateway } = await stand((response) => held.push(() => response.end('{}')));
    const body = `{"model":"m","messages":"${'x'.repeat(100_000)}"}`;
    const reply = send(gateway.url + CHAT, body);
    await engine.until('request', 1);
    expect(await bytesHeld(gateway.url)).toBe(body.length);
    held[0]!();
    await reply;
    while ((await bytesHeld(gateway.url)) > 0);
  });

  it('without a length are taken as they grow, and refused beyond the limit', async () => {
    const { engine, gateway } = await stand(undefined, { server: { bodyLimitBytes: 100_000 } });
    const chunked = { 'transfer-encoding': 'chunked' };
    const body = `{"model":"m","messages":"${'x'.repeat(90_000)}"}`;
    expect((await send(gateway.url + CHAT, body, { headers: chunked })).status).toBe(200);
    expect(engine.last.body).toBe(body);
    const large = await send(gateway.url + CHAT, `${body}${' '.repeat(20_000)}`, { headers: chunked });
    expect([large.status, (JSON.parse(large.text) as ErrorBody).error.code]).toEqual([413, 'WARMPATH_BODY_TOO_LARGE']);
    while ((await bytesHeld(gateway.url)) > 0);
  });
});

function receive(request: PassThrough, memory: BodyMemory, stallMs = 60_000): Promise<ReceivedBody> {
  return new Promise((resolve, reject) => {
    const bodies = new RequestBodies({ memory, limitBytes: 1_000_000, stallMs });
    bodies.receive(request as unknown as IncomingMessage, 't', (error, body) => {
      if (body === undefined) reject(error as Error);
      else resolve(body);
    });
  });
}

describe('RequestBodies', () => {
  it('gives back the bytes that came, in whichever chunks, with their length or without', async () => {
    const chunks = fc.array(fc.uint8Array({ maxLength: 40_000 }), { maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(chunks, fc.boolean(), async (parts, isReported) => {
        const memory = new BodyMemory(2_000_000);
        const whole = Buffer.concat(parts);
        const request = Object.assign(new PassThrough(), {
          headers: isReported ? { 'content-length': `${whole.length}` } : {},
        });
        const received = receive(request, memory);
        for (const part of parts) if (part.length > 0) request.write(Buffer.from(part));
        request.end();
        const body = await received;
        expect(body.bytes.equals(whole)).toBe(true);
        if (isReported) expect(memory.bytes).toBe(whole.length);
        expect(memory.bytes).toBeGreaterThanOrEqual(whole.length);
        body.release();
        expect(memory.bytes).toBe(0);
      }),
      { seed: 37, numRuns: 60 },
    );
  });

  it('copies nothing where a body comes as one chunk', async () => {
    for (const headers of [{ 'content-length': '30000' }, {}]) {
      const request = Object.assign(new PassThrough(), { headers });
      const received = receive(request, new BodyMemory(2_000_000));
      const chunk = Buffer.alloc(30_000, 'x');
      request.end(chunk);
      expect((await received).bytes.buffer).toBe(chunk.buffer);
    }
  });

  it('ends an upload that stalls, and one whose connection breaks', async () => {
    const memory = new BodyMemory(2_000_000);
    const headers = { 'content-length': '500000' };
    const slow = Object.assign(new PassThrough(), { headers });
    slow.write(Buffer.alloc(100));
    await expect(receive(slow, memory, 5)).rejects.toMatchObject({ code: 'WARMPATH_BODY_STALLED', status: 408 });
    const broken = Object.assign(new PassThrough(), { headers });
    const received = receive(broken, memory);
    broken.destroy(new Error('aborted'));
    await expect(received).rejects.toMatchObject({ code: 'WARMPATH_CLIENT_CLOSED' });
    expect(memory.bytes).toBe(0);
  });
});

describe('BodyMemory', () => {
  it('never holds more than it may, counts exactly, and always has room for a newcomer', () => {
    const step = fc.record({ tenant: fc.constantFrom('a', 'b', 'c'), bytes: fc.nat(600), isRelease: fc.boolean() });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const memory = new BodyMemory(1_000);
        let held: { readonly tenant: string; readonly bytes: number }[] = [];
        for (const { tenant, bytes, isRelease } of steps) {
          const [oldest, ...rest] = held;
          if (isRelease && oldest !== undefined) {
            memory.release(oldest.tenant, oldest.bytes);
            held = rest;
          } else {
            try {
              memory.reserve(tenant, bytes);
              held = [...held, { tenant, bytes }];
            } catch (error) {
              expect(error).toMatchObject({ code: 'WARMPATH_OVERLOADED' });
            }
          }
          expect(memory.bytes).toBe(held.reduce((sum, each) => sum + each.bytes, 0));
          expect(memory.bytes).toBeLessThanOrEqual(1_000);
        }
      }),
      { seed: 41, numRuns: 300 },
    );
    const memory = new BodyMemory(1_000);
    for (let i = 0; i < 8; i++) memory.reserve('greedy', 100);
    expect(() => memory.reserve('greedy', 100)).toThrow('of all tenants 800 (limit 1000');
    memory.reserve('newcomer', 125);
    memory.release('greedy', 400);
    // Beside another one, half is all that it gets.
    expect(() => memory.reserve('greedy', 200)).toThrow('bodies of this tenant take 400 bytes');
    memory.reserve('newcomer', 300);
  });
});
