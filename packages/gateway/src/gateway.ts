import type { CacheSalts } from './cache-salts.js';
import type { Composer } from './compose.js';
import type { GatewayConfig } from './config.js';
import type { Conversations } from './conversations.js';
import type { DispatchQueue } from './dispatch-queue.js';
import type { EngineApis } from './engine-apis.js';
import type { RequestLog } from './explain/request-log.js';
import type { Metrics } from './metrics.js';
import type { OpenArrangements } from './open-arrangements.js';
import type { PlanJobs } from './plan/plan-jobs.js';
import type { Prewarmer } from './prewarmer.js';
import type { PromptMemo } from './recognised/prompt-memo.js';
import type { SentOrders } from './recognised/sent-orders.js';
import type { ServedHistories } from './served-histories.js';
import type { Upstream } from './upstream.js';
import type { WarmPrefixes } from './warm-prefixes.js';
import type { Warmups } from './warmups.js';

/** What every route works with. */
export interface Gateway {
  readonly config: GatewayConfig;
  readonly upstream: Upstream;
  readonly engineApis: EngineApis;
  readonly histories: ServedHistories;
  readonly composer: Composer;
  readonly conversations: Conversations;
  /** Only where a key is configured. */
  readonly cacheSalts: CacheSalts | undefined;
  readonly queue: DispatchQueue;
  readonly prefixes: WarmPrefixes;
  readonly warmups: Warmups;
  readonly plans: PlanJobs;
  readonly arrangements: OpenArrangements;
  /** What became of requests just served. */
  readonly requests: RequestLog;
  /** How documents in messages were ordered that come again as history. */
  readonly sentOrders: SentOrders;
  /** What became of the messages of conversations, so that they are not read again. */
  readonly promptMemo: PromptMemo;
  /** Only where it is enabled. */
  readonly prewarmer: Prewarmer | undefined;
  readonly metrics: Metrics;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** True once shutdown has begun. */
  draining: boolean;
}
