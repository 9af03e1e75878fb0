/** Milliseconds in which nothing can be said of the rest. */
const TOO_SOON_MS = 1_000;

/** `about 40 s left`, at the pace so far; empty where that says nothing yet, or nothing is left. */
export function timeLeft(elapsedMs: number, done: number, total: number): string {
  if (done === 0 || elapsedMs < TOO_SOON_MS || done >= total) return '';
  const seconds = Math.ceil((elapsedMs / done) * ((total - done) / 1_000));
  if (seconds < 90) return `about ${seconds} s left`;
  return seconds < 5_400 ? `about ${Math.round(seconds / 60)} min left` : `about ${Math.round(seconds / 3_600)} h left`;
}
