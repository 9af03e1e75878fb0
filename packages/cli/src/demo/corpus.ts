import { readdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { WarmpathError } from '@warmpath/core';
import { chunkMarkdown, type Passage } from './chunk.js';

/** One place that Markdown documentation is read from. */
interface DocumentationFolder {
  /** Leads the ids of its passages. */
  readonly id: string;
  readonly folder: string;
  readonly recursive: boolean;
}

/**
 * The demo's documents: the documentation that fastify and undici ship inside their packages (both are dependencies, so
 * it is on every machine that can run the demo), and Warmpath's own. A place that is missing is skipped; without any,
 * it throws `WARMPATH_NOT_FOUND`. Files are read in name order, so the corpus is the same everywhere.
 */
export async function readCorpus(): Promise<readonly Passage[]> {
  const passages: Passage[] = [];
  for (const place of [...dependencyFolders(), ...(await ownFolders())]) {
    for (const file of await markdownFiles(place)) {
      const name = basename(file, '.md');
      const source = { id: `${place.id}.${name.toLowerCase()}`, name };
      passages.push(...chunkMarkdown(await readFile(join(place.folder, file), 'utf8'), source));
    }
  }
  if (passages.length === 0) {
    throw new WarmpathError('WARMPATH_NOT_FOUND', {
      path: 'fastify/docs',
      detail: 'no documentation was found to ask questions about',
    });
  }
  return passages;
}

function dependencyFolders(): readonly DocumentationFolder[] {
  // fastify is the gateway's dependency, so the gateway's folder is where the search for it has to start.
  const own = createRequire(import.meta.url);
  const gateway = createRequire(own.resolve('@warmpath/gateway'));
  return [...packageFolder('fastify', 'docs', gateway), ...packageFolder('undici', 'docs/docs', own)];
}

function packageFolder(name: string, folder: string, require: NodeJS.Require): readonly DocumentationFolder[] {
  try {
    const root = dirname(require.resolve(`${name}/package.json`));
    return [{ id: name, folder: join(root, folder), recursive: true }];
  } catch {
    return [];
  }
}

/** The repository's pages, when the command runs from a checkout. */
async function ownFolders(): Promise<readonly DocumentationFolder[]> {
  const root = fileURLToPath(new URL('../../../../', import.meta.url));
  try {
    const manifest = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { name?: unknown };
    // Installed, the same relative path leads into another project, whose pages are not ours.
    return manifest.name === 'warmpath-workspace' ? [{ id: 'warmpath', folder: root, recursive: false }] : [];
  } catch {
    return [];
  }
}

/** Paths relative to the folder, in name order, without tables of contents. */
async function markdownFiles(place: DocumentationFolder): Promise<readonly string[]> {
  try {
    const entries = await readdir(place.folder, { recursive: place.recursive });
    return entries.filter((entry) => entry.endsWith('.md') && !/(?:^|[/\\])index\.md$/i.test(entry)).sort();
  } catch {
    return [];
  }
}
