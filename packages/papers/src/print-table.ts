import {
  type ComparedFigure,
  differenceOf,
  type ReproducedFigure,
  type ReproducedRow,
  type ReproducedTable,
} from './reproduction.js';

/** Columns of a terminal that a table keeps within, if a figure with its label does. */
const WIDTH = 100;

/**
 * A paper's table beside ours as Markdown: each figure of the paper, ours and the difference, then the notes. What does
 * not fit 100 columns goes on below, under the same labels.
 */
export function markdownOf({ title, model, rows, notes }: ReproducedTable): string {
  const labels = ['', ...rows.map(({ label }) => label)];
  const tables: (readonly string[])[][] = [[labels]];
  let width = widthOf([labels]);
  for (const columns of rows[0]!.figures.map((_, place) => columnsOf(place, rows))) {
    const more = widthOf(columns) - 1;
    if (width + more > WIDTH && tables.at(-1)!.length > 1) {
      tables.push([labels]);
      width = widthOf([labels]);
    }
    tables.at(-1)!.push(...columns);
    width += more;
  }
  return [
    `## ${title}`,
    '',
    `Engine model: ${model}.`,
    '',
    ...tables.flatMap((columns) => [...linesOf(columns), '']),
    ...notes.map((note) => `- ${note}`),
    '',
  ].join('\n');
}

/** The paper's figure, ours and the difference; ours alone where the paper gives it for no row. */
function columnsOf(place: number, rows: readonly ReproducedRow[]): readonly (readonly string[])[] {
  const { name } = rows[0]!.figures[place]!;
  const figures = rows.map((row) => row.figures[place]!);
  if (figures.every(({ paper }) => paper === undefined)) return [[name, ...figures.map(oursOf)]];
  const cells = figures.map(paperOursDifference);
  return [name, 'ours', 'diff'].map((header, column) => [header, ...cells.map((row) => row[column]!)]);
}

/** Columns with what parts them. */
function widthOf(columns: readonly (readonly string[])[]): number {
  return columns.reduce((sum, cells) => sum + cellWidth(cells) + 3, 1);
}

function cellWidth(cells: readonly string[]): number {
  return Math.max(3, ...cells.map((cell) => cell.length));
}

function linesOf(columns: readonly (readonly string[])[]): readonly string[] {
  const widths = columns.map(cellWidth);
  const rule = widths.map((width, column) => (column === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`));
  const rows = columns[0]!.map((_, row) => columns.map((cells) => cells[row]!));
  return [rows[0]!, rule, ...rows.slice(1)].map((row) => {
    const padded = row.map((cell, column) =>
      column === 0 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!),
    );
    return `| ${padded.join(' | ')} |`;
  });
}

function paperOursDifference(figure: ReproducedFigure): readonly string[] {
  const { paper, places = 1 } = figure;
  if (paper === undefined) return ['-', oursOf(figure), '-'];
  return [paperOf(paper, places), oursOf(figure), signedDifference({ ...figure, paper }, places)];
}

/** The paper's figure, or both ends of its range. */
export function paperOf(paper: ComparedFigure['paper'], places: number): string {
  return typeof paper === 'number' ? paper.toFixed(places) : paper.map((end) => end.toFixed(places)).join('–');
}

/** Ours less the paper's with its sign; `within` for what lies in the paper's range. */
export function signedDifference(figure: ComparedFigure, places: number): string {
  const difference = differenceOf(figure);
  if (typeof figure.paper !== 'number' && difference === 0) return 'within';
  return `${difference < 0 ? '' : '+'}${difference.toFixed(places)}`;
}

/** An error that is but rounding: every seed gave the same. */
const ROUNDING = 1e-9;

function oursOf({ ours, se = 0, places = 1 }: ReproducedFigure): string {
  return se < ROUNDING ? ours.toFixed(places) : `${ours.toFixed(places)} ± ${se.toFixed(places + 1)}`;
}
