import type { Warning } from '@warmpath/core';

/** Warnings named in the response header; the rest shows as a number. */
const WARNINGS_SHOWN = 8;

/** What was left out or changed, in one line of bounded length. */
export function warningsHeader(warnings: readonly Warning[]): string {
  const shown = warnings.slice(0, WARNINGS_SHOWN).map(({ code, path }) => `${code} ${path}`);
  const hidden = warnings.length - shown.length;
  return hidden > 0 ? `${shown.join(', ')}, and ${hidden} more` : shown.join(', ');
}
