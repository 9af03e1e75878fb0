import { hash } from 'node:crypto';
import { Pool } from 'undici';
import { FakeEngine } from '../fake-engine.js';
import { type Action, type Ask, PATHS, tenantOf } from './actions.js';
import { check, isMarkedForgotten, isUnavailable, type Outcome, type Violation } from './check.js';
import type { Draw } from './draw.js';
import { LeakEngine } from './leak-engine.js';
import { ConversationModel, type WorldMemory } from './model.js';

/** What a gateway has in place of the room for conversations and of the clock that it would have. */
export interface LittleRoom {
  /** How requests of Messages and Responses go to the engine. */
  readonly apiRoute?: 'native' | 'translate';
  /** How the gateways that share a server use it. */
  readonly sharedStore?: { readonly prefix: string; readonly timeoutMs: number };
  /** Bytes of the conversations that it remembers by itself. */
  readonly conversationBytes?: number;
  readonly now?: () => number;
}

/** Starts a gateway with this configuration, as `startGateway` does. */
type StartGateway = (config: object, room: LittleRoom) => Promise<{ readonly url: string; close(): Promise<void> }>;

/** How the gateways of a world are set up. */
export interface WorldSettings extends WorldMemory {
  readonly layout: 'question' | 'message' | 'system';
  readonly engine: 'native' | 'translate';
  /** Engines behind each gateway. */
  readonly engines: number;
  /** Whether the engine says the same to everybody. */
  readonly answersAlike: boolean;
  readonly isSalted: boolean;
  /** Whether a gateway by itself forgets what was not used lately; a shared store does not. */
  readonly hasLittleRoom: boolean;
}

/** Where the gateways of all worlds are started. */
export interface Surroundings {
  readonly start: StartGateway;
  /** A server that speaks Redis's protocol. */
  readonly redisUrl: string;
  /** Whether the gateways translate into the API of an engine that speaks no other. */
  readonly translates: boolean;
}

/** What was seen in passing, to know that the requests did what they are for. */
export interface Counts {
  requests: number;
  /** Requests that went out with documents of earlier turns. */
  replays: number;
  refused: number;
  /** Requests that the shared store did not answer in time. */
  unavailable: number;
  marked: number;
  /** Continuations whose turns only the store can know, and how many of them were forgotten. */
  crossings: number;
  crossingsForgotten: number;
}

const KEY = 'a secret of the gateways';
/** What a gateway with little room keeps of conversations: some dozen turns. */
const FEW_BYTES = 50_000;
/** With a shared store, it is time that makes a gateway forget: what was not used for as many requests. */
const FEW_REQUESTS = 8;
const MAX_AGE_MS = 3_600_000;

export function drawWorld(draw: Draw, { translates }: Pick<Surroundings, 'translates'>): WorldSettings {
  const gateways = draw.pick([1, 1, 2, 3]);
  const isShared = draw.chance(0.5);
  const hasLittleRoom = draw.chance(0.2);
  return {
    gateways,
    isShared,
    hasLittleRoom,
    keepsAll: isShared || !hasLittleRoom,
    layout: draw.pick(['question', 'question', 'message', 'system'] as const),
    engine: draw.pick(translates ? (['native', 'translate'] as const) : (['native'] as const)),
    engines: translates ? draw.pick([1, 1, 2]) : 1,
    answersAlike: draw.chance(0.7),
    isSalted: draw.chance(0.5),
  };
}

let worlds = 0;

/** Gateways in front of one engine, and the model of what they may know. */
export class World {
  readonly #settings: WorldSettings;
  readonly #around: Surroundings;
  readonly #engines: readonly FakeEngine[];
  readonly #says: LeakEngine;
  readonly #model: ConversationModel;
  readonly #prefix = `leak${process.pid}-${++worlds}:`;
  readonly #salts: Map<string, string> | undefined;
  readonly #gateways: { close(): Promise<void>; pool: Pool }[] = [];
  #now = 0;

  private constructor(settings: WorldSettings, around: Surroundings, engines: readonly FakeEngine[], says: LeakEngine) {
    this.#settings = settings;
    this.#around = around;
    this.#engines = engines;
    this.#says = says;
    this.#model = new ConversationModel(settings);
    this.#salts = settings.isSalted ? new Map() : undefined;
  }

  static async open(settings: WorldSettings, around: Surroundings): Promise<World> {
    const says = new LeakEngine(settings.engine);
    const engines: FakeEngine[] = [];
    for (let at = 0; at < settings.engines; at++) engines.push(await FakeEngine.start(says.answer));
    const world = new World(settings, around, engines, says);
    for (let at = 0; at < settings.gateways; at++) await world.#start(at);
    return world;
  }

  /** What the engine said last. */
  get said(): string {
    return this.#says.says;
  }

  /** Does one thing, and tells what is wrong with what came of it. */
  async perform(
    action: Action,
    counts: Counts,
  ): Promise<{ readonly violations: readonly Violation[]; readonly isAnswered: boolean }> {
    this.#now += MAX_AGE_MS / FEW_REQUESTS;
    if (action.kind === 'restart') await this.#restart(action.gateway);
    else if (action.kind === 'delete') await this.#delete(action);
    else return this.#ask(action, counts);
    return { violations: [], isAnswered: false };
  }

  async close(): Promise<void> {
    for (const gateway of this.#gateways) await shut(gateway);
    for (const engine of this.#engines) await engine.close();
  }

  async #ask(ask: Ask, counts: Counts) {
    const expected = this.#model.expect(ask);
    for (const { received } of this.#engines) received.length = 0;
    // The same whenever this request is sent, whatever was sent before it.
    const said = `Answer ${hash('sha256', JSON.stringify(ask.body)).slice(0, 6)}.`;
    this.#says.says = this.#settings.answersAlike ? 'It is 42 kg.' : said;
    const {
      body,
      headers,
      statusCode: status,
    } = await this.#send(ask.gateway, 'POST', PATHS[ask.api], ask.headers, ask.body);
    // Several engines are asked how they are, beside the requests.
    const received = this.#engines.flatMap((engine) => engine.received.filter(({ method }) => method !== 'GET'));
    const state = headers['x-warmpath'];
    const outcome: Outcome = {
      status,
      code: status === 200 ? undefined : /"code":\s*"([^"]*)"/.exec(body)?.[1],
      state: typeof state === 'string' ? state : '',
      received,
    };
    const isForgotten = status === 409 || isMarkedForgotten(outcome);
    counts.requests++;
    if (status === 409) counts.refused++;
    if (isUnavailable(outcome)) counts.unavailable++;
    if (isMarkedForgotten(outcome)) counts.marked++;
    const isCrossing = expected.crossesGateways && !expected.mayForget;
    if (isCrossing) counts.crossings++;
    // The store may hear of a turn after the next one has begun: counted, and judged at the end.
    if (isCrossing && isForgotten) counts.crossingsForgotten++;
    const judged = isCrossing ? { ...expected, mayForget: true } : expected;
    const violations = check(ask, judged, outcome, {
      ownerOf: (marker) => this.#model.ownerOf(marker),
      salts: this.#salts,
    });
    const isAnswered = status === 200;
    if (isAnswered) {
      if (expected.required.some(([first]) => first!.length > 0) && !isMarkedForgotten(outcome)) counts.replays++;
      // One that had to be forgotten begins anew, whatever its answer claims.
      this.#model.answered(ask, isMarkedForgotten(outcome) || expected.mustForget);
    }
    return { violations, isAnswered };
  }

  async #delete({ gateway, headers, name }: Extract<Action, { kind: 'delete' }>): Promise<void> {
    await this.#send(gateway, 'DELETE', `/v1/sessions/${encodeURIComponent(name)}`, headers);
    this.#model.deleted(tenantOf(headers), name);
  }

  async #send(
    gateway: number,
    method: 'POST' | 'DELETE',
    path: string,
    headers: Readonly<Record<string, string>>,
    body?: object,
  ) {
    const response = await this.#gateways[gateway]!.pool.request({
      method,
      path,
      headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return { ...response, body: await response.body.text() };
  }

  async #restart(gateway: number): Promise<void> {
    await shut(this.#gateways[gateway]!);
    await this.#start(gateway);
    this.#model.restarted(gateway);
  }

  async #start(at: number): Promise<void> {
    const { layout, engine, isShared, isSalted, hasLittleRoom } = this.#settings;
    const store = { url: this.#around.redisUrl };
    // Requests wait for the store as long as a loaded machine may need.
    const sharedStore = { prefix: this.#prefix, timeoutMs: 20_000 };
    const urls = this.#engines.map(({ url }) => url);
    const one = urls.length === 1 ? { url: urls[0] } : {};
    const several =
      urls.length === 1 ? {} : { engines: urls.map((url, number) => ({ name: `engine-${number}`, url })) };
    const config = {
      server: { port: 0 },
      upstream: { ...one, ...(isSalted && { cacheSaltKey: KEY }) },
      ...several,
      arrange: { layout },
      session: { maxAgeMs: MAX_AGE_MS, ...(isShared && { store }) },
      log: { level: 'silent' },
    };
    const room = isShared ? { now: () => this.#now } : { conversationBytes: FEW_BYTES };
    const gateway = await this.#around.start(config, { sharedStore, apiRoute: engine, ...(hasLittleRoom && room) });
    const pool = new Pool(gateway.url, { connections: 1 });
    this.#gateways[at] = { close: () => gateway.close(), pool };
  }
}

async function shut({ close, pool }: { close(): Promise<void>; readonly pool: Pool }): Promise<void> {
  await pool.close();
  await close();
}
