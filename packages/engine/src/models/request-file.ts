import { WarmpathError } from '@warmpath/core';
import { type Dispatcher, request } from 'undici';

const MAX_REDIRECTS = 8;

export interface RemoteFile {
  readonly name: string;
  readonly url: URL;
  readonly path: string;
  readonly server: 'hub' | 'server';
  /** Sent to the origin of `url` and to no other. */
  readonly token?: string | undefined;
}

/** What the content of a partial file is: a SHA-256 or an entity tag, and the length of the whole. */
export interface Content {
  readonly tag?: string | undefined;
  readonly totalBytes?: number | undefined;
}

export class TransientFailure extends Error {
  readonly retryAfterMs: number | undefined;

  constructor(message: string, retryAfterMs?: number) {
    super(message);
    this.retryAfterMs = retryAfterMs;
  }
}

type Headers = (name: string) => string | undefined;

export interface FileRequest extends Pick<RemoteFile, 'url' | 'token'> {
  readonly dispatcher: Dispatcher;
  readonly signal?: AbortSignal | undefined;
}

interface FileResponse {
  readonly status: number;
  readonly header: Headers;
  readonly body: Dispatcher.ResponseData['body'];
  readonly content: Content;
}

/**
 * Asks for a file and follows redirects to the host that serves it. The hub names the content (`x-linked-etag`,
 * `x-linked-size`) on its own answer, before the redirect.
 *
 * @throws WARMPATH_DOWNLOAD_FAILED for too many redirects, and for one that leaves https.
 */
export async function requestFile(
  { url, token, dispatcher, signal }: FileRequest,
  range?: string,
): Promise<FileResponse> {
  let target = url;
  let linked: Content = {};
  for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
    const headers = {
      // Compressed bytes would have other lengths and ranges than the file.
      'accept-encoding': 'identity',
      'user-agent': 'warmpath',
      ...(token !== undefined && target.origin === url.origin && { authorization: `Bearer ${token}` }),
      ...(range !== undefined && { range }),
    };
    const { statusCode: status, headers: received, body } = await request(target, { dispatcher, signal, headers });
    // Without a listener an error of a body that is not read would end the process.
    body.on('error', () => undefined);
    const header: Headers = (name) => [received[name]].flat()[0];
    linked = {
      tag: linked.tag ?? header('x-linked-etag')?.replace(/^(?:W\/)?"(.*)"$/, '$1'),
      totalBytes: linked.totalBytes ?? wholeNumber(header('x-linked-size')),
    };
    const location = header('location');
    if (status < 300 || status >= 400 || location === undefined) {
      const etag = header('etag');
      const length = status === 206 ? /\/(\d+)$/.exec(header('content-range') ?? '')?.[1] : header('content-length');
      const content = {
        tag: linked.tag ?? (etag?.startsWith('"') ? etag : undefined),
        totalBytes: linked.totalBytes ?? wholeNumber(length),
      };
      return { status, header, body, content };
    }
    await body.dump();
    const next = URL.canParse(location, target.href) ? new URL(location, target) : undefined;
    const isSecure = next?.protocol === 'https:' || (next?.protocol === 'http:' && target.protocol === 'http:');
    if (next === undefined || !isSecure) {
      const detail = 'the server redirects to an address that is not https';
      throw new WarmpathError('WARMPATH_DOWNLOAD_FAILED', { detail });
    }
    target = next;
  }
  const detail = `the server redirects more than ${MAX_REDIRECTS} times`;
  throw new WarmpathError('WARMPATH_DOWNLOAD_FAILED', { detail });
}

/** What an answer without content means: to be tried again, or final, with what to do about it. */
export function refusal({ name, server, token }: RemoteFile, status: number, header: Headers): Error {
  if (status === 408 || status === 425 || status === 429 || status >= 500) {
    const seconds = wholeNumber(header('retry-after'));
    return new TransientFailure(`the ${server} answers ${status}`, seconds && seconds * 1000);
  }
  const reason = server === 'hub' ? hubReason(status, header('x-error-code'), token) : serverReason(status);
  return failed(name, `the ${server} answers ${status}: ${reason}`);
}

function serverReason(status: number): string {
  if (status === 404 || status === 410) return 'there is no such file';
  if (status === 401 || status === 403) return 'the address gives no access, or no longer does';
  return 'the request was refused';
}

function hubReason(status: number, errorCode: string | undefined, token: string | undefined): string {
  if (errorCode === 'RevisionNotFound') return 'the repository has no such revision';
  if (errorCode === 'EntryNotFound') return 'the repository has no such file';
  if (status === 404) return 'there is no such repository, revision or file';
  if (status !== 401 && status !== 403) return errorCode ?? 'the request was refused';
  const gate =
    errorCode === 'GatedRepo'
      ? 'the repository is gated: accept its terms on the hub'
      : 'the repository is not there, private or gated';
  return token === undefined
    ? `${gate}; set HF_TOKEN to a token that has access`
    : `${gate}; the token in HF_TOKEN does not give access to it`;
}

export function failed(name: string, detail: string, cause?: unknown): WarmpathError {
  return new WarmpathError('WARMPATH_DOWNLOAD_FAILED', { path: name, detail, cause });
}

function wholeNumber(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}
