import { MersenneTwister } from './mersenne-twister.js';
import { regionDocuments } from './regions.js';
import type { Trace } from './trace.js';

const REGIONS = 50;
const K = 5;

/**
 * The control of RAGCache++ §4.4: every request goes to another region than the one before, so adjacent requests share
 * nothing. Each region does come back every 50 requests, which is what ordering still finds to reuse.
 */
export function trueZeroTrace(seed: number, requests = 200): Trace {
  const random = new MersenneTwister(seed);
  return Array.from({ length: requests }, (_, number) => {
    const region = number % REGIONS;
    return { documents: random.sample(regionDocuments(region), K), question: region };
  });
}
