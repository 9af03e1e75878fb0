import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { type Browser, chromium } from 'playwright-core';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome'];

/**
 * The Chromium of this machine: what `CHROMIUM` names, or the first on the path. Throws, naming the package, if there
 * is none.
 */
export function findChromium(environment: NodeJS.ProcessEnv = process.env): string {
  const { CHROMIUM, PATH = '' } = environment;
  if (CHROMIUM !== undefined && CHROMIUM !== '') return CHROMIUM;
  const found = NAMES.flatMap((name) => PATH.split(delimiter).map((folder) => join(folder, name))).find(isExecutable);
  if (found !== undefined) return found;
  throw new Error(
    'No Chromium was found, and report pages are tested in a real browser. Install the package `chromium` ' +
      '(Debian: apt-get install chromium), or set CHROMIUM to the path of one.',
  );
}

export function launchChromium(args: readonly string[] = []): Promise<Browser> {
  // Chromium's sandbox does not work for root, which is who runs tests in many containers. The pages are our own.
  const sandbox = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  return chromium.launch({ executablePath: findChromium(), args: [...sandbox, ...args] });
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
