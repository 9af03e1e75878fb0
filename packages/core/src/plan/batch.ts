import { WarmpathError } from '../errors.js';

/**
 * A batch with numbered documents. A symbol is a document and the number of its copy within its context, so a context
 * is always a set of symbols.
 */
export interface Batch {
  /** Contexts of the batch. */
  readonly contexts: number;
  /** Context `i` holds `items[starts[i]]` up to, not including, `items[starts[i + 1]]`. */
  readonly starts: Int32Array;
  /** Symbols in retrieval order. */
  readonly items: Int32Array;
  /** The document of a symbol, a number below `names.length`. */
  readonly documentOf: Int32Array;
  /** Ids of the documents. */
  readonly names: readonly string[];
  /** Tokens of the document of a symbol, or 1. */
  readonly weights: Float64Array;
  /** First context of each distinct set of symbols, in order of appearance. */
  readonly sets: Int32Array;
  /** The distinct set of a context, an index into `sets`. */
  readonly setOf: Int32Array;
}

/**
 * Numbers the documents of a batch. Contexts with the same documents become one set. O(total documents × log k), three
 * integers each.
 *
 * @throws `WARMPATH_INVALID_REQUEST` with path `tokens`, unless `tokens` returns finite numbers of 0 or more
 */
export function internBatch(contexts: readonly (readonly string[])[], tokens?: (document: string) => number): Batch {
  const starts = new Int32Array(contexts.length + 1);
  for (let i = 0; i < contexts.length; i++) starts[i + 1] = starts[i]! + contexts[i]!.length;
  const items = new Int32Array(starts[contexts.length]!);
  const numbers = new Map<string, number>();
  const names: string[] = [];
  const documentOf: number[] = [];
  // By symbol: the symbol of the next copy.
  const nextCopy: number[] = [];
  const seenIn: number[] = [];
  let place = 0;
  for (let i = 0; i < contexts.length; i++) {
    for (const name of contexts[i]!) {
      let symbol = numbers.get(name);
      if (symbol === undefined) {
        symbol = addSymbol(names.length);
        numbers.set(name, symbol);
        names.push(name);
      }
      while (seenIn[symbol] === i) {
        if (nextCopy[symbol]! < 0) nextCopy[symbol] = addSymbol(documentOf[symbol]!);
        symbol = nextCopy[symbol]!;
      }
      seenIn[symbol] = i;
      items[place++] = symbol;
    }
  }
  function addSymbol(document: number): number {
    nextCopy.push(-1);
    seenIn.push(-1);
    return documentOf.push(document) - 1;
  }
  const costs = names.map((name) => checkedTokens(name, tokens));
  const weights = Float64Array.from(documentOf, (document) => costs[document]!);
  const { sets, setOf } = distinctSets(starts, items);
  return {
    contexts: contexts.length,
    starts,
    items,
    documentOf: Int32Array.from(documentOf),
    names,
    weights,
    sets,
    setOf,
  };
}

function checkedTokens(name: string, tokens: ((document: string) => number) | undefined): number {
  if (tokens === undefined) return 1;
  const count = tokens(name);
  if (Number.isFinite(count) && count >= 0) return count;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
    path: 'tokens',
    detail: `the tokens of document ${JSON.stringify(name)} are not a number of 0 or more`,
  });
}

/** Contexts of the same symbols are one set. */
function distinctSets(starts: Int32Array, items: Int32Array): { sets: Int32Array; setOf: Int32Array } {
  const sets: number[] = [];
  const known = new Map<string, number>();
  const setOf = new Int32Array(starts.length - 1);
  for (let context = 0; context < setOf.length; context++) {
    const key = items
      .slice(starts[context], starts[context + 1])
      .sort()
      .join();
    let set = known.get(key);
    if (set === undefined) {
      set = sets.push(context) - 1;
      known.set(key, set);
    }
    setOf[context] = set;
  }
  return { sets: Int32Array.from(sets), setOf };
}
