import type { Workload } from '@warmpath/lab';

const RTX_4090 = '20 ms and 0.092 ms a token to prefill (fitted to an RTX 4090)';
const A10G = "times of a 7B model on an A10G, inferred from the paper's text";
const VLLM = 'vLLM: blocks of 16 tokens with room for all';

/** What stands for engines in more than one table, in plain words. */
export const ENGINE_MODELS = {
  none: "none: this machine's clock",
  rtx4090: RTX_4090,
  a10g: A10G,
  vllmOnRtx4090: `${VLLM}, one prompt at a time; ${RTX_4090}`,
  vllmOnRtx4060Ti: `${VLLM}, one prompt at a time; two latency parameters fitted to an RTX 4060 Ti`,
  vllmInBatches: `${VLLM}, a batch of the row's size a step; ${RTX_4090}`,
  ragCacheServer: `RAGCache's tree of whole documents over device and host, batches of 4; ${A10G}, and its copies`,
  threeServers: `vLLM without a cache, SGLang's radix tree on the device, RAGCache's tree over device and host, batches of 4; ${A10G}, and its copies`,
} as const;

/** What a paper says of a figure where it gives no single number: from one to another, both included. */
export type PaperRange = readonly [least: number, most: number];

/** One figure of a paper beside ours; `paper` is absent where none is given. */
export interface ReproducedFigure {
  readonly name: string;
  readonly paper: number | PaperRange | undefined;
  readonly ours: number;
  /** Decimal places that tell the two apart. Default 1. */
  readonly places?: number;
  /** Standard error of ours over seeds. */
  readonly se?: number;
}

/** A figure that the paper has too. */
export type ComparedFigure = ReproducedFigure & { readonly paper: number | PaperRange };

/** One row of a reproduced table. */
export interface ReproducedRow {
  readonly label: string;
  readonly figures: readonly ReproducedFigure[];
}

/** One table of a paper beside ours, and what stands between the two. */
export interface ReproducedTable {
  readonly title: string;
  /** What stands for the engine: the rules of its cache, and what computing takes. */
  readonly model: string;
  readonly rows: readonly ReproducedRow[];
  readonly notes: readonly string[];
}

export interface ReproduceOptions {
  /** Seeds of workloads that are drawn; tables of recorded or fixed workloads know none. */
  readonly seeds: readonly number[];
  /** Requests of a run of RAGCache's workloads, and questions to agents. Default: as many as the papers have. */
  readonly requests?: number;
  /** NQ-Open, for the table that has it. Default: that row is left out. */
  readonly nqOpen?: Workload;
}

/** A table or figure of a paper that can be made anew. */
export interface PaperTable {
  /** As it is asked for: `table-3`, `figure-7`, `section-4.4`. */
  readonly name: string;
  readonly reproduce: (options: ReproduceOptions) => ReproducedTable;
}

/** The figures of tables that the paper has too. */
export function comparedFigures(tables: readonly ReproducedTable[]): readonly ComparedFigure[] {
  const figures = tables.flatMap(({ rows }) => rows.flatMap((row) => row.figures));
  return figures.filter((figure): figure is ComparedFigure => figure.paper !== undefined);
}

/** Ours less the paper's figure, or less the nearer end of its range; 0 within. */
export function differenceOf({ paper, ours }: ComparedFigure): number {
  if (typeof paper === 'number') return ours - paper;
  const [least, most] = paper;
  return ours < least ? ours - least : Math.max(0, ours - most);
}

/** Whether ours comes within a tenth of the paper's figure, or of its range. */
export function isNear(figure: ComparedFigure): boolean {
  const { paper } = figure;
  const difference = differenceOf(figure);
  const aimed = typeof paper === 'number' ? paper : difference < 0 ? paper[0] : paper[1];
  return Math.abs(difference) <= Math.abs(aimed) / 10;
}
