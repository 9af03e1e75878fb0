/** Text that is HTML already; everything else is escaped when it is put into a page. */
export class Html {
  constructor(readonly text: string) {}
}

/**
 * What can stand in a template: text and numbers are escaped, arrays are joined, `undefined` and `false` are nothing.
 */
export type HtmlValue = string | number | Html | undefined | false | readonly HtmlValue[];

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/**
 * HTML with values put in, safe in element content and in quoted attributes: whatever a value holds, it comes out as
 * the text that it is.
 */
export function html(strings: TemplateStringsArray, ...values: readonly HtmlValue[]): Html {
  let text = strings[0]!;
  for (const [i, value] of values.entries()) text += toText(value) + strings[i + 1]!;
  return new Html(text);
}

/** Text that can stand in element content and in a quoted attribute. */
function escapeHtml(text: string): string {
  return cleanText(text).replace(/[&<>"']/g, (character) => ESCAPES[character]!);
}

/** Text without what no page may hold: control characters and lone surrogates become U+FFFD. */
export function cleanText(text: string): string {
  return text.replace(/[^\P{Cc}\n\t]|\p{Surrogate}/gu, '\ufffd');
}

function toText(value: HtmlValue): string {
  if (value === undefined || value === false) return '';
  if (value instanceof Html) return value.text;
  if (typeof value === 'string') return escapeHtml(value);
  if (typeof value === 'number') return String(value);
  return value.map(toText).join('');
}
