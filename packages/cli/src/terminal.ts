import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { inspect } from 'node:util';
import { printableJson, printableLine, printableText } from '@warmpath/core/internal';

const STYLES = ['bold', 'dim', 'green', 'yellow', 'red', 'cyan'] as const;
/** Text styles; each returns its input unchanged where colours are off. */
export type Style = Readonly<Record<(typeof STYLES)[number], (text: string) => string>>;

/** A text in pieces; bytes are UTF-8. */
type Pieces = Iterable<string> | AsyncIterable<string | Uint8Array>;

const ESCAPE = '\u001b';
/** Stands for the escape character of a style until the text is written. Text from elsewhere cannot contain it. */
const STYLE_MARK = `${ESCAPE}${randomUUID()}`;
const REWRITE_LINE = `\r${ESCAPE}[2K`;

/**
 * Where a command writes: the only way to standard output and standard error. Removes control characters and invisible
 * characters from all text but its own styles. With `--json`, standard output carries JSON and nothing else.
 */
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
  /** The first half of a character whose second half comes with the next part of a text. */
  #half = '';
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
    this.style = createStyle(this.isWatched && !noColor && kind !== 'dumb');
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

  /** One line for a person; silent with `--json`. Line breaks in it become spaces. */
  line(text = ''): void {
    if (!this.json) this.#stdout.write(`${printable(text)}\n`);
  }

  /** A table for a person, each line behind `indent`; silent with `--json`. */
  table(rows: readonly (readonly string[])[], indent = '  '): void {
    const [head, ...body] = formatTable(rows);
    this.line(`${indent}${this.style.dim(head!)}`);
    for (const line of body) this.line(`${indent}${line}`);
  }

  /** A part of a text of several lines for a person; silent with `--json`. */
  text(part: string): void {
    const whole = this.#half + part;
    const end = /[\ud800-\udbff]$/.test(whole) ? whole.length - 1 : whole.length;
    this.#half = whole.slice(end);
    if (!this.json) this.#stdout.write(printableText(whole.slice(0, end)));
  }

  /** One JSON value on a line of its own; silent without `--json`. */
  data(value: unknown): void {
    if (this.json) this.#stdout.write(`${printableJson(JSON.stringify(value))}\n`);
  }

  /** A result that is JSON in any case: on one line with `--json`, else indented. */
  result(value: unknown): void {
    this.#stdout.write(`${printableJson(JSON.stringify(value, undefined, this.json ? undefined : 2))}\n`);
  }

  /** Lines of JSON that are the result itself, whatever reads them; as slowly as it reads. */
  async pour(pieces: Pieces): Promise<void> {
    await pipeline(Readable.from(printableJsonOf(pieces)), this.#stdout, { end: false });
  }

  /** Help and version, with `--json` too; on standard error where a command is missing. */
  help(text: string, isError = false): void {
    (isError ? this.#stderr : this.#stdout).write(printableText(text));
  }

  /** A remark beside the result: on standard error, and not with `--json`. */
  note(text: string): void {
    if (!this.json) this.#stderr.write(`${printable(text)}\n`);
  }

  /** A line on standard error that the next one replaces, on a terminal only; an empty one removes it. */
  status(text: string): void {
    if (!this.showsProgress) return;
    // What is wider than the terminal would go on in a line that the next one does not replace.
    const columns = this.#stderr.columns || Number.POSITIVE_INFINITY;
    const shown = printableLine(text.length < columns ? text : text.slice(0, columns - 1));
    this.#stderr.write(`${REWRITE_LINE}${shown}`);
  }

  /** What went wrong, for a person, on standard error; with `--json`, the value on standard output instead. */
  error(lines: readonly string[], value: unknown): void {
    if (this.json) this.data(value);
    else for (const line of lines) this.note(line);
  }
}

function createStyle(isColoured: boolean): Style {
  const styles = STYLES.map((name) => {
    const [open, close] = inspect.colors[name]!;
    return [name, (text: string) => (isColoured ? `${STYLE_MARK}[${open}m${text}${STYLE_MARK}[${close}m` : text)];
  });
  return Object.fromEntries(styles) as Style;
}

/** One line of which nothing but styles commands the terminal. */
function printable(text: string): string {
  return text.split(STYLE_MARK).map(printableLine).join(ESCAPE);
}

async function* printableJsonOf(pieces: Pieces): AsyncIterable<string> {
  const decoder = new TextDecoder();
  for await (const piece of pieces) {
    yield printableJson(typeof piece === 'string' ? piece : decoder.decode(piece, { stream: true }));
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
  const shown = rows.map((row) => row.map(printableLine));
  const widths = shown[0]!.map((_, column) => Math.max(...shown.map((row) => row[column]!.length)));
  const lines: string[] = [];
  for (const columns of columnsThatFit(widths)) {
    if (lines.length > 0) lines.push('');
    for (const row of shown) {
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
