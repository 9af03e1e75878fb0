/** One figure of a paper beside ours; `paper` is absent where none is given. */
export interface ReproducedFigure {
  readonly name: string;
  readonly paper: number | undefined;
  readonly ours: number;
  /** Decimal places that tell the two apart. Default 1. */
  readonly places?: number;
  /** Standard error of ours over seeds. */
  readonly se?: number;
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

export interface ReproduceOptions {
  /** Seeds of workloads that are drawn; tables of recorded or fixed workloads know none. */
  readonly seeds: readonly number[];
  /** Requests of a run of such a workload. Default: as many as the paper's time and rate give. */
  readonly requests?: number;
}

/** A table or figure of a paper that can be made anew. */
export interface PaperTable {
  /** As it is asked for: `table-3`, `figure-7`, `section-4.4`. */
  readonly name: string;
  readonly reproduce: (options: ReproduceOptions) => ReproducedTable;
}
