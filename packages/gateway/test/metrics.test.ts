import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { answerStream } from './fake-engine.js';
import { chat, send, stand } from './harness.js';

const PAGE = readFileSync(join(import.meta.dirname, '../../../docs/reference/metrics.md'), 'utf8');

/** What needs a Redis, an overload, a staged search or a long session before it has a sample. */
const RARE: ReadonlySet<string> = new Set([
  'warmpath_peer_orders_total',
  'warmpath_search_warmups_total',
  'warmpath_session_breaks_total',
  'warmpath_session_lost_cost_total',
  'warmpath_session_lost_tokens_total',
  'warmpath_session_store_failures_total',
  'warmpath_session_store_seconds',
  'warmpath_shed_requests_total',
  'warmpath_speculations_total',
]);

interface ListedMetric {
  readonly type: string;
  readonly labels: readonly string[];
  readonly help: string;
}

/** The rows of the reference page. */
function documented(): Map<string, ListedMetric> {
  const rows = PAGE.matchAll(/^\| `(warmpath_\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$/gm);
  return new Map(
    [...rows].map(([, name, type, labels, help]) => [
      name!,
      { type: type!, labels: [...labels!.matchAll(/`(\w+)`/g)].map(([, label]) => label!).toSorted(), help: help! },
    ]),
  );
}

/** What Prometheus reads of the text: the labels of each sample, `undefined` where a metric has none yet. */
function live(text: string): Map<string, Omit<ListedMetric, 'labels'> & { labels: string[] | undefined }> {
  const metrics: ReturnType<typeof live> = new Map();
  const helps = new Map([...text.matchAll(/^# HELP (\S+) (.*)$/gm)].map(([, name, help]) => [name, help!]));
  for (const [, name, type] of text.matchAll(/^# TYPE (\S+) (\S+)$/gm)) {
    expect(metrics.has(name!), `${name} twice`).toBe(false);
    metrics.set(name!, { type: type!, labels: undefined, help: helps.get(name)! });
  }
  for (const [, sample, listed = ''] of text.matchAll(/^(\w+)(?:\{(.*)\})? \S+$/gm)) {
    const parts = /_(bucket|sum|count)$/;
    const metric = metrics.get(sample!) ?? metrics.get(sample!.replace(parts, ''));
    expect(metric, `${sample} without a type`).toBeDefined();
    const labels = [...listed.matchAll(/(\w+)="(?:[^"\\]|\\.)*"/g)].map(([, label]) => label!);
    const own = labels.filter((label) => label !== 'le' || metric!.type !== 'histogram').toSorted();
    metric!.labels ??= own;
    expect(own, sample).toEqual(metric!.labels);
  }
  return metrics;
}

it('says at /metrics what the reference page says: names, types, labels and meaning', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'warmpath-metrics-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  // Nobody is at either address: what would come from there counts as lost.
  const { gateway } = await stand(
    answerStream,
    {
      collections: { folder },
      prices: [{ input: 1, cached: 0.1 }],
      upstream: { kvEvents: { endpoint: 'tcp://127.0.0.1:9' } },
    },
    {
      arrange: () => {
        throw new Error('a defect');
      },
    },
  );
  const ask = (path: string, body?: object) => send(gateway.url + path, body);
  await ask('/v1/chat/completions', chat(undefined, { stream: true, warmpath: { session: 'one' } }));
  await ask('/v1/chat/completions', chat([{ id: 3 }]));
  for (const names of [
    ['a', 'b'],
    ['b', 'a'],
  ]) {
    const tools = names.map((name) => ({ type: 'function', function: { name } }));
    await ask('/v1/chat/completions', chat(undefined, { documents: undefined, tools }));
  }
  await ask('/v1/collections/handbook/documents', { documents: [{ id: 'velka', content: 'Velka weighs 42 kg.' }] });
  const retrieval = { retrieval: { collection: 'handbook' } };
  await ask('/v1/chat/completions', chat(undefined, { documents: undefined, warmpath: retrieval }));
  await ask('/v1/warmup', { model: 'm', messages: [{ role: 'system', content: 'Answer from the documents.' }] });
  await ask('/v1/plan', { requests: [{ id: 'a', documents: [{ id: 'velka', content: 'Velka weighs 42 kg.' }] }] });
  await gateway.reload({ upstream: { url: 'not a url' } }).catch(() => {});
  const found = live((await ask('/metrics')).text);
  const listed = documented();
  expect([...found.keys()].toSorted()).toEqual([...listed.keys()]);
  const unseen: string[] = [];
  for (const [name, { type, labels, help }] of found) {
    const { labels: said, ...rest } = listed.get(name)!;
    expect({ type, help }, name).toEqual(rest);
    if (labels === undefined) unseen.push(name);
    else expect(labels, name).toEqual(said);
  }
  // What has a label has no sample before its first event.
  expect(unseen.filter((name) => !RARE.has(name))).toEqual([]);
});
