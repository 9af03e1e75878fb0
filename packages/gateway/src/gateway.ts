import type { ServerResponse } from 'node:http';
import type { OpenCollections } from './collections/open-collections.js';
import type { GatewayConfig } from './config/schema.js';
import type { Conversations } from './conversation/conversations.js';
import type { Lifecycle } from './dispatch/forward.js';
import type { PromptServer } from './dispatch/serve-prompt.js';
import type { Engines } from './engines/engines.js';
import type { Authenticator } from './intake/authenticate.js';
import type { Cors } from './intake/browser-requests.js';
import type { RateLimits } from './intake/rate-limits.js';
import type { BodyMemory } from './intake/request-body.js';
import type { EventLoopBudget } from './limits/event-loop-budget.js';
import type { Overload } from './limits/overload.js';
import type { OpenArrangements } from './memory/open-arrangements.js';
import type { SentPrefixes } from './memory/sent-prefixes.js';
import type { ServedHistories } from './memory/served-histories.js';
import type { WarmPrefixes } from './memory/warm-prefixes.js';
import type { Log } from './observe/log.js';
import type { Metrics } from './observe/metrics.js';
import type { PeerGateways } from './observe/peer-gateways.js';
import type { Tracing } from './observe/tracing.js';
import type { TrafficSeries } from './observe/traffic-series.js';
import type { RequestLog } from './operate/explain/request-log.js';
import type { PlanJobs } from './plan/plan-jobs.js';
import type { CacheSalts } from './prompt/cache-salts.js';
import type { InsertedDocuments } from './prompt/insert-slot.js';
import type { SentOrders } from './prompt/sent-orders.js';
import type { Report } from './shapes/shapes.js';
import type { Warmups } from './warm/warmups.js';

/** What every route works with. */
export interface Gateway {
  /** Changes in place where a configuration is read again. */
  readonly config: GatewayConfig;
  /** One engine, or several. */
  readonly engines: Engines;
  /** What this gateway is called in `x-warmpath-via`. */
  readonly hopName: string;
  /** Another one after the configuration was read again, as `cors`. */
  authenticator: Authenticator;
  readonly rateLimits: RateLimits;
  /** Refuses requests where the process has too much to do. */
  readonly overload: Overload;
  /** Only where origins are configured. */
  cors: Cors;
  /** Bodies of requests under way. */
  readonly bodies: BodyMemory;
  readonly histories: ServedHistories;
  /** Which engines got bodies that begin alike. */
  readonly sentPrefixes: SentPrefixes;
  /** Spreads the work on requests over turns of the event loop. */
  readonly eventLoopBudget: EventLoopBudget;
  readonly documents: InsertedDocuments;
  readonly conversations: Conversations;
  /** Only where the store of conversations is shared. */
  readonly peers: PeerGateways | undefined;
  /** Only where a folder is configured. */
  readonly collections: OpenCollections | undefined;
  /** Only where a key is configured. */
  readonly cacheSalts: CacheSalts | undefined;
  readonly prefixes: WarmPrefixes;
  readonly warmups: Warmups;
  readonly plans: PlanJobs;
  readonly arrangements: OpenArrangements;
  /** What became of requests just served. */
  readonly requests: RequestLog;
  /** Counts and times of the last quarter of an hour. */
  readonly traffic: TrafficSeries;
  /** How documents in messages were ordered that come again as history. */
  readonly sentOrders: SentOrders;
  readonly metrics: Metrics;
  readonly log: Log;
  /** Only where OpenTelemetry's API is installed. */
  readonly tracing: Tracing | undefined;
  /** Who watches the dashboard. */
  readonly viewers: Set<ServerResponse>;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  readonly prompts: PromptServer;
  /** Hears of every request that is over. */
  readonly onRequest: ((request: Report) => void) | undefined;
  readonly lifecycle: Lifecycle;
}
