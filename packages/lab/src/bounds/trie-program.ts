import type { SharedSet } from './shared-sets.js';

/** One row of a linear program: the sum of coefficient x variable lies between two bounds, both included. */
interface Row {
  readonly least: number;
  readonly most: number;
  /** Variables, none twice, with their coefficients. */
  readonly terms: ReadonlyMap<number, number>;
}

/** Find 0 or 1 for every variable so that all rows hold and the sum of the chosen costs is least. */
export interface BinaryProgram {
  readonly costs: readonly number[];
  readonly rows: readonly Row[];
}

interface Arc {
  readonly from: number;
  readonly to: number;
}

/**
 * The trie of fewest tokens as a binary program: a Steiner tree in the lattice of shared sets. A variable is an arc
 * from a set to a larger one and costs the tokens between them. A requested set has one arc into it, another one at
 * most one; and a set that is reached is reached at every level: for each number of tokens at which a set within it
 * ends, at least one arc within it passes that number. So where an arc starts at a set that nothing reaches, another
 * set of at least as many tokens is reached within its end, from where the way is no longer: every solution is worth a
 * tree. (Rows that forbid such starts outright are therefore left out; with them, geospatial is not proven in a
 * minute.)
 */
export function trieProgram(sets: readonly SharedSet[]): BinaryProgram {
  const arcs = sets.flatMap(({ parents }, to) => parents.map((from): Arc => ({ from, to })));
  const into: number[][] = sets.map(() => []);
  for (const [variable, { to }] of arcs.entries()) into[to]!.push(variable);
  const rows: Row[] = [];
  for (let place = 1; place < sets.length; place++) {
    const { isRequested } = sets[place]!;
    rows.push({ least: isRequested ? 1 : 0, most: 1, terms: sum(into[place]!) });
    rows.push(...levelRows(sets, { arcs, into, place }));
  }
  return { costs: arcs.map(({ from, to }) => sets[to]!.tokens - sets[from]!.tokens), rows };
}

/**
 * For every number of tokens at which a set within this one ends: the arcs that pass it, against those into this set.
 */
function levelRows(
  sets: readonly SharedSet[],
  { arcs, into, place }: { arcs: readonly Arc[]; into: readonly (readonly number[])[]; place: number },
): Row[] {
  const { mask, isRequested } = sets[place]!;
  const within: number[] = [];
  for (let other = 1; other <= place; other++) if ((sets[other]!.mask & mask) === sets[other]!.mask) within.push(other);
  const candidates = within.flatMap((other) => into[other]!);
  const levels = new Set(within.map((other) => sets[other]!.tokens));
  // The topmost level says only that the arcs into this set are those into this set.
  levels.delete(sets[place]!.tokens);
  return [...levels].map((level) => {
    const passing = candidates.filter((variable) => {
      const { from, to } = arcs[variable]!;
      return sets[from]!.tokens < level && sets[to]!.tokens >= level;
    });
    if (isRequested) return { least: 1, most: Number.POSITIVE_INFINITY, terms: sum(passing) };
    const terms = sum(passing);
    for (const variable of into[place]!) terms.set(variable, (terms.get(variable) ?? 0) - 1);
    return { least: 0, most: Number.POSITIVE_INFINITY, terms };
  });
}

function sum(variables: readonly number[]): Map<number, number> {
  return new Map(variables.map((variable) => [variable, 1]));
}
