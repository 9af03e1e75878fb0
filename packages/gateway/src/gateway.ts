import type { ServerResponse } from 'node:http';
import type { PromptMemo } from './arrange/found/prompt-memo.js';
import type { SentOrders } from './arrange/found/sent-orders.js';
import type { UnrecognisedPrompts } from './arrange/found/unrecognised-prompts.js';
import type { InsertedDocuments } from './arrange/inserted-documents.js';
import type { OpenCollections } from './collections/open-collections.js';
import type { GatewayConfig } from './config/schema.js';
import type { Conversations } from './conversation/conversations.js';
import type { DispatchQueue } from './dispatch/dispatch-queue.js';
import type { Upstream } from './dispatch/upstream.js';
import type { EngineApis } from './engines/engine-apis.js';
import type { EngineWatch } from './engines/engine-watch.js';
import type { KvResidency } from './engines/kv-residency.js';
import type { Authenticator } from './intake/authenticate.js';
import type { Cors } from './intake/cors.js';
import type { RateLimits } from './intake/rate-limits.js';
import type { BodyMemory } from './intake/request-body.js';
import type { WorkSlices } from './intake/work-slices.js';
import type { OpenArrangements } from './observe/open-arrangements.js';
import type { ServedHistories } from './observe/served-histories.js';
import type { ServedRequest } from './observe/served-request.js';
import type { TrafficSeries } from './observe/traffic-series.js';
import type { RequestLog } from './operate/explain/request-log.js';
import type { Metrics } from './operate/metrics.js';
import type { PlanJobs } from './plan/plan-jobs.js';
import type { CacheSalts } from './render/cache-salts.js';
import type { Prewarmer } from './warm/prewarmer.js';
import type { WarmPrefixes } from './warm/warm-prefixes.js';
import type { Warmups } from './warm/warmups.js';

/** What every route works with. */
export interface Gateway {
  readonly config: GatewayConfig;
  readonly upstream: Upstream;
  /** What this gateway is called in `x-warmpath-via`. */
  readonly hopName: string;
  /** What every request to the engine carries, or does not carry, of keys (`engineCredentials`), and the hop's name. */
  readonly engineCredentials: Readonly<Record<string, string | undefined>>;
  readonly engineApis: EngineApis;
  readonly authenticator: Authenticator;
  readonly rateLimits: RateLimits;
  /** Only where origins are configured. */
  readonly cors: Cors | undefined;
  /** Bodies of requests under way. */
  readonly bodies: BodyMemory;
  readonly histories: ServedHistories;
  /** Only where the engine publishes KV events. */
  readonly kvResidency: KvResidency | undefined;
  /** Large bodies that are worked through. */
  readonly slices: WorkSlices;
  readonly documents: InsertedDocuments;
  readonly conversations: Conversations;
  /** Only where a folder is configured. */
  readonly collections: OpenCollections | undefined;
  /** Only where a key is configured. */
  readonly cacheSalts: CacheSalts | undefined;
  readonly queue: DispatchQueue;
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
  /** What became of the messages of conversations, so that they are not read again. */
  readonly promptMemo: PromptMemo;
  /** Only where it is enabled. */
  readonly prewarmer: Prewarmer | undefined;
  readonly metrics: Metrics;
  /** Who watches the dashboard. */
  readonly viewers: Set<ServerResponse>;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** Only where somebody wants to hear why documents in prompts stay as they are. */
  readonly unrecognised: UnrecognisedPrompts | undefined;
  /** Hears of every request that is over. */
  readonly onRequest: ((request: ServedRequest) => void) | undefined;
  /** Only where somebody wants to hear of the engine. */
  engineWatch?: EngineWatch;
  /** True once shutdown has begun. */
  draining: boolean;
}
