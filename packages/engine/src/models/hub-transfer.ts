import type { FileHandle } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';
import type { Dispatcher } from 'undici';
import {
  type ContentIdentity,
  type HubResponse,
  networked,
  requestHubFile,
  TransientFailure,
  wholeNumber,
} from './hub-request.js';
import type { PartialFile } from './partial-file.js';

/** A file that a server has. */
export interface TransferSource {
  /** What messages call the file. */
  readonly name: string;
  readonly url: URL;
  /** What messages call the server. */
  readonly server: 'hub' | 'server';
  readonly token: string | undefined;
}

export interface TransferRequest extends TransferSource {
  readonly partial: PartialFile;
  readonly dispatcher: Dispatcher;
  readonly signal: AbortSignal;
  readonly onProgress: (bytes: number, totalBytes: number | undefined) => void;
}

/**
 * One try to bring a partial file to its full length: continues it when the hub still has the same content, starts over
 * when it has another. Returns what the finished bytes are.
 *
 * Errors: {@link TransientFailure} when another try may help; `WARMPATH_DOWNLOAD_FAILED` when none will; the signal's
 * reason.
 */
export async function transferFile(request: TransferRequest): Promise<ContentIdentity> {
  const { partial } = request;
  const resume = await resumePoint(partial);
  if (resume !== undefined && resume.bytes === resume.identity.totalBytes) return resume.identity;
  const response = await requestHubFile({ ...request, resume });
  try {
    switch (response.status) {
      case 200: {
        const identity = { ...response.identity, totalBytes: announcedLength(response) };
        const handle = await stored(request.name, partial.restart(identity));
        await receive(request, response, { handle, bytes: 0, totalBytes: identity.totalBytes });
        return identity;
      }
      case 206: {
        const { identity, bytes } = await continued(response, resume, partial);
        const handle = await stored(request.name, partial.append());
        await receive(request, response, { handle, bytes, totalBytes: identity.totalBytes });
        return identity;
      }
      case 416:
        await partial.discard();
        throw new TransientFailure('the partial file is longer than the file on the server');
      default:
        throw refusal(request, response);
    }
  } finally {
    response.body.drop();
  }
}

interface ResumePoint {
  readonly bytes: number;
  readonly identity: ContentIdentity;
}

async function resumePoint(partial: PartialFile): Promise<ResumePoint | undefined> {
  const [bytes, identity] = await Promise.all([partial.size(), partial.identity()]);
  if (bytes === 0 || identity === undefined || bytes > (identity.totalBytes ?? Number.POSITIVE_INFINITY))
    return undefined;
  return { bytes, identity };
}

/** Length of the whole file by a full answer; the hub's word and the serving host's must agree. */
function announcedLength({ header, identity }: HubResponse): number | undefined {
  const announced = wholeNumber(header('content-length'));
  const { totalBytes } = identity;
  if (announced !== undefined && totalBytes !== undefined && announced !== totalBytes) {
    throw new TransientFailure(`the hub says ${totalBytes} bytes, the host that serves the file says ${announced}`);
  }
  return announced ?? totalBytes;
}

/** Checks that a partial answer is the very rest that is missing. */
async function continued(
  response: HubResponse,
  resume: ResumePoint | undefined,
  partial: PartialFile,
): Promise<ResumePoint> {
  const match = /^bytes (\d{1,15})-\d{1,15}\/(\d{1,15})$/.exec(response.header('content-range') ?? '');
  const { etag, linkedEtag } = response.identity;
  const fits =
    resume !== undefined &&
    match !== null &&
    Number(match[1]) === resume.bytes &&
    Number(match[2]) === (resume.identity.totalBytes ?? Number(match[2])) &&
    (linkedEtag ?? resume.identity.linkedEtag) === resume.identity.linkedEtag &&
    (etag ?? resume.identity.etag) === resume.identity.etag;
  if (!fits) {
    await partial.discard();
    throw new TransientFailure('the server continued another file than the one begun');
  }
  return { bytes: resume.bytes, identity: { ...resume.identity, totalBytes: Number(match[2]) } };
}

interface Arrival {
  readonly handle: FileHandle;
  readonly bytes: number;
  readonly totalBytes: number | undefined;
}

async function receive(request: TransferRequest, { body }: HubResponse, arrival: Arrival): Promise<void> {
  const { handle, totalBytes } = arrival;
  let { bytes } = arrival;
  try {
    request.onProgress(bytes, totalBytes);
    for (;;) {
      const chunk = await networked(body.next(), request.signal);
      if (chunk === undefined) break;
      if (bytes + chunk.length > (totalBytes ?? Number.POSITIVE_INFINITY)) {
        throw new TransientFailure(`the server sends more than the ${totalBytes} bytes that it announced`);
      }
      await stored(request.name, handle.writeFile(chunk));
      bytes += chunk.length;
      request.onProgress(bytes, totalBytes);
    }
  } finally {
    await handle.close();
  }
  if (totalBytes !== undefined && bytes !== totalBytes) {
    throw new TransientFailure(`the connection ended after ${bytes} of ${totalBytes} bytes`);
  }
}

/**
 * Work on the disk for the file `name`. A failure is final (`WARMPATH_DOWNLOAD_FAILED`): trying again would meet it
 * again.
 */
export async function stored<T>(name: string, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    throw new WarmpathError('WARMPATH_DOWNLOAD_FAILED', {
      path: name,
      detail: `cannot be stored: ${code ?? message}`,
      cause,
    });
  }
}

/** What an answer without content means: to be tried again, or final, with what to do about it. */
function refusal({ name, server, token }: TransferRequest, { status, header }: HubResponse): Error {
  if (status === 408 || status === 425 || status === 429 || status >= 500) {
    const seconds = wholeNumber(header('retry-after'));
    return new TransientFailure(`the ${server} answers ${status}`, {
      retryAfterMs: seconds === undefined ? undefined : seconds * 1000,
    });
  }
  const reason =
    server === 'hub' ? hubReason(status, header('x-error-code'), token !== undefined) : serverReason(status);
  const detail = `the ${server} answers ${status}: ${reason}`;
  return new WarmpathError('WARMPATH_DOWNLOAD_FAILED', { path: name, detail });
}

function serverReason(status: number): string {
  if (status === 404 || status === 410) return 'there is no such file';
  if (status === 401 || status === 403) return 'the address gives no access, or no longer does';
  return 'the request was refused';
}

function hubReason(status: number, errorCode: string | undefined, hasToken: boolean): string {
  if (errorCode === 'RevisionNotFound') return 'the repository has no such revision';
  if (errorCode === 'EntryNotFound') return 'the repository has no such file';
  if (status === 404) return 'there is no such repository, revision or file';
  if (status === 401 || status === 403) {
    const gate =
      errorCode === 'GatedRepo'
        ? 'the repository is gated: accept its terms on the hub'
        : 'the repository is not there, private or gated';
    return hasToken
      ? `${gate}; the token in HF_TOKEN does not give access to it`
      : `${gate}; set HF_TOKEN to a token that has access`;
  }
  return errorCode ?? 'the request was refused';
}
