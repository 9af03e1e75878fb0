import { fileURLToPath } from 'node:url';

/** Path of a file in this package's `data` folder, from `src` and from `dist` alike. */
export function dataFile(name: string): string {
  return fileURLToPath(new URL(`../../data/${name}`, import.meta.url));
}
