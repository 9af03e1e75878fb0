import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { WarmpathError } from '@warmpath/core';
import { EnvHttpProxyAgent } from 'undici';
import { readGgufHeader } from '../gguf/reader.js';
import { acquireFileLock } from './file-lock.js';
import { type HubReference, hubFilePath, hubFileUrl, hubReferenceText } from './hub-reference.js';
import { TransientFailure } from './hub-request.js';
import { stored, type TransferSource, transferFile } from './hub-transfer.js';
import { type ModelUrl, modelUrlPath, modelUrlText } from './model-url.js';
import { PartialFile } from './partial-file.js';
import type { ModelProgressListener } from './progress.js';

/** The public hub. */
const DEFAULT_HUB_URL = 'https://huggingface.co';

const MAX_FAILURES = 5;
/** Whole transfers with a wrong SHA-256 before the download is given up. */
const MAX_WRONG_SUMS = 2;
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 30_000;
const CONNECT_TIMEOUT_MS = 15_000;
const HEADERS_TIMEOUT_MS = 30_000;
/** Longest silence in the middle of a transfer. */
const SILENCE_TIMEOUT_MS = 60_000;

export interface DownloadOptions {
  /** Folder for models; files of the hub lie in `hub/` below it, others in `https/` and `http/`. */
  readonly cacheDir: string;
  readonly onProgress?: ModelProgressListener | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds before the first new try, doubled at each further one up to 30 s; 500 when left out. */
  readonly firstDelayMs?: number;
}

export interface HubDownloadOptions extends DownloadOptions {
  /** Base address of the hub. */
  readonly hubUrl: URL;
  /** Access token; sent to the hub's origin and to no other. */
  readonly token?: string | undefined;
}

/** A file that a server has, and where it will lie. */
interface RemoteFile extends TransferSource {
  readonly path: string;
}

/**
 * Path of a model file from the hub, downloaded at the first call and kept in the cache folder. A file that is there is
 * used without asking the hub again; delete it, or name a revision, to get another.
 *
 * A transfer that breaks is tried again with growing pauses, and gives up after 5 failures in a row without a byte
 * gained; what has arrived stays, and the next call goes on from there if the hub still has the same content. Before
 * the file gets its name, its length, its SHA-256 (where the hub names it) and its GGUF header are checked. One process
 * downloads at a time; others wait for it and take its file.
 *
 * Errors: `WARMPATH_DOWNLOAD_FAILED` (no such file, no access, network, disk), `WARMPATH_MODEL_FILE` (what the hub sent
 * is no GGUF file), `WARMPATH_MODEL_SPEC` (the hub's address), the signal's reason. None shows the token or a signed
 * address.
 */
export function downloadFromHub(reference: HubReference, options: HubDownloadOptions): Promise<string> {
  const file: RemoteFile = {
    name: hubReferenceText(reference),
    url: hubFileUrl(reference, options.hubUrl),
    path: hubFilePath(reference, options.cacheDir),
    server: 'hub',
    token: options.token,
  };
  return download(file, options);
}

/** The same for a file at an address of its own. No token is sent, and no error shows the query of the address. */
export function downloadFromUrl(address: ModelUrl, options: DownloadOptions): Promise<string> {
  const path = modelUrlPath(address, options.cacheDir);
  return download({ name: modelUrlText(address), url: address.url, path, server: 'server', token: undefined }, options);
}

async function download(file: RemoteFile, options: DownloadOptions): Promise<string> {
  const { name, path } = file;
  if (await isIntact(path)) return path;
  await stored(name, mkdir(dirname(path), { recursive: true }));
  const { signal, onProgress } = options;
  const lock = await acquireFileLock(`${path}.lock`, { signal, onWait: () => onProgress?.({ kind: 'wait', name }) });
  try {
    // Another process may have finished it while this one waited.
    if (await isIntact(path)) return path;
    const ends = signal === undefined ? lock.lost : AbortSignal.any([signal, lock.lost]);
    await new Download(file, { ...options, signal: ends }).run();
    return path;
  } finally {
    await lock.release();
  }
}

/** Whether the file is there and as long as its header says. A damaged one is downloaded again. */
export async function isIntact(path: string): Promise<boolean> {
  try {
    await readGgufHeader(path);
    return true;
  } catch (error) {
    if (WarmpathError.isInstance(error)) return false;
    throw error;
  }
}

/** A hub's base address; `$HF_ENDPOINT`, else the public one, when left out. */
export function parseHubUrl(text: string = process.env['HF_ENDPOINT']?.trim() || DEFAULT_HUB_URL): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:') {
    throw new WarmpathError('WARMPATH_MODEL_SPEC', {
      path: 'HF_ENDPOINT',
      detail: 'the address of the hub is not an http or https URL',
    });
  }
  return url;
}

/** One file on its way, over as many tries as it takes. */
class Download {
  readonly #file: RemoteFile;
  readonly #partial: PartialFile;
  readonly #options: DownloadOptions & { readonly signal: AbortSignal };
  #wrongSums = 0;
  readonly #dispatcher = new EnvHttpProxyAgent({
    connect: { timeout: CONNECT_TIMEOUT_MS },
    headersTimeout: HEADERS_TIMEOUT_MS,
    bodyTimeout: SILENCE_TIMEOUT_MS,
  });

  constructor(file: RemoteFile, options: DownloadOptions & { readonly signal: AbortSignal }) {
    this.#file = file;
    this.#partial = new PartialFile(file.path);
    this.#options = options;
  }

  async run(): Promise<void> {
    let failures = 0;
    let most = await this.#partial.size();
    try {
      for (;;) {
        this.#options.signal.throwIfAborted();
        try {
          return await this.#attempt();
        } catch (error) {
          this.#options.signal.throwIfAborted();
          if (!(error instanceof TransientFailure)) throw error;
          const size = await this.#partial.size();
          // Only bytes beyond the furthest point so far count as progress, or a file that changes for ever would too.
          failures = size > most ? 1 : failures + 1;
          most = Math.max(most, size);
          if (failures >= MAX_FAILURES) throw this.#failed(`${error.message} (${failures} failures in a row)`, error);
          await this.#pause(failures, error);
        }
      }
    } finally {
      await this.#dispatcher.destroy();
    }
  }

  async #attempt(): Promise<void> {
    const { signal, onProgress } = this.#options;
    const { name, server } = this.#file;
    const identity = await transferFile({
      ...this.#file,
      partial: this.#partial,
      dispatcher: this.#dispatcher,
      signal,
      onProgress: (bytes, totalBytes) => onProgress?.({ kind: 'download', name, bytes, totalBytes }),
    });
    const totalBytes = await this.#partial.size();
    if (/^[0-9a-f]{64}$/.test(identity.linkedEtag ?? '')) {
      const sha256 = await this.#partial.sha256(
        (bytes) => onProgress?.({ kind: 'verify', name, bytes, totalBytes }),
        signal,
      );
      if (sha256 !== identity.linkedEtag) {
        await this.#partial.discard();
        this.#wrongSums += 1;
        const detail = `the SHA-256 of what arrived is not the one of the ${server}`;
        if (this.#wrongSums < MAX_WRONG_SUMS) throw new TransientFailure(detail);
        throw this.#failed(`${detail}, twice: a proxy or mirror may change the file`, undefined);
      }
    }
    await this.#checkHeader();
    await stored(name, this.#partial.complete());
  }

  async #checkHeader(): Promise<void> {
    try {
      await readGgufHeader(this.#partial.path, this.#file.name);
    } catch (error) {
      // It has arrived as the hub has it; more of the same would not mend it.
      await this.#partial.discard();
      throw error;
    }
  }

  async #pause(failures: number, { message, retryAfterMs }: TransientFailure): Promise<void> {
    const { firstDelayMs = FIRST_DELAY_MS, onProgress, signal } = this.#options;
    const delayMs = Math.min(LONGEST_DELAY_MS, retryAfterMs ?? firstDelayMs * 2 ** (failures - 1));
    onProgress?.({ kind: 'retry', name: this.#file.name, failures, delayMs, reason: message });
    await delay(delayMs, undefined, { signal }).catch(() => signal.throwIfAborted());
  }

  #failed(detail: string, cause: unknown): WarmpathError {
    return new WarmpathError('WARMPATH_DOWNLOAD_FAILED', { path: this.#file.name, detail, cause });
  }
}
