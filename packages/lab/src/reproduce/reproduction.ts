/** One figure of a paper beside ours; `paper` is absent where none is given. */
export interface ReproducedFigure {
  readonly name: string;
  readonly paper: number | undefined;
  readonly ours: number;
}

/** One row of a reproduced table. */
export interface ReproducedRow {
  readonly label: string;
  readonly figures: readonly ReproducedFigure[];
}

/** One table of a paper beside ours, and what stands between the two. */
export interface ReproducedTable {
  readonly title: string;
  readonly rows: readonly ReproducedRow[];
  readonly notes: readonly string[];
}
