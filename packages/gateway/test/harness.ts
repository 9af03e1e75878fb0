import { type Agent, request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { onTestFinished } from 'vitest';
import type { GatewayParts } from '../src/assemble-gateway.js';
import type { GatewayConfigInput } from '../src/config/schema.js';
import { type RunningGateway, startGateway } from '../src/start-gateway.js';
import { type Answer, FakeEngine } from './fake-engine.js';

/** `server.operatorKey` of gateways whose metrics a test reads although they check keys. */
export const OPERATOR_KEY = 'the-key-of-the-operator';

/** Closes it after the test; what a test opened last is closed first. */
export function closing<Resource extends { close(): Promise<void> }>(resource: Resource): Resource {
  onTestFinished(() => resource.close());
  return resource;
}

export interface Stand {
  readonly engine: FakeEngine;
  readonly gateway: RunningGateway;
}

export type StandConfig = Omit<GatewayConfigInput, 'upstream'> & { upstream?: Partial<GatewayConfigInput['upstream']> };

/** A gateway in front of a fake engine; both are closed after the test. */
export async function stand(answer?: Answer, config: StandConfig = {}, parts?: GatewayParts): Promise<Stand> {
  const engine = closing(await FakeEngine.start(answer));
  const gateway = closing(await gatewayAt(engine.url, config, parts));
  return { engine, gateway };
}

export function gatewayAt(url: string, config: StandConfig = {}, parts?: GatewayParts): Promise<RunningGateway> {
  return startGateway(
    {
      ...config,
      server: { port: 0, ...config.server },
      upstream: { url, ...config.upstream },
      log: { level: 'silent' },
    },
    parts,
  );
}

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly text: string;
  /** Set when the connection broke before the end. */
  readonly broken: boolean;
}

export interface RequestOptions {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Keeps the connection open afterwards; without one, each request has its own. */
  readonly agent?: Agent;
  /** In the request line, in place of the URL's. */
  readonly path?: string;
  /** Bytes of the headers of the answer. */
  readonly maxHeaderSize?: number;
}

/** Sends a request and collects what comes back, also when the connection breaks. */
export function send(url: string, body?: string | Buffer | object, options: RequestOptions = {}): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const request = openRequest(url, body, options);
    request.on('error', reject);
    request.on('response', (response: IncomingMessage) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', () => {});
      response.on('close', () => {
        const whole = Buffer.concat(chunks);
        resolve({
          status: response.statusCode!,
          headers: response.headers,
          body: whole,
          text: whole.toString('utf8'),
          broken: !response.complete,
        });
      });
    });
  });
}

/** Sends a request. */
export function openRequest(url: string, body?: string | Buffer | object, options: RequestOptions = {}) {
  const payload = typeof body === 'string' || Buffer.isBuffer(body) || body === undefined ? body : JSON.stringify(body);
  const request = httpRequest(url, {
    agent: options.agent ?? false,
    method: options.method ?? (payload === undefined ? 'GET' : 'POST'),
    ...(options.path !== undefined && { path: options.path }),
    ...(options.maxHeaderSize !== undefined && { maxHeaderSize: options.maxHeaderSize }),
    headers: { ...(payload !== undefined && { 'content-type': 'application/json' }), ...options.headers },
  });
  request.end(payload);
  return request;
}

/**
 * The sum of a metric's samples, of all labels or, as in `warmpath_errors_total{code="…"`, of those that begin so; not
 * a number where the gateway has no such metric.
 */
export async function metricOf({ url }: Pick<RunningGateway, 'url'>, name: string): Promise<number> {
  const { text } = await send(`${url}/metrics`, undefined, { headers: { authorization: `Bearer ${OPERATOR_KEY}` } });
  const samples = text.split('\n').filter((line) => line.startsWith(name) && ' {,}'.includes(line[name.length] ?? ''));
  if (samples.length === 0 && !text.includes(`# TYPE ${name.split('{', 1)[0]} `)) return Number.NaN;
  return samples.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
}

/** Resolves when that is so. Asking takes a turn of the gateway's event loop. */
export async function untilMetric(gateway: Pick<RunningGateway, 'url'>, name: string, value: number): Promise<void> {
  for (;;) {
    const found = await metricOf(gateway, name);
    if (Number.isNaN(found)) throw new Error(`no metric ${name}`);
    if (found === value) return;
  }
}

/** Bytes that each part of the gateway's memory holds. */
export async function memoryOf({ url }: Pick<RunningGateway, 'url'>): Promise<Readonly<Record<string, number>>> {
  const { text } = await send(`${url}/metrics`, undefined, { headers: { authorization: `Bearer ${OPERATOR_KEY}` } });
  const samples = text.matchAll(/^warmpath_memory_bytes\{part="(\w+)"\} (\d+)$/gm);
  return Object.fromEntries([...samples].map(([, part, bytes]) => [part!, Number(bytes)]));
}

/** What the `x-warmpath` header of an answer says, by key; strings without their quotes, lists with commas. */
export function told({ headers }: Pick<Reply, 'headers'>): Readonly<Record<string, string | undefined>> {
  const summary: Record<string, string> = {};
  for (const [, key, value] of String(headers['x-warmpath'] ?? '').matchAll(/([a-z]+)=("[^"]*"|\([^)]*\)|[^,]+)/g)) {
    summary[key!] = value!
      .replace(/^\(|\)$/g, '')
      .replace(/" "/g, ', ')
      .replaceAll('"', '');
  }
  return summary;
}

export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string;
  };
}

export function errorOf(reply: Reply): ErrorBody['error'] {
  return (JSON.parse(reply.text) as ErrorBody).error;
}

export const DOCUMENTS = [
  { id: 'velka', title: 'Velka', content: 'The weight of Velka is 42 kg. The colour of Velka is teal.' },
  { id: 'orsin', title: 'Orsin', content: 'The weight of Orsin is 17 kg. The founder of Orsin is Mirela.' },
  { id: 'tamir', title: 'Tamir', content: 'The weight of Tamir is 8 kg. The colour of Tamir is red.' },
] as const;

/** A chat request over these documents. */
/** A stream whose client asks for its counts: all of it is passed on. */
export const COUNTED_STREAM = { stream: true, stream_options: { include_usage: true } };

export function chat(documents: readonly unknown[] = DOCUMENTS, fields: object = {}): object {
  return {
    model: 'm',
    messages: [
      { role: 'system', content: 'Answer from the documents.' },
      { role: 'user', content: 'What is the weight of Velka?' },
    ],
    documents,
    ...fields,
  };
}

/** The labels in the order in which they stand in a prompt. */
export function labelsIn(prompt: string): string[] {
  return [...prompt.matchAll(/<document id=\\?"([^"\\]+)/g)].map((match) => match[1]!);
}
