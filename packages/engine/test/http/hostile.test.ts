import { connect } from 'node:net';
import { fastify } from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { seeded } from '../../bench/draw.js';
import { HOSTILE, isServersFault, mutatedRequest } from '../../bench/hostile-bodies.js';
import { answer } from '../../src/http/exchange.js';
import { completionFormat } from '../../src/http/formats.js';
import type { GenerationListener, GenerationRequest } from '../../src/loop/generation.js';
import { TestEngine } from '../support/engine.js';

describe('hostile bodies', () => {
  let engine: TestEngine;
  beforeAll(async () => {
    engine = await TestEngine.start({ contextTokens: 512, defaultMaxTokens: 4 });
  });
  afterAll(() => engine.close());

  async function send(path: string, init: RequestInit): Promise<{ status: number; text: string }> {
    const response = await fetch(engine.server.url + path, init);
    return { status: response.status, text: await response.text() };
  }

  it('that are valid ones with something changed are never the fault of the engine', async () => {
    const next = seeded(20);
    for (let index = 0; index < 600; index++) {
      const { method, path, body } = mutatedRequest(next);
      const result = await send(path, { method, ...(body !== undefined && { body }) });
      expect(isServersFault(result), `${path} ${Buffer.from(body ?? []).toString('latin1')} ${result.text}`).toBe(
        false,
      );
    }
    expect(engine.server.stats()).toMatchObject({ running: 0, waiting: 0 });
  });

  it.each(HOSTILE)('are refused by the table of errors or answered: $name', async ({ path, make }) => {
    // The largest that is read at all.
    const { status, text } = await send(path, { method: 'POST', body: make(engine.server.model.bodyLimitBytes) });
    expect(status === 200 || (JSON.parse(text) as { error: { code: string } }).error.code).toSatisfy(
      (code) => code === true || /^context_length_exceeded$|^WARMPATH_(?!INTERNAL|ENGINE_FAILED)/.test(String(code)),
    );
    expect(text.length).toBeLessThan(20_000);
  });

  it('are counted, by what is wrong with them', async () => {
    const counted = async (): Promise<number[]> => {
      const { text } = await send('/metrics', {});
      return ['too_large', 'too_complex', 'no_json'].map((reason) =>
        Number(new RegExp(`refused_bodies_total\\{reason="${reason}"[^}]*\\} (\\d+)`).exec(text)![1]),
      );
    };
    const before = await counted();
    const bodies = [' '.repeat(engine.server.model.bodyLimitBytes + 1), '['.repeat(300), '{"prompt"', '{}'];
    for (const body of bodies) {
      await send('/v1/completions', { method: 'POST', body });
    }
    expect(await counted()).toEqual(before.map((count) => count + 1));
  });

  it('are not received where no prompt that fits needs as much', async () => {
    const { bodyLimitBytes } = engine.server.model;
    const body = ' '.repeat(bodyLimitBytes + 1);
    expect((await send('/v1/completions', { method: 'POST', body })).status).toBe(413);
    // The longest token has 16 bytes, and an escaped letter six.
    expect(bodyLimitBytes).toBe(512 * 16 * 6 + 2 ** 20);
  });
});

describe('a client that never reads', () => {
  it('is given up, and its generation aborted, when enough waits for it', async () => {
    const server = fastify();
    let listener: GenerationListener | undefined;
    let tellAbort: () => void = () => undefined;
    const aborted = new Promise<void>((resolve) => {
      tellAbort = resolve;
    });
    let isAborted = false;
    const target = {
      submit: (_: GenerationRequest, to: GenerationListener) => {
        listener = to;
        return {
          abort: () => {
            isAborted = true;
            tellAbort();
          },
        };
      },
    };
    let unread = 0;
    server.post('/', (_, reply) => {
      reply.raw.on('close', () => {
        unread = reply.raw.writableLength;
      });
      const format = completionFormat({ id: 'a', created: 0, model: 'm' }, false);
      const choices = [{ request: {} as GenerationRequest, format }];
      return answer(target, choices, reply, { stream: true, includeUsage: false, choicesOfPrompt: 1 });
    });
    await server.listen({ port: 0 });
    const { port } = server.server.address() as { port: number };
    const socket = connect(port, '127.0.0.1').pause();
    socket.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n');
    let sent = 0;
    while (!isAborted && sent < 2 ** 26) {
      listener?.onText('x'.repeat(1_000));
      sent += listener === undefined ? 0 : 1_000;
      await new Promise((resolve) => setImmediate(resolve));
    }
    await aborted;
    // What the system took before it was full is the system's; here waits no more than this.
    expect(unread).toBeLessThan(300_000);
    expect(sent).toBeLessThan(2 ** 26);
    socket.destroy();
    await server.close();
  });
});
