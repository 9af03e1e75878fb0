import { join } from 'node:path';
import { WarmpathError } from '@warmpath/core';

/** A file on the hub. */
export interface HubReference {
  readonly organisation: string;
  readonly repository: string;
  /** Branch, tag or commit. */
  readonly revision: string;
  /** Path inside the repository, in segments; the last one ends in `.gguf`. */
  readonly segments: readonly string[];
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/;
const REVISION = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$/;
const MAX_SEGMENTS = 16;
const SPLIT_MODEL = /^(.*-)\d{5}(-of-(\d{5})\.gguf)$/i;
/** A model of a terabyte in parts of four gigabytes has 250. */
const MAX_PARTS = 1_000;
const FORM = 'hf:org/repo/file.gguf or hf:org/repo@revision/path/file.gguf';

/**
 * Reads `org/repo/path/file.gguf` or `org/repo@revision/path/file.gguf` (what follows `hf:`). A revision with a slash
 * is written with `%2F`, as in `refs%2Fpr%2F1`. Nothing that passes can leave the cache folder or change the host.
 * Errors: `WARMPATH_MODEL_SPEC`.
 */
export function parseHubReference(text: string): HubReference {
  const refuse = (detail: string) => new WarmpathError('WARMPATH_MODEL_SPEC', { path: `hf:${text}`, detail });
  const [organisation = '', second = '', ...segments] = text.split('/');
  const [repository = '', ...revisions] = second.split('@');
  const revision = revisions.length === 0 ? 'main' : revisions.join('@').replaceAll(/%2f/gi, '/');
  if (!NAME.test(organisation) || !NAME.test(repository)) throw refuse(`a model on the hub is named ${FORM}`);
  if (!REVISION.test(revision) || !isPlainPath(revision.split('/')))
    throw refuse('the revision has characters that no revision has');
  if (segments.length === 0 || segments.length > MAX_SEGMENTS || !isPlainPath(segments)) {
    throw refuse(`the file in the repository is missing or its path is not plain; a model on the hub is named ${FORM}`);
  }
  const file = segments.at(-1)!;
  if (!/\.gguf$/i.test(file)) throw refuse('the file is not a .gguf file');
  return { organisation, repository, revision, segments };
}

/** All parts of a split model, the first one first, by the name of any of them; else the file itself. */
export function hubParts(reference: HubReference): readonly HubReference[] {
  const folder = reference.segments.slice(0, -1);
  return splitPartNames(reference.segments.at(-1)!).map((file) => ({ ...reference, segments: [...folder, file] }));
}

/** Names of all parts of a split model by the name of any of them; else the name itself. */
export function splitPartNames(file: string): readonly string[] {
  const [, lead, tail, count] = SPLIT_MODEL.exec(file) ?? [];
  const parts = Number(count ?? 0);
  if (parts < 1 || parts > MAX_PARTS) return [file];
  return Array.from({ length: parts }, (_, index) => `${lead}${String(index + 1).padStart(5, '0')}${tail}`);
}

/** Whether the segments name a file below a folder on every file system. */
export function isPlainPath(segments: readonly string[]): boolean {
  return segments.every(
    (segment) => segment.length <= 255 && !['', '.', '..'].includes(segment) && !/[\p{Cc}/\\:*?"<>|]/u.test(segment),
  );
}

/** The reference as the user writes it, for messages. */
export function hubReferenceText({ organisation, repository, revision, segments }: HubReference): string {
  const at = revision === 'main' ? '' : `@${revision.replaceAll('/', '%2F')}`;
  return `hf:${organisation}/${repository}${at}/${segments.join('/')}`;
}

/** Address of the file's content below a hub's base address. */
export function hubFileUrl(reference: HubReference, hubUrl: URL): URL {
  const { organisation, repository, revision, segments } = reference;
  const path = [organisation, repository, 'resolve', revision, ...segments].map(encodeURIComponent).join('/');
  return new URL(`${hubUrl.href.replace(/\/+$/, '')}/${path}`);
}

/** Where the file lies below the cache folder: `hub/<org>--<repo>/<revision>/<path>`. */
export function hubFilePath(reference: HubReference, cacheDir: string): string {
  const { organisation, repository, revision, segments } = reference;
  return join(cacheDir, 'hub', `${organisation}--${repository}`, revision.replaceAll('/', '%2F'), ...segments);
}
