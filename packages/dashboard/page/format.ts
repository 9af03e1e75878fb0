/** Numbers as people read them, with their units. A missing value is a dash. */

const NONE = '–';
const PLAIN = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const ONE = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const TWO = new Intl.NumberFormat('en', { minimumFractionDigits: 2, maximumFractionDigits: 2 });

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? NONE : PLAIN.format(value);
}

/** `12,345`, `1.23 M`, `4.56 G`. */
export function tokens(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  if (value < 100_000) return PLAIN.format(value);
  if (value < 1e6) return `${PLAIN.format(value / 1e3)} k`;
  return value < 1e9 ? `${TWO.format(value / 1e6)} M` : `${TWO.format(value / 1e9)} G`;
}

const SMALL_AMOUNT = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });

/** An amount in the currency of the configured prices. */
export function money(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  return value < 1 ? SMALL_AMOUNT.format(value) : TWO.format(value);
}

/** Short, for axes: `12k`. */
export function short(value: number): string {
  if (value >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (value >= 1e3) return `${Number((value / 1e3).toPrecision(3))}k`;
  return String(Number(value.toPrecision(3)));
}

export function percent(share: number | null | undefined): string {
  return share === null || share === undefined || Number.isNaN(share) ? NONE : `${ONE.format(100 * share)}%`;
}

export function milliseconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  if (value < 10) return `${ONE.format(value)} ms`;
  if (value < 1_000) return `${PLAIN.format(value)} ms`;
  return value < 100_000 ? `${TWO.format(value / 1_000)} s` : duration(value / 1_000);
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  if (value < 1_024) return `${PLAIN.format(value)} B`;
  if (value < 1_048_576) return `${ONE.format(value / 1_024)} KiB`;
  return value < 1_073_741_824 ? `${ONE.format(value / 1_048_576)} MiB` : `${TWO.format(value / 1_073_741_824)} GiB`;
}

export function rate(perSecond: number): string {
  return perSecond < 10 ? TWO.format(perSecond) : ONE.format(perSecond);
}

/** `42 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`. */
export function duration(seconds: number): string {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3_600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3_600)} h ${Math.floor((whole % 3_600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3_600)} h`;
}

/** Time of day of a wall clock in milliseconds. */
export function clock(time: number): string {
  return new Date(time).toLocaleTimeString('en-GB');
}

/** Milliseconds between two times on an axis of so many pixels, so that they do not touch. */
export function timeStep(spanMs: number, width: number): number {
  const most = Math.max(2, Math.floor(width / 90));
  return (
    [1, 2, 5, 10, 15, 30, 60, 120, 180, 300].find((seconds) => spanMs / (seconds * 1_000) <= most)! * 1_000 || 600_000
  );
}

/** Why a prefix broke, in words: causes are names such as `documents-changed`. */
export function causeText(cause: string | null): string {
  return cause === null ? '' : cause.replaceAll('-', ' ');
}
