import { join } from 'node:path';
import { WarmpathError } from '@warmpath/core';

export interface HubReference {
  readonly organisation: string;
  readonly repository: string;
  readonly revision: string;
  /** Path inside the repository, in segments; the last one ends in `.gguf`. */
  readonly segments: readonly string[];
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/;
const REVISION = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$/;
const MAX_SEGMENTS = 16;
const FORM = 'hf:org/repo/file.gguf or hf:org/repo@revision/path/file.gguf';

/**
 * Reads `org/repo/path/file.gguf` or `org/repo@revision/path/file.gguf`. A slash in a revision is written `%2F`. The
 * result cannot leave the cache folder or change the host.
 *
 * @throws WARMPATH_MODEL_SPEC
 */
export function parseHubReference(text: string): HubReference {
  const refuse = (detail: string) => new WarmpathError('WARMPATH_MODEL_SPEC', { path: `hf:${text}`, detail });
  const [organisation = '', second = '', ...segments] = text.split('/');
  const [repository = '', ...revisions] = second.split('@');
  const revision = revisions.length === 0 ? 'main' : revisions.join('@').replaceAll(/%2f/gi, '/');
  if (!NAME.test(organisation) || !NAME.test(repository)) throw refuse(`a model on the hub is named ${FORM}`);
  if (!REVISION.test(revision) || !isPlainPath(revision.split('/'))) {
    throw refuse('the revision has characters that are not allowed in a revision');
  }
  if (segments.length === 0 || segments.length > MAX_SEGMENTS || !isPlainPath(segments)) {
    throw refuse(`the file in the repository is missing or its path is not plain; a model on the hub is named ${FORM}`);
  }
  if (!/\.gguf$/i.test(segments.at(-1)!)) throw refuse('the file is not a .gguf file');
  return { organisation, repository, revision, segments };
}

/** The reference as the user writes it, for messages. */
export function hubReferenceText({ organisation, repository, revision, segments }: HubReference): string {
  const at = revision === 'main' ? '' : `@${revision.replaceAll('/', '%2F')}`;
  return `hf:${organisation}/${repository}${at}/${segments.join('/')}`;
}

export function hubFileUrl(reference: HubReference, hubUrl: URL): URL {
  const { organisation, repository, revision, segments } = reference;
  const path = [organisation, repository, 'resolve', revision, ...segments].map(encodeURIComponent).join('/');
  return new URL(`${hubUrl.href.replace(/\/+$/, '')}/${path}`);
}

/** Path of the file in the cache folder: `hub/<org>--<repo>/<revision>/<path>`. */
export function hubFilePath(reference: HubReference, cacheDir: string): string {
  const { organisation, repository, revision, segments } = reference;
  return join(cacheDir, 'hub', `${organisation}--${repository}`, revision.replaceAll('/', '%2F'), ...segments);
}

/** Base address of the hub: `$HF_ENDPOINT`, else the public one. */
export function parseHubUrl(text: string = process.env['HF_ENDPOINT']?.trim() || 'https://huggingface.co'): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:') {
    const detail = 'the address of the hub is not an http or https URL';
    throw new WarmpathError('WARMPATH_MODEL_SPEC', { path: 'HF_ENDPOINT', detail });
  }
  return url;
}

/** What follows `hf:` for the address of a page or file of the hub; `undefined` for another address. */
export function hubTextOf(text: string, hubUrl: URL): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const base = new URL(`${hubUrl.href.replace(/\/+$/, '')}/`);
  if (url?.origin !== base.origin || !url.pathname.startsWith(base.pathname)) return undefined;
  const path = url.pathname.slice(base.pathname.length);
  const match = /^([^/]+\/[^/]+)(?:\/(?:resolve|blob|tree)\/([^/]+)(?:\/(.+))?)?\/?$/.exec(path);
  if (match === null) return undefined;
  const [, repository, revision, file] = match;
  const at = revision === undefined || revision === 'main' ? '' : `@${revision}`;
  const decoded = file === undefined ? undefined : decode(file);
  return `${repository}${at}${decoded === undefined ? '' : `/${decoded}`}`;
}

export function isModelUrl(text: string): boolean {
  return /^https?:\/\//i.test(text);
}

/**
 * Reads the address of a GGUF file; drops the fragment.
 *
 * @throws WARMPATH_MODEL_SPEC, without the query: a query may hold a signature.
 */
export function parseModelUrl(text: string): URL {
  const shown = text.replace(/[?#].*$/s, '').replace(/\/\/[^/]*@/, '//');
  const refuse = (detail: string) => new WarmpathError('WARMPATH_MODEL_SPEC', { path: shown, detail });
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined) throw refuse('this is not a URL');
  if (url.username !== '' || url.password !== '') throw refuse('an address with a user name is not supported');
  url.hash = '';
  if (!/\.gguf$/i.test(url.pathname)) throw refuse('the path does not end in .gguf');
  if (!isPlainPath(urlSegments(url))) throw refuse('the path of the file is not plain');
  return url;
}

/** The address without its query, for messages and lists. */
export function modelUrlText(url: URL): string {
  return `${url.origin}/${urlSegments(url).map(encodeURIComponent).join('/')}`;
}

/** Path of the file in the cache folder: `<https or http>/<host>/<path>`. */
export function modelUrlPath(url: URL, cacheDir: string): string {
  return join(cacheDir, url.protocol.slice(0, -1), url.host.replaceAll(':', '%3A'), ...urlSegments(url));
}

function urlSegments({ pathname }: URL): readonly string[] {
  return pathname
    .slice(1)
    .split('/')
    .map((segment) => decode(segment) ?? '');
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** All parts of a split model by the path of any of them, the first part first; else the path alone. */
export function splitParts(path: string): readonly string[] {
  const [, lead, tail, count] = /^(.*-)\d{5}(-of-(\d{5})\.gguf)$/is.exec(path) ?? [];
  const parts = Array.from(
    { length: Number(count ?? 0) },
    (_, index) => `${lead}${String(index + 1).padStart(5, '0')}${tail}`,
  );
  return parts.length === 0 ? [path] : parts;
}

/** Whether the segments name a file below a folder on every file system. */
function isPlainPath(segments: readonly string[]): boolean {
  return segments.every(
    (segment) => segment.length <= 255 && !['', '.', '..'].includes(segment) && !/[\p{Cc}/\\:*?"<>|]/u.test(segment),
  );
}
