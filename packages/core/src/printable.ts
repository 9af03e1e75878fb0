/** Characters that end a line in some terminal, and tabs. */
const LINE_BREAKS = /[\t\n\v\f\r\u0085\u2028\u2029]+/g;
/**
 * Control characters, lone surrogates, line and paragraph separators, and characters that are invisible: bidirectional
 * controls, zero-width characters, tags. Variation selectors and the joiners that emoji and scripts need are kept.
 */
const UNPRINTABLE =
  /(?!\u200c|\u200d|\p{Variation_Selector})[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\ufff9-\ufffb]/gu;

/** A text from elsewhere as a part of one line of a terminal: line breaks become spaces, unprintable characters go. */
export function printableLine(text: string): string {
  return text.replace(LINE_BREAKS, ' ').replace(UNPRINTABLE, '');
}

/** A text of several lines for a terminal: line feeds and tabs stay, other unprintable characters go. */
export function printableText(text: string): string {
  return text.replace(UNPRINTABLE, (found) => (found === '\n' || found === '\t' ? found : ''));
}

/** JSON for a terminal: the same values, with unprintable characters as `\uXXXX`. Line feeds stay. */
export function printableJson(json: string): string {
  return json.replace(UNPRINTABLE, (found) => (found === '\n' ? found : escaped(found)));
}

function escaped(text: string): string {
  return text
    .split('')
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('');
}
