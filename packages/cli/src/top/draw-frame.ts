import type { EngineStatus, RequestSummary } from '@warmpath/dashboard';
import type { Style } from '../terminal.js';
import type { Figures } from './figures.js';

/** Where a frame is drawn. */
export interface Screen {
  readonly columns: number;
  readonly rows: number;
  readonly style: Style;
}

/** Below this, columns are cut off; above `MOST_COLUMNS`, the room stays empty. */
const LEAST_COLUMNS = 40;
const MOST_COLUMNS = 120;
/** Engines that are shown each; of more, how many there are. */
const MOST_ENGINES = 8;
/** Requests that are shown where the screen has no end, as with `--once`. */
const NO_ROWS_REQUESTS = 10;
const NONE = '-';

/**
 * The lines of one frame, none wider than the screen and no more than it has rows. Text that came from elsewhere
 * (names, addresses, ids) is shown without control characters.
 */
export function drawFrame(url: string, figures: Figures, { columns, rows, style }: Screen): readonly string[] {
  const width = Math.max(LEAST_COLUMNS, Math.min(columns, MOST_COLUMNS));
  const { cachedShare, predictedShare, errors, failedOpen, queued, queueCapacity, inFlight, engines } = figures;
  const clock = new Date(figures.time).toISOString().slice(11, 19);
  const lines: string[] = [];
  const add = (text: string, paint: (text: string) => string = (same) => same) =>
    lines.push(paint(cut(text.trimEnd(), width)));
  add(`Warmpath  ${plain(url)}  ${clock} UTC`, style.bold);
  add('');
  add(
    `Last minute   ${rate(figures.requestsPerSecond)} requests/s   errors ${errors}   without an order ${failedOpen}`,
  );
  add(`Cached        ${share(cachedShare)} of prompt tokens   predicted ${share(predictedShare)}`);
  add(`Now           ${inFlight} in flight   ${queued} of ${queueCapacity} in the queue`);
  add('');
  add(`TTFT ${'p50'.padStart(17)}${'p95'.padStart(10)}${'p99'.padStart(10)}`, style.dim);
  add(`with reuse  ${figures.ttftCached.map((ms) => milliseconds(ms).padStart(10)).join('')}`);
  add(`without     ${figures.ttftComputed.map((ms) => milliseconds(ms).padStart(10)).join('')}`);
  add('');
  add(`${'Engine'.padEnd(28)} ${'state'.padEnd(9)}${'in flight'.padStart(10)}${'queued'.padStart(8)}`, style.dim);
  for (const engine of engines.slice(0, MOST_ENGINES)) {
    add(
      engineLine(engine),
      engine.state === 'ready' ? style.green : engine.state === 'unknown' ? style.dim : style.red,
    );
  }
  if (engines.length > MOST_ENGINES) add(`and ${engines.length - MOST_ENGINES} more`, style.dim);
  add('');
  add(
    `${'Request'.padEnd(24)} ${'status'.padStart(6)}${'total'.padStart(10)}${'TTFT'.padStart(10)}${'cached'.padStart(9)}  `,
    style.dim,
  );
  const shown = Number.isFinite(rows) ? Math.max(0, rows - lines.length) : NO_ROWS_REQUESTS;
  for (const request of figures.requests.slice(0, shown)) {
    add(requestLine(request), request.error === null ? undefined : style.red);
  }
  return lines.slice(0, rows);
}

function engineLine({ name, url, state, reason, inFlight, queued }: EngineStatus): string {
  const called = name === '' ? url : name;
  const figures = `${String(inFlight).padStart(10)}${String(queued).padStart(8)}`;
  return `${cut(plain(called), 28).padEnd(28)} ${state.padEnd(9)}${figures}  ${plain(reason ?? '')}`;
}

function requestLine({ id, status, durationMs, ttftMs, cachedTokens, promptTokens, error }: RequestSummary): string {
  const cached = cachedTokens === null || !promptTokens ? NONE : share(cachedTokens / promptTokens);
  const times = `${milliseconds(durationMs).padStart(10)}${milliseconds(ttftMs ?? undefined).padStart(10)}`;
  return `${cut(plain(id), 24).padEnd(24)} ${String(status).padStart(6)}${times}${cached.padStart(9)}  ${error ?? ''}`;
}

/** Without control characters and marks that turn the direction of text: they could draw over what stands beside. */
function plain(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '');
}

function cut(text: string, width: number): string {
  const signs = [...text];
  return signs.length <= width ? text : `${signs.slice(0, width - 1).join('')}…`;
}

function share(of: number | undefined): string {
  return of === undefined ? NONE : `${(100 * of).toFixed(1)} %`;
}

function rate(perSecond: number): string {
  return perSecond < 10 ? perSecond.toFixed(2) : perSecond.toFixed(1);
}

function milliseconds(ms: number | undefined): string {
  if (ms === undefined) return NONE;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(2)} s`;
}
