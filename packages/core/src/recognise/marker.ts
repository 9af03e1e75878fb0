import { FORMAT_NAMES, type FormatName } from './block.js';

/** A part of a text that the prompt itself marks as documents. */
export interface MarkedRegion {
  /** Of what stands inside the tags. */
  readonly start: number;
  readonly end: number;
  /** The tags included. */
  readonly outerStart: number;
  readonly outerEnd: number;
  /** How the documents are written, where the tag says so. */
  readonly format: FormatName | undefined;
}

/** The name of the tag that marks documents. */
const MARKER = 'warmpath-documents';

const OPEN = new RegExp(`<${MARKER}((?:\\s[^<>]{0,200})?)>`, 'g');
const CLOSE = `</${MARKER}>`;

/** `<warmpath-documents format="…">…</warmpath-documents>`, in the order of the text. O(text). */
export function markedRegions(text: string): readonly MarkedRegion[] {
  const regions: MarkedRegion[] = [];
  if (!text.includes(CLOSE)) return regions;
  OPEN.lastIndex = 0;
  for (let match = OPEN.exec(text); match !== null; match = OPEN.exec(text)) {
    const start = OPEN.lastIndex;
    const end = text.indexOf(CLOSE, start);
    if (end < 0) break;
    const format = /\sformat="(\w+)"/.exec(match[1]!)?.[1];
    regions.push({
      start,
      end,
      outerStart: match.index,
      outerEnd: end + CLOSE.length,
      format: FORMAT_NAMES.find((name) => name === format),
    });
    OPEN.lastIndex = end + CLOSE.length;
  }
  return regions;
}
