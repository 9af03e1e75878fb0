import { request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import type { SinkEngine } from './sink-engine.js';

/** What a client got. */
export interface Answered {
  /** `undefined` where the connection broke before an answer. */
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** The connection broke before the answer's end. */
  readonly isBroken: boolean;
}

/** What an attack is run against. */
export interface AttackedGateway {
  readonly url: string;
  readonly engine: SinkEngine;
  /** Whether the sizes are those of the real attack; they are smaller where many tests run side by side. */
  readonly isFull: boolean;
}

/** Something that a client may do to harm others. */
export interface Attack {
  readonly name: string;
  /** Of the gateway. */
  readonly config?: object;
  /** Does it, and answers what is wrong with the answers. */
  run(gateway: AttackedGateway): Promise<readonly string[]>;
}

export interface PostOptions {
  readonly headers?: Readonly<Record<string, string>>;
  /** Leaves when it aborts. */
  readonly signal?: AbortSignal;
}

/** Sends a body on a connection of its own, and collects what comes back. It never rejects. */
export function post(
  url: string,
  body: string | Buffer,
  { headers = {}, signal }: PostOptions = {},
): Promise<Answered> {
  return new Promise((resolve) => {
    const length = Buffer.byteLength(body);
    const request = httpRequest(url, {
      agent: false,
      method: 'POST',
      headers: { 'content-type': 'application/json', 'content-length': length, ...headers },
      ...(signal !== undefined && { signal }),
    });
    let answers: IncomingMessage | undefined;
    const gone = (error: Error) => {
      if (answers === undefined) resolve({ status: undefined, headers: {}, text: error.message, isBroken: true });
    };
    request.on('error', gone);
    request.on('response', (response) => {
      answers = response;
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', () => {});
      response.on('close', () => {
        const text = Buffer.concat(chunks).toString('utf8');
        resolve({ status: response.statusCode, headers: response.headers, text, isBroken: !response.complete });
      });
    });
    request.end(body);
  });
}

/** What is wrong with an answer that must be whole: served, or refused as the client's fault. */
export function problemsOf(what: string, { status, isBroken, text }: Answered): readonly string[] {
  if (status === undefined) return [`${what}: the connection broke: ${text}`];
  if (isBroken) return [`${what}: the answer ${status} broke off`];
  return status < 300 || (status >= 400 && status < 500) ? [] : [`${what}: ${status} ${text.slice(0, 200)}`];
}

/** What is wrong with a gateway that no longer serves an ordinary request. */
export async function problemsAfterwards({ url, engine }: AttackedGateway): Promise<readonly string[]> {
  const body = JSON.stringify({
    model: 'm',
    messages: [{ role: 'user', content: 'And now?' }],
    documents: [{ id: 'last', content: 'The weight of Velka is 42 kg.' }],
  });
  const { status, text } = await post(`${url}/v1/chat/completions`, body, { headers: key('afterwards') });
  if (status !== 200) return [`an ordinary request afterwards: ${status} ${text.slice(0, 200)}`];
  return engine.lastBody.includes('42 kg')
    ? []
    : ['an ordinary request afterwards reached the engine without its document'];
}

export function key(name: string): Readonly<Record<string, string>> {
  return { authorization: `Bearer ${name}` };
}
