import { channel } from 'node:diagnostics_channel';
import { performance } from 'node:perf_hooks';
import type { ConversationStore } from '@warmpath/core/internal';
import type { FastifyInstance } from 'fastify';
import { OpenCollections } from './collections/open-collections.js';
import { resolveConfig } from './config/load.js';
import { engineSettings, type GatewayConfig, type GatewayConfigInput } from './config/schema.js';
import { createConversationStore, type SharedStoreSettings } from './conversation/conversation-store.js';
import { Conversations } from './conversation/conversations.js';
import { DashboardFeed } from './dashboard/feed.js';
import { PromptDispatcher } from './dispatch/dispatch-prompt.js';
import { Learning } from './dispatch/learn.js';
import { PromptSender } from './dispatch/send-prompt.js';
import { PromptServer } from './dispatch/serve-prompt.js';
import type { Engine } from './engines/engine.js';
import type { HealthSettings } from './engines/engine-health.js';
import type { EngineReport } from './engines/engine-probe.js';
import { Engines } from './engines/engines.js';
import { Authenticator } from './intake/authenticate.js';
import { Cors } from './intake/browser-requests.js';
import { newHopName } from './intake/headers.js';
import { RateLimits } from './intake/rate-limits.js';
import { BodyMemory } from './intake/request-body.js';
import { EventLoopBudget } from './limits/event-loop-budget.js';
import { bytesOfPart, type MemoryPart } from './limits/memory-budget.js';
import { Overload } from './limits/overload.js';
import { OpenArrangements } from './memory/open-arrangements.js';
import { SentPrefixes } from './memory/sent-prefixes.js';
import { ServedHistories } from './memory/served-histories.js';
import { WarmPrefixes } from './memory/warm-prefixes.js';
import { failOpenTo } from './observe/fail-open.js';
import { type Log, logChange, logDestination, logReport, openLog } from './observe/log.js';
import { Metrics } from './observe/metrics.js';
import { PeerGateways } from './observe/peer-gateways.js';
import { RequestLog } from './observe/request-log.js';
import { loadTracing, type Tracing } from './observe/tracing.js';
import { TrafficSeries } from './observe/traffic-series.js';
import { type AdminServer, startAdminServer } from './operate/admin/admin-server.js';
import { type ReloadReport, reloadConfig } from './operate/reload-config.js';
import { PlanJobs } from './plan/plan-jobs.js';
import { PromptArranger } from './prompt/arrange-prompt.js';
import { CacheSalts } from './prompt/cache-salts.js';
import { PromptDecider } from './prompt/decide.js';
import { type Arrange, InsertedDocuments } from './prompt/insert-slot.js';
import { PromptParser } from './prompt/parse-prompt.js';
import { PromptRenderer } from './prompt/render.js';
import { SentOrders } from './prompt/sent-orders.js';
import { type RecognitionNotice, UnrecognisedPrompts } from './prompt/unrecognised-prompts.js';
import { buildServer } from './server.js';
import type { Report } from './shapes/shapes.js';
import { Prewarmer } from './warm/prewarmer.js';
import { warmDuringSearch } from './warm/warm-preamble.js';
import { Warmups } from './warm/warmups.js';

/** What becomes of engines, as `{engine, kind, reason}`, for whoever lives in the same process. */
const ENGINES = channel('warmpath:engine');

/**
 * Connections that may wait to be accepted, as far as the kernel allows (`net.core.somaxconn`). The kernel drops those
 * beyond without an answer, and their clients try again a second later.
 */
const MAX_PENDING_CONNECTIONS = 16_384;

/** A gateway that listens. */
export interface RunningGateway {
  /** Where it listens, for instance `http://127.0.0.1:8080`. */
  readonly url: string;
  /**
   * Stops: not ready for `server.drainDelayMs`; then no new requests, warm-ups aborted, answers in flight finished
   * within `server.drainMs` or cut.
   * Resolves when every connection is closed; safe to call twice.
   */
  close(): Promise<void>;
  /**
   * Takes another configuration, as far as it can change while requests are under way; says, also in the log, what
   * needs a restart. Engines that it lists no more answer what they have and go. Errors: those of a configuration, and
   * of reading it; nothing has changed then.
   */
  reload(input: GatewayConfigInput | Promise<GatewayConfigInput>): Promise<ReloadReport>;
}

/** Parts that a caller may replace. */
export interface GatewayParts {
  /** In place of core's `arrange`. */
  readonly arrange?: Arrange;
  /** How documents in messages were ordered. */
  readonly sentOrders?: SentOrders;
  /** Where conversations are remembered; in this process by default. */
  readonly sessions?: ConversationStore;
  /** How the server of `session.store.url` is used. */
  readonly sharedStore?: SharedStoreSettings;
  /** When one of several engines gets no requests; `HEALTH_SETTINGS` by default. */
  readonly health?: HealthSettings;
  /**
   * Hears what is at the engine's address: at the start, and whenever that changes. Without it, nobody asks and nothing
   * of it is logged.
   */
  readonly onEngine?: (report: EngineReport) => void;
  /** Hears once for each shape of prompts why documents in them stay as they are. Without it, nobody looks. */
  readonly onUnrecognised?: (notice: RecognitionNotice) => void;
  /** Hears of every request of a client that is over. */
  readonly onRequest?: (request: Report) => void;
  /** Share of prompt tokens that may be prefilled in vain while a search goes on; by the engines if left out. */
  readonly wastedShare?: number;
  /** The monotonic clock, in milliseconds; `performance.now` by default. */
  readonly now?: () => number;
}

/**
 * Starts a gateway in front of the engine at `config.upstream.url`, or of those in `config.engines`. Defaults are
 * filled in. Errors: `WARMPATH_CONFIG_…`; what `listen` throws if the port is taken.
 */
export async function startGateway(input: GatewayConfigInput, parts: GatewayParts = {}): Promise<RunningGateway> {
  const config = resolveConfig(input);
  const sessions = parts.sessions ?? (await createConversationStore(config, parts.sharedStore));
  const now = parts.now ?? (() => performance.now());
  const log = openLog(config.log.level);
  const searched = (ms: number) => gateway.metrics.searched(ms);
  const { memoryBytes } = config.limits;
  const collections =
    config.collections &&
    (await OpenCollections.open(
      config.collections,
      { memoryBytes, wastedShare: parts.wastedShare },
      { now, log, searched },
    ));
  const authenticator = await Authenticator.open(config.server);
  const tracing = await loadTracing();
  const gateway = await assemble(config, authenticator, {
    ...parts,
    sessions,
    collections,
    tracing,
    log,
    now,
  });
  const app = buildServer(gateway);
  const { socket } = gateway.config.admin;
  let url: string;
  let admin: AdminServer | undefined;
  try {
    await openConversationStore(gateway);
    if (socket !== undefined) admin = await startAdminServer(socket, gateway);
    const { host, port } = gateway.config.server;
    url = await app.listen({ host, port, backlog: MAX_PENDING_CONNECTIONS });
  } catch (error) {
    await admin?.close();
    await gateway.conversations.store.close();
    await gateway.collections?.close();
    await gateway.engines.close();
    throw error;
  }
  watchEngines(gateway, parts.onEngine);
  gateway.overload.start();
  let reloading: Promise<unknown> = Promise.resolve();
  let closing: Promise<void> | undefined;
  return {
    url,
    reload: (input) => {
      const earlier = reloading;
      const reloaded = Promise.all([input, earlier]).then(([read]) => reloadConfig(gateway, resolveConfig(read)));
      const taken = () => gateway.metrics.reloaded('taken');
      const refused = () => gateway.metrics.reloaded('refused');
      // One that cannot be read is refused before the earlier ones are done.
      reloading = reloaded.then(taken, refused).then(() => earlier);
      return reloaded;
    },
    close: () => {
      closing ??= shutDown(app, gateway, admin);
      return closing;
    },
  };
}

/** Looks for the engines; what is found shows in the log, too. */
function watchEngines({ engines, log }: Gateway, tell: ((report: EngineReport) => void) | undefined): void {
  engines.watch(
    tell &&
      ((report) => {
        logReport(log, report);
        tell(report);
      }),
  );
}

/**
 * Opens the store of conversations. How it does shows in the metrics, and in the log where the server comes or goes.
 */
async function openConversationStore({ conversations, peers, metrics, log }: Gateway): Promise<void> {
  await conversations.store.open({
    done: (operation, ms) => metrics.stored(operation, ms),
    failed: (operation, failure) => metrics.notStored(operation, failure),
    changed: (isUp, reason) => {
      if (isUp) log.info({ reason }, 'session store up');
      else log.warn({ reason }, 'session store down');
    },
  });
  peers?.open();
}

/** Every part of a gateway. Only this file knows all of them. */
type Gateway = Awaited<ReturnType<typeof assemble>>;

async function assemble(
  config: GatewayConfig,
  authenticator: Authenticator,
  parts: GatewayParts & {
    readonly sessions: ConversationStore;
    readonly collections: OpenCollections | undefined;
    readonly tracing: Tracing | undefined;
    readonly log: Log;
    readonly now: () => number;
  },
) {
  const { now, log } = parts;
  const { memoryBytes } = config.limits;
  const bytesOf = (part: MemoryPart) => bytesOfPart(part, memoryBytes);
  const bodies = new BodyMemory(bytesOf('bodies'));
  const histories = new ServedHistories(bytesOf('histories'));
  const prefixes = new WarmPrefixes(bytesOf('prefixes'));
  const documents = new InsertedDocuments(config, bytesOf('documents'), parts.arrange);
  const renderer = new PromptRenderer(config, documents.cache);
  const { sessions } = parts;
  const conversations = new Conversations(sessions);
  const metrics = new Metrics({
    sessions: () => sessions.conversations,
    sessionTurns: () => sessions.turns,
    sessionStoreUp: () => sessions.isUp,
    peers: () => peers?.counts,
    histories: () => histories.size,
    treeNodes: () => histories.treeNodes,
    warmPrefixes: () => prefixes.size,
    engines: () => engines.all,
    plansWaiting: () => plans.depth,
    openArrangements: () => arrangements.size,
    sentMessages: () => sentOrders.size,
    recordedRequests: () => requests.size,
    load: () => overload.load,
    isShedding: () => overload.reason !== undefined,
    logLinesLost: () => logDestination().linesLost,
    memoryBytes,
    memory: {
      bodies: () => bodies.bytes,
      histories: () => histories.bytes,
      conversations: () => sessions.bytes + sentOrders.bytes,
      documents: () => documents.cache.bytes,
      prewarm: () => engines.all.reduce((sum, { prewarmer }) => sum + (prewarmer?.bytes ?? 0), 0),
      arrangements: () => arrangements.bytes,
      requests: () => requests.bytes,
      prefixes: () => prefixes.bytes,
      beginnings: () => sentPrefixes.bytes,
    },
  });
  const sentPrefixes = new SentPrefixes(bytesOf('beginnings'));
  const warmups = new Warmups(prefixes, now);
  const plans = new PlanJobs(config);
  const arrangements = new OpenArrangements(bytesOf('arrangements'));
  const requests = new RequestLog(bytesOf('requests'));
  const sentOrders = parts.sentOrders ?? new SentOrders(Math.floor(bytesOf('conversations') / 2));
  const { cacheSaltKey } = config.upstream;
  const cacheSalts = cacheSaltKey === undefined ? undefined : new CacheSalts(cacheSaltKey);
  const hopName = newHopName();
  const listed = engineSettings(config);
  const createPrewarmer = ({ upstream }: Engine): Prewarmer | undefined => {
    if (config.prewarm.tokensPerMinute === 0) return undefined;
    const bytes = Math.floor(bytesOf('prewarm') / listed.length);
    return new Prewarmer(config.prewarm, bytes, { upstream, renderer, cacheSalts, metrics, now });
  };
  const engines = await Engines.open(
    listed,
    {
      config,
      hopName,
      health: parts.health,
      now,
      createPrewarmer,
      waited: (ms) => metrics.waited(ms),
      changed: (engine, change) => {
        logChange(log, engine, change);
        if (ENGINES.hasSubscribers) ENGINES.publish({ engine: engine.name, ...change });
      },
      cachesOtherwise: (engine) => histories.forget(engine),
    },
    (engine) => histories.forget(engine),
  );
  const rateLimits = new RateLimits(now);
  const exchange = sessions.exchange?.bind(sessions);
  const keys = () => config.server.keys ?? [];
  const peers = exchange && new PeerGateways({ exchange, histories, engines, rateLimits, keys, now });
  // Simulated time says nothing about the load of the process.
  const eventLoopBudget = new EventLoopBudget(() => performance.now());
  const overload = new Overload({
    waitMs: () => eventLoopBudget.waitMs,
    isBusy: () => bodies.bytes > 0,
    changed: (reason, load) => {
      if (reason === undefined) log.info(load, 'overload ended');
      else log.warn({ reason, ...load }, 'overload: requests are refused');
    },
    refused: (reason) => metrics.shed(reason),
  });
  const access = { authenticator, cors: new Cors(config.server.cors ?? []) };
  const { collections } = parts;
  const lifecycle = { leaving: false, draining: false };
  const failOpen = failOpenTo({ metrics, log });
  const decider = new PromptDecider({ config, documents, histories, sentOrders, now });
  const learning = new Learning({ store: sessions, sentOrders, cache: documents.cache, prefixes, metrics, peers, now });
  const unrecognised = parts.onUnrecognised && new UnrecognisedPrompts(parts.onUnrecognised, now);
  const dispatcher = new PromptDispatcher({
    engines,
    sentPrefixes,
    histories,
    decider,
    arranger: new PromptArranger({ decider, renderer, failOpen, now }),
    sender: new PromptSender({
      learning,
      cacheSalts,
      compared: config.explain.prompts === 'off' ? undefined : requests,
      rateLimits,
      lifecycle,
      now,
    }),
    lifecycle,
    now,
  });
  const prompts = new PromptServer({
    config,
    engines,
    eventLoopBudget,
    parser: new PromptParser({
      config,
      documents,
      conversations,
      sentOrders,
      eventLoopBudget,
      failOpen,
      unrecognised,
      now,
    }),
    dispatcher,
    stagedAnswers: collections && {
      collections,
      engines,
      metrics,
      warm: (coming) =>
        warmDuringSearch(
          { config, engines, histories, documents, warmups, cacheSalts, eventLoopBudget, metrics, now },
          coming,
        ),
      now,
    },
    hasCacheSalts: cacheSalts !== undefined,
    now,
  });
  const traffic = new TrafficSeries();
  const feed = new DashboardFeed({ config, engines, collections, histories, requests, traffic, metrics, now });
  return {
    config,
    engines,
    hopName,
    access,
    rateLimits,
    overload,
    bodies,
    histories,
    eventLoopBudget,
    documents,
    cacheSalts,
    conversations,
    store: sessions,
    peers,
    collections,
    warmups,
    plans,
    arrangements,
    requests,
    traffic,
    feed,
    lifecycle,
    prompts,
    metrics,
    tracing: parts.tracing,
    log,
    now,
    onRequest: parts.onRequest,
  };
}

async function shutDown(app: FastifyInstance, gateway: Gateway, admin: AdminServer | undefined): Promise<void> {
  gateway.lifecycle.leaving = true;
  const { drainDelayMs } = gateway.config.server;
  // Whoever chooses among gateways learns that this one goes while it still answers.
  if (drainDelayMs > 0) await new Promise((resolve) => setTimeout(resolve, drainDelayMs));
  gateway.lifecycle.draining = true;
  gateway.overload.close();
  gateway.warmups.close();
  gateway.peers?.close();
  for (const engine of gateway.engines.all) engine.rest();
  gateway.feed.endAll();
  const deadline = setTimeout(() => app.server.closeAllConnections(), gateway.config.server.drainMs);
  await app.close();
  clearTimeout(deadline);
  await admin?.close();
  await gateway.conversations.store.close();
  await gateway.collections?.close();
  await gateway.engines.close();
}
