// The gateway beside what a user would pick instead, in one run and in turns, so that a noisy neighbour meets all
// alike. Real sockets, each system in a process of its own. `node bench/gateway.js [--bars] [--quick] [--cells LIST]
// [--systems LIST] [--rounds N] [--json FILE]`, after a build. Exits with 1 where a bar is missed, but for `--quick`.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import {
  BODIES,
  bodiesOf,
  FRAME_MS,
  FULL,
  GROUPS,
  kindsOf,
  QUICK,
  secondsOf,
  selected,
  streamLoad,
  warmUpMs,
} from './cells.js';
import { ask, load, loadStreams, wrkVersion } from './load.js';
import { start, stopAll, usageOf } from './processes.js';
import { BAR_GROUPS, BAR_SYSTEMS, barsOf, printed, tablesOf } from './report.js';
import { SYSTEMS } from './systems.js';

const { values: given } = parseArgs({
  options: {
    bars: { type: 'boolean', default: false },
    quick: { type: 'boolean', default: false },
    cells: { type: 'string' },
    systems: { type: 'string' },
    rounds: { type: 'string' },
    json: { type: 'string' },
  },
});
const SETTINGS = { ...(given.quick ? QUICK : FULL) };
if (given.rounds !== undefined) SETTINGS.rounds = Number(given.rounds);
if (!Number.isInteger(SETTINGS.rounds) || SETTINGS.rounds < 1) throw new Error('--rounds: a whole number from 1 on');
const MACHINE = `${cpus().length} x ${cpus()[0].model}`;
const WARM_UP_CONNECTIONS = 32;
const PROGRESS_MS = 10_000;
const NOTHING = { runs: [], groups: {} };
/** Response headers by which the gateway says that it saw the documents. */
const ARRANGED_SIGNS = { documents: 'policy=', tags: 'recognised=' };

/** The groups of this run, each with the systems that are wanted. */
function chosenGroups() {
  let groups = given.cells === undefined ? GROUPS : selected(given.cells.split(','));
  if (given.quick && given.cells === undefined) groups = groups.filter(isForQuick);
  if (given.bars) groups = groups.filter(({ name }) => BAR_GROUPS.has(name));
  const systems = given.systems?.split(',') ?? (given.bars ? BAR_SYSTEMS : Object.keys(SYSTEMS));
  const unknown = systems.find((name) => !(name in SYSTEMS));
  if (unknown !== undefined) throw new Error(`--systems: ${unknown} is none of ${Object.keys(SYSTEMS).join(', ')}`);
  const chosen = withSystems(groups, systems);
  if (chosen.length === 0) throw new Error('these systems are in none of these groups of cells');
  return chosen;
}

function withSystems(groups, names) {
  return groups
    .map((group) => ({ ...group, systems: group.systems.filter((name) => names.includes(name)) }))
    .filter((group) => group.systems.length > 0);
}

/** What a smoke run does without, for it takes most of the time and shows least. */
function isForQuick({ connections, body, isStream }) {
  return connections !== 128 && !(isStream && body === 'prompt');
}

/** Starts the systems that the groups name; one that is not there is left out, with a line that says so. */
async function startSystems(names, engine) {
  const started = {};
  for (const name of names) {
    try {
      started[name] = { name, headers: {}, ...(await SYSTEMS[name].start(engine)) };
    } catch (error) {
      console.error(`${name} is not measured: ${error.message}`);
    }
  }
  return started;
}

function headersOf(system, { tenant } = {}) {
  const authorization = tenant === undefined ? {} : { authorization: `Bearer ${tenant}` };
  return { 'content-type': 'application/json', ...system.headers, ...authorization };
}

/** All answer alike, and the gateway does what it is there for. */
async function check(groups, systems, bodies) {
  const answer = (text) => JSON.parse(text).choices[0].message.content;
  for (const group of groups.filter(({ isStream, body }) => !isStream && !BODIES[body].isApart)) {
    const [body] = [bodies(group).at(0)].flat();
    const texts = new Set();
    for (const name of group.systems) {
      const { text, headers } = await ask(systems[name], headersOf(systems[name]), body);
      texts.add(answer(text));
      const sign = name === 'warmpath' ? ARRANGED_SIGNS[group.body] : undefined;
      if (sign !== undefined && !String(headers['x-warmpath']).includes(sign))
        throw new Error(`${group.name}: the answer does not say ${sign}`);
    }
    if (texts.size > 1) throw new Error(`${group.name}: not all answer the same: ${[...texts].join(' | ')}`);
  }
}

/** Nobody is always first. */
function rotated(list, by) {
  const from = by % list.length;
  return [...list.slice(from), ...list.slice(0, from)];
}

class Run {
  #groups;
  #systems;
  #second;
  #bodies;
  #lanes = new Map();

  constructor(groups, systems, second, bodies) {
    this.#groups = groups;
    this.#systems = systems;
    this.#second = second;
    this.#bodies = bodies;
  }

  /** What one system is sent of a group; the same one each time, so that its bodies go on where they were. */
  #lane(group, system) {
    const key = `${group.name} ${system}`;
    const kind = BODIES[group.body];
    const server = kind.isApart ? this.#second : this.#systems[system];
    const lane = this.#lanes.get(key) ?? {
      server,
      headers: headersOf(server, kind),
      bodies: this.#bodies(group),
      next: 0,
    };
    this.#lanes.set(key, lane);
    return lane;
  }

  #measure(group, system) {
    const lane = this.#lane(group, system);
    if (group.isStream) return loadStreams(lane, streamLoad(group, SETTINGS));
    return load(lane, { connections: group.connections, ms: SETTINGS.ms });
  }

  /**
   * Long enough for V8 to optimise the longest of the ways: before, its compiler is most of what is measured. All
   * systems at once, as nothing is measured; nginx and the engine need none.
   */
  async warmUp() {
    for (const group of kindsOf(this.#groups)) {
      const connections = Math.min(group.connections, WARM_UP_CONNECTIONS);
      const warmUp = (lane) =>
        group.isStream
          ? loadStreams(lane, { connections: WARM_UP_CONNECTIONS, each: 1, spreadMs: 0, frames: 0 })
          : load(lane, { connections, ms: warmUpMs(group, SETTINGS) });
      const systems = group.systems.filter((name) => name !== 'nginx' && name !== 'direct');
      await Promise.all(systems.map((system) => warmUp(this.#lane(group, system))));
    }
  }

  /** Values of every round by group, system and field. */
  async rounds(report) {
    const figures = {};
    for (let round = 0; round < SETTINGS.rounds; round++) {
      for (const group of rotated(this.#groups, round)) {
        for (const system of rotated(group.systems, round)) {
          const sample = await this.#measure(group, system);
          figures[group.name] ??= {};
          figures[group.name][system] ??= {};
          for (const [field, value] of Object.entries(sample)) {
            figures[group.name][system][field] ??= [];
            figures[group.name][system][field].push(Number(value.toPrecision(4)));
          }
        }
        report(round, group, figures);
      }
    }
    return figures;
  }
}

/** Says now and then how long it still takes. */
function progress(groups) {
  const started = performance.now();
  const total = secondsOf(groups, SETTINGS).rounds;
  let [done, told] = [0, started];
  return (round, group) => {
    done += secondsOf([group], { ...SETTINGS, rounds: 1 }).rounds;
    const now = performance.now();
    if (now - told < PROGRESS_MS) return;
    told = now;
    const leftS = (((now - started) / 1_000) * (total - done)) / done;
    console.error(`round ${round + 1} of ${SETTINGS.rounds}, ${group.name}: ${duration(leftS)} left`);
  };
}

function duration(seconds) {
  return seconds < 100 ? `${Math.max(0, seconds).toFixed(0)} s` : `${(seconds / 60).toFixed(0)} min`;
}

/** Measures the groups; `save` gets what there is after every group. */
async function measure(wanted, save) {
  const engine = await start('upstream-process.js', String(FRAME_MS));
  const names = Object.keys(SYSTEMS).filter((name) => wanted.some(({ systems }) => systems.includes(name)));
  const systems = await startSystems(names, engine);
  const groups = withSystems(wanted, Object.keys(systems));
  const idle = {};
  for (const [name, system] of Object.entries(systems)) {
    idle[name] = { residentMiB: [Number(((await usageOf(system)).residentBytes / 2 ** 20).toPrecision(4))] };
  }
  // Apart, so that it adds nothing to the memory of the one that is measured.
  const isApart = groups.some(({ body }) => BODIES[body].isApart);
  const second = isApart ? { name: 'warmpath', headers: {}, ...(await SYSTEMS.warmpath.start(engine)) } : undefined;
  const bodies = bodiesOf(SETTINGS);
  await check(groups, systems, bodies);
  const [loadBefore] = loadavg();
  const run = new Run(groups, systems, second, bodies);
  await run.warmUp();
  const wrk = wrkVersion();
  const about = {
    date: new Date().toISOString(),
    machine: MACHINE,
    node: process.version,
    client: wrk === undefined ? 'undici' : `wrk ${wrk}`,
    versions: Object.fromEntries(Object.values(systems).map(({ name, version }) => [name, version])),
    isQuick: given.quick,
    rounds: SETTINGS.rounds,
    frames: SETTINGS.frames,
    loadBefore,
  };
  const told = progress(groups);
  const figures = await run.rounds((round, group, figures) => {
    told(round, group);
    save({ ...about, groups: { idle, ...figures } });
  });
  return { ...about, groups: { idle, ...figures } };
}

/** The figures that a file has already. Throws: they are another machine's. */
function readFigures(file) {
  if (file === undefined || !existsSync(file)) return NOTHING;
  const figures = JSON.parse(readFileSync(file, 'utf8'));
  const other = figures.runs.find(({ machine, node }) => machine !== MACHINE || node !== process.version);
  if (other === undefined) return figures;
  throw new Error(`${file} has figures of ${other.machine}, Node ${other.node}. Give --json another file.`);
}

/** The figures of a run, in the place of those before it that it measured again. */
function merged(before, { groups, ...run }) {
  const measured = Object.entries(groups).map(([name, systems]) => [name, { run: run.date, systems }]);
  const all = { ...before.groups, ...Object.fromEntries(measured) };
  const dates = new Set(Object.values(all).map(({ run: date }) => date));
  return { runs: [...before.runs, run].filter(({ date }) => dates.has(date)), groups: all };
}

try {
  const groups = chosenGroups();
  console.error(
    `${groups.length} groups of cells, ${SETTINGS.rounds} rounds: ${duration(secondsOf(groups, SETTINGS).all)}`,
  );
  const before = readFigures(given.json);
  const result = await measure(groups, (figures) => {
    if (given.json !== undefined) writeFileSync(given.json, `${JSON.stringify(merged(before, figures), null, 1)}\n`);
  });
  const own = merged(NOTHING, result);
  const { node, machine, client, loadBefore } = result;
  console.log(`Node ${node}, ${machine}, which the client (${client}) and the engine share`);
  console.log(`load of the machine when it began: ${loadBefore.toFixed(1)}`);
  if (given.quick) console.log('A smoke run: it shows that everything works, its figures say little.');
  if (!given.bars) for (const table of tablesOf(own)) console.log(printed(table));
  const bars = barsOf(own);
  console.log(printed(bars));
  if (bars.missed > 0 && !given.quick) process.exitCode = 1;
} finally {
  stopAll();
}
