/** Longer names are not compared, because the cost is quadratic. */
const MAX_COMPARED_CHARACTERS = 64;

/**
 * The known name with the fewest edits (insert, delete, replace) from `name`, for error messages. `undefined` if none
 * is within half its length. Ignores case. O(names × length²).
 */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  if (name.length > MAX_COMPARED_CHARACTERS) return undefined;
  let nearest: string | undefined;
  let fewest = Number.POSITIVE_INFINITY;
  for (const candidate of known) {
    const edits = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (edits < fewest && edits <= candidate.length / 2) {
      fewest = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

function editDistance(from: string, to: string): number {
  let previous = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let row = 1; row <= from.length; row++) {
    const current = [row];
    for (let column = 1; column <= to.length; column++) {
      const replaced = previous[column - 1]! + (from[row - 1] === to[column - 1] ? 0 : 1);
      current.push(Math.min(previous[column]! + 1, current[column - 1]! + 1, replaced));
    }
    previous = current;
  }
  return previous[to.length]!;
}
