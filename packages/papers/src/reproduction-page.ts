import type { PairChart, Report, ReportSection } from '@warmpath/lab';
import { paperOf, signedDifference } from './print-table.js';
import {
  comparedFigures,
  isNear,
  type ReproducedFigure,
  type ReproducedRow,
  type ReproducedTable,
} from './reproduction.js';

/** The page of a paper's reproduced tables; there must be at least one. */
export function reproductionPage(paper: string, tables: readonly ReproducedTable[]): Report {
  return {
    title: `${paper}: the paper's tables and ours`,
    finding: finding(paper, tables),
    facts: [
      { name: 'Paper', value: paper },
      { name: 'Tables', value: String(tables.length) },
    ],
    sections: tables.map(tableSection),
  };
}

/** How near the figures come, as the share of those within a tenth of the paper's. */
function finding(paper: string, tables: readonly ReproducedTable[]): string {
  const compared = comparedFigures(tables);
  const near = compared.filter(isNear);
  return `Of ${compared.length} figures of ${paper}, the simulator comes within a tenth of ${near.length}; the notes say what stands between the others.`;
}

function tableSection({ title, model, rows, notes }: ReproducedTable): ReportSection {
  const names = [...new Set(rows.flatMap(({ figures }) => figures.map(({ name }) => name)))];
  return {
    heading: title,
    text: [`Engine model: ${model}.`],
    figures: [
      {
        charts: names.map((name) => chartOf(name, rows)),
        table: {
          caption: "The paper's figures, the simulator's, and the differences",
          groups: names.map((name) => ({ name, columns: 3 })),
          columns: ['', ...names.flatMap(() => ['paper', 'ours', 'diff'])],
          rows: rows.map(({ label, figures }) => [
            label,
            ...names.flatMap((name) =>
              cellsOf(
                figures.find((figure) => figure.name === name),
                placesOf(name, rows),
              ),
            ),
          ]),
        },
      },
    ],
    notes,
  };
}

function chartOf(name: string, rows: readonly ReproducedRow[]): PairChart {
  return {
    kind: 'pairs',
    title: name,
    axis: { title: name, format: 'plain' },
    rows: rows.flatMap(({ label, figures }) => {
      const figure = figures.find((each) => each.name === name);
      if (figure === undefined) return [];
      const { paper, ours } = figure;
      // A range has no single mark; the table has both its ends.
      return [{ label, ours, ...(typeof paper === 'number' && { paper }) }];
    }),
  };
}

function cellsOf(figure: ReproducedFigure | undefined, places: number): readonly string[] {
  if (figure === undefined) return ['', '', ''];
  const { paper, ours } = figure;
  if (paper === undefined) return ['not given', ours.toFixed(places), ''];
  return [paperOf(paper, places), ours.toFixed(places), signedDifference({ ...figure, paper }, places)];
}

/** Indices and shares are below 1 and would vanish in one place. */
function placesOf(name: string, rows: readonly ReproducedRow[]): number {
  const figures = rows.flatMap((row) => row.figures).filter((figure) => figure.name === name);
  return figures.every(({ paper, ours }) => Math.abs(typeof paper === 'number' ? paper : ours) < 1) ? 3 : 1;
}
