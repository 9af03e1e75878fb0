/** Tabs, and characters that end a line in some terminal. */
const LINE_BREAKS = /[\t\n\v\f\r\u0085\u2028\u2029]+/g;
/**
 * Control characters, lone surrogates, line separators and invisible characters (bidirectional controls, zero-width
 * characters, tags). Variation selectors and joiners of emoji and scripts are kept.
 */
const UNPRINTABLE =
  /(?!\u200c|\u200d|\p{Variation_Selector})[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\ufff9-\ufffb]/gu;

/** A foreign text for one line of a terminal: line breaks become spaces, unprintable characters are removed. */
export function printableLine(text: string): string {
  return text.replace(LINE_BREAKS, ' ').replace(UNPRINTABLE, '');
}

/** A foreign text for a terminal: keeps line feeds and tabs, removes other unprintable characters. */
export function printableText(text: string): string {
  return text.replace(UNPRINTABLE, (found) => (found === '\n' || found === '\t' ? found : ''));
}

/** JSON for a terminal: unprintable characters as `\uXXXX`, line feeds kept. */
export function printableJson(json: string): string {
  return json.replace(UNPRINTABLE, (found) => (found === '\n' ? found : escaped(found)));
}

function escaped(text: string): string {
  return text
    .split('')
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('');
}
