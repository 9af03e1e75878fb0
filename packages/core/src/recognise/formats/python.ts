import type { DocumentSpan } from '../block.js';
import type { DocumentFormat, DocumentGroup, Region } from '../format.js';

const OPEN = /\bDocument\((?=(?:page_content|metadata|id|content)\s*=)/g;
const CONTENT = /\b(?:page_content|content)\s*=\s*(?=["'])/;
const ID = /\bid\s*=\s*(?:'([^'\n]{1,200})'|"([^"\n]{1,200})")/;
const SOURCE = /'(?:source|file_path|url|title)':\s*(?:'([^'\n]{1,300})'|"([^"\n]{1,300})")/;
/** Between two documents of a list. */
const BETWEEN = /^\s*,?\s*$/;
/** Characters there may be between two documents. */
const GAP = 64;

/** `[Document(metadata={…}, page_content='…'), …]`: a list of LangChain's documents as Python prints it. */
export const python: DocumentFormat = {
  name: 'python',
  unasked: true,
  find(region) {
    const found: DocumentGroup[] = [];
    let run: DocumentSpan[] = [];
    const close = () => {
      if (run.length >= 2) found.push({ documents: run, start: run[0]!.start, end: run.at(-1)!.end });
      run = [];
    };
    for (const document of documentsOf(region)) {
      const last = run.at(-1);
      if (last !== undefined && !isBeside(region.text, last, document)) close();
      run.push(document);
    }
    close();
    return found;
  },
};

function isBeside(text: string, last: DocumentSpan, next: DocumentSpan): boolean {
  return next.start - last.end <= GAP && BETWEEN.test(text.slice(last.end, next.start));
}

function* documentsOf({ text }: Region): Generator<DocumentSpan> {
  if (!text.includes('Document(')) return;
  let looked = 0;
  for (const { index, 0: opened } of text.matchAll(OPEN)) {
    if (index < looked) continue;
    const closed = endOfCall(text, index + opened.length);
    looked = closed.at;
    if (closed.complete) yield documentOf(text, index, closed.at);
  }
}

function documentOf(text: string, start: number, end: number): DocumentSpan {
  const whole = text.slice(start, end);
  const content = CONTENT.exec(whole);
  const literal = content === null ? start : start + content.index + content[0].length;
  const contentEnd = content === null ? end : endOfString(text, literal, end);
  const head = whole.slice(0, 2_000);
  const id = ID.exec(head) ?? SOURCE.exec(head);
  return { start, end, contentStart: literal, contentEnd, id: id?.[1] ?? id?.[2], title: undefined, labels: [] };
}

/** Behind the bracket that closes a call; how far was looked, if none does. */
function endOfCall(text: string, from: number): { readonly at: number; readonly complete: boolean } {
  let depth = 1;
  let at = from;
  while (at < text.length) {
    const sign = text[at]!;
    if (sign === '"' || sign === "'") {
      at = endOfString(text, at, text.length);
      continue;
    }
    at++;
    if (sign === '(' || sign === '[' || sign === '{') depth++;
    else if (sign === ')' || sign === ']' || sign === '}') depth--;
    if (depth === 0) return { at, complete: sign === ')' };
  }
  return { at, complete: false };
}

function endOfString(text: string, from: number, end: number): number {
  const quote = text[from];
  for (let at = from + 1; at < end; at++) {
    const sign = text[at];
    if (sign === '\\') at++;
    else if (sign === quote) return Math.min(at + 1, end);
  }
  return end;
}
