import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { context, propagation, trace } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { NodeTracerProvider, ParentBasedSampler, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Answer, answerJson, answerStream, FakeEngine } from './fake-engine.js';
import { chat, closing, DOCUMENTS, gatewayAt, send, stand, untilMetric } from './harness.js';

const CHAT = '/v1/chat/completions';
const CLIENT_TRACE = '0af7651916cd43dd8448eb211c80319c';
const CLIENT_SPAN = 'b7ad6b7169203331';
const SAMPLED = { traceparent: `00-${CLIENT_TRACE}-${CLIENT_SPAN}-01`, tracestate: 'vendor=1' };

/** A span as OTLP's JSON has it. Times are nanoseconds of the day. */
interface CollectedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly status: { readonly code?: number };
  readonly attributes: readonly { readonly key: string; readonly value: Readonly<Record<string, unknown>> }[];
}

interface Export {
  readonly resourceSpans: readonly { readonly scopeSpans: readonly { readonly spans: readonly CollectedSpan[] }[] }[];
}

/** Takes what OpenTelemetry's SDK sends, as its collector does. */
class Collector {
  readonly bodies: string[] = [];
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        this.bodies.push(Buffer.concat(chunks).toString());
        response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
      });
    });
  }

  static async start(): Promise<Collector> {
    const collector = new Collector();
    collector.#server.listen(0, '127.0.0.1');
    await once(collector.#server, 'listening');
    return collector;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1/traces`;
  }

  get spans(): CollectedSpan[] {
    return this.bodies.flatMap((body) =>
      (JSON.parse(body) as Export).resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans)),
    );
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

let collector: Collector;
let provider: NodeTracerProvider;

/** What is registered holds for the process, and only the first of it. */
function unregister(): void {
  trace.disable();
  context.disable();
  propagation.disable();
}

beforeEach(async () => {
  unregister();
  collector = await Collector.start();
  provider = new NodeTracerProvider({
    sampler: new ParentBasedSampler({ root: { shouldSample: () => ({ decision: 2 }), toString: () => 'always' } }),
    spanProcessors: [new SimpleSpanProcessor(new OTLPTraceExporter({ url: collector.url }))],
  });
  provider.register();
});

afterEach(async () => {
  await provider.shutdown();
  await collector.close();
  unregister();
});

const ofRequest = (spans: readonly CollectedSpan[]) => spans.some(({ name }) => /^(POST|GET) \//.test(name));

/** What came in, once the request's own span is there: it is the last to end. */
async function collected(isThere = ofRequest): Promise<CollectedSpan[]> {
  for (;;) {
    await provider.forceFlush();
    const { spans } = collector;
    if (isThere(spans)) return spans;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const named = (spans: readonly CollectedSpan[], name: string) => spans.filter((span) => span.name === name);
/** From its start to its end, in nanoseconds of the day. */
const timesOf = ({ startTimeUnixNano, endTimeUnixNano }: CollectedSpan) =>
  [BigInt(startTimeUnixNano), BigInt(endTimeUnixNano)] as const;

/** The spans under this one by their starts; those must be within it, and none before another has ended. */
function inOrder(spans: readonly CollectedSpan[], parent: CollectedSpan): string[] {
  const under = spans.filter(({ parentSpanId }) => parentSpanId === parent.spanId);
  under.sort((a, b) => Number(timesOf(a)[0] - timesOf(b)[0]) || Number(timesOf(a)[1] - timesOf(b)[1]));
  let [before, last] = timesOf(parent);
  for (const span of under) {
    const [start, end] = timesOf(span);
    expect([span.name, start >= before, end >= start, end <= last]).toEqual([span.name, true, true, true]);
    before = end;
  }
  return under.map(({ name }) => name);
}

const attributesOf = ({ attributes }: CollectedSpan) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
const withUsage = { stream: true, stream_options: { include_usage: true } };

/** A gateway with a collection, before an engine of one place that answers when the test lets it. */
async function searchable(folder: string, documents: readonly object[]) {
  const held: Parameters<Answer>[] = [];
  const stood = await stand((...answer) => void held.push(answer), {
    collections: { folder },
    upstream: { maxConcurrent: 1 },
  });
  await send(`${stood.gateway.url}/v1/collections/handbook/documents`, { documents });
  return { held, ...stood };
}

describe('spans', () => {
  it('tell every stage of a request, under the span of its client', async () => {
    const { engine, gateway } = await stand(answerStream);
    await send(gateway.url + CHAT, chat(undefined, { ...withUsage, warmpath: { session: 'one' } }), {
      headers: { ...SAMPLED, 'x-request-id': 'request-1' },
    });
    const spans = await collected();
    const [request] = named(spans, `POST ${CHAT}`);
    const [call] = named(spans, 'chat m');
    expect(request).toMatchObject({ traceId: CLIENT_TRACE, parentSpanId: CLIENT_SPAN, kind: 2 });
    expect(attributesOf(request!)).toMatchObject({
      'http.request.method': 'POST',
      'http.route': CHAT,
      'http.response.status_code': 200,
      'warmpath.request_id': 'request-1',
      'warmpath.policy': 'foresight',
      'warmpath.documents': 3,
    });
    const under = (parent: CollectedSpan) =>
      spans.filter(({ parentSpanId }) => parentSpanId === parent.spanId).map(({ name }) => name);
    expect(under(request!).toSorted()).toEqual([
      'arrange',
      'chat m',
      'conversation',
      'documents',
      'intake',
      'observe',
      'read',
      'render',
    ]);
    expect(call).toMatchObject({ kind: 3 });
    expect(attributesOf(call!)).toEqual({
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'generic',
      'gen_ai.request.model': 'm',
      'server.address': '127.0.0.1',
      'server.port': Number(new URL(engine.url).port),
      'warmpath.engine': expect.any(String) as string,
      'http.response.status_code': 200,
      'gen_ai.usage.input_tokens': 120,
      'gen_ai.usage.output_tokens': 8,
      'gen_ai.usage.cache_read.input_tokens': 96,
      'warmpath.predicted_cached_tokens': 0,
    });
    expect(under(call!)).toEqual(['prefill', 'answer']);
    const byId = new Map(spans.map((span) => [span.spanId, span]));
    for (const span of spans) {
      const [start, end] = timesOf(span);
      expect(end).toBeGreaterThanOrEqual(start);
      const parent = byId.get(span.parentSpanId ?? '');
      if (parent === undefined) continue;
      expect(start).toBeGreaterThanOrEqual(timesOf(parent)[0]);
      expect(end).toBeLessThanOrEqual(timesOf(parent)[1]);
    }
    // The engine's own spans go under that of the call.
    expect(engine.last.headers).toMatchObject({
      traceparent: `00-${CLIENT_TRACE}-${call!.spanId}-01`,
      tracestate: 'vendor=1',
    });
  });

  it('hold nothing of what a request says, or who sends it', async () => {
    const { gateway } = await stand();
    const secret = [{ id: 'SECRET-id', title: 'SECRET', content: 'SECRET content' }];
    const body = chat(secret, { user: 'SECRET user', warmpath: { session: 'SECRET session' } });
    await send(`${gateway.url}${CHAT}?key=SECRET`, body, { headers: { authorization: 'Bearer SECRET' } });
    await collected();
    expect(collector.bodies.join('')).not.toContain('SECRET');
  });

  it('tell of the stages of a search, and of a wait', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-tracing-'));
    try {
      const documents = [{ id: 'velka', content: 'The weight of Velka is 42 kg.' }];
      const { held, engine, gateway } = await searchable(folder, documents);
      const asked = { warmpath: { retrieval: { collection: 'handbook' } }, documents: undefined };
      const first = send(gateway.url + CHAT, chat(undefined, asked));
      await engine.until('request', 1);
      const second = send(gateway.url + CHAT, chat());
      await untilMetric(gateway, 'warmpath_queue_depth', 1);
      engine.answer = answerJson;
      for (const [response] of held.splice(0)) answerJson(response);
      await Promise.all([first, second]);
      const spans = await collected();
      const [waited] = named(spans, 'queue');
      const [search] = named(spans, 'retrieval');
      expect(named(spans, 'queue')).toHaveLength(1);
      expect(named(spans, 'retrieval')).toHaveLength(1);
      expect(search!.traceId).not.toBe(waited!.traceId);
      expect(spans.filter(({ name }) => name.startsWith('GET /'))).toEqual([]);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('tell all of a request that searches, waits and is the turn of a conversation, in one trace', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-tracing-'));
    try {
      const documents = DOCUMENTS.map(({ id, content }) => ({ id, content }));
      const { held, engine, gateway } = await searchable(folder, documents);
      const inFront = send(gateway.url + CHAT, chat());
      await engine.until('request', 1);
      const warmpath = { retrieval: { collection: 'handbook' }, session: 'one' };
      const asked = send(gateway.url + CHAT, chat(undefined, { ...withUsage, documents: undefined, warmpath }), {
        headers: SAMPLED,
      });
      await untilMetric(gateway, 'warmpath_queue_depth', 1);
      engine.answer = answerStream;
      for (const [response] of held.splice(0)) answerJson(response);
      const [, reply] = await Promise.all([inFront, asked]);
      expect(reply.status).toBe(200);
      const isAsked = ({ traceId }: CollectedSpan) => traceId === CLIENT_TRACE;
      const spans = await collected((found) =>
        found.some((span) => isAsked(span) && span.parentSpanId === CLIENT_SPAN),
      );
      const ours = spans.filter(isAsked);
      const [request] = ours.filter(({ parentSpanId }) => parentSpanId === CLIENT_SPAN);
      const [call] = named(ours, 'chat m');
      // One after the other: none begins before the one in front of it has ended.
      expect(inOrder(ours, request!)).toEqual([
        'intake',
        'retrieval',
        'read',
        'conversation',
        'documents',
        'queue',
        'arrange',
        'render',
        'chat m',
        'observe',
      ]);
      expect(inOrder(ours, call!)).toEqual(['prefill', 'answer']);
      expect(ours).toHaveLength(13);
      expect(attributesOf(request!)).toMatchObject({ 'http.response.status_code': 200, 'warmpath.documents': 3 });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('say which engine failed, and which one answered', async () => {
    const broken = closing(
      await FakeEngine.start((response, { path }) => {
        if (path === '/v1/models') response.writeHead(404).end();
        else response.writeHead(503).end('{}');
      }),
    );
    const well = closing(await FakeEngine.start());
    const gateway = closing(
      await gatewayAt(broken.url, {
        upstream: { url: undefined },
        engines: [
          { name: 'a', url: broken.url },
          { name: 'b', url: well.url },
        ],
      } as never),
    );
    // Equals take turns: one of the two goes to the broken one first.
    for (let i = 0; i < 2; i++) await send(gateway.url + CHAT, chat());
    await collected();
    await provider.forceFlush();
    const calls = named(collector.spans, 'chat m');
    const failed = calls.filter(({ status }) => status.code === 2);
    expect(failed.map((call) => [attributesOf(call)['warmpath.engine'], attributesOf(call)['error.type']])).toEqual([
      ['a', '503'],
    ]);
    const siblings = calls.filter(({ parentSpanId }) => parentSpanId === failed[0]!.parentSpanId);
    expect(siblings.map((call) => attributesOf(call)['warmpath.engine'])).toEqual(['a', 'b']);
    for (const span of collector.spans.filter(({ name }) => name === `POST ${CHAT}`))
      expect(span.status.code).not.toBe(2);
  });

  it('carry on a trace that is not recorded, and a refused request is one span', async () => {
    const { engine, gateway } = await stand();
    await send(gateway.url + CHAT, chat(), { headers: { traceparent: `00-${CLIENT_TRACE}-${CLIENT_SPAN}-00` } });
    expect(engine.last.headers.traceparent).toMatch(new RegExp(`^00-${CLIENT_TRACE}-[0-9a-f]{16}-00$`));
    await send(gateway.url + CHAT, '{"documents": 3}', { headers: SAMPLED });
    const spans = await collected();
    expect(spans.map(({ name }) => name).toSorted()).toEqual([`POST ${CHAT}`, 'intake', 'read']);
    expect(attributesOf(named(spans, `POST ${CHAT}`)[0]!)).toMatchObject({
      'http.response.status_code': 400,
      'error.type': 'WARMPATH_INVALID_DOCUMENTS',
    });
  });

  it('are not there without an SDK, and the trace of a client passes through as it came', async () => {
    trace.disable();
    const { engine, gateway } = await stand();
    await send(gateway.url + CHAT, chat(), { headers: SAMPLED });
    expect(engine.last.headers).toMatchObject(SAMPLED);
    expect(collector.bodies).toEqual([]);
  });
});

describe('diagnostics channels', () => {
  it('tell of requests that are over, and of engines', async () => {
    const requests: unknown[] = [];
    const engines: unknown[] = [];
    const onRequest = (message: unknown): void => void requests.push(message);
    const onEngine = (message: unknown): void => void engines.push(message);
    subscribe('warmpath:request', onRequest);
    subscribe('warmpath:engine', onEngine);
    try {
      const { gateway, engine } = await stand();
      await send(gateway.url + CHAT, chat(), { headers: { 'x-request-id': 'request-1' } });
      await send(`${gateway.url}/nothing`);
      const other = closing(await FakeEngine.start());
      const engines = [engine, other].map(({ url }, i) => ({ name: `e${i}`, url }));
      await gateway.reload({ engines, log: { level: 'silent' } });
    } finally {
      unsubscribe('warmpath:request', onRequest);
      unsubscribe('warmpath:engine', onEngine);
    }
    expect(requests).toMatchObject([
      { id: 'request-1', method: 'POST', route: CHAT, status: 200, cachedTokens: 96 },
      { method: 'GET', status: 404 },
    ]);
    expect(engines).toContainEqual({ engine: 'e1', kind: 'added' });
  });
});
