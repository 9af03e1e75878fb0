// What the benchmark of the gateway measures: groups of cells. A group is one kind of body at so many connections,
// answered at once or by a stream; a cell of it is one system.
import { AGENT_SIZES, agentConversations } from './agent-conversations.js';
import { bodies, neverAsked, neverSeen, streamed } from './bodies.js';

const ALL = ['direct', 'nginx', 'http', 'fastify', 'portkey', 'warmpath'];
const WITH_BARS = ['direct', 'fastify', 'portkey', 'warmpath'];
const CONNECTIONS = [1, 32, 128, 512];
const AGENT_CONNECTIONS = 4;
/** Frames of one stream where streams come one after another: there the first one counts. */
const ALONE_FRAMES = 8;

/** Milliseconds between two frames of a stream. */
export const FRAME_MS = 20;

/**
 * The kinds of bodies, what tables call them, and those that have bars what bars call them. `isApart`: sent to a second
 * Warmpath, so that they add nothing to the memory of the one that is compared.
 */
export const BODIES = {
  small: { title: '57 bytes', name: 'small body' },
  prompt: { title: '30 KB, one prompt without fields of the gateway', name: '30 KB without fields' },
  documents: { title: '30 KB, 20 of 60 documents', name: '20 documents' },
  tags: { title: '30 KB, 20 of 60 documents in tags', name: '20 documents in tags' },
  'agent-30': { title: 'an agent, 50 turns, 30 KB' },
  'agent-400': { title: 'an agent, 50 turns, 400 KB' },
  'small-stranger': { title: '57 bytes, tenant without documents', isApart: true, tenant: 'stranger' },
  'prompt-stranger': { title: '30 KB without fields, tenant without documents', isApart: true, tenant: 'stranger' },
  'documents-asked-anew': { title: '20 of 60 documents, another question each time', isApart: true, tenant: 'asks' },
  'tags-asked-anew': { title: '20 of 60 documents in tags, another question each time', isApart: true, tenant: 'asks' },
  'documents-new': { title: '20 documents, each for the first time', isApart: true, tenant: 'brings' },
};

/** Kinds of bodies that every system gets at every number of connections. */
export const COMPARED = ['small', 'prompt', 'documents'];

export const GROUPS = [
  ...COMPARED.flatMap((body) => CONNECTIONS.map((connections) => group(body, connections, ALL))),
  ...COMPARED.flatMap((body) => CONNECTIONS.map((connections) => group(body, connections, ALL, true))),
  group('tags', 1, WITH_BARS),
  group('tags', 32, WITH_BARS),
  group('agent-30', AGENT_CONNECTIONS, ['fastify', 'warmpath']),
  group('agent-400', AGENT_CONNECTIONS, ['fastify', 'warmpath']),
  ...Object.keys(BODIES)
    .filter((body) => BODIES[body].isApart)
    .map((body) => group(body, 32, ['warmpath'])),
];

function group(body, connections, systems, isStream = false) {
  const name = [body, ...(isStream ? ['stream'] : []), connections].join('/');
  return { name, body, connections, systems, isStream };
}

/**
 * How much is measured: rounds, milliseconds of a cell and of a warm-up, frames of a stream, streams one after another
 * on each of many connections and on the only one, conversations of agents.
 */
export const FULL = { rounds: 5, ms: 2_000, warmUpMs: 24_000, frames: 64, each: 2, eachAlone: 6, agents: 12 };
export const QUICK = { rounds: 1, ms: 1_000, warmUpMs: 12_000, frames: 32, each: 2, eachAlone: 5, agents: 4 };

/** A stream cell's load, and its milliseconds. */
export function streamLoad({ connections }, { frames, each, eachAlone }) {
  if (connections === 1) {
    return { connections, each: eachAlone, spreadMs: 0, frames: ALONE_FRAMES, ms: eachAlone * ALONE_FRAMES * FRAME_MS };
  }
  const lengthMs = frames * FRAME_MS;
  return { connections, each, spreadMs: lengthMs, frames, ms: (each + 1) * lengthMs };
}

/** Milliseconds of the load that warms all systems up for a kind of body: the first kinds warm most of the code. */
export function warmUpMs({ body, isStream }, settings) {
  if (isStream) return settings.frames * FRAME_MS;
  return COMPARED.includes(body) ? settings.warmUpMs : settings.warmUpMs / 4;
}

/** What is warmed up: each kind of body answered at once, also where only streams are measured; then its streams. */
export function kindsOf(groups) {
  const atOnce = new Map(
    groups.map((group) => [group.body, { ...group, name: `${group.body}/warm`, isStream: false }]),
  );
  const streams = new Map(groups.filter(({ isStream }) => isStream).map((group) => [group.body, group]));
  return [...atOnce.values(), ...streams.values()];
}

/** Seconds that groups take: the rounds alone, and with the warm-up. */
export function secondsOf(groups, settings) {
  const cellMs = (group) => (group.isStream ? streamLoad(group, settings).ms : settings.ms) + BESIDE_MS;
  const roundMs = groups.reduce((sum, group) => sum + group.systems.length * cellMs(group), 0);
  const warmMs = kindsOf(groups).reduce((sum, group) => sum + warmUpMs(group, settings), 0);
  const rounds = (settings.rounds * roundMs) / 1_000;
  return { rounds, all: rounds + warmMs / 1_000 };
}

/** What a cell takes beside its load: starting wrk, and the pause after it. */
const BESIDE_MS = 150;

/**
 * Groups by a list of patterns, such as `small/32` and `stream/512`: a group's name, or parts that all must be in it.
 * Throws: one of them matches nothing.
 */
export function selected(patterns) {
  const chosen = patterns.map((pattern) => {
    const parts = pattern.split('/');
    const named = GROUPS.filter(({ name }) => name === pattern);
    const matching =
      named.length > 0 ? named : GROUPS.filter(({ name }) => parts.every((part) => name.split('/').includes(part)));
    if (matching.length === 0)
      throw new Error(`--cells: ${pattern} is none of ${GROUPS.map(({ name }) => name).join(', ')}`);
    return matching;
  });
  return GROUPS.filter((group) => chosen.some((matching) => matching.includes(group)));
}

/** The bodies of a group as bytes, by their kind; `documents` and the others are made once. */
export function bodiesOf({ agents, frames }) {
  const given = bodies();
  const conversations = AGENT_SIZES.map((size) =>
    agentConversations(size, agents).map((requests) => requests.map((request) => Buffer.from(JSON.stringify(request)))),
  );
  const plain = {
    ...given,
    'agent-30': conversations[0],
    'agent-400': conversations[1],
    'small-stranger': given.small,
    'prompt-stranger': given.prompt,
    'documents-asked-anew': neverAsked(given.documents),
    'tags-asked-anew': neverAsked(given.tags),
    'documents-new': neverSeen(given.documents),
  };
  return ({ body, isStream, connections }) => {
    if (!isStream) return plain[body];
    return streamed(plain[body], connections === 1 ? ALONE_FRAMES : frames);
  };
}
