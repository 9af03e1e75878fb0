import { type HierarchyRectangularNode, hierarchy, partition } from 'd3-hierarchy';
import type { TreeSnapshot } from '../src/feed.ts';

/**
 * One rectangle of the icicle: everything, one of several engines, a tenant's model, what stands before documents, or a
 * document.
 */
export interface Step {
  readonly id: string;
  readonly label: string;
  readonly kind: 'root' | 'history' | 'step';
  /** Of this step alone. */
  readonly tokens: number;
  readonly hits: number;
  readonly isConfirmed: boolean;
  readonly idleS: number;
  /** Children that the gateway left out. */
  readonly omitted: number;
  readonly children: Step[];
}

/** `x0` and `x1` are tokens from the left; a rectangle is as wide as all tokens below it with its own. */
export type Place = HierarchyRectangularNode<Step>;

/** Builds the icicle. O(n log n), once for each snapshot. */
export function layoutTree({ histories }: TreeSnapshot): Place {
  const steps = new Map<string, Step[]>();
  for (const { engine, tenant, model, rows } of histories) {
    const top: Step[] = [];
    const id = `${engine}\n${tenant}\n${model}`;
    const all: Step[] = [];
    // Documents of one id with other texts have one label.
    const known = new Set<string>();
    for (const [parent, tokens, hits, confirmed, idleS, children, label] of rows) {
      const above = all[parent];
      let own = `${above?.id ?? id}\n${label}`;
      while (known.has(own)) own += "'";
      known.add(own);
      const step: Step = {
        id: own,
        label,
        kind: 'step',
        tokens,
        hits,
        isConfirmed: confirmed === 1,
        idleS,
        omitted: children,
        children: [],
      };
      all.push(step);
      (above?.children ?? top).push(step);
    }
    const name = model === '' ? `tenant ${tenant}` : `tenant ${tenant}, ${model}`;
    steps.set(engine, [...(steps.get(engine) ?? []), stepAbove(id, name, 'history', top)]);
  }
  const engines = [...steps];
  // One engine is everything.
  const below =
    engines.length === 1 ? engines[0]![1] : engines.map(([name, all]) => stepAbove(name, name, 'history', all));
  const root = hierarchy<Step>(stepAbove('', 'Everything', 'root', below), ({ children }) => children)
    .sum(({ tokens }) => Math.max(1, tokens))
    .sort((a, b) => b.value! - a.value!);
  return partition<Step>().size([root.value!, root.height + 1])(root);
}

function stepAbove(id: string, label: string, kind: Step['kind'], children: Step[]): Step {
  return {
    id,
    label,
    kind,
    tokens: 0,
    hits: children.reduce((sum, { hits }) => sum + hits, 0),
    isConfirmed: children.some(({ isConfirmed }) => isConfirmed),
    idleS: children.reduce((least, { idleS }) => Math.min(least, idleS), Number.POSITIVE_INFINITY),
    omitted: 0,
    children,
  };
}

/** Children that the gateway has and did not tell. */
export function omittedChildren({ omitted, children, kind }: Step): number {
  return kind === 'step' ? omitted - children.length : 0;
}

/** The place of that id, or of the nearest above it that is still there. */
export function findPlace(root: Place, id: string): Place {
  let place = root;
  for (;;) {
    const below = place.children?.find(({ data }) => id === data.id || id.startsWith(`${data.id}\n`));
    if (below === undefined) return place;
    place = below;
  }
}

/** What is drawn in one row: a place, or several that are too narrow to be told apart. */
export interface Rectangle {
  readonly place: Place | null;
  readonly depth: number;
  readonly left: number;
  readonly right: number;
}

/** Pixels from which on a place has a rectangle of its own. */
const NARROW = 1.5;

/**
 * The rectangles of a picture of `width` pixels in which `zoomed` takes the whole width, and what is above it too. At
 * most `width` rectangles a row, however many places there are: what is narrower is drawn together, and nothing below
 * it is looked at.
 */
export function rectanglesOf(zoomed: Place, width: number): Rectangle[] {
  const scale = width / (zoomed.x1 - zoomed.x0);
  const found: Rectangle[] = zoomed
    .ancestors()
    .reverse()
    .map((place) => ({ place, depth: place.depth, left: 0, right: width }));
  const visit = (above: Place): void => {
    let tiny: { left: number; right: number } | undefined;
    const flush = () => {
      if (tiny !== undefined) found.push({ place: null, depth: above.depth + 1, ...tiny });
      tiny = undefined;
    };
    for (const place of above.children ?? []) {
      const left = (place.x0 - zoomed.x0) * scale;
      const right = (place.x1 - zoomed.x0) * scale;
      if (right - left >= NARROW) {
        flush();
        found.push({ place, depth: place.depth, left, right });
        visit(place);
      } else tiny = { left: tiny?.left ?? left, right };
    }
    flush();
  };
  visit(zoomed);
  return found;
}
