// What the benchmark's figures say: rows of a table, each with its bar where it has one.

/**
 * The gateway as a tenant meets it that never brought documents, with prompts that never came before, and with such
 * documents.
 */
export const WITHOUT_DOCUMENTS = 'gateway, no documents';
export const NEVER_ASKED = 'gateway, never asked';
export const NEVER_SEEN = 'gateway, never seen';

/** The value at a share of the way through the values, the least first. */
export function quantile(values, q) {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}

/**
 * Rows with `{name, unit, value, proxy, portkey, ratio, bar, verdict}`, and titles between them. Values and ratios are
 * `{median, min, max}` over the rounds; a ratio is taken within each round, where both met the same noise.
 */
export function rowsOf(result) {
  return rows(result).map((row) => (row.title === undefined ? measured(row) : row));
}

/**
 * `values` gives a server's values; `subject` is the server measured, the gateway if left out; `against` the one that
 * its ratio is to. A bar is a ratio where it says `times`, else a value.
 */
function rows({ samples, streams, memory, agents, connections, agentConnections }) {
  const of = (body, at, field) => (server) =>
    samples
      .filter((one) => one.body === body && one.server === server && one.connections === at)
      .map((one) => one[field]);
  const cpu = (body) => of(body, connections, 'cpuUs');
  const added = (body, field) => (server) => {
    const direct = of(body, 1, field)('direct');
    return of(body, 1, field)(server).map((value, round) => value - direct[round]);
  };
  const addedToStream = (field, q) => (server) => {
    if (streams[server] === undefined) return [];
    return [quantile(streams[server][field], q) - quantile(streams.direct[field], q)];
  };
  const inMemory = (when) => (server) => memory[when][server] ?? [];
  const bodies = [
    { body: 'small', name: 'small body', cpuBar: 1.35, rateBar: 8 },
    { body: 'prompt', name: 'one prompt again and again', cpuBar: 1.3 },
    { body: 'documents', name: '20 of 60 documents', cpuBar: 2.2, rateBar: 3.5 },
    { body: 'tags', name: '20 of 60 documents in tags', cpuBar: 1.6, rateBar: 3.5 },
  ];
  const latency = (at, field, bar) =>
    bodies.map(({ body, name }) => ({
      name: `${field.slice(0, 3)}, ${name}`,
      unit: 'ms',
      values: of(body, at, field),
      bar,
    }));
  return [
    { title: `CPU a request, ${connections} connections` },
    ...bodies.map(({ body, name, cpuBar }) => {
      return { name, unit: 'µs', values: cpu(body), bar: { times: 'proxy', atMost: cpuBar } };
    }),
    { name: 'small body, tenant without documents', unit: 'µs', values: cpu('small'), subject: WITHOUT_DOCUMENTS },
    { name: 'one prompt, tenant without documents', unit: 'µs', values: cpu('prompt'), subject: WITHOUT_DOCUMENTS },
    {
      name: '20 of 60 documents, another question each time',
      unit: 'µs',
      values: cpu('documents'),
      subject: NEVER_ASKED,
    },
    { name: '  the same in tags', unit: 'µs', values: cpu('tags'), subject: NEVER_ASKED },
    { name: '20 documents, each for the first time', unit: 'µs', values: cpu('documents'), subject: NEVER_SEEN },
    ...agents.map(({ name, body, budgetUs }) => {
      return { name, unit: 'µs', values: of(body, agentConnections, 'cpuUs'), bar: { atMost: budgetUs } };
    }),
    { title: `requests a second, ${connections} connections` },
    ...bodies.map(({ body, name, rateBar }) => {
      const bar = rateBar && { times: 'portkey', atLeast: rateBar };
      return { name, unit: '/s', values: of(body, connections, 'perSecond'), against: 'portkey', bar };
    }),
    { title: 'latency, one connection' },
    ...latency(1, 'p99Ms', { times: 'proxy', atMost: 2 }),
    ...latency(1, 'p50Ms'),
    { title: `latency, ${connections} connections` },
    ...latency(connections, 'p99Ms'),
    ...latency(connections, 'p50Ms'),
    { title: 'absolute budgets; what is added is more than the engine asked directly' },
    { name: 'small body, CPU', unit: 'µs', values: cpu('small'), bar: { atMost: 120 } },
    { name: '20 documents, CPU', unit: 'µs', values: cpu('documents'), bar: { atMost: 400 } },
    {
      name: 'small body, added p50, one connection',
      unit: 'ms',
      values: added('small', 'p50Ms'),
      bar: { atMost: 0.3 },
    },
    { name: 'small body, added p99, one connection', unit: 'ms', values: added('small', 'p99Ms'), bar: { atMost: 1 } },
    {
      name: '20 documents, added p50, one connection',
      unit: 'ms',
      values: added('documents', 'p50Ms'),
      bar: { atMost: 0.8 },
    },
    { name: 'stream, added TTFT p50', unit: 'ms', values: addedToStream('ttft', 0.5), bar: { atMost: 2 } },
    {
      name: 'stream, added gap between chunks p99',
      unit: 'ms',
      values: addedToStream('gaps', 0.99),
      bar: { atMost: 1 },
    },
    {
      name: `complete of ${memory.streams} streams at once`,
      unit: '',
      values: inMemory('complete'),
      bar: { atLeast: memory.streams },
    },
    { name: 'resident memory, idle', unit: 'MiB', values: inMemory('idle'), bar: { atMost: 90 } },
    { name: 'resident memory, under load', unit: 'MiB', values: inMemory('loaded'), bar: { atMost: 200 } },
  ];
}

function measured({ name, unit, values, subject = 'gateway', against = 'proxy', bar }) {
  const [value, proxy, portkey] = [values(subject), values('proxy'), values('portkey')];
  const other = against === 'proxy' ? proxy : portkey;
  const isAbsolute = bar !== undefined && bar.times === undefined;
  const hasRatio = !isAbsolute && other.length === value.length;
  const ratio = hasRatio ? range(value.map((one, round) => one / other[round])) : undefined;
  const row = { name, unit, value: range(value), proxy: range(proxy), portkey: range(portkey), ratio, against, bar };
  return { ...row, verdict: bar && verdict(row) };
}

function range(values) {
  if (values.length === 0) return undefined;
  return { median: quantile(values, 0.5), min: Math.min(...values), max: Math.max(...values) };
}

function verdict({ unit, value, ratio, bar }) {
  const compared = bar.times === undefined ? value : ratio;
  if (compared === undefined) return 'not measured';
  const excess = bar.atMost === undefined ? bar.atLeast - compared.median : compared.median - bar.atMost;
  if (excess <= 0) return 'met';
  return `missed by ${bar.times === undefined ? `${shown(excess, unit)} ${unit}`.trimEnd() : `${excess.toFixed(2)}x`}`;
}

/** `measured | value | proxy | Portkey | ratio | bar`, with the verdict. */
export function print(rows) {
  console.log(line(['measured', 'value (of all rounds)', 'proxy', 'Portkey', 'ratio (of all rounds)', 'bar', '']));
  for (const row of rows) {
    if (row.title !== undefined) {
      console.log(`\n${row.title}`);
      continue;
    }
    const { name, unit, value, proxy, portkey, ratio, against, bar } = row;
    const cells = [`  ${name}`, spread(value, (one) => shown(one, unit)), middle(proxy, unit), middle(portkey, unit)];
    cells.push(
      ratio === undefined
        ? ''
        : `${spread(ratio, (one) => `${one.toFixed(2)}x`)}${against === 'portkey' ? ' P' : '  '}`,
    );
    console.log(line([...cells, bar === undefined ? '' : barText(bar, unit), row.verdict ?? '']));
  }
  console.log('\nA ratio is to the proxy, and to Portkey where P stands beside it.');
}

function line([name, value, proxy, portkey, ratio, bar, verdict]) {
  const cells = [name.padEnd(50), value.padStart(26), proxy.padStart(11), portkey.padStart(11), ratio.padStart(26)];
  return `${cells.join('')}  ${bar.padEnd(16)}${verdict}`.trimEnd();
}

function barText({ times, atMost, atLeast }, unit) {
  const limit = atMost ?? atLeast;
  const sign = atMost === undefined ? '≥' : '≤';
  if (times === undefined) return `${sign} ${limit} ${unit}`.trimEnd();
  return `${sign} ${limit}x ${times === 'proxy' ? 'proxy' : 'Portkey'}`;
}

function middle(values, unit) {
  return values === undefined ? '' : shown(values.median, unit);
}

function spread(values, show) {
  if (values === undefined) return '';
  const { median, min, max } = values;
  return min === max ? show(median) : `${show(median)} (${show(min)}–${show(max)})`;
}

function shown(value, unit) {
  if (unit === 'ms') return value.toFixed(value < 10 ? 2 : 1);
  return value.toFixed(0);
}
