import { fingerprint } from '../fingerprint.js';
import type { PromptRole } from '../recognise/block.js';
import type { Stretch } from './stretches.js';

/** Prompts with different documents in which text must stand before it counts as the program's. */
export const MIN_PROMPTS = 20;
/** Share of a kind's prompts in which the program's text stands. */
const NEARLY_ALL = 0.95;
/** Share of a stretch's occurrences that are at its usual place. */
const USUALLY = 0.9;

/** A program's text: the parts that are always the same, with a place for what changes before, between, behind them. */
export interface ProgramText {
  /** The same for the same text in every process; numbers in it do not count. */
  readonly id: string;
  readonly role: PromptRole;
  /** Between two of them the text changes. None where an API itself calls the text's parts documents. */
  readonly segments: readonly string[];
  /** Whether the text begins with the first segment, and ends with the last. */
  readonly opens: boolean;
  readonly closes: boolean;
  /** Which of the changing parts holds the documents: 0 is the one before `segments[0]`. */
  readonly documents: number;
}

/** A place where the text of a kind changes. */
export interface Gap {
  readonly start: number;
  readonly end: number;
}

/** The id of a program's text. */
function programTextId(role: PromptRole, segments: readonly string[]): string {
  return fingerprint([role, ...segments.map((segment) => segment.replace(/\d+/g, '0').trim())]);
}

/**
 * The changing parts of a text: one more than segments, empty where it opens or closes with one. `undefined` if the
 * text is of another kind. O(text).
 */
export function gapsOf({ segments, opens, closes }: ProgramText, text: string): readonly Gap[] | undefined {
  const gaps: Gap[] = [];
  let from = 0;
  for (const [index, segment] of segments.entries()) {
    const isFirst = index === 0;
    const isLast = index === segments.length - 1;
    const at = isLast && closes ? text.length - trailing(text) - segment.length : text.indexOf(segment, from);
    if (at < from || !text.startsWith(segment, at) || (isFirst && opens && text.slice(0, at).trim() !== '')) {
      return undefined;
    }
    gaps.push({ start: from, end: at });
    from = at + segment.length;
  }
  gaps.push({ start: from, end: text.length });
  return gaps;
}

function trailing(text: string): number {
  return text.length - text.trimEnd().length;
}

/** A text of the pool: the hashes of its pieces in order. */
export interface PooledText {
  readonly hashes: Float64Array;
  readonly places: ReadonlyMap<number, number>;
}

/** How often a piece stands in the pool, and how often at its usual distance from the start and from the end. */
interface PieceStatistics {
  count: number;
  start: number;
  startVotes: number;
  atStart: number;
  end: number;
  endVotes: number;
  atEnd: number;
}

/**
 * The program's text in a text, from others of which only hashes are known. A piece is like a program's where it
 * stands at its usual distance from the start or the end of nearly all texts that hold it; documents change places.
 * `undefined` without `MIN_PROMPTS` texts that differ in their documents. O(pieces of the pool).
 */
export function findProgramText(
  role: PromptRole,
  {
    text,
    pieces,
    lists,
    hasDocuments,
  }: {
    readonly text: string;
    readonly pieces: readonly Stretch[];
    /** Where documents stand by their form. */
    readonly lists: readonly Gap[];
    /** Whether a part of the text holds documents by their form. */
    readonly hasDocuments: (gap: Gap) => boolean;
  },
  pool: readonly PooledText[],
): ProgramText | undefined {
  if (pool.length < MIN_PROMPTS) return undefined;
  const statistics = statisticsOf(pool);
  const members = membersOf(pieces, pool, statistics);
  if (members === undefined) return undefined;
  const isProgram = (hash: number) =>
    (statistics.get(hash)?.count ?? 0) >= MIN_PROMPTS - 1 &&
    members.filter(({ places }) => places.has(hash)).length >= NEARLY_ALL * members.length;
  const own = new Map<number, boolean>();
  for (const { hash } of pieces) if (!own.has(hash)) own.set(hash, isProgram(hash));
  const lengths = new Map<number, number>();
  const runs = withoutRepeated(runsOf(pieces, own, piecesOfLists(pieces, own, lists)), { text, pieces, members });
  if (runs.length === 0) return undefined;
  const segments = runs.map(({ from, to }) => text.slice(pieces[from]!.start, pieces[to]!.end));
  const opens = runs[0]!.from === 0;
  const closes = runs.at(-1)!.to === pieces.length - 1;
  let at = 0;
  for (const [index, { from, to }] of [...runs, { from: pieces.length, to: pieces.length }].entries()) {
    lengths.set(index, from === 0 || at >= from ? 0 : pieces[from - 1]!.end - pieces[at]!.start);
    at = to + 1;
  }
  const documents = [...lengths].reduce((longest, each) => (each[1] > longest[1] ? each : longest))[0];
  const program = { id: programTextId(role, segments), role, segments, opens, closes, documents };
  const gap = gapsOf(program, text)?.[documents];
  if (gap === undefined) return undefined;
  return holdDocuments(members, own, hasDocuments(gap)) ? program : undefined;
}

function statisticsOf(pool: readonly PooledText[]): ReadonlyMap<number, PieceStatistics> {
  const all = new Map<number, PieceStatistics>();
  for (const { hashes, places } of pool) {
    for (const [hash, start] of places) {
      const end = hashes.length - start;
      const known = all.get(hash);
      if (known === undefined) {
        all.set(hash, { count: 1, start, startVotes: 1, atStart: 0, end, endVotes: 1, atEnd: 0 });
        continue;
      }
      known.count++;
      // A majority vote: the place of most texts is left, if there is one.
      known.startVotes += known.start === start ? 1 : -1;
      if (known.startVotes < 0) Object.assign(known, { start, startVotes: 1 });
      known.endVotes += known.end === end ? 1 : -1;
      if (known.endVotes < 0) Object.assign(known, { end, endVotes: 1 });
    }
  }
  for (const { hashes, places } of pool) {
    for (const [hash, start] of places) {
      const known = all.get(hash)!;
      if (known.start === start) known.atStart++;
      if (known.end === hashes.length - start) known.atEnd++;
    }
  }
  return all;
}

/**
 * The texts of the same kind: those that share pieces like a program's with this one. Of the levels of sharing, the one
 * that explains most: many texts, many pieces.
 */
function membersOf(
  pieces: readonly Stretch[],
  pool: readonly PooledText[],
  statistics: ReadonlyMap<number, PieceStatistics>,
): readonly PooledText[] | undefined {
  const like = [...new Set(pieces.map(({ hash }) => hash))]
    .map((hash) => ({ hash, count: statistics.get(hash)?.count ?? 0 }))
    .filter(({ hash, count }) => {
      if (count < MIN_PROMPTS) return false;
      const { atStart, atEnd } = statistics.get(hash)!;
      return Math.max(atStart, atEnd) >= USUALLY * count;
    })
    .sort((a, b) => b.count - a.count);
  let best: { readonly members: readonly PooledText[]; readonly score: number } | undefined;
  let members = pool;
  for (const [index, { hash, count }] of like.entries()) {
    members = members.filter(({ places }) => places.has(hash));
    if (members.length < MIN_PROMPTS) break;
    const next = like[index + 1]?.count;
    if (next !== undefined && next >= NEARLY_ALL * count) continue;
    const score = members.length * (1 + Math.log2(index + 1));
    if (best === undefined || score > best.score) best = { members, score };
  }
  return best?.members;
}

/**
 * Neighbouring pieces that are the program's. What the program repeats between documents, such as a rule or a closing
 * tag, stays with what changes, unless more of the program's text stands beside it.
 */
function runsOf(
  pieces: readonly Stretch[],
  own: ReadonlyMap<number, boolean>,
  inLists: ReadonlySet<number>,
): readonly PieceRun[] {
  const runs: PieceRun[] = [];
  const counts = new Map<number, number>();
  for (const [at, { hash }] of pieces.entries()) {
    counts.set(hash, (counts.get(hash) ?? 0) + 1);
    if (own.get(hash) !== true || inLists.has(at)) continue;
    const last = runs.at(-1);
    if (last?.to === at - 1) last.to = at;
    else runs.push({ from: at, to: at });
  }
  return runs.filter(({ from, to }) => {
    const isAtEdge = from === 0 || to === pieces.length - 1;
    return isAtEdge || pieces.slice(from, to + 1).some(({ hash }) => counts.get(hash) === 1);
  });
}

/**
 * Runs without pieces at their edges that most texts also have elsewhere: the last line of the last document, where
 * many documents end so, looks like the first line of what follows. A label such as `[1]` may be an example.
 */
function withoutRepeated(
  runs: readonly PieceRun[],
  {
    text,
    pieces,
    members,
  }: { readonly text: string; readonly pieces: readonly Stretch[]; readonly members: readonly PooledText[] },
): readonly PieceRun[] {
  const inRuns = new Map<number, number>();
  for (const { from, to } of runs) {
    for (const { hash } of pieces.slice(from, to + 1)) inRuns.set(hash, (inRuns.get(hash) ?? 0) + 1);
  }
  const isRepeated = ({ start, end, hash }: Stretch) => {
    if (/^\P{L}*\d\P{L}*$/u.test(text.slice(start, end))) return false;
    const times = inRuns.get(hash)!;
    const isMore = ({ hashes }: PooledText) => hashes.reduce((sum, each) => sum + Number(each === hash), 0) > times;
    return members.filter(isMore).length > members.length / 2;
  };
  return runs.flatMap(({ from, to }) => {
    let [first, last] = [from, to];
    while (first > 0 && first <= last && isRepeated(pieces[first]!)) first++;
    while (last < pieces.length - 1 && last >= first && isRepeated(pieces[last]!)) last--;
    return first > last ? [] : [{ from: first, to: last }];
  });
}

/**
 * Places of pieces in lists of which something changes: a line `Source 2:` between two documents is not the program's.
 */
function piecesOfLists(
  pieces: readonly Stretch[],
  own: ReadonlyMap<number, boolean>,
  lists: readonly Gap[],
): ReadonlySet<number> {
  const places = new Set<number>();
  for (const { start, end } of lists) {
    const inside = [...pieces.keys()].filter((at) => pieces[at]!.start >= start && pieces[at]!.end <= end);
    if (inside.some((at) => own.get(pieces[at]!.hash) !== true)) for (const at of inside) places.add(at);
  }
  return places;
}

interface PieceRun {
  readonly from: number;
  to: number;
}

/**
 * Whether what changes are `MIN_PROMPTS` different lists of documents. Without a form, some of it must come again
 * beside other text: a question that comes again has always the same neighbours. The lists must differ without their
 * first and without their last piece, because one of these is the question where the documents are always the same.
 */
function holdDocuments(members: readonly PooledText[], own: ReadonlyMap<number, boolean>, isFormed: boolean): boolean {
  const before = new Map<number, number>();
  const moved = new Set<number>();
  const withoutFirst = new Set<string>();
  const withoutLast = new Set<string>();
  for (const { hashes } of members) {
    const changing: number[] = [];
    for (const [at, hash] of hashes.entries()) {
      if (own.get(hash) === true) continue;
      changing.push(hash);
      const neighbour = at === 0 ? -1 : hashes[at - 1]!;
      if ((before.get(hash) ?? neighbour) !== neighbour) moved.add(hash);
      before.set(hash, neighbour);
    }
    const isOne = isFormed && changing.length === 1;
    withoutFirst.add(changing.slice(isOne ? 0 : 1).join());
    withoutLast.add(changing.slice(0, isOne ? 1 : -1).join());
  }
  return (isFormed || moved.size >= 2) && Math.min(withoutFirst.size, withoutLast.size) >= MIN_PROMPTS;
}
