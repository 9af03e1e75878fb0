const MONTH = '(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}';
/** Dates and times of day, and seconds or milliseconds since 1970. */
const TIMESTAMP = new RegExp(
  [
    '\\d{4}-\\d{2}-\\d{2}(?:[T ]\\d{2}:\\d{2}(?::\\d{2}(?:[.,]\\d{1,9})?)?)?(?: ?(?:Z|UTC|GMT|[+-]\\d{2}:?\\d{2}))?',
    '\\d{1,2}[./]\\d{1,2}[./]\\d{2,4}',
    '\\d{1,2}:\\d{2}(?::\\d{2}(?:[.,]\\d{1,9})?)?(?: ?[ap]\\.?m\\.?)?',
    `(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,? )?(?:\\d{1,2}(?:st|nd|rd|th|\\.)? )?${MONTH}\\.? \\d{1,4}(?:,? \\d{4})?`,
    '\\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\\b',
    '\\b1[5-9]\\d{8}(?:\\d{3})?\\b',
  ].join('|'),
  'gi',
);
/** Ids that are drawn: UUIDs, long hexadecimal numbers, long runs of letters and digits. */
const RANDOM_ID =
  /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{10,64}\b|\b(?=[A-Za-z_-]{0,64}\d)[A-Za-z0-9_-]{12,64}\b/gi;
/** Characters around a difference in which it is looked for. */
const AROUND = 80;

/**
 * What changes by itself at a place of a text, if something of the kind stands there; within `slack` characters behind
 * it. O(1).
 */
export function volatileAt(text: string, offset: number, slack: number): 'timestamp' | 'random-id' | undefined {
  const start = Math.max(0, offset - AROUND);
  const window = text.slice(start, offset + slack + AROUND);
  const covers = (pattern: RegExp) => {
    for (const { 0: match, index } of window.matchAll(pattern)) {
      const from = start + index;
      if (from <= offset + slack && offset <= from + match.length) return true;
    }
    return false;
  };
  if (covers(RANDOM_ID) && !covers(TIMESTAMP)) return 'random-id';
  return covers(TIMESTAMP) ? 'timestamp' : undefined;
}
