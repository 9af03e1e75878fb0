import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { RequestSummary } from '../src/feed.ts';
import { phasesOf } from './figures.ts';
import { causeText, clock, count, milliseconds, percent } from './format.ts';
import { RequestDetail } from './request-detail.tsx';
import { feed, omitted, requests, selectedRequest, tick, wallTime } from './state.ts';
import { Timeline } from './timeline.tsx';

const ROW_HEIGHT = 30;
/** Rows beyond what can be seen, above and below. */
const MARGIN_ROWS = 6;

/** The latest requests: when each was in which stage, what it reused, and why not more. */
export function RequestsView() {
  return (
    <>
      <Timeline />
      <div class="beside-detail">
        <RequestList />
        {selectedRequest.value !== null && <RequestDetail key={selectedRequest.value} id={selectedRequest.value} />}
      </div>
    </>
  );
}

const FILTERS = {
  all: ['All', () => true],
  computed: [
    'Mostly computed',
    ({ cachedTokens, promptTokens }) => promptTokens !== null && 2 * (cachedTokens ?? 0) < promptTokens,
  ],
  broken: ['Prefix broken', ({ broke }) => broke !== null],
  failed: ['Failed', ({ status, failedOpen }) => status >= 400 || failedOpen],
} as const satisfies Record<string, readonly [string, (request: RequestSummary) => boolean]>;

/** A list of which only the rows that can be seen are in the document. */
function RequestList() {
  const [filter, setFilter] = useState<keyof typeof FILTERS>('all');
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(480);
  const scroller = useRef<HTMLDivElement>(null);
  const [wanted, setWanted] = useState('');
  const rows = requests.value.filter(FILTERS[filter][1]).filter(({ id }) => id.includes(wanted));
  const newest = rows[0]?.sequence;
  const before = useRef({ newest, filter });

  // New rows come at the top; whoever reads farther down keeps what they see.
  useLayoutEffect(() => {
    const { newest: last, filter: lastFilter } = before.current;
    before.current = { newest, filter };
    const added = rows.findIndex(({ sequence }) => sequence === last);
    const element = scroller.current!;
    if (element.scrollTop > 0 && added > 0 && filter === lastFilter) element.scrollTop += added * ROW_HEIGHT;
  }, [newest, filter]);
  useEffect(() => {
    const element = scroller.current!;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - MARGIN_ROWS);
  const shown = rows.slice(first, first + Math.ceil(height / ROW_HEIGHT) + 2 * MARGIN_ROWS);
  const chosen = rows.findIndex(({ id }) => id === selectedRequest.value);
  const choose = (place: number) => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, place))];
    if (row === undefined) return;
    selectedRequest.value = row.id;
    const at = rows.indexOf(row) * ROW_HEIGHT;
    const element = scroller.current!;
    if (at < element.scrollTop) element.scrollTop = at;
    else if (at + 2 * ROW_HEIGHT > element.scrollTop + element.clientHeight) {
      element.scrollTop = at + 2 * ROW_HEIGHT - element.clientHeight;
    }
  };
  const page = Math.max(1, Math.floor(height / ROW_HEIGHT) - 2);
  const steps: Readonly<Record<string, () => void>> = {
    ArrowDown: () => choose(chosen + 1),
    ArrowUp: () => choose(chosen < 0 ? 0 : chosen - 1),
    PageDown: () => choose(chosen + page),
    PageUp: () => choose(chosen - page),
    Home: () => choose(0),
    End: () => choose(rows.length - 1),
    Escape: () => {
      selectedRequest.value = null;
    },
  };
  return (
    <section class="card list">
      <div class="heading">
        <h2>
          Latest requests <span class="number">{count(rows.length)}</span>
        </h2>
        <input
          type="search"
          class="search"
          placeholder="Request id"
          aria-label="Request id"
          value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value.trim())}
          onKeyDown={(event) => {
            // A request that is no longer listed may still be known.
            if (event.key === 'Enter' && wanted !== '') selectedRequest.value = rows[0]?.id ?? wanted;
          }}
        />
        <Capture />
        <fieldset class="choice">
          <legend class="hidden">Requests shown</legend>
          {(Object.keys(FILTERS) as (keyof typeof FILTERS)[]).map((name) => (
            <label key={name}>
              <input type="radio" name="filter" checked={filter === name} onChange={() => setFilter(name)} />
              <span>{FILTERS[name][0]}</span>
            </label>
          ))}
        </fieldset>
      </div>
      {omitted.value > 0 && <p class="beside">{count(omitted.value)} requests ended too fast to be listed.</p>}
      <div
        ref={scroller}
        class="grid"
        role="grid"
        tabIndex={0}
        aria-label="Latest requests"
        aria-rowcount={rows.length + 1}
        aria-activedescendant={chosen >= first && chosen < first + shown.length ? `row-${chosen}` : undefined}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
        onKeyDown={(event) => {
          const step = steps[event.key];
          if (step === undefined) return;
          event.preventDefault();
          step();
        }}
      >
        <div class="row head" role="row" aria-rowindex={1}>
          {COLUMNS.map(({ name, look }) => (
            <span key={name} role="columnheader" class={look}>
              {name}
            </span>
          ))}
          <span role="columnheader" class="stages-head">
            Stages
          </span>
        </div>
        <div class="rows" role="rowgroup" style={{ height: `${rows.length * ROW_HEIGHT}px` }}>
          {shown.map((row, i) => (
            <Row key={row.sequence} row={row} place={first + i} isChosen={first + i === chosen} />
          ))}
        </div>
      </div>
      {rows.length === 0 && <p class="nothing">None yet</p>}
    </section>
  );
}

/** Prompts whose bodies a click captures. */
const CAPTURED_AT_ONCE = 10;

/** Keeps the bodies of the next prompts in the gateway, to be looked at. */
function Capture() {
  const [trouble, setTrouble] = useState<string | null>(null);
  const { remaining, captured, tooLarge } = tick.value!.capture;
  const isOn = remaining + captured.length + tooLarge > 0;
  const capture = (count: number) =>
    feed.post('/v1/capture', { requests: count }).then(
      () => setTrouble(null),
      (error: Error) => setTrouble(error.message),
    );
  return (
    <span class="capture">
      {trouble !== null && <span class="error">{trouble}</span>}
      {isOn && `${count(captured.length)} of ${count(captured.length + remaining)} bodies captured`}
      {tooLarge > 0 && `, ${count(tooLarge)} too large`}
      <button
        type="button"
        class="quiet"
        title="Bodies of prompts stay in the memory of the gateway. This page and `warmpath explain --request` show them."
        onClick={() => void capture(isOn ? 0 : CAPTURED_AT_ONCE)}
      >
        {isOn ? 'Forget bodies' : `Capture the next ${CAPTURED_AT_ONCE} bodies`}
      </button>
    </span>
  );
}

const NONE = '–';

const COLUMNS: readonly {
  readonly name: string;
  readonly look: string;
  readonly cell: (request: RequestSummary) => string;
}[] = [
  { name: 'Time', look: 'time', cell: ({ arrivedAt }) => clock(wallTime(arrivedAt)) },
  { name: 'Status', look: 'number', cell: ({ status }) => String(status) },
  { name: 'Model', look: 'text wide owner', cell: ({ model }) => model || NONE },
  { name: 'Tenant', look: 'text wide owner', cell: ({ tenant }) => tenant },
  { name: 'Engine', look: 'text wide owner', cell: ({ engine }) => engine ?? NONE },
  { name: 'Documents', look: 'number wide', cell: ({ documents }) => count(documents) },
  { name: 'Prompt', look: 'number wide', cell: ({ promptTokens }) => count(promptTokens) },
  { name: 'Cached', look: 'number', cell: (request) => percent(part(request, request.cachedTokens)) },
  { name: 'Gain', look: 'number wide', cell: (request) => percent(part(request, request.gainTokens)) },
  { name: 'TTFT', look: 'number', cell: ({ ttftMs }) => milliseconds(ttftMs) },
  { name: 'Total', look: 'number', cell: ({ durationMs }) => milliseconds(durationMs) },
  { name: 'Break or error', look: 'text wide', cell: ({ broke, error }) => error ?? causeText(broke) },
];

function part({ promptTokens }: RequestSummary, tokens: number | null): number | null {
  return promptTokens === null || tokens === null || promptTokens === 0 ? null : tokens / promptTokens;
}

function Row({
  row,
  place,
  isChosen,
}: {
  readonly row: RequestSummary;
  readonly place: number;
  readonly isChosen: boolean;
}) {
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are the grid's
    <div
      id={`row-${place}`}
      class={`row${isChosen ? ' chosen' : ''}${row.status >= 400 ? ' failed' : ''}`}
      role="row"
      aria-rowindex={place + 2}
      aria-selected={isChosen}
      tabIndex={-1}
      style={{ top: `${place * ROW_HEIGHT}px` }}
      onClick={() => {
        selectedRequest.value = row.id;
      }}
    >
      {COLUMNS.map(({ name, look, cell }) => (
        <span key={name} role="gridcell" class={look}>
          {cell(row)}
        </span>
      ))}
      <Stages row={row} />
    </div>
  );
}

/** The stages of a request in one line, each by its part of the whole. */
function Stages({ row }: { readonly row: RequestSummary }) {
  return (
    <span class="stages" role="gridcell" aria-label="Stages">
      {phasesOf(row).map(({ phase, ms }) => (
        <i key={phase} style={{ flexGrow: ms, background: `var(--phase-${phase})` }} />
      ))}
    </span>
  );
}
