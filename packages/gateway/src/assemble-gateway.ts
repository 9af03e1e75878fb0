import { randomUUID } from 'node:crypto';
import { channel } from 'node:diagnostics_channel';
import { type ConversationStore, type PromptKind, PromptKinds } from '@warmpath/core/internal';
import { OpenCollections } from './collections/open-collections.js';
import { engineSettings, type GatewayConfig } from './config/schema.js';
import {
  ConversationMemory,
  createConversationStore,
  type SharedStoreSettings,
} from './conversation/conversation-memory.js';
import { SentMessages } from './conversation/sent-messages.js';
import { DashboardFeed } from './dashboard/feed.js';
import { PromptDispatcher } from './dispatch/dispatch-prompt.js';
import { Learning } from './dispatch/learn.js';
import { PromptSender } from './dispatch/send-prompt.js';
import { PromptServer } from './dispatch/serve-prompt.js';
import type { Engine } from './engines/engine.js';
import type { ApiRoute } from './engines/engine-apis.js';
import type { HealthSettings } from './engines/engine-health.js';
import type { EngineReport } from './engines/engine-probe.js';
import { Engines } from './engines/engines.js';
import { Cors } from './intake/admit.js';
import { Authenticator } from './intake/authenticate.js';
import { newHopName } from './intake/headers.js';
import { RateLimits } from './intake/rate-limits.js';
import { BodyMemory } from './intake/request-body.js';
import { EventLoopBudget, Overload, processClock } from './limits/load.js';
import { bytesOfPart, type MemoryPart } from './limits/memory-budget.js';
import { Baselines } from './memory/baselines.js';
import { ConsentFile, ConsentRecords } from './memory/consent-stores.js';
import { OpenArrangements } from './memory/open-arrangements.js';
import { type ConsentStore, PromptConsents } from './memory/prompt-consents.js';
import { SentPrefixes } from './memory/sent-prefixes.js';
import { ServedHistories, WarmPrefixes } from './memory/served-histories.js';
import { StoredResponses } from './memory/stored-responses.js';
import { CapturedBodies } from './observe/captured-bodies.js';
import { failOpenTo, logChange, logDestination, logSessionBreak, openLog } from './observe/log.js';
import { Metrics } from './observe/metrics.js';
import { PeerGateways } from './observe/peer-gateways.js';
import { RequestLog } from './observe/request-log.js';
import { loadTracing } from './observe/tracing.js';
import { TrafficFile } from './observe/traffic-file.js';
import { TrafficSeries } from './observe/traffic-series.js';
import { PlanJobs } from './plan/plan-jobs.js';
import { PromptArranger } from './prompt/decide.js';
import { type Arrange, InsertedDocuments } from './prompt/insert-slot.js';
import { PrefixKeeper } from './prompt/keep-prefix.js';
import { KnownPrompts } from './prompt/known-prompts.js';
import { PromptParser } from './prompt/parse-prompt.js';
import { CacheSalts, PromptRenderer } from './prompt/render.js';
import { ResultRewriter } from './prompt/rewrite-results.js';
import { arrangeRoute, observeRoute } from './routes/arrange.js';
import { captureRoutes } from './routes/capture.js';
import { collectionsRoutes } from './routes/collections.js';
import { dashboardRoutes, healthRoutes, metricsRoute, requestsRoute, sessionsRoute } from './routes/operator.js';
import { passthroughRoute } from './routes/passthrough.js';
import { promptKindsRoutes } from './routes/prompt-kinds.js';
import { countTokensRoute, planRoute, promptRoutes, warmupRoute } from './routes/prompts.js';
import { buildServer } from './server.js';
import { AgentSessions } from './sessions/agent-sessions.js';
import type { Report } from './shapes/shapes.js';
import { Warmups, warmDuringSearch } from './warm/warm-preamble.js';

/** Publishes changes of engines as `{engine, kind, reason}` in this process. */
const ENGINES = channel('warmpath:engine');

/** Parts that a caller may replace. */
export interface GatewayParts {
  /** In place of core's `arrange`. */
  readonly arrange?: Arrange;
  /** In place of the memory of prompt kinds. */
  readonly promptKinds?: PromptKinds;
  /** The store of conversations; in this process by default. */
  readonly sessions?: ConversationStore;
  /**
   * Folder for what survives a restart, made when it is needed. By default nothing does, unless a server of
   * `session.store.url` holds it.
   */
  readonly stateFolder?: string;
  /** How the server of `session.store.url` is used. */
  readonly sharedStore?: SharedStoreSettings;
  /** When one of several engines gets no requests; `HEALTH_SETTINGS` by default. */
  readonly health?: HealthSettings;
  /** Called with what is at an engine's address, at the start and after each change. */
  readonly onEngine?: (report: EngineReport) => void;
  /** Called once for each prompt kind that is found. */
  readonly onPromptKind?: (kind: PromptKind) => void;
  /** Called after each request. */
  readonly onRequest?: (request: Report) => void;
  /** Share of prompt tokens that may be prefilled in vain while a search goes on; by the engines if left out. */
  readonly wastedShare?: number;
  /** How requests of Messages and Responses go to engines, which are asked if left out. */
  readonly apiRoute?: ApiRoute;
  /** Milliseconds that answers in flight have to finish at shutdown. */
  readonly drainMs?: number;
  /** Bytes of text that one collection may hold through the HTTP API. */
  readonly maxCollectionBytes?: number;
  /** The monotonic clock, in milliseconds; `performance.now` by default. */
  readonly now?: () => number;
}

/** A gateway that does not listen yet: what is started, reloaded and closed. */
export type AssembledGateway = Awaited<ReturnType<typeof assembleGateway>>;

/** Makes the parts of a gateway, and the server with its routes. */
export async function assembleGateway(config: GatewayConfig, parts: GatewayParts) {
  const now = parts.now ?? processClock;
  const log = openLog(config.log.level);
  const sessions = parts.sessions ?? (await createConversationStore(config, parts.sharedStore));
  const authenticator = await Authenticator.open(config.server);
  const tracing = await loadTracing();
  const { memoryBytes } = config.limits;
  const bytesOf = (part: MemoryPart) => bytesOfPart(part, memoryBytes);
  const bodies = new BodyMemory(bytesOf('bodies'));
  const histories = new ServedHistories(bytesOf('histories'));
  const baselines = new Baselines(bytesOf('baselines'));
  const agentSessions = new AgentSessions(bytesOf('sessions'));
  const prefixes = new WarmPrefixes(bytesOf('prefixes'));
  const documents = new InsertedDocuments(config, bytesOf('documents'), parts.arrange);
  const consents = new PromptConsents({
    maxBytes: Math.floor(bytesOf('prompts') / 4),
    store: consentStore(sessions, parts.stateFolder),
    failed: ({ code, message }) => log.error({ code, reason: message }, 'consents to prompt kinds cannot be read'),
  });
  // No other process needs these hashes.
  const kinds =
    parts.promptKinds ?? new PromptKinds({ salt: randomUUID(), maxBytes: Math.floor(bytesOf('prompts') / 2) });
  const knownPrompts = new KnownPrompts({
    kinds,
    consents,
    maxBytes: Math.floor(bytesOf('prompts') / 4),
    found: (kind) => {
      log.info({ kind: kind.id }, 'prompt kind found');
      parts.onPromptKind?.(kind);
    },
    now: processClock,
  });
  const prefixKeeper = new PrefixKeeper({
    config,
    maxBytes: Math.floor(bytesOf('conversations') / 16),
    // Behind an engine of no known kind may be an API that reads them.
    readsMarks: ({ name }) =>
      engines.all.some(({ dialect }) => dialect.name === 'generic' || dialect.breakpoints?.apis.includes(name)),
    readsBillingLine: () => engines.all.some(({ dialect }) => dialect.name === 'anthropic'),
  });
  const renderer = new PromptRenderer(config, documents.cache);
  const memory = new ConversationMemory(sessions, Math.floor(bytesOf('conversations') / 8));
  const responses = new StoredResponses({
    maxBytes: Math.floor(bytesOf('conversations') / 8),
    maxContinued: config.server.bodyLimitBytes,
    maxAgeMs: config.session.maxAgeMs,
    now,
  });
  const sentMessages = new SentMessages(Math.floor(bytesOf('conversations') / 8));
  const resultRewriter = new ResultRewriter(
    config,
    () => engines.all.map(({ dialect }) => dialect),
    Math.floor(bytesOf('conversations') / 16),
  );
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
    sentMessages: () => memory.orderedMessages,
    agentSessions: () => agentSessions.size,
    recordedRequests: () => requests.size,
    load: () => overload.load,
    isShedding: () => overload.reason !== undefined,
    logLinesLost: () => logDestination().linesLost,
    memoryBytes,
    memory: {
      bodies: () => bodies.bytes,
      histories: () => histories.bytes,
      conversations: () =>
        memory.bytes + sentMessages.bytes + prefixKeeper.bytes + resultRewriter.bytes + responses.bytes,
      documents: () => documents.cache.bytes,
      prompts: () => kinds.bytes + consents.bytes + knownPrompts.bytes,
      arrangements: () => arrangements.bytes,
      requests: () => requests.bytes + captures.bytes,
      prefixes: () => prefixes.bytes,
      beginnings: () => sentPrefixes.bytes,
      sessions: () => agentSessions.bytes,
      baselines: () => baselines.bytes,
    },
  });
  const searched = (ms: number) => metrics.searched(ms);
  const collections =
    config.collections &&
    (await OpenCollections.open(
      config.collections,
      { memoryBytes, wastedShare: parts.wastedShare, maxBytes: parts.maxCollectionBytes },
      { now, log, searched },
    ));
  const sentPrefixes = new SentPrefixes(bytesOf('beginnings'));
  const warmups = new Warmups(prefixes, now);
  const plans = new PlanJobs(config);
  const arrangements = new OpenArrangements(bytesOf('arrangements'));
  const requests = new RequestLog(Math.floor((3 / 4) * bytesOf('requests')));
  const captures = new CapturedBodies(Math.floor(bytesOf('requests') / 4));
  const { cacheSaltKey } = config.upstream;
  const cacheSalts = cacheSaltKey === undefined ? undefined : new CacheSalts(cacheSaltKey);
  const hopName = newHopName();
  const listed = engineSettings(config);
  // Simulated time says nothing about the load of the process.
  const eventLoopBudget = new EventLoopBudget(processClock);
  const forget = (engine: Engine): void => {
    histories.forget(engine);
    baselines.forget(engine);
  };
  const engines = await Engines.open(
    listed,
    {
      config,
      hopName,
      health: parts.health,
      apiRoute: parts.apiRoute,
      now,
      eventLoopBudget,
      waited: (ms) => metrics.waited(ms),
      changed: (engine, change) => {
        logChange(log, engine, change);
        if (ENGINES.hasSubscribers) ENGINES.publish({ engine: engine.name, ...change });
      },
      cachesOtherwise: forget,
    },
    forget,
  );
  const rateLimits = new RateLimits(now);
  const exchange = sessions.exchange?.bind(sessions);
  const keys = () => config.server.keys ?? [];
  const peers = exchange && new PeerGateways({ exchange, histories, engines, rateLimits, keys, now });
  const overload = new Overload({
    eventLoopBudget,
    isBusy: () => bodies.bytes > 0,
    changed: (reason, load) => {
      if (reason === undefined) log.info(load, 'overload ended');
      else log.warn({ reason, ...load }, 'overload: requests are refused');
    },
    refused: (reason) => metrics.shed(reason),
  });
  const access = { authenticator, cors: new Cors(config.server.cors ?? []) };
  const traffic = TrafficSeries.recent();
  const dayTraffic = TrafficSeries.day();
  const trafficFile =
    parts.stateFolder === undefined ? undefined : new TrafficFile(parts.stateFolder, dayTraffic, () => Date.now());
  const feed = new DashboardFeed({
    config,
    engines,
    collections,
    histories,
    requests,
    captures,
    traffic,
    dayTraffic,
    metrics,
    now,
  });
  const lifecycle = { leaving: false, draining: false };
  const failOpen = failOpenTo({ metrics, log });
  const learning = new Learning({
    memory,
    histories,
    cache: documents.cache,
    prefixes,
    metrics,
    knownPrompts,
    sessions: agentSessions,
    compared: config.explain.prompts === 'off' ? undefined : requests,
    lost: (report) => logSessionBreak(log, report),
    config,
    peers,
    now,
  });
  const arranger = new PromptArranger({ documents, histories, memory, renderer, prefixKeeper, failOpen, now });
  const warming = { config, engines, histories, documents, warmups, cacheSalts, eventLoopBudget, metrics, now };
  const dispatcher = new PromptDispatcher({
    engines,
    sentPrefixes,
    histories,
    arranger,
    sessions: agentSessions,
    sender: new PromptSender({
      learning,
      baselines,
      arranger,
      cacheSalts,
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
    prefixKeeper,
    responses,
    parser: new PromptParser({
      config,
      documents,
      memory,
      sentMessages,
      resultRewriter,
      eventLoopBudget,
      failOpen,
      knownPrompts,
      now,
    }),
    dispatcher,
    captures,
    stagedAnswers: collections && {
      collections,
      engines,
      metrics,
      warm: (coming) => warmDuringSearch(warming, coming),
      now,
    },
    hasCacheSalts: cacheSalts !== undefined,
    now,
  });
  const app = buildServer({
    access,
    bodies,
    config,
    engines,
    eventLoopBudget,
    hopName,
    lifecycle,
    log,
    metrics,
    now,
    onRequest: parts.onRequest,
    overload,
    rateLimits,
    requests,
    tracing,
    traffic,
    dayTraffic,
  });
  const { server } = config;
  const forwarding = { rateLimits, lifecycle, now };
  promptRoutes(app, prompts);
  countTokensRoute(app, { ...forwarding, engines, histories, documents, eventLoopBudget });
  arrangeRoute(app, { config, engines, histories, documents, arrangements, peers, eventLoopBudget, now });
  observeRoute(app, { arrangements, now });
  warmupRoute(app, { ...warming, rateLimits });
  planRoute(app, { plans, metrics, now });
  requestsRoute(app, { server, requests });
  captureRoutes(app, { server, captures, log });
  promptKindsRoutes(app, { config, server, kinds, consents, knownPrompts, log });
  sessionsRoute(app, { server, store: sessions, sessions: agentSessions, now });
  if (collections !== undefined) collectionsRoutes(app, { config, collections, now });
  healthRoutes(app, { engines, store: sessions, lifecycle });
  metricsRoute(app, metrics);
  dashboardRoutes(app, { feed, requests });
  passthroughRoute(app, { ...forwarding, config, engines, responses });
  return {
    access,
    app,
    collections,
    config,
    consents,
    engines,
    feed,
    lifecycle,
    log,
    metrics,
    now,
    overload,
    peers,
    rateLimits,
    store: sessions,
    trafficFile,
    warmups,
  };
}

/** The server that the gateways share; without one, the state folder, if there is one. */
function consentStore({ records }: ConversationStore, stateFolder: string | undefined): ConsentStore | undefined {
  if (records !== undefined) return new ConsentRecords(records);
  return stateFolder === undefined ? undefined : new ConsentFile(stateFolder);
}
