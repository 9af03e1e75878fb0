/** What is asked of an index: a prompt's tokens, of which model, and in whose name they are cached. */
export interface IndexerQuestion {
  readonly tokens: readonly number[];
  readonly model: string;
  readonly salt: string | undefined;
}

/** Tokens at a prompt's beginning that an instance holds, and of its data-parallel ranks, where it has several. */
interface InstanceMatch {
  readonly tokens: number;
  readonly ranks: ReadonlyMap<string, number>;
}

/** By what the index calls the instances. */
export type InstanceMatches = ReadonlyMap<string, InstanceMatch>;

/** How one kind of index is asked. */
export interface IndexerFormat {
  readonly path: string;
  /** Whether it gets the salt of a prompt. */
  readonly takesSalt: boolean;
  /** Whether it knows of everything that an instance holds; else there may be more, for instance on the device. */
  readonly isComplete: boolean;
  body(question: IndexerQuestion): string;
  /** @throws TypeError for what is no answer to so many tokens. */
  read(answer: unknown, tokens: number): InstanceMatches;
}

export const INDEXER_KINDS = ['dynamo', 'lmcache'] as const;
export type IndexerKind = (typeof INDEXER_KINDS)[number];

/** Instances of one answer. */
const MAX_INSTANCES = 4_096;
const MAX_RANKS = 1_024;

/**
 * Dynamo's standalone indexer, in the shape of Mooncake's: `scores` by instance and rank, and since Dynamo 1.2
 * `instances`, whose `longest_matched` counts host memory and disks, too.
 */
const dynamo: IndexerFormat = {
  path: '/query',
  takesSalt: true,
  isComplete: true,
  body: ({ tokens, model, salt }) =>
    JSON.stringify({ token_ids: tokens, model_name: model, ...(salt !== undefined && { cache_salt: salt }) }),
  read: (answer, most) => {
    const { scores, instances } = objectOf(answer);
    if (scores === undefined && instances === undefined) throw new TypeError('neither scores nor instances');
    const matches = new Map<string, InstanceMatch>();
    for (const [name, byRank] of entriesOf(scores ?? {}, MAX_INSTANCES)) {
      const ranks = new Map(entriesOf(byRank, MAX_RANKS).map(([rank, count]) => [rank, countOf(count, most)]));
      matches.set(name, { tokens: Math.max(0, ...ranks.values()), ranks });
    }
    for (const [name, found] of entriesOf(instances ?? {}, MAX_INSTANCES)) {
      const longest = countOf(objectOf(found)['longest_matched'], most);
      const known = matches.get(name);
      matches.set(name, { tokens: Math.max(longest, known?.tokens ?? 0), ranks: known?.ranks ?? NO_RANKS });
    }
    return matches;
  },
};

/** LMCache's controller: `layout_info`, or the same by itself, has place and length by instance. */
const lmcache: IndexerFormat = {
  path: '/lookup',
  takesSalt: false,
  isComplete: false,
  body: ({ tokens }) => JSON.stringify({ tokens }),
  read: (answer, most) => {
    const { event_id: _, layout_info: layout, ...bare } = objectOf(answer);
    const matches = new Map<string, InstanceMatch>();
    for (const [name, found] of entriesOf(layout ?? bare, MAX_INSTANCES)) {
      if (!Array.isArray(found) || found.length !== 2) throw new TypeError('place and length were expected');
      matches.set(name, { tokens: countOf(found[1], most), ranks: NO_RANKS });
    }
    return matches;
  },
};

export const INDEXER_FORMATS: Readonly<Record<IndexerKind, IndexerFormat>> = { dynamo, lmcache };

const NO_RANKS: ReadonlyMap<string, number> = new Map();

function objectOf(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new TypeError('an object was expected');
  return value as Readonly<Record<string, unknown>>;
}

function entriesOf(value: unknown, most: number): [string, unknown][] {
  const entries = Object.entries(objectOf(value));
  if (entries.length > most) throw new TypeError('too many entries');
  return entries;
}

function countOf(value: unknown, most: number): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0 || (value as number) > most)
    throw new TypeError('a count of tokens was expected');
  return value as number;
}
