import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { answerJson, answerStream } from './fake-engine.js';
import { labelsIn, stand } from './harness.js';

/** Requests as the Python package `openai` 3.22.1 wrote them on the wire, for code as the docs show it. */
interface Recorded {
  readonly name: string;
  readonly path: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: string;
}

const recorded = JSON.parse(
  await readFile(new URL('fixtures/openai-python.json', import.meta.url), 'utf8'),
) as readonly Recorded[];

/** Sends the very bytes, and reads until the connection ends. */
async function replay(url: string, { path, headers, body }: Recorded): Promise<string> {
  const { host, hostname, port } = new URL(url);
  const here: Readonly<Record<string, string>> = { Connection: 'close', Host: host };
  const socket = connect(Number(port), hostname);
  const head = headers.map(([name, value]) => `${name}: ${here[name] ?? value}\r\n`).join('');
  socket.write(`POST ${path} HTTP/1.1\r\n${head}\r\n${body}`);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  await once(socket, 'close');
  return Buffer.concat(chunks).toString('utf8');
}

describe('the openai package for Python, by its own bytes', () => {
  const [first, reversed, stream] = recorded as [Recorded, Recorded, Recorded];

  it('has its documents arranged, and its answer untouched', async () => {
    const { engine, gateway } = await stand(answerJson);
    const answer = await replay(gateway.url, first);
    expect(answer).toMatch(/^HTTP\/1\.1 200/);
    expect(answer).toContain('policy=foresight');
    const body = JSON.parse(engine.last.body) as Record<string, unknown>;
    expect(Object.keys(body)).toEqual(['messages', 'model']);
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin']);
    expect(engine.last.headers).toMatchObject({ authorization: 'Bearer none', 'user-agent': 'OpenAI/Python 3.22.1' });
    await replay(gateway.url, reversed);
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin']);
  });

  it('streams', async () => {
    const { engine, gateway } = await stand(answerStream);
    const answer = await replay(gateway.url, stream);
    expect(answer).toContain('text/event-stream');
    expect(answer).toContain('data: [DONE]');
    expect(JSON.parse(engine.last.body)).toMatchObject({ stream: true, stream_options: { include_usage: true } });
    expect(labelsIn(engine.last.body)).toEqual(['orsin', 'velka']);
  });
});
