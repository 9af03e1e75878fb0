import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createColors } from 'picocolors';

/** Text styles; each returns its input unchanged where colours are off. */
export type Style = Pick<ReturnType<typeof createColors>, 'bold' | 'dim' | 'green' | 'yellow' | 'red' | 'cyan'>;

/** Where a command writes. With `--json`, standard output carries JSON and nothing else. */
export class Terminal {
  /** Whether the caller asked for JSON. */
  readonly json: boolean;
  /** Styles for standard output. */
  readonly style: Style;
  /** Whether a person is taken to read standard output. */
  readonly isWatched: boolean;
  /** Whether a progress bar has a screen to be drawn on. */
  readonly showsProgress: boolean;
  #isServer = false;
  readonly #stdout: NodeJS.WriteStream;
  readonly #stderr: NodeJS.WriteStream;

  constructor(
    streams: { readonly stdout: NodeJS.WriteStream; readonly stderr: NodeJS.WriteStream },
    options: { readonly json: boolean; readonly environment: NodeJS.ProcessEnv },
  ) {
    this.json = options.json;
    this.#stdout = streams.stdout;
    this.#stderr = streams.stderr;
    const { NO_COLOR: noColor, TERM: kind } = options.environment;
    this.isWatched = streams.stdout.isTTY === true && !this.json;
    // https://no-color.org: set, and not empty.
    this.style = createColors(this.isWatched && !noColor && kind !== 'dumb');
    this.showsProgress = streams.stderr.isTTY === true && !this.json && kind !== 'dumb';
  }

  /** Whether the command goes on where nothing takes its output. */
  get isServer(): boolean {
    return this.#isServer;
  }

  /** From now on the command serves others, who need it whether or not its output is read. */
  serves(): void {
    this.#isServer = true;
  }

  /** Characters of a line of standard output, where it is a terminal that says so; without end otherwise. */
  get columns(): number {
    return (this.isWatched && this.#stdout.columns) || Number.POSITIVE_INFINITY;
  }

  /** One line for a person; silent with `--json`. */
  line(text = ''): void {
    if (!this.json) this.#stdout.write(`${text}\n`);
  }

  /** A part of a line for a person, without control characters; silent with `--json`. */
  text(part: string): void {
    if (!this.json) this.#stdout.write(part.replace(/[^\P{Cc}\n\t]/gu, ''));
  }

  /** One JSON value on a line of its own; silent without `--json`. */
  data(value: unknown): void {
    if (this.json) this.#stdout.write(`${JSON.stringify(value)}\n`);
  }

  /** Lines that are the result itself, whatever reads it; as slowly as it reads. */
  async pour(pieces: Iterable<string>): Promise<void> {
    await pipeline(Readable.from(pieces), this.#stdout, { end: false });
  }

  /** A remark beside the result: on standard error, and not with `--json`. */
  note(text: string): void {
    if (!this.json) this.#stderr.write(`${text}\n`);
  }

  /** A line on standard error that the next one replaces, on a terminal only; an empty one removes it. */
  status(text: string): void {
    if (!this.showsProgress) return;
    // What is wider than the terminal would go on in a line that the next one does not replace.
    const columns = this.#stderr.columns || Number.POSITIVE_INFINITY;
    this.#stderr.write(`\r\u001b[2K${text.length < columns ? text : text.slice(0, columns - 1)}`);
  }

  /** What went wrong, for a person, on standard error; with `--json`, the value on standard output instead. */
  error(lines: readonly string[], value: unknown): void {
    if (this.json) this.data(value);
    else this.#stderr.write(`${lines.join('\n')}\n`);
  }
}

/** Columns of a table; what is wider is printed as several, one under the other. */
const TABLE_WIDTH = 96;
const GAP = '   ';

/**
 * Columns padded to the widest cell, the first one to the left, the others to the right. Where they are too many for a
 * terminal of 100 columns, the rest follows in further tables, an empty line between, each with the first column again.
 */
export function formatTable(rows: readonly (readonly string[])[]): readonly string[] {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const lines: string[] = [];
  for (const columns of columnsThatFit(widths)) {
    if (lines.length > 0) lines.push('');
    for (const row of rows) {
      const cells = columns.map((at) => (at === 0 ? row[at]!.padEnd(widths[at]!) : row[at]!.padStart(widths[at]!)));
      lines.push(cells.join(GAP).trimEnd());
    }
  }
  return lines;
}

function columnsThatFit(widths: readonly number[]): readonly (readonly number[])[] {
  const tables: number[][] = [[0]];
  let width = widths[0]!;
  for (let column = 1; column < widths.length; column++) {
    const needed = GAP.length + widths[column]!;
    if (width + needed > TABLE_WIDTH && tables.at(-1)!.length > 1) {
      tables.push([0]);
      width = widths[0]!;
    }
    tables.at(-1)!.push(column);
    width += needed;
  }
  return tables;
}

/** A share of 1 in per cent. */
export function percent(share: number, places = 1): string {
  return `${(100 * share).toFixed(places)} %`;
}
