import { WarmpathError } from '@warmpath/core';
import { ANY_NUMBER } from './number-language.js';
import { readingsOf, type TextLanguage } from './text-language.js';

/** The JSON values that are valid at one place of an answer. */
export type SchemaNode =
  /** One of several JSON texts: constants, enumerations, booleans, null. */
  | { readonly kind: 'texts'; readonly texts: readonly string[] }
  /** Lengths in Unicode characters. */
  | { readonly kind: 'string'; readonly min: number; readonly max: number | undefined }
  /** A number, or the content of a string, that an automaton accepts. */
  | { readonly kind: 'language'; readonly isNumber: boolean; readonly language: TextLanguage }
  /** Required items, then others. */
  | {
      readonly kind: 'array';
      readonly first: readonly SchemaNode[];
      readonly items: SchemaNode | undefined;
      readonly min: number;
      readonly max: number | undefined;
    }
  | ObjectNode
  /** One of several nodes; exactly one where it is exclusive. */
  | {
      readonly kind: 'union';
      readonly members: readonly SchemaNode[];
      readonly path: string;
      readonly isExclusive: boolean;
    }
  /** A schema by its place; it may contain itself. */
  | ReferenceNode;

export interface ReferenceNode {
  readonly kind: 'reference';
  readonly path: string;
  target: SchemaNode | undefined;
}

interface PropertyNode {
  readonly key: string;
  readonly isRequired: boolean;
  readonly value: SchemaNode;
}

/** Properties in their order, then others whose keys an automaton accepts; any key without one. */
export interface ObjectNode {
  readonly kind: 'object';
  readonly properties: readonly PropertyNode[];
  readonly others: readonly { readonly keys: TextLanguage | undefined; readonly value: SchemaNode }[];
}

export const ANY_VALUE: SchemaNode = anyValue();

export const ANY_OBJECT: SchemaNode = mapOf(ANY_VALUE);

/** Most parses of an incomplete answer at one time, and most alternatives of one place. */
export const MAX_READINGS = 64;

export function refuse(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}

function mapOf(value: SchemaNode): ObjectNode {
  return { kind: 'object', properties: [], others: [{ keys: undefined, value }] };
}

function anyValue(): SchemaNode {
  const value: ReferenceNode = { kind: 'reference', path: '', target: undefined };
  value.target = {
    kind: 'union',
    path: '',
    isExclusive: false,
    members: [
      mapOf(value),
      { kind: 'array', first: [], items: value, min: 0, max: undefined },
      { kind: 'string', min: 0, max: undefined },
      { kind: 'language', isNumber: true, language: ANY_NUMBER },
      { kind: 'texts', texts: ['true', 'false', 'null'] },
    ],
  };
  return value;
}

/** The nodes behind references and unions. Only for checked nodes. */
export function leavesOf(node: SchemaNode): ReadonlySet<SchemaNode> {
  const leaves = new Set<SchemaNode>();
  const seen = new Set<SchemaNode>();
  const visit = (current: SchemaNode): void => {
    if (seen.has(current)) return;
    seen.add(current);
    if (current.kind === 'reference') {
      visit(current.target!);
    } else if (current.kind === 'union') {
      current.members.forEach(visit);
    } else {
      leaves.add(current);
    }
  };
  visit(node);
  return leaves;
}

/** Whether no JSON value fits both; false where that is not certain. */
function areDisjoint(a: SchemaNode, b: SchemaNode): boolean {
  return [...leavesOf(a)].every((left) => [...leavesOf(b)].every((right) => areLeavesDisjoint(left, right)));
}

function areLeavesDisjoint(a: SchemaNode, b: SchemaNode): boolean {
  if (a === b) return false;
  if (a.kind === 'texts' && b.kind === 'texts') return shareNone(a.texts, b.texts);
  return !beginningsOf(a).some((beginning) => beginningsOf(b).includes(beginning)) || areTagged(a, b);
}

/** Whether both objects require one property and have different constants for it. */
function areTagged(a: SchemaNode, b: SchemaNode, place?: 0): boolean {
  const others = tagsOf(b, place);
  return tagsOf(a, place).some(({ key, texts }) =>
    others.some((tag) => tag.key === key && shareNone(tag.texts, texts)),
  );
}

function shareNone(a: readonly string[], b: readonly string[]): boolean {
  const others = new Set(b);
  return !a.some((text) => others.has(text));
}

/** The required properties of an object that have constants; with `place`, only the first property. */
function tagsOf(node: SchemaNode, place?: 0): { readonly key: string; readonly texts: readonly string[] }[] {
  const properties = node.kind === 'object' ? node.properties.slice(0, place === 0 ? 1 : undefined) : [];
  return properties.flatMap(({ key, value, isRequired }) => {
    const [leaf, ...others] = isRequired ? leavesOf(value) : [];
    return leaf?.kind === 'texts' && others.length === 0 ? [{ key, texts: leaf.texts }] : [];
  });
}

/** The first characters of a value: a bracket, a quote, a letter, or 0 for any number. */
function beginningsOf(node: SchemaNode): readonly string[] {
  switch (node.kind) {
    case 'texts':
      return [...new Set(node.texts.map((text) => (/^[-\d]/.test(text) ? '0' : text.charAt(0))))];
    case 'string':
      return ['"'];
    case 'language':
      return [node.isNumber ? '0' : '"'];
    case 'array':
      return ['['];
    default:
      return ['{'];
  }
}

/**
 * Refuses schemas that have no bounded grammar:
 *
 * - a schema that refers to itself and nothing else;
 * - alternatives that begin alike. llama.cpp keeps every parse of an incomplete answer, so nested alternatives that
 *   begin alike double its work with every level.
 *
 * @throws WARMPATH_INVALID_REQUEST with the path of the schema.
 */
export function checkNodes(root: SchemaNode): void {
  const nodes = reachable(root);
  refuseEmptyCycles(nodes);
  refuseAmbiguous(nodes);
}

function reachable(root: SchemaNode): SchemaNode[] {
  const nodes = new Set([root]);
  for (const node of nodes) {
    for (const child of childrenOf(node)) nodes.add(child);
  }
  return [...nodes];
}

function childrenOf(node: SchemaNode): readonly SchemaNode[] {
  switch (node.kind) {
    case 'reference':
      return [node.target!];
    case 'union':
      return node.members;
    case 'array':
      return node.items === undefined ? node.first : [...node.first, node.items];
    case 'object':
      return [...node.properties, ...node.others].map(({ value }) => value);
    default:
      return [];
  }
}

/** References and unions alone must not form a cycle. */
function refuseEmptyCycles(nodes: readonly SchemaNode[]): void {
  const done = new Set<SchemaNode>();
  const open = new Set<SchemaNode>();
  const visit = (node: SchemaNode): void => {
    if (done.has(node) || (node.kind !== 'reference' && node.kind !== 'union')) return;
    if (open.has(node)) throw refuse(node.path, 'This schema is nothing but itself');
    open.add(node);
    childrenOf(node).forEach(visit);
    open.delete(node);
    done.add(node);
  };
  nodes.forEach(visit);
}

/**
 * Bounds the parses of an incomplete answer within each node, as a least fixed point: alternatives that begin alike
 * add up, unless a tag tells objects apart. Cost: O(edges × parses).
 */
function refuseAmbiguous(nodes: readonly SchemaNode[]): void {
  const placeOf = new Map(nodes.map((node) => [node, placeAt(node)]));
  const readings = new Map<SchemaNode, number>();
  // Children stand behind their parents in the list.
  const order = [...nodes].reverse();
  for (let isStable = false; !isStable; ) {
    isStable = true;
    for (const node of order) {
      const place = placeOf.get(node)!;
      if (node.kind === 'union' && (place.leaves.length > MAX_READINGS || readingsAt(place, readings) > MAX_READINGS)) {
        throw refuse(
          node.path,
          'Too many of these alternatives begin alike; give each a first property, required, with a constant of its own',
        );
      }
      const inside = childrenOf(node).map((child) => readingsAt(placeOf.get(child)!, readings));
      const count = Math.max(ownReadings(node), ...inside);
      if (count > (readings.get(node) ?? 1)) {
        readings.set(node, count);
        isStable = false;
      }
    }
  }
}

/** Parses of its beginning, without those of its values: any of the next keys may come. */
function ownReadings(node: SchemaNode): number {
  switch (node.kind) {
    case 'language':
      return readingsOf(node.language);
    case 'object': {
      const keys = node.others.reduce((sum, each) => sum + (each.keys === undefined ? 1 : readingsOf(each.keys)), 1);
      return Math.max(keys, optionalRun(node));
    }
    default:
      return 1;
  }
}

/** Most listed keys that may come next. */
export function optionalRun({ properties }: ObjectNode): number {
  let longest = 0;
  let run = 0;
  for (const { isRequired } of properties) {
    run = isRequired ? 0 : run + 1;
    longest = Math.max(longest, run + 1);
  }
  return longest;
}

/** The nodes of a place, and whether its objects differ in their first properties. */
interface Place {
  readonly leaves: readonly SchemaNode[];
  readonly areApart: boolean;
}

function placeAt(node: SchemaNode): Place {
  const leaves = [...leavesOf(node)];
  const objects = leaves.length > MAX_READINGS ? [] : leaves.filter(({ kind }) => kind === 'object');
  return { leaves, areApart: objects.every((a, i) => objects.slice(i + 1).every((b) => areTagged(a, b, 0))) };
}

function readingsAt({ leaves, areApart }: Place, readings: ReadonlyMap<SchemaNode, number>): number {
  const sums = new Map<string, number>();
  for (const leaf of leaves) {
    const own = readings.get(leaf) ?? 1;
    for (const beginning of beginningsOf(leaf)) {
      const sum = sums.get(beginning) ?? 0;
      const isApart = leaf.kind === 'object' && areApart;
      sums.set(beginning, isApart ? Math.max(sum, own, leaves.length) : sum + own);
    }
  }
  return Math.max(...sums.values());
}

/** Whether an answer may fit several alternatives of which exactly one must fit. */
export function mayOverlap(root: SchemaNode): boolean {
  return reachable(root).some(
    (node) =>
      node.kind === 'union' &&
      node.isExclusive &&
      !node.members.every((a, index) => node.members.slice(index + 1).every((b) => areDisjoint(a, b))),
  );
}
