import type { DocumentSpan } from './block.js';
import { trimmed } from './document-text.js';

/** Where a prompt that always has the same frame holds its documents: somebody who knows the frame vouches for it. */
export interface DocumentTemplate {
  /** What stands right before the first document, letter by letter. */
  readonly before: string;
  /** What stands between two documents and in none of them, letter by letter. */
  readonly separator: string;
  /** What stands right behind the last one; the end of the text if left out. */
  readonly after?: string | undefined;
}

/** What stands before each of those documents. */
const INDENTED = '\n\n    ';

/**
 * Default prompts of frameworks whose own words and indentation part the documents: no passage has an empty line and
 * four spaces but for code, and what looks like that is left alone. Haystack's first pipeline.
 */
const KNOWN_TEMPLATES: readonly DocumentTemplate[] = [
  {
    before: 'Given the following information, answer the question.\n\nContext:\n\n    ',
    separator: INDENTED,
    after: '\n\n\nQuestion:',
  },
];
/** Lines of programs, which are indented as those documents are. */
const CODE =
  /^[ \t]|[{};]\s*$|^(?:def|class|import|from|const|let|var|return|if|for|while|function|public|#include|\$|>>>)\b/m;

/** The frames of known prompts, where nothing in them could be something else. O(text). */
export function knownRegions(text: string): readonly TemplateRegion[] {
  const templates = KNOWN_TEMPLATES.filter(({ before }) => text.includes(before));
  return templateRegions(text, templates).filter(({ documents }) =>
    documents.every(
      ({ start, end }) => text.startsWith(INDENTED, start - INDENTED.length) && !CODE.test(text.slice(start, end)),
    ),
  );
}

/** The documents of one frame in a text. */
export interface TemplateRegion {
  readonly documents: readonly DocumentSpan[];
  readonly start: number;
  readonly end: number;
  readonly outerStart: number;
  readonly outerEnd: number;
}

/**
 * The first frame of each template that holds two documents or more, in the order of the text, none overlapping.
 * O(templates × text).
 */
export function templateRegions(text: string, templates: readonly DocumentTemplate[]): readonly TemplateRegion[] {
  const regions = templates.flatMap((template) => regionOf(text, template) ?? []);
  regions.sort((a, b) => a.outerStart - b.outerStart);
  let end = 0;
  return regions.filter(({ outerStart, outerEnd }) => {
    if (outerStart < end) return false;
    end = outerEnd;
    return true;
  });
}

function regionOf(text: string, { before, separator, after }: DocumentTemplate): TemplateRegion | undefined {
  const outerStart = text.indexOf(before);
  if (outerStart < 0) return undefined;
  const from = outerStart + before.length;
  const to = after === undefined ? text.length : text.indexOf(after, from);
  if (to < 0) return undefined;
  const documents: DocumentSpan[] = [];
  for (let at = from; at <= to; ) {
    const next = text.indexOf(separator, at);
    const [start, end] = trimmed(text, at, next < 0 || next > to ? to : next);
    const nothing = { id: undefined, title: undefined, labels: [] };
    if (end > start) documents.push({ start, end, contentStart: start, contentEnd: end, ...nothing });
    if (next < 0 || next >= to) break;
    at = next + separator.length;
  }
  if (documents.length < 2) return undefined;
  return { documents, start: from, end: to, outerStart, outerEnd: to + (after?.length ?? 0) };
}
