import { estimate } from '../statistics.js';
import { MersenneTwister } from '../workloads/mersenne-twister.js';
import { studentTPValue } from './student-t.js';

/** Larger sums than this are not enumerated: the table of the test grows with them. */
const MAX_SUM = 1_000_000;

/**
 * Fisher's exact randomisation test of paired whole-number differences, two-sided: how often signs drawn by chance give
 * a sum at least as far from 0 as the one found, over all sign patterns. For differences of -1, 0 and 1 it is McNemar's
 * exact test; with one difference a conversation, questions of a conversation need not be independent of each other. 1
 * where nothing differs. Differences must be whole numbers with a sum of magnitudes of at most 1,000,000. O(differences
 * × sum of magnitudes).
 */
export function signFlipTest(differences: readonly number[]): number {
  const sizes = differences.map(Math.abs).filter((size) => size > 0);
  const reach = sizes.reduce((sum, size) => sum + size, 0);
  if (!sizes.every(Number.isInteger) || reach > MAX_SUM)
    throw new RangeError('whole numbers of a small sum were expected');
  if (reach === 0) return 1;
  const found = Math.abs(differences.reduce((sum, difference) => sum + difference, 0));
  // chances[i]: that the signs so far give the sum i - reach.
  let chances = new Float64Array(2 * reach + 1);
  chances[reach] = 1;
  for (const size of sizes) {
    const next = new Float64Array(chances.length);
    for (const [i, chance] of chances.entries()) {
      if (chance === 0) continue;
      next[i - size]! += chance / 2;
      next[i + size]! += chance / 2;
    }
    chances = next;
  }
  let p = 0;
  for (const [i, chance] of chances.entries()) if (Math.abs(i - reach) >= found) p += chance;
  return Math.min(1, p);
}

/** A mean with the interval in which 95 % of its bootstrap replicates lie. */
export interface BootstrapMean {
  readonly mean: number;
  readonly low: number;
  readonly high: number;
}

/** Whether two paired samples differ in the mean. */
export interface PairedTest {
  /** Mean difference over its standard error; `null` where all pairs differ alike, so that there is no error. */
  readonly t: number | null;
  readonly degreesOfFreedom: number;
  /** Two-sided, by Student's t distribution. */
  readonly p: number;
}

export interface BootstrapOptions {
  readonly seed: number;
  /** Default 10,000. */
  readonly replicates?: number;
  /**
   * Questions that belong together, by their places: a replicate draws all of them or none. Default: each stands alone.
   */
  readonly units?: readonly (readonly number[])[];
}

const REPLICATES = 10_000;
/** Share of the replicates outside the interval, on both sides together. */
const OUTSIDE = 0.05;

/**
 * Bootstrap intervals of the means of several samples over the same questions, and of differences between them: every
 * replicate draws questions (or units of them), and all samples see the same draw, which makes the differences paired
 * (Efron's percentile interval). Deterministic for a seed. All samples must have the same length, above 0. O(replicates
 * × values).
 */
export function bootstrapMeans(
  samples: readonly (readonly number[])[],
  { seed, replicates = REPLICATES, units }: BootstrapOptions,
): { mean(sample: number): BootstrapMean; difference(sample: number, baseline: number): BootstrapMean } {
  const drawable = units ?? Array.from({ length: samples[0]?.length ?? 0 }, (_, place) => [place]);
  const sums = samples.map((sample) => unitSums(sample, drawable));
  const random = new MersenneTwister(seed);
  const means = samples.map(() => new Float64Array(replicates));
  const drawn = new Uint32Array(drawable.length);
  for (let replicate = 0; replicate < replicates; replicate++) {
    let questions = 0;
    for (let i = 0; i < drawn.length; i++) {
      drawn[i] = Math.floor(random.random() * drawn.length);
      questions += drawable[drawn[i]!]!.length;
    }
    for (const [number, ofUnits] of sums.entries()) {
      let sum = 0;
      for (let i = 0; i < drawn.length; i++) sum += ofUnits[drawn[i]!]!;
      means[number]![replicate] = sum / questions;
    }
  }
  const meanOf = (number: number) => estimate(samples[number]!).mean;
  return {
    mean: (number) => withInterval(meanOf(number), means[number]!),
    difference: (number, baseline) =>
      withInterval(
        meanOf(number) - meanOf(baseline),
        means[number]!.map((value, i) => value - means[baseline]![i]!),
      ),
  };
}

/** The sum of a sample over each unit. O(n). */
export function unitSums(sample: readonly number[], units: readonly (readonly number[])[]): readonly number[] {
  return units.map((places) => places.reduce((sum, place) => sum + sample[place]!, 0));
}

/** Student's t-test on paired samples of the same length, at least 2. O(n). */
export function pairedTTest(sample: readonly number[], baseline: readonly number[]): PairedTest {
  const { mean, se } = estimate(sample.map((value, i) => value - baseline[i]!));
  const degreesOfFreedom = sample.length - 1;
  if (se === 0) return { t: mean === 0 ? 0 : null, degreesOfFreedom, p: mean === 0 ? 1 : 0 };
  const t = mean / se;
  return { t, degreesOfFreedom, p: studentTPValue(t, degreesOfFreedom) };
}

function withInterval(mean: number, replicates: Float64Array): BootstrapMean {
  const sorted = replicates.toSorted();
  const outside = Math.floor((sorted.length * OUTSIDE) / 2);
  return { mean, low: sorted[outside]!, high: sorted[sorted.length - 1 - outside]! };
}
