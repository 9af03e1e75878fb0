// What the figures of the benchmark say: a table for each kind of body, and the bars, each with a verdict. A table is
// `{title, head, rows}`, its cells are text; `printed` writes one for a terminal, the documentation its own way.
import { BODIES, COMPARED, GROUPS } from './cells.js';
import { quantile, STALL_MS } from './load.js';
import { SYSTEMS } from './systems.js';

/**
 * What Warmpath must keep. `field` of a group's cell: its median over the rounds, or with `sums` the sum. `times`: the
 * ratio to another system's in the same round; `above`: how much more it is than another's; `without`: where that
 * system has some, too, the machine is too busy to judge.
 */
const BARS = [
  { name: 'CPU a request, small body', group: 'small/32', field: 'cpuUs', times: 'fastify', atMost: 1.35 },
  { name: 'CPU a request, 30 KB without fields', group: 'prompt/32', field: 'cpuUs', times: 'fastify', atMost: 1.3 },
  { name: 'CPU a request, 20 documents', group: 'documents/32', field: 'cpuUs', times: 'fastify', atMost: 2.2 },
  { name: 'CPU a request, in tags', group: 'tags/32', field: 'cpuUs', times: 'fastify', atMost: 1.6 },
  { name: 'CPU a request, agent, 30 KB', group: 'agent-30/4', field: 'cpuUs', atMost: 500 },
  { name: 'CPU a request, agent, 400 KB', group: 'agent-400/4', field: 'cpuUs', atMost: 4_000 },
  ...['small', 'prompt', 'documents', 'tags'].map((body) => {
    const name = `p99, one connection, ${BODIES[body].name}`;
    return { name, group: `${body}/1`, field: 'p99Ms', times: 'fastify', atMost: 2 };
  }),
  { name: 'requests a second, small body', group: 'small/32', field: 'perSecond', times: 'portkey', atLeast: 8 },
  {
    name: 'requests a second, 20 documents',
    group: 'documents/32',
    field: 'perSecond',
    times: 'portkey',
    atLeast: 3.5,
  },
  { name: 'requests a second, in tags', group: 'tags/32', field: 'perSecond', times: 'portkey', atLeast: 3.5 },
  { name: 'added TTFT p50', group: 'documents/stream/1', field: 'ttftP50Ms', above: 'direct', atMost: 2 },
  { name: 'added gap between frames, p99', group: 'documents/stream/1', field: 'gapP99Ms', above: 'direct', atMost: 1 },
  ...['stalled', 'incomplete'].map((field) => {
    const name = { stalled: 'stalled frames of 512 streams', incomplete: 'incomplete of 512 streams' }[field];
    return { name, group: 'documents/stream/512', field, sums: true, without: 'direct', atMost: 0 };
  }),
  { name: 'CPU a request, small body', group: 'small/32', field: 'cpuUs', atMost: 120 },
  { name: 'CPU a request, 20 documents', group: 'documents/32', field: 'cpuUs', atMost: 400 },
  { name: 'added p50, small body', group: 'small/1', field: 'p50Ms', above: 'direct', atMost: 0.3 },
  { name: 'added p99, small body', group: 'small/1', field: 'p99Ms', above: 'direct', atMost: 1 },
  { name: 'added p50, 20 documents', group: 'documents/1', field: 'p50Ms', above: 'direct', atMost: 0.8 },
  { name: 'resident memory, idle', group: 'idle', field: 'residentMiB', atMost: 90 },
  { name: 'resident memory, 512 streams', group: 'documents/stream/512', field: 'residentMiB', atMost: 200 },
];
const UNITS = { cpuUs: 'µs', perSecond: '/s', residentMiB: 'MiB', stalled: '', incomplete: '' };

export const BAR_GROUPS = new Set(BARS.map(({ group }) => group));
export const BAR_SYSTEMS = ['direct', 'fastify', 'portkey', 'warmpath'];

/** The tables of the figures that are there: of each kind of body, answered at once and by streams; then the rest. */
export function tablesOf({ groups }) {
  const tables = COMPARED.flatMap((body) => [
    tableOf(
      `${BODIES[body].title}, answered at once`,
      groups,
      (group) => group.body === body && !group.isStream,
      PLAIN,
    ),
    tableOf(`${BODIES[body].title}, streamed`, groups, (group) => group.body === body && group.isStream, STREAMED),
  ]);
  tables.push(tableOf('Other bodies', groups, ({ body }) => !COMPARED.includes(body), [OF_BODY, ...PLAIN]));
  return tables.filter(({ rows }) => rows.length > 0);
}

/** A column: what stands above it, and the text of a cell from `{group, system, own, of}`. */
const OF_BODY = { head: 'body', text: ({ group }) => BODIES[group.body].title };
const CONNECTIONS = { head: 'connections', text: ({ group }) => String(group.connections) };
const SYSTEM = { head: 'system', text: ({ system }) => SYSTEMS[system].title };
/** Of the engine itself nothing is said: it is in all the others' figures, too. */
const ofServer = (head, field, unit) => ({
  head,
  text: ({ system, own }) => (system === 'direct' ? '' : shown(median(own[field]), unit)),
});
const CPU = (head) => ofServer(head, 'cpuUs', 'µs');
const RSS = ofServer('RSS MiB', 'residentMiB', 'MiB');
const milliseconds = (head, field) => ({ head, text: ({ own }) => shown(median(own[field]), 'ms') });
const PLAIN = [
  CONNECTIONS,
  SYSTEM,
  { head: 'requests/s', text: ({ own }) => shown(median(own.perSecond), '/s') },
  { head: "Warmpath's, times it", text: ({ system, own, of }) => ratioText(of('warmpath'), own, system) },
  milliseconds('p50 ms', 'p50Ms'),
  milliseconds('p99 ms', 'p99Ms'),
  CPU('CPU µs a request'),
  RSS,
  { head: 'errors', text: ({ own }) => String(sum(own.errors)) },
];
const STREAMED = [
  { ...CONNECTIONS, head: 'streams' },
  SYSTEM,
  milliseconds('TTFT p50 ms', 'ttftP50Ms'),
  milliseconds('p99 ms', 'ttftP99Ms'),
  { head: 'added TTFT p50 ms', text: ({ system, own, of }) => addedText(own, of('direct'), system) },
  milliseconds('gap p99 ms', 'gapP99Ms'),
  { head: 'stalled frames', text: ({ own }) => String(sum(own.stalled)) },
  { head: 'incomplete', text: ({ own }) => `${sum(own.incomplete)} of ${sum(own.requests)}` },
  CPU('CPU µs a stream'),
  RSS,
];

function ratioText(ours, theirs, system) {
  if (system === 'warmpath' || ours === undefined) return '';
  const ratio = median(ours.perSecond.map((value, round) => value / theirs.perSecond[round]));
  return Number.isFinite(ratio) ? ratio.toFixed(2) : '';
}

function addedText(own, direct, system) {
  if (system === 'direct' || direct === undefined) return '';
  return shown(median(own.ttftP50Ms.map((value, round) => value - direct.ttftP50Ms[round])), 'ms');
}

function tableOf(title, groups, isWanted, columns) {
  const rows = GROUPS.filter((group) => group.name in groups && isWanted(group)).flatMap((group) => {
    const { systems } = groups[group.name];
    const of = (system) => systems[system];
    return group.systems
      .filter((system) => system in systems)
      .map((system) => columns.map(({ text }) => text({ group, system, own: systems[system], of })));
  });
  return { title, head: columns.map(({ head }) => head), rows };
}

/** The table of the bars that the figures can speak of, and how many are missed. */
export function barsOf({ groups }) {
  const judged = BARS.map((bar) => judge(bar, groups));
  // Of all that was measured, not only where another bar is.
  const errors = Object.values(groups).map(({ systems }) => sum(systems.warmpath?.errors ?? []));
  judged.push({
    row: ['requests that failed', String(sum(errors)), '', '0', verdict(sum(errors))],
    excess: sum(errors),
  });
  const rows = judged.map(({ row }) => row);
  const head = ['bar', 'Warmpath (of all rounds)', 'the other', 'bar at', 'verdict'];
  return { title: 'Bars', head, rows, missed: judged.filter(({ excess }) => excess > 0).length };
}

/** A bar's row, and by how much it is missed: above 0 if it is. */
function judge({ name, group, field, times, above, without, sums, atMost, atLeast }, groups) {
  const limit = atMost ?? atLeast;
  const unit = times === undefined ? (UNITS[field] ?? 'ms') : 'x';
  const atText = `${atMost === undefined ? '≥' : '≤'} ${limit} ${unit}`.trimEnd();
  const at = times === undefined ? atText : atText.replace(' x', ` times ${SYSTEMS[times].title}`);
  const own = groups[group]?.systems.warmpath?.[field];
  const otherName = times ?? above ?? without;
  const other = groups[group]?.systems[otherName]?.[field];
  if (own === undefined || (otherName !== undefined && other === undefined)) {
    return { row: [name, '', '', at, 'not measured'], excess: 0 };
  }
  const compared = own.map((value, round) => {
    if (times !== undefined) return value / other[round];
    return above === undefined ? value : value - other[round];
  });
  const value = sums === true ? sum(compared) : median(compared);
  const excess = atMost === undefined ? atLeast - value : value - atMost;
  const besides = without === undefined ? 0 : sum(other);
  const ownUnit = UNITS[field] ?? 'ms';
  const values = sums === true ? String(value) : spread(compared, unit);
  const theirs = other === undefined ? '' : `${shown(median(other), ownUnit)} ${ownUnit}`;
  const text =
    times === undefined ? `${values} ${unit}`.trimEnd() : `${values} (${shown(median(own), ownUnit)} ${ownUnit})`;
  if (besides > 0) return { row: [name, text, String(besides), at, `not judged: ${without} has some, too`], excess: 0 };
  return { row: [name, text, theirs, at, verdict(excess)], excess };
}

/** Of a bar that is missed by so much. */
export function verdict(excess) {
  return excess > 0 ? 'MISSED' : 'met';
}

function spread(values, unit) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  if (values.length === 1) return shown(least, unit);
  return `${shown(median(values), unit)} (${shown(least, unit)} to ${shown(most, unit)})`;
}

function median(values) {
  return quantile(values, 0.5);
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

function shown(value, unit) {
  if (unit === 'x') return value.toFixed(2);
  if (unit === 'ms') return value.toFixed(Math.abs(value) < 10 ? 2 : 0);
  return value.toFixed(0);
}

/** A table for a terminal: columns as wide as what stands in them. */
export function printed({ title, head, rows }) {
  const widths = head.map((text, column) => Math.max(...[head, ...rows].map((row) => row[column].length), text.length));
  const line = (row) =>
    row
      .map((text, column) => text.padEnd(widths[column]))
      .join('  ')
      .trimEnd();
  return [`\n${title}`, ...[head, ...rows].map((row) => `  ${line(row)}`)].join('\n');
}

/** What a stall is, for who reads the tables. */
export const STALL = `${STALL_MS} ms`;
