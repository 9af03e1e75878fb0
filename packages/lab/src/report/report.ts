import type { Chart } from './chart.js';

/** A setting or circumstance that the figures depend on. */
export interface ReportFact {
  readonly name: string;
  readonly value: string;
}

/** A table as it is printed: the first cell of a row names the row, the others are figures. */
export interface ReportTable {
  readonly caption: string;
  /** Headings over several columns each, from the second column on. */
  readonly groups?: readonly { readonly name: string; readonly columns: number }[];
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** Charts and the table that carries the same figures. */
export interface ReportFigure {
  /** Several stand side by side where there is room; they must be of one kind. Default none. */
  readonly charts?: readonly Chart[];
  readonly table: ReportTable;
  /** Whether the table is long and of use to few, so that it opens on request. Default false. */
  readonly foldsTable?: boolean;
}

/** A part of a report under a heading of its own. */
export interface ReportSection {
  readonly heading: string;
  /** What the figures say and how they were come by, before them. */
  readonly text: readonly string[];
  readonly figures: readonly ReportFigure[];
  /** What a reader must know to judge the figures, after them. */
  readonly notes: readonly string[];
}

/**
 * What a report page says. Plain data: the same report gives the same bytes. Any text may be hostile; the page escapes
 * it.
 */
export interface Report {
  readonly title: string;
  /** The result in one plain sentence. */
  readonly finding: string;
  readonly facts: readonly ReportFact[];
  readonly sections: readonly ReportSection[];
}

/** Where a report comes from, so that a reader can make it again. */
export interface ReportOrigin {
  /** The command line that gives the same figures. */
  readonly command: string;
  /** Warmpath's version. */
  readonly version: string;
}
