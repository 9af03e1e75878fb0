import { readdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { EnvHttpProxyAgent } from 'undici';
import { hubCacheSnapshot } from './hub-cache.js';
import { type HubReference, hubFilePath, hubReferenceText, parseHubReference } from './hub-reference.js';
import { requestHubFile } from './hub-request.js';

/** Taken in this order where the user names no quantisation. */
const USUAL_QUANTISATIONS = ['Q4_K_M', 'Q8_0'];
/** Companions of a model: image encoders, calibration data, drafts. */
const COMPANION = /mmproj|imatrix|(^|[-_./])(draft|mtp)[-_.]/i;
const LATER_PART = /-(?!00001-of-)\d{5}-of-\d{5}\.gguf$/i;
const MAX_LIST_BYTES = 16 * 1024 * 1024;

export interface HubSettings {
  readonly cacheDir: string;
  readonly hubUrl: URL;
  readonly token?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Reads `org/repo`, `org/repo:quantisation` (each with `@revision` behind the repository) or the full name of a file. A
 * file that was downloaded before, by the Hugging Face tools too, is taken first; else the hub is asked for its list.
 *
 * Errors: `WARMPATH_MODEL_SPEC` (no such quantisation; names those there are), `WARMPATH_DOWNLOAD_FAILED`.
 */
export async function chooseHubFile(text: string, settings: HubSettings): Promise<HubReference> {
  const [, repository, quantisation] = /^([^/]+\/[^/:]+)(?::([\w.-]+))?$/.exec(text) ?? [];
  if (repository === undefined) return parseHubReference(text);
  const reference = (path: string): HubReference => parseHubReference(`${repository}/${path}`);
  const own = dirname(hubFilePath(reference('any.gguf'), settings.cacheDir));
  for (const folder of [own, await hubCacheSnapshot(reference('any.gguf'))]) {
    const cached = folder && chosen(await localFiles(folder), quantisation);
    if (cached) return reference(cached);
  }
  const files = await listedFiles(reference('any.gguf'), settings);
  const found = chosen(files, quantisation);
  if (found !== undefined) return reference(found);
  const names = files.filter(isModel).slice(0, 40).join(', ');
  const detail =
    names === '' ? 'the repository has no GGUF file' : `no file of this quantisation; the repository has ${names}`;
  throw new WarmpathError('WARMPATH_MODEL_SPEC', { path: `hf:${text}`, detail });
}

function isModel(path: string): boolean {
  return /\.gguf$/i.test(path) && !COMPANION.test(path) && !LATER_PART.test(path);
}

function chosen(paths: readonly string[], quantisation: string | undefined): string | undefined {
  const models = paths.filter(isModel).toSorted();
  const ofKind = (kind: string): string | undefined => models.find((path) => isOfQuantisation(path, kind));
  if (quantisation !== undefined) return ofKind(quantisation);
  return USUAL_QUANTISATIONS.map(ofKind).find((path) => path !== undefined) ?? models[0];
}

/** Whether the path of a file in its repository names this quantisation. */
export function isOfQuantisation(path: string, quantisation: string): boolean {
  return new RegExp(`(^|[-./])${quantisation.replaceAll('.', '\\.')}(?=[-./])`, 'i').test(path);
}

async function localFiles(folder: string): Promise<readonly string[]> {
  const files = await readdir(folder, { recursive: true }).catch(() => []);
  return files.map((file) => file.replaceAll('\\', '/'));
}

async function listedFiles(reference: HubReference, { hubUrl, token, signal }: HubSettings): Promise<string[]> {
  const { organisation, repository, revision } = reference;
  const path = `api/models/${organisation}/${repository}/tree/${encodeURIComponent(revision)}?recursive=true`;
  const url = new URL(`${hubUrl.href.replace(/\/+$/, '')}/${path}`);
  const name = hubReferenceText(reference).replace(/\/any\.gguf$/, '');
  const dispatcher = new EnvHttpProxyAgent();
  try {
    const ends = signal ?? new AbortController().signal;
    const { status, body } = await requestHubFile({ url, token, dispatcher, signal: ends });
    const chunks: Buffer[] = [];
    let bytes = 0;
    for (let chunk = await body.next(); chunk !== undefined; chunk = await body.next()) {
      bytes += chunk.length;
      if (bytes > MAX_LIST_BYTES) throw new Error('its list of files is too long');
      chunks.push(chunk);
    }
    if (status !== 200) throw new Error(`it answers ${status}; is the name right, and does HF_TOKEN give access?`);
    const entries = JSON.parse(Buffer.concat(chunks).toString('utf8')) as readonly { type?: string; path?: string }[];
    return entries.filter(({ type }) => type === 'file').map(({ path: file = '' }) => file);
  } catch (cause) {
    signal?.throwIfAborted();
    if (WarmpathError.isInstance(cause)) throw cause;
    const detail = `the hub does not list the files of the repository: ${(cause as Error).message}`;
    throw new WarmpathError('WARMPATH_DOWNLOAD_FAILED', { path: name, detail, cause });
  } finally {
    await dispatcher.destroy();
  }
}
