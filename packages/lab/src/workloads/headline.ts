import { MersenneTwister } from './mersenne-twister.js';
import { REGION_SIZE, regionDocuments, without } from './regions.js';
import type { Trace, TraceRequest } from './trace.js';

/** Requests in a row from one region. */
const BURST = 10;

/** Size and overlap of a bursty trace. */
export interface HeadlineOptions {
  /** Documents of the corpus, ten to a region. */
  readonly corpus: number;
  readonly requests: number;
  /** Documents of a request, at most 10. */
  readonly k: number;
  /** Share of the previous request's documents that is kept inside a burst. */
  readonly overlap: number;
}

/**
 * The main workload of RAGCache++ (§4.1), of its overlap sweep (§4.4) and of its sweep over k: bursts of ten requests
 * to a region, each keeping the first `max(1, floor(k × overlap))` documents of the one before, in place. So an overlap
 * of 0 still shares one document, and retrieval order alone already reuses them. Questions depend on the region only.
 */
export function headlineTrace(seed: number, options: HeadlineOptions): Trace {
  const { corpus, requests, k, overlap } = options;
  const random = new MersenneTwister(seed);
  const regions = corpus / REGION_SIZE;
  const trace: TraceRequest[] = [];
  let previous: number[] = [];
  for (let number = 0; number < requests; number++) {
    const region = Math.floor(number / BURST) % regions;
    const inRegion = regionDocuments(region);
    if (number % BURST === 0) {
      previous = random.sample(inRegion, k);
    } else {
      const kept = Math.max(1, Math.floor(k * overlap));
      const shared = previous.slice(0, kept);
      previous = [...shared, ...random.sample(without(inRegion, shared), Math.min(k - kept, REGION_SIZE - kept))];
    }
    trace.push({ documents: previous, question: region });
  }
  return trace;
}
