import type { Action } from './leak/actions.js';
import type { Violation } from './leak/check.js';
import { Draw } from './leak/draw.js';
import { Generator } from './leak/generator.js';
import { type Counts, drawWorld, type Surroundings, World, type WorldSettings } from './leak/world.js';

/** Which requests to run. */
interface LeakOptions extends Surroundings {
  readonly seed: number;
  readonly requests: number;
  /** Go on after a violation, for one of every kind. */
  readonly findsAll?: boolean;
  readonly onProgress?: (counts: Counts) => void;
}

/** A violation, and the least that has to happen for it. */
interface Reproduction {
  readonly seed: number;
  /** Which request of the run, from 0. */
  readonly request: number;
  readonly violation: Violation;
  readonly settings: WorldSettings;
  /** A part of what happened in that world that is enough to see the violation at its end. */
  readonly actions: readonly Action[];
}

/** The violations of one kind. */
interface Finding {
  times: number;
  /** Reduced once the run is over. */
  first: Reproduction;
}

interface LeakReport {
  readonly counts: Counts;
  /** By the kind of violation. */
  readonly findings: ReadonlyMap<string, Finding>;
  /** Whether gateways that share a store know of each other's turns. */
  readonly sharesTurns: boolean;
}

/** Requests in one world. */
const WORLD_REQUESTS = 150;
/** How often a part of the actions is tried before the reproduction is as small as it gets. */
const REDUCTIONS = 200;
/**
 * Of the continuations that only a shared store can know, those that may come before the store has heard of the turn.
 */
const MAX_FORGOTTEN = 0.2;
/** Below as many, one that came too early proves nothing. */
const FEW_CROSSINGS = 20;

/**
 * Runs random conversations of many clients through real gateways and looks at every byte that the engine gets: no
 * document may stand in a prompt whose caller did not bring it, in this request or in earlier turns of the very
 * conversation, and none of these may be missing where the answer does not say that the conversation was forgotten.
 */
export async function runLeak(options: LeakOptions): Promise<LeakReport> {
  const counts = noCounts();
  const findings = new Map<string, Finding>();
  for (let index = 0; counts.requests < options.requests && !isOver(options, findings); index++) {
    await runWorld(options, index, counts, findings);
    options.onProgress?.(counts);
  }
  for (const finding of findings.values()) finding.first = await reduced(options, finding.first);
  const { crossings, crossingsForgotten } = counts;
  return { counts, findings, sharesTurns: crossingsForgotten <= MAX_FORGOTTEN * Math.max(crossings, FEW_CROSSINGS) };
}

export function isClean({ findings, sharesTurns }: LeakReport): boolean {
  return findings.size === 0 && sharesTurns;
}

/** What a person needs to see the violations again. */
export function describeReport({ findings, counts, sharesTurns }: LeakReport): string {
  const all = [...findings].map(
    ([
      kind,
      {
        times,
        first: { seed, request, violation, settings, actions },
      },
    ]) =>
      [
        `${times} × ${kind}, first at seed ${seed}, request ${request}: ${violation.detail}`,
        `  gateways: ${JSON.stringify(settings)}`,
        ...actions.map((action) => `  ${JSON.stringify(action)}`),
      ].join('\n'),
  );
  const shared = sharesTurns ? [] : ['Gateways that share a store do not know of each other’s turns.'];
  return [JSON.stringify(counts), ...all, ...shared].join('\n');
}

function isOver({ findsAll = false }: LeakOptions, findings: ReadonlyMap<string, Finding>): boolean {
  return findings.size > 0 && !findsAll;
}

async function runWorld(
  options: LeakOptions,
  index: number,
  counts: Counts,
  findings: Map<string, Finding>,
): Promise<void> {
  const { seed } = options;
  const draw = new Draw(Math.imul(seed, 1_000_003) + index);
  const settings = drawWorld(draw, options);
  const generator = new Generator(draw, settings.gateways);
  const world = await World.open(settings, options);
  const actions: Action[] = [];
  try {
    const end = Math.min(options.requests, counts.requests + WORLD_REQUESTS);
    while (counts.requests < end && !isOver(options, findings)) {
      const action = generator.next();
      actions.push(action);
      const { violations, isAnswered } = await world.perform(action, counts);
      if (isAnswered && action.kind === 'ask') generator.answered(action, world.said);
      for (const violation of violations) {
        const known = findings.get(violation.kind);
        if (known !== undefined) known.times++;
        else {
          const first = { seed, request: counts.requests - 1, violation, settings, actions: [...actions] };
          findings.set(violation.kind, { times: 1, first });
        }
      }
    }
  } finally {
    await world.close();
  }
}

/**
 * Leaves out actions, halves first and single ones last, as long as the last one is still answered wrongly in the same
 * way.
 */
async function reduced(around: Surroundings, found: Reproduction): Promise<Reproduction> {
  let { actions } = found;
  let tries = 0;
  for (
    let size = Math.ceil(actions.length / 2);
    size >= 1 && tries < REDUCTIONS;
    size = size === 1 ? 0 : Math.ceil(size / 2)
  ) {
    for (let end = actions.length - 1; end > 0 && tries < REDUCTIONS; end -= size) {
      const fewer = [...actions.slice(0, Math.max(0, end - size)), ...actions.slice(end)];
      tries++;
      if (await shows(around, found, fewer)) actions = fewer;
    }
  }
  return { ...found, actions };
}

async function shows(
  around: Surroundings,
  { settings, violation }: Reproduction,
  actions: readonly Action[],
): Promise<boolean> {
  const world = await World.open(settings, around);
  try {
    let last: readonly Violation[] = [];
    for (const action of actions) last = (await world.perform(action, noCounts())).violations;
    return last.some(({ kind }) => kind === violation.kind);
  } finally {
    await world.close();
  }
}

function noCounts(): Counts {
  return { requests: 0, replays: 0, refused: 0, unavailable: 0, marked: 0, crossings: 0, crossingsForgotten: 0 };
}
