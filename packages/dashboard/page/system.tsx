import type { ComponentChildren } from 'preact';
import type { EngineStatus } from '../src/feed.ts';
import { anomaliesOf, isBad } from './anomalies.ts';
import { metricBy, metricSum } from './figures.ts';
import { bytes, count, duration, milliseconds, percent, tokens } from './format.ts';
import { Prose } from './prose.tsx';
import { settings, tick, totals } from './state.ts';

/** The engines, collections, conversations, memory, failures, and every metric. */
export function SystemView() {
  const found = anomaliesOf(tick.value!, totals.value, settings.value!);
  return (
    <>
      <Engines />
      {settings.value!.hasCollections && <Collections />}
      <div class="cards">
        <section class="card">
          <h2>Anomalies</h2>
          {found.length === 0 && <p>None.</p>}
          <ul class="anomalies">
            {found.map(({ severity, title, remedy }) => (
              <li key={title} class={severity}>
                <b>{title}</b>
                <Prose text={remedy} />
              </li>
            ))}
          </ul>
        </section>
        <Failures />
        <Memory />
        <Conversations />
        <Process />
      </div>
      <AllMetrics />
    </>
  );
}

function Engines() {
  const { engines, metrics } = tick.value!;
  const { queueCapacity } = settings.value!;
  return (
    <section class="card wide-card">
      <h2>Engines</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Engines">
        <table class="words-5">
          <thead>
            <tr>
              <th scope="col">Engine</th>
              <th scope="col">Address</th>
              <th scope="col">State</th>
              <th scope="col">Kind</th>
              <th scope="col">Its cache is known from</th>
              <th scope="col">In flight</th>
              <th scope="col">Queued</th>
              <th scope="col">Tokens to compute</th>
              <th scope="col">Answered</th>
              <th scope="col">Failed</th>
            </tr>
          </thead>
          <tbody>
            {engines.map(({ name, url, state, reason, kind, cacheKnown, inFlight, limit, queued, ...counts }) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{url}</td>
                <td title={reason ?? undefined}>
                  <span class={`status ${state === 'ready' ? 'good' : isBad(state) ? 'bad' : 'wait'}`}>{state}</span>
                </td>
                <td>{kind}</td>
                <td>
                  {cacheKnown === 'events'
                    ? `KV events, ${count(metrics[`warmpath_kv_blocks{engine="${name}"}`])} blocks`
                    : CACHE_KNOWN[cacheKnown]}
                </td>
                <td>
                  {count(inFlight)} of {count(limit)}
                </td>
                <td>
                  {count(queued)} of {count(queueCapacity)}
                </td>
                <td>{engines.length === 1 ? '–' : count(counts.pendingTokens)}</td>
                <td>{count(counts.served)}</td>
                <td title={`ejected ${counts.ejections} times`}>{count(counts.failed)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

const CACHE_KNOWN: Readonly<Record<Exclude<EngineStatus['cacheKnown'], 'events'>, string>> = {
  'events-lost': 'requests: KV events were lost',
  slots: 'a model of its slots',
  served: 'requests',
};

function Collections() {
  const { collections, metrics } = tick.value!;
  const outcome = (name: string) => metrics[`warmpath_speculations_total{outcome="${name}"}`] ?? 0;
  const [right, wrong] = [outcome('confirmed'), outcome('wrong')];
  return (
    <section class="card wide-card">
      <div class="heading">
        <h2>Collections</h2>
        {right + wrong > 0 && (
          <p class="beside">
            Generation before a search was over: {count(right)} times right, {count(wrong)} wrong (
            {tokens(metrics['warmpath_speculation_wasted_tokens_total'] ?? 0)} tokens in vain)
          </p>
        )}
      </div>
      {collections === null ? (
        <p class="wait">Reading …</p>
      ) : collections.listed.length === 0 ? (
        <p>
          None yet. <code>warmpath ingest docs</code> makes one.
        </p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Collections">
          <table class="words-2">
            <thead>
              <tr>
                {['Collection', 'Tenant', 'Documents', 'Passages', 'Tokens', 'Searches', 'Mean', 'Failed'].map(
                  (name) => (
                    <th key={name} scope="col">
                      {name}
                    </th>
                  ),
                )}
              </tr>
            </thead>
            <tbody>
              {collections.listed.map(({ tenant, name, searches, searchMs, failedSearches, ...sums }) => (
                <tr key={`${tenant}/${name}`}>
                  <th scope="row">{name}</th>
                  <td>{tenant}</td>
                  <td>{sums.documents === null ? 'unreadable' : count(sums.documents)}</td>
                  <td>{count(sums.passages)}</td>
                  <td>{tokens(sums.tokens)}</td>
                  <td>{count(searches)}</td>
                  <td>{milliseconds(searches === 0 ? null : searchMs / searches)}</td>
                  <td>{count(failedSearches)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {collections?.isAll === false && <p class="beside">There are more.</p>}
      {!settings.value!.names && collections !== null && collections.listed.length > 0 && (
        <p class="beside">
          Collections and tenants stand under short hashes. <code>dashboard.names: true</code> shows their names.
        </p>
      )}
    </section>
  );
}

const PARTS: Readonly<{ [part: string]: string }> = {
  bodies: 'Requests under way',
  histories: 'Knowledge trees',
  conversations: 'Conversations',
  prompts: 'Prompts of programs',
  documents: 'Documents that came more than once',
  arrangements: 'Orders for clients that write their prompts',
  requests: 'Records and captured bodies',
  prefixes: 'Prompt prefixes',
  beginnings: 'Engines of prompt prefixes',
  sessions: 'Accounts of sessions',
  baselines: 'Caches without Warmpath',
};

function Memory() {
  const { metrics } = tick.value!;
  const parts = metricBy(metrics, 'warmpath_memory_budget_bytes', 'part');
  return (
    <section class="card">
      <h2>Memory budget</h2>
      <p class="beside">
        {bytes(metricSum(metrics, 'warmpath_memory_bytes'))} of{' '}
        {bytes(metricSum(metrics, 'warmpath_memory_budget_bytes'))} (<code>limits.memoryBytes</code>)
      </p>
      <ul class="bars">
        {parts.map(([part, budget]) => {
          const held = metrics[`warmpath_memory_bytes{part="${part}"}`] ?? 0;
          const name = PARTS[part] ?? part;
          return (
            <li key={part}>
              <span>{name}</span>
              <meter aria-label={name} min={0} max={budget} value={held} />
              <span class="number">
                {bytes(held)} of {bytes(budget)}
              </span>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function Conversations() {
  const { metrics } = tick.value!;
  return (
    <section class="card">
      <h2>Conversations</h2>
      <dl>
        <Fact name="Remembered">{count(metrics['warmpath_sessions'])}</Fact>
        <Fact name="Turns of them">{count(metrics['warmpath_session_turns'])}</Fact>
        <Fact name="Bytes">{bytes(metrics['warmpath_memory_bytes{part="conversations"}'])}</Fact>
        <Fact name="Turns sent again as rendered">{count(metrics['warmpath_replayed_turns_total'])}</Fact>
        <Fact name="Documents not repeated">{count(metrics['warmpath_documents_deduplicated_total'])}</Fact>
        <Fact name="Tokens not sent again">{count(metrics['warmpath_deduplicated_tokens_total'])}</Fact>
        <Fact name="Turns whose conversation was forgotten">{count(metrics['warmpath_sessions_forgotten_total'])}</Fact>
        <Fact name="Store">{metrics['warmpath_session_store_up'] === 1 ? 'up' : 'down'}</Fact>
      </dl>
    </section>
  );
}

function Failures() {
  const { metrics } = tick.value!;
  const errors = metricBy(metrics, 'warmpath_errors_total', 'code');
  const statuses = metricBy(metrics, 'warmpath_requests_total', 'status').filter(
    ([status]) => Number(status) >= 400 && status !== '499',
  );
  const fallbacks = metricBy(metrics, 'warmpath_fail_open_total', 'fallback').filter(([, value]) => value > 0);
  return (
    <section class="card">
      <h2>Failures since the start</h2>
      <dl>
        {statuses.map(([status, value]) => (
          <Fact key={status} name={`Answers with status ${status}`}>
            {count(value)}
          </Fact>
        ))}
        {errors.map(([code, value]) => (
          <Fact key={code} name={code}>
            {count(value)}
          </Fact>
        ))}
        {fallbacks.map(([fallback, value]) => (
          <Fact key={fallback} name={`Went without its order: ${fallback}`}>
            {count(value)}
          </Fact>
        ))}
        <Fact name="Clients that left early">{count(metrics['warmpath_client_aborts_total'])}</Fact>
      </dl>
    </section>
  );
}

function Process() {
  const { metrics } = tick.value!;
  const answered = metricSum(metrics, 'warmpath_requests_total');
  const own = metrics['warmpath_overhead_seconds_count'] ?? 0;
  const cpu = metrics['warmpath_cpu_seconds_total'] ?? 0;
  const waited = metrics['warmpath_queue_wait_seconds_count'] ?? 0;
  const wait = waited === 0 ? null : (1_000 * (metrics['warmpath_queue_wait_seconds_sum'] ?? 0)) / waited;
  return (
    <section class="card">
      <h2>Gateway</h2>
      <dl>
        <Fact name="Requests answered">{count(answered)}</Fact>
        <Fact name="Mean time of its own before dispatch">
          {milliseconds(own === 0 ? null : (1_000 * (metrics['warmpath_overhead_seconds_sum'] ?? 0)) / own)}
        </Fact>
        <Fact name="Mean wait of queued prompts">{milliseconds(wait)}</Fact>
        <Fact name="Second tries of connections">{count(metrics['warmpath_upstream_retries_total'])}</Fact>
        <Fact name="CPU time">{duration(cpu)}</Fact>
        <Fact name="Resident memory">{bytes(metrics['warmpath_resident_memory_bytes'])}</Fact>
        <Fact name="Knowledge trees">{count(metrics['warmpath_histories'])}</Fact>
        <Fact name="Their nodes">{count(metrics['warmpath_tree_nodes'])}</Fact>
        <Fact name="Documents arranged">{count(metrics['warmpath_documents_total'])}</Fact>
        <Fact name="Of these moved">
          {percent(
            (metrics['warmpath_documents_moved_total'] ?? 0) / (metrics['warmpath_documents_total'] || Number.NaN),
          )}
        </Fact>
      </dl>
    </section>
  );
}

function AllMetrics() {
  const { metrics } = tick.value!;
  return (
    <details class="card wide-card">
      <summary>Everything in /metrics</summary>
      <table class="metrics">
        <thead>
          <tr>
            <th scope="col">Metric</th>
            <th scope="col">Value</th>
          </tr>
        </thead>
        <tbody>
          {Object.keys(metrics)
            .toSorted()
            .map((name) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{metrics[name]}</td>
              </tr>
            ))}
        </tbody>
      </table>
    </details>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
