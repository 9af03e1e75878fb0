import { createColors } from 'picocolors';

/** Text styles; each returns its input unchanged where colours are off. */
export type Style = Pick<ReturnType<typeof createColors>, 'bold' | 'dim' | 'green' | 'yellow' | 'red' | 'cyan'>;

/** Where a command writes. With `--json`, standard output carries JSON and nothing else. */
export class Terminal {
  /** Whether the caller asked for JSON. */
  readonly json: boolean;
  /** Styles for standard output. */
  readonly style: Style;
  /** Whether a progress bar has a screen to be drawn on. */
  readonly showsProgress: boolean;
  readonly #stdout: NodeJS.WriteStream;
  readonly #stderr: NodeJS.WriteStream;

  constructor(streams: { stdout: NodeJS.WriteStream; stderr: NodeJS.WriteStream }, options: { json: boolean }) {
    this.json = options.json;
    this.#stdout = streams.stdout;
    this.#stderr = streams.stderr;
    this.style = createColors(streams.stdout.isTTY === true && !this.json && process.env['NO_COLOR'] === undefined);
    this.showsProgress = streams.stderr.isTTY === true && !this.json;
  }

  /** One line for a person; silent with `--json`. */
  line(text = ''): void {
    if (!this.json) this.#stdout.write(`${text}\n`);
  }

  /** One JSON value on a line of its own; silent without `--json`. */
  data(value: unknown): void {
    if (this.json) this.#stdout.write(`${JSON.stringify(value)}\n`);
  }

  /** A remark beside the result: on standard error, and not with `--json`. */
  note(text: string): void {
    if (!this.json) this.#stderr.write(`${text}\n`);
  }

  /** A line on standard error that the next one replaces, on a terminal only; an empty one removes it. */
  status(text: string): void {
    if (this.showsProgress) this.#stderr.write(`\r\u001b[2K${text}`);
  }

  /** What went wrong, for a person, on standard error; with `--json`, the value on standard output instead. */
  error(lines: readonly string[], value: unknown): void {
    if (this.json) this.data(value);
    else this.#stderr.write(`${lines.join('\n')}\n`);
  }
}

/** Columns padded to the widest cell; the first one to the left, the others to the right. */
export function formatTable(rows: readonly (readonly string[])[]): readonly string[] {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  return rows.map((row) =>
    row
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[column]!)))
      .join('   ')
      .trimEnd(),
  );
}
