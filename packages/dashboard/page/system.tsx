import type { ComponentChildren } from 'preact';
import { anomaliesOf } from './anomalies.ts';
import { metricBy, metricSum } from './figures.ts';
import { bytes, count, duration, milliseconds, percent } from './format.ts';
import { settings, tick, totals } from './state.ts';

/** The engines, the queue, conversations, memory, failures, and every metric. */
export function SystemView() {
  const found = anomaliesOf(tick.value!, totals.value, settings.value!);
  return (
    <>
      <Engines />
      <div class="cards">
        <section class="card">
          <h2>Anomalies</h2>
          {found.length === 0 && <p>None.</p>}
          <ul class="anomalies">
            {found.map(({ severity, title, remedy }) => (
              <li key={title} class={severity}>
                <b>{title}</b>
                {remedy}
              </li>
            ))}
          </ul>
        </section>
        <Memory />
        <Conversations />
        <Failures />
        <Process />
      </div>
      <AllMetrics />
    </>
  );
}

function Engines() {
  const { engines, metrics } = tick.value!;
  const { queueCapacity } = settings.value!;
  const waited = metrics['warmpath_queue_wait_seconds_count'] ?? 0;
  const wait = waited === 0 ? null : (1_000 * (metrics['warmpath_queue_wait_seconds_sum'] ?? 0)) / waited;
  return (
    <section class="card wide-card">
      <h2>Engines</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Engines">
        <table>
          <thead>
            <tr>
              <th scope="col">Engine</th>
              <th scope="col">Address</th>
              <th scope="col">State</th>
              <th scope="col">In flight</th>
              <th scope="col">At most</th>
              <th scope="col">Queued</th>
              <th scope="col">Queue holds</th>
              <th scope="col">Mean wait</th>
              <th scope="col">Second tries</th>
            </tr>
          </thead>
          <tbody>
            {engines.map(({ name, url, state, reason, inFlight, limit, queued }) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{url}</td>
                <td title={reason ?? undefined}>
                  <span
                    class={`status ${state === 'ready' ? 'good' : state === 'failing' || state === 'ejected' ? 'bad' : 'wait'}`}
                  >
                    {state}
                  </span>
                </td>
                <td>{count(inFlight)}</td>
                <td>{count(limit)}</td>
                <td>{count(queued)}</td>
                <td>{count(queueCapacity)}</td>
                <td>{milliseconds(wait)}</td>
                <td>{count(metrics['warmpath_upstream_retries_total'])}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

const PARTS: Readonly<{ [part: string]: string }> = {
  bodies: 'Requests under way',
  histories: 'Knowledge trees',
  conversations: 'Conversations',
  documents: 'Passages that came again',
  prewarm: 'Prefill ahead',
  arrangements: 'Orders given alone',
  requests: 'Records of requests',
  prefixes: 'Prompt prefixes',
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
  return (
    <section class="card">
      <h2>Gateway</h2>
      <dl>
        <Fact name="Requests answered">{count(answered)}</Fact>
        <Fact name="Mean time of its own before dispatch">
          {milliseconds(own === 0 ? null : (1_000 * (metrics['warmpath_overhead_seconds_sum'] ?? 0)) / own)}
        </Fact>
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
