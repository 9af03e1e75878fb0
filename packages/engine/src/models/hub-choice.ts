import { readdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { EnvHttpProxyAgent } from 'undici';
import { hubCacheSnapshot } from './cache-folder.js';
import { type HubReference, hubFilePath, hubReferenceText, parseHubReference } from './model-name.js';
import { failed, requestFile } from './request-file.js';

/** Taken in this order where the user names no quantisation. */
const USUAL_QUANTISATIONS = ['Q4_K_M', 'Q8_0'];
/** Companions of a model: image encoders, calibration data, drafts. */
const COMPANION = /mmproj|imatrix|(^|[-_./])(draft|mtp)[-_.]/i;
const LATER_PART = /-(?!00001-of-)\d{5}-of-\d{5}\.gguf$/i;
const MAX_LIST_BYTES = 16 * 1024 * 1024;

/** What names a model of a repository by its quantisation: `org/repo[@revision][:quantisation]`. */
export const REPOSITORY = /^([^/]+\/[^/:]+)(?::([\w.-]+))?$/;

export interface HubSettings {
  readonly cacheDir: string;
  readonly hubUrl: URL;
  readonly token?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Finds the file that `org/repo[@revision][:quantisation]` or the full name of a file means: first among the downloaded
 * files, those of the Hugging Face tools included, then in the hub's list.
 *
 * @throws WARMPATH_MODEL_SPEC that names the quantisations of the repository; WARMPATH_DOWNLOAD_FAILED.
 */
export async function chooseHubFile(text: string, settings: HubSettings): Promise<HubReference> {
  const [, repository, quantisation] = REPOSITORY.exec(text) ?? [];
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
    const { status, body } = await requestFile({ url, token, dispatcher, signal });
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of body) {
      chunks.push(chunk as Buffer);
      bytes += (chunk as Buffer).length;
      if (bytes > MAX_LIST_BYTES) throw new Error('its list of files is too long');
    }
    if (status !== 200) throw new Error(`it answers ${status}; is the name right, and does HF_TOKEN give access?`);
    const entries = JSON.parse(Buffer.concat(chunks).toString('utf8')) as readonly { type?: string; path?: string }[];
    return entries.filter(({ type }) => type === 'file').map(({ path: file = '' }) => file);
  } catch (cause) {
    signal?.throwIfAborted();
    if (WarmpathError.isInstance(cause)) throw cause;
    throw failed(name, `the hub does not list the files of the repository: ${(cause as Error).message}`, cause);
  } finally {
    await dispatcher.destroy();
  }
}
