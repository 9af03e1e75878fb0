import type { EngineStatus, FeedSettings, FeedTick } from '../src/feed.ts';
import { metricSum, share, type Totals } from './figures.ts';
import { percent } from './format.ts';

/** Something that somebody should look at. */
export interface Anomaly {
  readonly severity: 'bad' | 'warning';
  readonly title: string;
  readonly remedy: string;
}

/** Prompts from which on a share is worth a judgement. */
const ENOUGH = 20;
/** Difference of predicted and reported share that shows that the engine does not cache as it is believed to. */
const DIVERGENCE = 0.2;
const ERROR_SHARE = 0.05;
const NEARLY_FULL = 0.9;

/** Whether an engine in that state gets no requests although it should. */
export function isBad(state: EngineStatus['state']): boolean {
  return state === 'failing' || state === 'ejected';
}

/** What is wrong, the worst first. `totals` of the span that is shown. */
export function anomaliesOf(tick: FeedTick, totals: Totals, settings: FeedSettings): Anomaly[] {
  const found: Anomaly[] = [];
  const add = (severity: Anomaly['severity'], title: string, remedy: string) => found.push({ severity, title, remedy });
  for (const { url, state, reason, cacheKnown } of tick.engines) {
    if (state === 'ejected') add('bad', `The engine at ${url} failed and gets no requests`, reason ?? 'See its log.');
    if (state === 'failing') add('bad', `The engine at ${url} does not answer`, reason ?? 'Is it started?');
    if (cacheKnown === 'events-lost') {
      add('warning', `KV events of the engine at ${url} were lost`, 'Its cache is estimated until it starts again.');
    }
  }
  const errors = share(totals.errors, totals.requests);
  if (errors !== null && totals.requests >= ENOUGH && errors > ERROR_SHARE) {
    add('bad', `${percent(errors)} of prompts failed`, 'The codes stand under System, each request under Requests.');
  }
  const queued = Math.max(...tick.engines.map((engine) => engine.queued));
  if (queued >= NEARLY_FULL * settings.queueCapacity) {
    add('bad', `${queued} prompts wait: the queue is full`, 'Prompts beyond it get 429. See `queue.capacity`.');
  }
  const reported = share(totals.cachedTokens, totals.promptTokens);
  const predicted = share(totals.predictedTokens, totals.promptTokens);
  if (reported !== null && predicted !== null && totals.reported >= ENOUGH) {
    if (predicted - reported > DIVERGENCE) {
      add(
        'warning',
        `The engine reused ${percent(reported)} of prompt tokens where ${percent(predicted)} were predicted`,
        'Its prefix cache may be off or too small, or other clients fill it. `warmpath doctor` checks it.',
      );
    }
  }
  if (totals.requests >= ENOUGH && totals.reported === 0) {
    add(
      'warning',
      'The engine reports no counts of its prompts',
      'Without them nothing can be measured. Start vLLM with --enable-prompt-tokens-details, SGLang with --enable-cache-report.',
    );
  }
  if (tick.degradedHistories > 0) {
    add(
      'warning',
      `Most predictions were missed lately for ${tick.degradedHistories} of the knowledge trees`,
      'Set `residency.evictsLeastRecent: false` for engines that cache by slot, and for hosted APIs.',
    );
  }
  if (metricSum(tick.metrics, 'warmpath_fail_open_total') > 0) {
    add('warning', 'Defects cost some requests their order', 'Each is in the log as `failed open`.');
  }
  if (tick.metrics['warmpath_session_store_up'] === 0) {
    add('warning', 'The store of conversations is away', 'This gateway goes on by itself. See `session.store`.');
  }
  return found.toSorted((a, b) => Number(b.severity === 'bad') - Number(a.severity === 'bad'));
}
