import { estimate, mean, RAGCACHE_DATASETS, type RagCacheDatasetName, ragCacheWorkload } from '@warmpath/lab';
import { ENGINE_MODELS, type ReproducedRow, type ReproducedTable, type ReproduceOptions } from '../reproduction.js';
import { DATASETS } from './serving.js';
import { A10G, hostCopyOf } from './testbed.js';

/** An hour at the paper's 0.8 requests a second (§7.4). */
const REQUESTS = 2_880;
/** Tokens of a request beside its prefix (§3.2). */
const QUESTION = 32;
const PREFIXES = [128, 512, 1_024, 2_048, 4_096] as const;

/** Figs. 3 and 7: the times that everything else rests on. */
export function prefillTable(): ReproducedTable {
  const copyMs = hostCopyOf('llama2-7b');
  const rows = PREFIXES.map((prefix): ReproducedRow => {
    const full = A10G.prefillMs(0, prefix + QUESTION);
    const cached = A10G.prefillMs(prefix, QUESTION);
    const fromHost = cached + copyMs(prefix);
    const isLongest = prefix === 4_096;
    return {
      label: `prefix of ${prefix.toLocaleString('en-US')} tokens`,
      figures: [
        { name: 'full s', paper: isLongest ? 1 : undefined, ours: full / 1_000, places: 2 },
        { name: 'times cached', paper: isLongest ? 11.5 : undefined, ours: full / cached },
        { name: 'times from host', paper: isLongest ? 3.9 : undefined, ours: full / fromHost },
      ],
    };
  });
  return {
    title: 'Figs. 3 and 7: prefill of Llama2-7B on an A10G, by what of the prompt is cached',
    model: `no cache rules: prefill behind a prefix that is held; ${ENGINE_MODELS.a10g}`,
    rows,
    notes: [
      'No evidence: speed of the device and of its host copies are fitted to these very figures. The text gives the largest ratios and "one second above 4,000 tokens"; the rest is drawings.',
    ],
  };
}

/** Figs. 4 and 5: lengths and skew of what is retrieved. */
export function retrievalPatternTable({ seeds, requests = REQUESTS }: ReproduceOptions): ReproducedTable {
  return {
    title: 'Figs. 4 and 5: length of documents, and how few of them most requests are for (top-1)',
    model: 'none: what requests ask for, before any engine',
    rows: DATASETS.map((dataset): ReproducedRow => {
      const workloads = seeds.map((seed) => ragCacheWorkload(seed, { dataset, k: 1, requests }));
      const lengths = estimate(
        workloads.map(({ requests }) => {
          const all = new Map(requests.flatMap(({ documents }) => documents.map(({ key, tokens }) => [key, tokens])));
          return mean([...all.values()]);
        }),
      );
      const popular = estimate(workloads.map((workload) => popularShare(workload.requests, dataset)));
      const isMmlu = dataset === 'mmlu';
      return {
        label: dataset,
        figures: [
          { name: 'tokens a document', paper: 3_718, ours: lengths.mean, se: lengths.se, places: 0 },
          { name: '% of requests', paper: isMmlu ? 60 : undefined, ours: 100 * popular.mean, se: 100 * popular.se },
          {
            name: 'for % of the documents',
            paper: isMmlu ? 3 : undefined,
            ours: 100 * RAGCACHE_DATASETS[dataset].popularDocuments,
          },
        ],
      };
    }),
    notes: [
      'No evidence: the workloads are drawn so that these figures come out. The number of documents (5,000), the shape of the lengths and the skew of the Natural Questions are inferred; Fig. 6 has other embeddings and indexes, which do not change the drawings.',
    ],
  };
}

/** Share of the requests that go to the documents that are the most popular by the workload's distribution. */
function popularShare(
  requests: readonly { readonly documents: readonly { readonly id: string }[] }[],
  dataset: RagCacheDatasetName,
): number {
  const { documents, popularDocuments } = RAGCACHE_DATASETS[dataset];
  const count = new Map<string, number>();
  for (const request of requests) for (const { id } of request.documents) count.set(id, (count.get(id) ?? 0) + 1);
  const sorted = [...count.values()].sort((a, b) => b - a).slice(0, popularDocuments * documents);
  return sorted.reduce((sum, uses) => sum + uses, 0) / requests.length;
}
