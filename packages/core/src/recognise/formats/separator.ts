import type { DocumentFormat, Region } from '../format.js';
import { trimmed } from '../plausible.js';

/** A line of one sign, `---` or `=====` or `***`. */
const RULE = /^[ \t]*(?:-{3,}|={3,}|\*{3,}|_{3,}|#{3,}|~{3,})[ \t]*$/gm;

/** Documents parted by rules. Never looked for unasked: rules part everything, and nothing says which part is a document. */
export const separator: DocumentFormat = {
  name: 'separator',
  unasked: false,
  find(region) {
    const documents = [];
    let from = region.start;
    for (const [start, end] of rulesOf(region)) {
      documents.push([from, start] as const);
      from = end;
    }
    documents.push([from, region.end] as const);
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

function* rulesOf({ text, start, end }: Region): Generator<readonly [number, number]> {
  RULE.lastIndex = start;
  for (let match = RULE.exec(text); match !== null && match.index < end; match = RULE.exec(text)) {
    const next = RULE.lastIndex;
    yield [match.index, next];
    RULE.lastIndex = next;
  }
}
