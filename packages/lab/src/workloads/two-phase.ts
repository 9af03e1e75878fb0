import { MersenneTwister } from './mersenne-twister.js';
import { regionDocuments, without } from './regions.js';
import type { Trace, TraceRequest } from './trace.js';

const KEEP = 0.6;
const KEPT = 3;
const K = 5;

/**
 * The two-phase workload of RAGCache++: regions 0 to 9 in the first half, 40 to 49 in the second; six of ten requests
 * keep up to three documents of the request before, where the region is the same.
 *
 * The published generator draws the kept documents from a Python set of strings, whose order changes with the process's
 * hash seed, so that its own traces differ from run to run. Here they are taken in the order of the request before, one
 * of the orders such a set can have.
 */
export function twoPhaseTrace(seed: number, requests = 200): Trace {
  const random = new MersenneTwister(seed);
  const trace: TraceRequest[] = [];
  let previous: number[] = [];
  for (let number = 0; number < requests; number++) {
    const region = number < requests / 2 ? random.randint(0, 9) : random.randint(40, 49);
    const inRegion = regionDocuments(region);
    let shared: number[] = [];
    if (number > 0 && random.random() < KEEP) {
      const candidates = previous.filter((document) => inRegion.includes(document));
      shared = random.sample(candidates, Math.min(KEPT, candidates.length));
    }
    previous = [...shared, ...random.sample(without(inRegion, shared), K - shared.length)];
    trace.push({ documents: previous, question: region });
  }
  return trace;
}
