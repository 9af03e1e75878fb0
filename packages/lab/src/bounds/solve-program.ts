import type { Highs } from 'highs';
import type { BinaryProgram } from './trie-program.js';

/** What a solver knows of the least cost: nothing is cheaper than `least`, and a solution costs `found`. */
export interface LeastCost {
  readonly least: number;
  /** Infinite if none was found in time. */
  readonly found: number;
}

/** Slack for what a solver in floating point calls a whole number. */
const TOLERANCE = 1e-5;

/**
 * Solves a binary program whose costs are whole numbers by branch and cut, in at most `seconds`. Blocks the thread, and
 * the answer depends on the machine if time is short.
 */
export function solveProgram(highs: Highs, { costs, rows }: BinaryProgram, seconds: number): LeastCost {
  const starts = [0];
  const indices: number[] = [];
  const values: number[] = [];
  for (const { terms } of rows) {
    for (const [variable, coefficient] of terms) {
      indices.push(variable);
      values.push(coefficient);
    }
    starts.push(indices.length);
  }
  const model = {
    numCols: costs.length,
    numRows: rows.length,
    colCost: costs,
    colLower: costs.map(() => 0),
    colUpper: costs.map(() => 1),
    rowLower: rows.map(({ least }) => least),
    rowUpper: rows.map(({ most }) => most),
    matrix: { format: 'csr', numRows: rows.length, numCols: costs.length, starts, indices, values },
    integrality: costs.map(() => highs.constants.variableType.integer),
  } as const;
  return highs.withModel(model, (program) => {
    program.options.set({ output_flag: false, time_limit: seconds, mip_rel_gap: 0 });
    program.run();
    const found = program.getObjectiveValue();
    const proven = Math.ceil(Number(program.info.get('mip_dual_bound')) - TOLERANCE);
    const isFeasible = program.info.get('primal_solution_status') === highs.constants.solutionStatus.feasible;
    return {
      least: Number.isFinite(proven) ? proven : 0,
      found: isFeasible ? Math.round(found) : Number.POSITIVE_INFINITY,
    };
  });
}
