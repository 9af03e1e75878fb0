import { createHash } from 'node:crypto';
import {
  appendFileSync,
  closeSync,
  createReadStream,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname } from 'node:path';
import type { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { WarmpathError } from '@warmpath/core';
import { type Dispatcher, EnvHttpProxyAgent } from 'undici';
import { acquireFileLock } from './file-lock.js';
import { checkGgufFile, isGgufFile } from './gguf-file.js';
import { type Content, failed, type RemoteFile, refusal, requestFile, TransientFailure } from './request-file.js';

/** Failures in a row without a new byte before the download is given up. */
const MAX_FAILURES = 5;
const FIRST_DELAY_MS = 500;
const MAX_DELAY_MS = 30_000;
const CONNECT_TIMEOUT_MS = 15_000;
const HEADERS_TIMEOUT_MS = 30_000;
/** Longest silence in the middle of a transfer. */
const BODY_TIMEOUT_MS = 60_000;

/**
 * What happens while a model is downloaded, for a progress bar. Sizes are in bytes. `download` and `verify` come once a
 * chunk: a consumer limits its own rate.
 */
export type ModelProgress =
  /** A file is arriving; `totalBytes` is `undefined` where the server does not say it. */
  | { readonly kind: 'download'; readonly name: string; readonly bytes: number; readonly totalBytes?: number }
  | { readonly kind: 'verify'; readonly name: string; readonly bytes: number; readonly totalBytes: number }
  | { readonly kind: 'retry'; readonly name: string; readonly delayMs: number; readonly reason: string }
  /** Another process downloads the same file; this one waits for it. Sent once. */
  | { readonly kind: 'wait'; readonly name: string };

/** Receives every {@link ModelProgress}. An exception that it throws ends the download. */
export type ModelProgressListener = (event: ModelProgress) => void;

export interface DownloadOptions {
  readonly onProgress?: ModelProgressListener | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds before the first new try, doubled at each further one up to 30 s; 500 when left out. */
  readonly firstDelayMs?: number;
}

/**
 * Downloads a model file unless it is there already.
 *
 * A transfer that breaks is resumed, by the next call too, where the server names the content (SHA-256 or strong entity
 * tag). The length, the SHA-256 and the first bytes are checked. One process downloads; others wait for its file.
 *
 * @throws WARMPATH_DOWNLOAD_FAILED, WARMPATH_MODEL_FILE, the signal's reason. None shows the token or a query.
 */
export async function download(file: RemoteFile, options: DownloadOptions): Promise<string> {
  const { name, path } = file;
  const { signal, onProgress } = options;
  if (await isGgufFile(path)) return path;
  stored(name, () => mkdirSync(dirname(path), { recursive: true }));
  const lock = await acquireFileLock(`${path}.lock`, { signal, onWait: () => onProgress?.({ kind: 'wait', name }) });
  try {
    // Another process may have finished it meanwhile.
    if (await isGgufFile(path)) return path;
    const ends = signal === undefined ? lock.lost : AbortSignal.any([signal, lock.lost]);
    await retry(file, { ...options, signal: ends });
    return path;
  } finally {
    await lock.release();
  }
}

export function partialFiles(path: string): readonly string[] {
  return [`${path}.partial`, `${path}.partial.json`];
}

type Transfer = RemoteFile & DownloadOptions & { readonly signal: AbortSignal; readonly dispatcher: Dispatcher };

async function retry(file: RemoteFile, options: DownloadOptions & { readonly signal: AbortSignal }): Promise<void> {
  const { signal, onProgress, firstDelayMs = FIRST_DELAY_MS } = options;
  const dispatcher = new EnvHttpProxyAgent({
    connect: { timeout: CONNECT_TIMEOUT_MS },
    headersTimeout: HEADERS_TIMEOUT_MS,
    bodyTimeout: BODY_TIMEOUT_MS,
  });
  let failures = 0;
  let furthest = partialSize(file.path);
  try {
    for (;;) {
      signal.throwIfAborted();
      try {
        return await attempt({ ...file, ...options, dispatcher });
      } catch (cause) {
        signal.throwIfAborted();
        const failure = transientFailure(cause);
        if (failure === undefined) throw cause;
        const size = partialSize(file.path);
        failures = size > furthest ? 1 : failures + 1;
        furthest = Math.max(furthest, size);
        if (failures >= MAX_FAILURES) {
          throw failed(file.name, `${failure.message} (${failures} failures in a row)`, cause);
        }
        const delayMs = Math.min(MAX_DELAY_MS, failure.retryAfterMs ?? firstDelayMs * 2 ** (failures - 1));
        onProgress?.({ kind: 'retry', name: file.name, delayMs, reason: failure.message });
        await delay(delayMs, undefined, { signal }).catch(() => signal.throwIfAborted());
      }
    }
  } finally {
    await dispatcher.destroy();
  }
}

/** What a failure of the network is; `undefined` for any other error. */
function transientFailure(error: unknown): TransientFailure | undefined {
  if (error instanceof TransientFailure) return error;
  const { code } = error as NodeJS.ErrnoException;
  return WarmpathError.isInstance(error) || typeof code !== 'string' ? undefined : new TransientFailure(code);
}

/** One try to bring the partial file to its full length, to check it and to give it its name. */
async function attempt(transfer: Transfer): Promise<void> {
  const { path, name, signal, onProgress, server } = transfer;
  const [partial, note] = partialFiles(path) as [string, string];
  const tag = await transferFile(transfer, partial, note);
  if (/^[0-9a-f]{64}$/.test(tag ?? '')) {
    const totalBytes = partialSize(path);
    const hash = createHash('sha256');
    let bytes = 0;
    for await (const chunk of createReadStream(partial, { highWaterMark: 1024 * 1024, signal })) {
      hash.update(chunk as Buffer);
      bytes += (chunk as Buffer).length;
      onProgress?.({ kind: 'verify', name, bytes, totalBytes });
    }
    if (hash.digest('hex') !== tag) {
      discard(path);
      const detail = `the SHA-256 of what arrived is not the one of the ${server}: a proxy or mirror may change the file`;
      throw failed(name, detail);
    }
  }
  try {
    await checkGgufFile(partial, name);
  } catch (error) {
    // The server has no other content: another try would not help.
    discard(path);
    throw error;
  }
  stored(name, () => {
    const written = openSync(partial, 'r+');
    fsyncSync(written);
    closeSync(written);
    renameSync(partial, path);
    rmSync(note, { force: true });
  });
}

/**
 * One try to bring a partial file to its full length.
 *
 * @returns The tag of the content.
 */
async function transferFile(transfer: Transfer, partial: string, note: string): Promise<string | undefined> {
  const { name, path, onProgress } = transfer;
  const known = readContent(note);
  const size = known?.tag === undefined ? 0 : partialSize(path);
  if (size > 0 && size === known?.totalBytes) return known.tag;
  const { status, header, body, content } = await requestFile(transfer, size > 0 ? `bytes=${size}-` : undefined);
  try {
    if (status === 206) {
      const isRest = header('content-range')?.startsWith(`bytes ${size}-`) && content.tag === known?.tag;
      if (size === 0 || !isRest) {
        discard(path);
        throw new TransientFailure('the server continued another file than the one begun');
      }
    } else if (status === 416) {
      discard(path);
      throw new TransientFailure('the partial file is longer than the file on the server');
    } else if (status !== 200) {
      throw refusal(transfer, status, header);
    }
    let bytes = status === 206 ? size : 0;
    const { totalBytes } = content;
    const file = stored(name, () => {
      if (bytes === 0) writeFileSync(note, JSON.stringify(content));
      return openSync(partial, bytes > 0 ? 'a' : 'w');
    });
    try {
      onProgress?.({ kind: 'download', name, bytes, totalBytes });
      await eachChunk(body, (chunk) => {
        bytes += chunk.length;
        if (totalBytes !== undefined && bytes > totalBytes) {
          throw new TransientFailure(`the server sends more than the ${totalBytes} bytes that it announced`);
        }
        stored(name, () => appendFileSync(file, chunk));
        onProgress?.({ kind: 'download', name, bytes, totalBytes });
      });
    } finally {
      closeSync(file);
    }
    if (totalBytes !== undefined && bytes !== totalBytes) {
      throw new TransientFailure(`the connection ended after ${bytes} of ${totalBytes} bytes`);
    }
    return content.tag;
  } finally {
    body.destroy();
  }
}

/** Hands each chunk on at once: where the connection breaks, none that has come is lost. */
function eachChunk(body: Readable, take: (chunk: Buffer) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    body.on('error', reject).on('end', resolve);
    body.on('data', (chunk: Buffer) => {
      try {
        take(chunk);
      } catch (error) {
        body.destroy(error as Error);
      }
    });
  });
}

function partialSize(path: string): number {
  return statSync(partialFiles(path)[0]!, { throwIfNoEntry: false })?.size ?? 0;
}

function discard(path: string): void {
  for (const file of partialFiles(path)) rmSync(file, { force: true });
}

function readContent(note: string): Content | undefined {
  try {
    return JSON.parse(readFileSync(note, 'utf8')) as Content;
  } catch {
    // Not there, or incomplete after a crash.
    return undefined;
  }
}

/** Work on the disk, whose failure is final: another try would meet it again. */
function stored<T>(name: string, work: () => T): T {
  try {
    return work();
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    throw failed(name, `cannot be stored: ${code ?? message}`, cause);
  }
}
