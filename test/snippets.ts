import { execFile } from 'node:child_process';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { type Block, root } from './docs-blocks.js';

const run = promisify(execFile);

// LangChain's own declarations know no usage under `exactOptionalPropertyTypes`, which few projects set.
const STRICT = [
  '--strict',
  '--noUncheckedIndexedAccess',
  '--skipLibCheck',
  '--module',
  'nodenext',
  '--target',
  'es2022',
];

/** Runs and type-checks code of the docs, as files in a folder beside the packages that it imports. */
export class Snippets {
  readonly #folder: string;

  /** @param beside a folder of the repository; Node looks for packages there and above */
  constructor(beside: string) {
    this.#folder = join(root, beside, '.snippets');
  }

  /** What the docs start on the usual port runs at another address here. Rejects with what the code throws. */
  async run({ page, line, language, text }: Block, url: string): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    const file = join(this.#folder, `${nameOf(page, line)}.${language}`);
    await writeFile(file, text.replaceAll('http://localhost:8080', url));
    await import(pathToFileURL(file).href);
  }

  /** What a strict compiler says against them; empty where it says nothing. */
  async typeErrors(blocks: readonly Block[]): Promise<string> {
    const folder = join(this.#folder, 'types');
    await mkdir(folder, { recursive: true });
    const files = blocks.map(({ page, line, text }) => ({ path: join(folder, `${nameOf(page, line)}.ts`), text }));
    for (const { path, text } of files) await writeFile(path, text);
    const flags = ['--ignoreConfig', '--noEmit', ...STRICT, '--types', 'node'];
    return run(join(root, 'node_modules/.bin/tsc'), [...flags, ...files.map(({ path }) => path)], { cwd: root }).then(
      () => '',
      (error: { readonly stdout: string }) => error.stdout,
    );
  }

  remove(): Promise<void> {
    return rm(this.#folder, { recursive: true, force: true });
  }
}

function nameOf(page: string, line: number): string {
  return `${page.replaceAll(/\W/g, '-')}-${line}`;
}
