/** One figure of a paper beside ours; `paper` is absent where none is given. */
export interface ReproducedFigure {
  readonly name: string;
  readonly paper: number | undefined;
  readonly ours: number;
  /** Decimal places that tell the two apart. Default 1. */
  readonly places?: number;
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

/** A table or figure of a paper that can be made anew. */
export interface PaperTable {
  /** As it is asked for: `table-3`, `figure-7`, `section-4.4`. */
  readonly name: string;
  readonly reproduce: () => ReproducedTable;
}
