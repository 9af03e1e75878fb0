import { MersenneTwister } from './mersenne-twister.js';
import { regionDocuments, without } from './regions.js';
import type { Trace, TraceRequest } from './trace.js';

const REGIONS = 50;
const BURST = 10;
const JUMP = 0.3;
const FRESH = 0.3;
const KEPT = 3;
const K = 5;

/**
 * The mixed workload of RAGCache++: three of ten requests jump to another region, three of ten draw fresh documents,
 * the others keep up to three documents of the request before, in place.
 */
export function mixedTrace(seed: number, requests = 200): Trace {
  const random = new MersenneTwister(seed);
  const regions = Array.from({ length: REGIONS }, (_, region) => region);
  const trace: TraceRequest[] = [];
  let region = 0;
  let previous: number[] = [];
  for (let number = 0; number < requests; number++) {
    if (number > 0 && random.random() < JUMP) {
      region = random.choice(without(regions, [region]));
    } else if (number > 0 && number % BURST === 0) {
      region = (region + 1) % REGIONS;
    }
    const inRegion = regionDocuments(region);
    if (number === 0 || random.random() < FRESH) {
      previous = random.sample(inRegion, K);
    } else {
      const shared = previous.filter((document) => inRegion.includes(document)).slice(0, KEPT);
      previous = [...shared, ...random.sample(without(inRegion, shared), K - shared.length)];
    }
    trace.push({ documents: previous, question: region });
  }
  return trace;
}
