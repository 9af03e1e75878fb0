import { useEffect, useMemo, useState } from 'preact/hooks';
import type { TreeSnapshot } from '../src/feed.ts';
import { type Surface, useCanvas } from './canvas.ts';
import { count, duration, percent, tokens } from './format.ts';
import { connection, feed, settings } from './state.ts';
import { findPlace, layoutTree, omittedChildren, type Place, type Rectangle, rectanglesOf } from './tree-layout.ts';

const REFRESH_MS = 5_000;
const ROW_HEIGHT = 26;
/** Rows that are drawn; deeper ones show when somebody zooms in. */
const MAX_ROWS = 24;
/** Children that are listed beside the picture. */
const LISTED = 12;

/** What the engine is believed to hold: each path an order that was served, as wide as its tokens. */
export function TreeView() {
  const { snapshot, trouble } = useSnapshot();
  const root = useMemo(() => snapshot && layoutTree(snapshot), [snapshot]);
  if (trouble !== null && snapshot === null) return <p class="notice bad">{trouble}</p>;
  if (snapshot === null || root === null) return <p class="wait">Reading the tree …</p>;
  if (snapshot.nodes === 0) {
    return (
      <section class="card empty">
        <h2>The tree is empty</h2>
        <p>It grows with prompts that have documents: each served order is a path in it.</p>
      </section>
    );
  }
  return <Tree root={root} snapshot={snapshot} />;
}

function useSnapshot() {
  const [snapshot, setSnapshot] = useState<TreeSnapshot | null>(null);
  const [trouble, setTrouble] = useState<string | null>(null);
  const isLive = connection.value.kind === 'live';
  useEffect(() => {
    if (!isLive) return;
    let isWanted = true;
    let timer = 0;
    const read = async () => {
      try {
        const next = await feed.get<TreeSnapshot>('/ui/tree');
        if (isWanted) setSnapshot(next);
      } catch (error) {
        if (isWanted) setTrouble((error as Error).message);
      }
      if (isWanted) timer = window.setTimeout(read, REFRESH_MS);
    };
    void read();
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [isLive]);
  return { snapshot, trouble };
}

function Tree({ root, snapshot }: { readonly root: Place; readonly snapshot: TreeSnapshot }) {
  const [zoomedId, setZoomedId] = useState('');
  const [selectedId, setSelectedId] = useState('');
  const [hovered, setHovered] = useState<Rectangle | null>(null);
  const zoomed = findPlace(root, zoomedId);
  const selected = findPlace(root, selectedId);
  const rows = Math.min(MAX_ROWS, root.height + 1);
  let drawn: readonly Rectangle[] = [];
  const canvas = useCanvas((surface) => {
    drawn = rectanglesOf(zoomed, surface.width).filter(({ depth }) => depth < rows);
    drawTree(surface, { rectangles: drawn, selected, hovered: hovered?.place ?? null, mostHits: root.data.hits });
  });
  const zoom = (place: Place) => {
    setZoomedId(place.data.id);
    setSelectedId(place.data.id);
  };
  const rectangleAt = (event: MouseEvent): Rectangle | undefined => {
    const { left, top } = canvas.current!.getBoundingClientRect();
    const depth = Math.floor((event.clientY - top) / ROW_HEIGHT);
    const x = event.clientX - left;
    const inside = rectanglesOf(zoomed, canvas.current!.clientWidth);
    return inside.find((each) => each.depth === depth && each.left <= x && x < each.right);
  };
  const beside = (step: 1 | -1): Place | undefined => {
    const all = selected.parent?.children ?? [selected];
    return all[all.indexOf(selected) + step];
  };
  const keys: Readonly<Record<string, () => Place | null | undefined>> = {
    ArrowDown: () => selected.children?.[0],
    ArrowUp: () => selected.parent,
    ArrowRight: () => beside(1),
    ArrowLeft: () => beside(-1),
    Home: () => root,
  };
  return (
    <div class="beside-detail">
      <section class="card">
        <div class="heading">
          <h2>What the engine is believed to hold</h2>
          <p class="beside">
            {count(snapshot.nodes)} nodes, {tokens(snapshot.tokens)} tokens
            {snapshot.omittedNodes > 0 && `; the ${count(snapshot.omittedNodes)} used least recently are not shown`}
            {snapshot.omittedHistories > 0 && `, nor ${count(snapshot.omittedHistories)} small trees`}
          </p>
        </div>
        <Legend most={root.data.hits} />
        <Path zoomed={zoomed} zoom={zoom} />
        <div
          class="icicle"
          role="group"
          tabIndex={0}
          aria-label="Knowledge tree. Arrow keys move, Enter zooms in, Escape zooms out."
          onKeyDown={(event) => {
            if (event.key === 'Enter') zoom(selected);
            else if (event.key === 'Escape') zoom(zoomed.parent ?? root);
            else if (keys[event.key] === undefined) return;
            else {
              const next = keys[event.key]!();
              if (next) {
                setSelectedId(next.data.id);
                if (!isInside(next, zoomed)) setZoomedId(next.data.id);
              }
            }
            event.preventDefault();
          }}
        >
          <canvas
            ref={canvas}
            role="img"
            aria-label={`${count(snapshot.nodes - snapshot.omittedNodes)} nodes. Beside the picture stands what is selected.`}
            style={{ height: `${rows * ROW_HEIGHT}px` }}
            onClick={(event) => {
              const place = rectangleAt(event)?.place;
              if (place) zoom(place);
            }}
            onPointerMove={(event) => {
              const found = rectangleAt(event) ?? null;
              if (found?.place !== hovered?.place || found?.left !== hovered?.left) setHovered(found);
            }}
            onPointerLeave={() => setHovered(null)}
          />
        </div>
        <p class="beside hovered" aria-hidden="true">
          {hovered === null
            ? 'Click a path to zoom in, what stands above it to zoom out.'
            : hovered.place === null
              ? 'Several nodes that are too narrow to be told apart: zoom in.'
              : `${hovered.place.data.label}: ${tokens(hovered.place.data.tokens)} tokens, ${count(hovered.place.data.hits)} hits`}
        </p>
      </section>
      <Selected place={selected} root={root} choose={zoom} />
    </div>
  );
}

function isInside(place: Place, zoomed: Place): boolean {
  return place.ancestors().includes(zoomed);
}

/** The way from everything to what takes the whole width. */
function Path({ zoomed, zoom }: { readonly zoomed: Place; readonly zoom: (place: Place) => void }) {
  return (
    <nav class="path" aria-label="Path">
      <ol>
        {zoomed
          .ancestors()
          .reverse()
          .map((place) => (
            <li key={place.data.id}>
              {place === zoomed ? (
                <b>{place.data.label}</b>
              ) : (
                <button type="button" class="link" onClick={() => zoom(place)}>
                  {place.data.label}
                </button>
              )}
            </li>
          ))}
      </ol>
    </nav>
  );
}

function Legend({ most }: { readonly most: number }) {
  return (
    <ul class="legend">
      {HIT_COLOURS.map((property, i) => ({ property, from: hitsFrom(i, most), to: hitsFrom(i + 1, most) - 1 }))
        .filter(({ from, to }) => from <= to)
        .map(({ property, from, to }) => (
          <li key={property}>
            <span class="key-box" style={{ background: `var(${property})` }} />
            {from === to ? count(from) : `${count(from)}–${count(to)}`}
            {from === 1 && (to === 1 ? ' hit' : ' hits')}
          </li>
        ))}
      <li>
        <span class="key-box expected" />
        expected, not confirmed yet
      </li>
    </ul>
  );
}

function Selected(props: { readonly place: Place; readonly root: Place; readonly choose: (place: Place) => void }) {
  const { place, root, choose } = props;
  const { data, children = [] } = place;
  const missing = omittedChildren(data);
  return (
    <aside class="card detail" aria-label="The selected node">
      <h2 class="label">{data.label}</h2>
      <dl aria-live="polite">
        <div>
          <dt>Tokens with all below</dt>
          <dd>
            {tokens(place.value!)} ({percent(place.value! / root.value!)})
          </dd>
        </div>
        {data.kind === 'step' && (
          <>
            <div>
              <dt>Tokens of its own</dt>
              <dd>{count(data.tokens)}</dd>
            </div>
            <div>
              <dt>Ends at token</dt>
              <dd>{count(place.ancestors().reduce((sum, above) => sum + above.data.tokens, 0))}</dd>
            </div>
          </>
        )}
        <div>
          <dt>Requests along it</dt>
          <dd>{count(data.hits)}</dd>
        </div>
        <div>
          <dt>In the cache</dt>
          <dd>{data.isConfirmed ? 'confirmed' : 'expected'}</dd>
        </div>
        {Number.isFinite(data.idleS) && (
          <div>
            <dt>Last used</dt>
            <dd>{duration(data.idleS)} ago</dd>
          </div>
        )}
      </dl>
      <h3>
        Behind it <span class="number">{count(children.length + missing)}</span>
      </h3>
      {children.length > 0 && (
        <ul class="children">
          {children.slice(0, LISTED).map((child) => (
            <li key={child.data.id}>
              <button type="button" class="link" onClick={() => choose(child)}>
                {child.data.label}
              </button>
              <span>{percent(child.value! / place.value!)}</span>
              <span>{count(child.data.hits)} hits</span>
            </li>
          ))}
        </ul>
      )}
      {children.length > LISTED && <p class="beside">and {count(children.length - LISTED)} more</p>}
      {missing > 0 && <p class="beside">{count(missing)} were used least recently and are not shown.</p>}
      {!settings.value!.names && (
        <p class="beside">
          Documents and tenants stand under short hashes. <code>dashboard.names: true</code> shows their names.
        </p>
      )}
    </aside>
  );
}

const HIT_COLOURS = ['--hits-1', '--hits-2', '--hits-3', '--hits-4', '--hits-5'] as const;

/** The class of a number of hits: five, on a logarithmic scale from 1 to the most. */
function classOf(hits: number, most: number): number {
  if (hits <= 1 || most <= 1) return 0;
  return Math.min(HIT_COLOURS.length - 1, Math.floor((HIT_COLOURS.length * Math.log(hits)) / Math.log(most + 1)));
}

/** The fewest hits of a class. */
function hitsFrom(place: number, most: number): number {
  if (place === 0) return 1;
  return place === HIT_COLOURS.length ? most + 1 : Math.max(2, Math.ceil((most + 1) ** (place / HIT_COLOURS.length)));
}

function drawTree(
  { context, colour, font }: Surface,
  picture: {
    readonly rectangles: readonly Rectangle[];
    readonly selected: Place;
    readonly hovered: Place | null;
    readonly mostHits: number;
  },
): void {
  context.font = font;
  context.textBaseline = 'middle';
  for (const { place, depth, left, right } of picture.rectangles) {
    const top = depth * ROW_HEIGHT;
    // Narrow rectangles would be half gap.
    const width = right - left > 5 ? right - left - 1 : right - left;
    if (place === null) {
      context.fillStyle = colour('--line');
      context.fillRect(left, top, width, ROW_HEIGHT - 1);
      continue;
    }
    const level = classOf(place.data.hits, picture.mostHits);
    context.fillStyle = place.data.kind === 'root' ? colour('--panel') : colour(HIT_COLOURS[level]!);
    context.fillRect(left, top, width, ROW_HEIGHT - 1);
    if (!place.data.isConfirmed && place.data.kind === 'step') {
      context.fillStyle = colour('--computed-1');
      context.fillRect(left, top + ROW_HEIGHT - 5, width, 4);
    }
    if (place === picture.selected || place === picture.hovered) {
      context.strokeStyle = colour('--ink');
      context.lineWidth = place === picture.selected ? 2 : 1;
      context.strokeRect(left + 1, top + 1, Math.max(1, width - 2), ROW_HEIGHT - 3);
    }
    if (width < 46) continue;
    context.fillStyle = colour(place.data.kind !== 'root' && level >= 3 ? '--on-hits' : '--ink');
    context.fillText(fitted(context, place.data.label, width - 12), left + 6, top + ROW_HEIGHT / 2);
  }
}

/** As much of a text as fits. */
function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  // No character is wider than this font is high.
  let shown = text.slice(0, Math.ceil(width / 4));
  if (shown === text && context.measureText(shown).width <= width) return shown;
  while (shown.length > 1 && context.measureText(`${shown}…`).width > width) shown = shown.slice(0, -1);
  return `${shown}…`;
}
