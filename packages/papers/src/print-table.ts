import type { ReproducedFigure, ReproducedTable } from './reproduction.js';

/** A paper's table beside ours as Markdown: each figure of the paper, ours and the difference, then the notes. */
export function markdownOf({ title, rows, notes }: ReproducedTable): string {
  const figures = rows[0]!.figures;
  // A figure that the paper gives for no row has one column instead of three.
  const isOnlyOurs = figures.map((_, place) => rows.every((row) => row.figures[place]?.paper === undefined));
  const header = ['', ...figures.flatMap(({ name }, place) => (isOnlyOurs[place] ? [name] : [name, 'ours', 'diff']))];
  const lines = rows.map((row) => [
    row.label,
    ...row.figures.flatMap((figure, place) => (isOnlyOurs[place] ? [oursOf(figure)] : paperOursDifference(figure))),
  ]);
  const cells = [header, ...lines];
  const widths = header.map((_, column) => Math.max(3, ...cells.map((row) => row[column]!.length)));
  const rule = widths.map((width, column) => (column === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`));
  const table = [header, rule, ...lines].map((row) => {
    const padded = row.map((cell, column) =>
      column === 0 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!),
    );
    return `| ${padded.join(' | ')} |`;
  });
  return [`## ${title}`, '', ...table, '', ...notes.map((note) => `- ${note}`), ''].join('\n');
}

function paperOursDifference(figure: ReproducedFigure): readonly string[] {
  const { paper, ours, places = 1 } = figure;
  if (paper === undefined) return ['-', oursOf(figure), '-'];
  const difference = ours - paper;
  return [paper.toFixed(places), oursOf(figure), `${difference < 0 ? '' : '+'}${difference.toFixed(places)}`];
}

function oursOf({ ours, se = 0, places = 1 }: ReproducedFigure): string {
  return se === 0 ? ours.toFixed(places) : `${ours.toFixed(places)} ± ${se.toFixed(places + 1)}`;
}
