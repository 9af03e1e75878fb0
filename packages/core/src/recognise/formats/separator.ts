import type { DocumentFormat, Region } from '../format.js';
import { trimmed } from '../plausible.js';

/** A line of one sign, `---` or `=====` or `***`. */
const RULE = /[ \t]*(?:-{3,}|={3,}|\*{3,}|_{3,}|#{3,}|~{3,})[ \t]*$/my;

/**
 * Documents parted by rules. Never looked for unasked: rules part everything, and nothing says which part is a
 * document.
 */
export const separator: DocumentFormat = {
  name: 'separator',
  unasked: false,
  find(region) {
    const documents = [];
    let from = 0;
    for (const [start, end] of rulesOf(region)) {
      documents.push([from, start] as const);
      from = end;
    }
    documents.push([from, region.text.length] as const);
    const spans = documents
      .map(([start, end]) => trimmed(region.text, start, end))
      .filter(([start, end]) => end > start)
      .map(([start, end]) => ({
        start,
        end,
        contentStart: start,
        contentEnd: end,
        id: undefined,
        title: undefined,
        labels: [],
      }));
    if (spans.length < 2) return [];
    return [{ documents: spans, start: spans[0]!.start, end: spans.at(-1)!.end }];
  },
};

function* rulesOf({ text, openings }: Region): Generator<readonly [number, number]> {
  for (const line of openings.rules) {
    RULE.lastIndex = line;
    if (RULE.test(text)) yield [line, RULE.lastIndex];
  }
}
