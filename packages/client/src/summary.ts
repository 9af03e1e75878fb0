/**
 * What a gateway says of a request in its `x-warmpath` header (a dictionary of structured fields, RFC 9651), by key:
 * `policy`, `documents`, `moved`, `predicted`, `overhead`, `conversation`, `replayed`, `references`, `shortened`,
 * `saved`, `fallback`, `error`, `warnings`, `hidden` and `recognised`. The documentation says what each means. Lists
 * are joined by commas. Empty without a header.
 */
export function readSummary(header: string | null | undefined): Readonly<Record<string, string>> {
  const summary: Record<string, string> = {};
  for (const [, key, text, list, token] of (header ?? '').matchAll(FIELD)) {
    summary[key!] = text !== undefined ? unquoted(text) : (token ?? [...list!.matchAll(STRING)].map(inside).join(', '));
  }
  return summary;
}

const FIELD = /([a-z][a-z0-9_.-]*)=(?:"((?:[^"\\]|\\.)*)"|\(((?:[^()"]|"(?:[^"\\]|\\.)*")*)\)|([^,\s"()]+))/g;
const STRING = /"((?:[^"\\]|\\.)*)"/g;

function inside([, text]: RegExpExecArray): string {
  return unquoted(text!);
}

function unquoted(text: string): string {
  return text.replace(/\\(.)/g, '$1');
}
