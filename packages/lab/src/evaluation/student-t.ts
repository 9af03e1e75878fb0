/** Lanczos' approximation of the gamma function with g = 7 (coefficients of Godfrey 2001): 15 digits. */
const LANCZOS_G = 7;
const LANCZOS = [
  0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
  12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
];

/** Relative size of a step at which the continued fraction has converged. */
const PRECISION = 1e-15;
const MAX_STEPS = 1_000;

/**
 * Two-sided p-value of Student's t: how likely a value at least this far from 0 is, if there is no difference. By the
 * regularised incomplete beta function, `p = I(df / (df + t²); df / 2, 1 / 2)`.
 *
 * @param degreesOfFreedom above 0
 */
export function studentTPValue(t: number, degreesOfFreedom: number): number {
  if (Number.isNaN(t) || !(degreesOfFreedom > 0)) return Number.NaN;
  if (!Number.isFinite(t)) return 0;
  const total = degreesOfFreedom + t * t;
  return regularisedBeta({ x: degreesOfFreedom / total, rest: (t * t) / total }, degreesOfFreedom / 2, 0.5);
}

/**
 * `I(x; a, b)` for x from 0 to 1; `rest` is `1 - x`, given apart because a difference of numbers near 1 has few digits.
 */
function regularisedBeta({ x, rest }: { readonly x: number; readonly rest: number }, a: number, b: number): number {
  if (x <= 0) return 0;
  if (rest <= 0) return 1;
  // The fraction converges fast on one side of the mean; on the other, symmetry gives the complement.
  if (x > (a + 1) / (a + b + 2)) return 1 - regularisedBeta({ x: rest, rest: x }, b, a);
  const logFront = logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log(rest);
  return (Math.exp(logFront) / a) * betaFraction(x, a, b);
}

/**
 * The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method as Thompson and Barnett
 * changed it.
 */
function betaFraction(x: number, a: number, b: number): number {
  const away = (value: number) =>
    Math.abs(value) < Number.MIN_VALUE / PRECISION ? Number.MIN_VALUE / PRECISION : value;
  let c = 1;
  let d = 1 / away(1 - ((a + b) * x) / (a + 1));
  let result = d;
  for (let m = 1; m <= MAX_STEPS; m++) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away(1 + even * d);
    c = away(1 + even / c);
    result *= d * c;
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away(1 + odd * d);
    c = away(1 + odd / c);
    const step = d * c;
    result *= step;
    if (Math.abs(step - 1) < PRECISION) break;
  }
  return result;
}

/** Natural logarithm of the gamma function, for x of 0.5 and more, which is all that is asked here. */
function logGamma(x: number): number {
  const z = x - 1;
  let sum = LANCZOS[0]!;
  for (let i = 1; i < LANCZOS.length; i++) sum += LANCZOS[i]! / (z + i);
  const base = z + LANCZOS_G + 0.5;
  return 0.5 * Math.log(2 * Math.PI) + (z + 0.5) * Math.log(base) - base + Math.log(sum);
}
