import { join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { isPlainPath, splitPartNames } from './hub-reference.js';

/** A model file at an address of its own. */
export interface ModelUrl {
  /** As it was given, without a fragment; a query may sign it. */
  readonly url: URL;
  /** Path of the file, decoded, in segments. */
  readonly segments: readonly string[];
}

export function isModelUrl(text: string): boolean {
  return /^https?:\/\//i.test(text);
}

/**
 * Reads the address of a GGUF file. Nothing that passes can leave the cache folder. Errors: `WARMPATH_MODEL_SPEC`,
 * without the query.
 */
export function parseModelUrl(text: string): ModelUrl {
  const shown = text.replace(/[?#].*$/s, '').replace(/\/\/[^/]*@/, '//');
  const refuse = (detail: string) => new WarmpathError('WARMPATH_MODEL_SPEC', { path: shown, detail });
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined) throw refuse('this is not a URL');
  if (url.username !== '' || url.password !== '') throw refuse('an address with a user name is not supported');
  url.hash = '';
  if (!/\.gguf$/i.test(url.pathname)) throw refuse('the path does not end in .gguf');
  const segments = decodedPath(url);
  if (segments === undefined || !isPlainPath(segments)) throw refuse('the path of the file is not plain');
  return { url, segments };
}

function decodedPath({ pathname }: URL): readonly string[] | undefined {
  try {
    return pathname.slice(1).split('/').map(decodeURIComponent);
  } catch {
    // A percent sign that encodes nothing.
    return undefined;
  }
}

/** All parts of a split model, the first one first, by the address of any of them; else the file itself. */
export function modelUrlParts({ url, segments }: ModelUrl): readonly ModelUrl[] {
  return splitPartNames(segments.at(-1)!).map((file) => {
    const part = new URL(url);
    part.pathname = `${url.pathname.slice(0, url.pathname.lastIndexOf('/'))}/${encodeURIComponent(file)}`;
    return { url: part, segments: [...segments.slice(0, -1), file] };
  });
}

/** The address without its query, for messages and lists. */
export function modelUrlText({ url, segments }: ModelUrl): string {
  return `${url.origin}/${segments.map(encodeURIComponent).join('/')}`;
}

/** Where the file lies below the cache folder: `<https or http>/<host>/<path>`. */
export function modelUrlPath({ url, segments }: ModelUrl, cacheDir: string): string {
  return join(cacheDir, url.protocol.slice(0, -1), url.host.replaceAll(':', '%3A'), ...segments);
}

/** What follows `hf:` for an address of a hub's page or file; `undefined` for another address. */
export function hubTextOf(text: string, hubUrl: URL): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const base = new URL(`${hubUrl.href.replace(/\/+$/, '')}/`);
  if (url?.origin !== base.origin || !url.pathname.startsWith(base.pathname)) return undefined;
  const path = url.pathname.slice(base.pathname.length);
  const match = /^([^/]+\/[^/]+)(?:\/(?:resolve|blob|tree)\/([^/]+)(?:\/(.+))?)?\/?$/.exec(path);
  if (match === null) return undefined;
  const [, repository, revision, file] = match;
  const at = revision === undefined || revision === 'main' ? '' : `@${revision}`;
  try {
    return `${repository}${at}${file === undefined ? '' : `/${decodeURIComponent(file)}`}`;
  } catch {
    return undefined;
  }
}
