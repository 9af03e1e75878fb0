/** Binary units, by the power of 1024. */
const UNITS = ['', 'KiB', 'MiB', 'GiB', 'TiB'];

/** A size as people write it: `536870912`, `512MiB`, `1.5 GiB`. `undefined` for anything else. */
export function readBytes(text: string): number | undefined {
  const [, number, unit] = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(text) ?? [];
  const power = UNITS.findIndex((name) => name.toLowerCase() === unit?.toLowerCase());
  if (number === undefined || power < 0) {
    return undefined;
  }
  return Math.round(Number(number) * 1024 ** power);
}

/** The shortest text that {@link readBytes} reads as this size. */
export function writeBytes(bytes: number): string {
  let power = 0;
  while (bytes !== 0 && bytes % 1024 ** (power + 1) === 0 && power + 1 < UNITS.length) {
    power++;
  }
  return `${bytes / 1024 ** power}${UNITS[power]!}`;
}
