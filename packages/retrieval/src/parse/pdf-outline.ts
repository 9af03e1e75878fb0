import type { getDocumentProxy } from 'unpdf';
import type { PdfLine } from './pdf-layout.js';

export type PdfDocument = Awaited<ReturnType<typeof getDocumentProxy>>;

/** An entry of the outline and where it leads. */
interface OutlineEntry {
  readonly level: number;
  readonly title: string;
  /** In points; undefined for the top of the page. */
  readonly top: number | undefined;
}

/** A heading of the outline that was found on its page. */
interface FoundHeading {
  readonly level: number;
  readonly text: string;
  /** Its first line, or the line that it stands before. */
  readonly line: number;
  /** Lines that are the heading itself. */
  readonly lines: number;
}

/** Entries of one outline. */
const MAX_ENTRIES = 10_000;
/** Lines of a long heading. */
const MAX_HEADING_LINES = 3;
/** Letters and digits of what may stand before a title: `3.3.3.1`, `Chapter 3`. */
const MAX_NUMBER_LENGTH = 12;

/** The entries of the outline by page. An outline that cannot be read is none. */
export async function outlineOf(document: PdfDocument, signal: AbortSignal): Promise<Map<number, OutlineEntry[]>> {
  const pages = new Map<number, OutlineEntry[]>();
  let left = MAX_ENTRIES;
  const walk = async (nodes: Awaited<ReturnType<PdfDocument['getOutline']>>, level: number): Promise<void> => {
    for (const { title, dest, items } of nodes ?? []) {
      signal.throwIfAborted();
      if (left-- <= 0) return;
      const target = await targetOf(document, dest);
      if (target !== undefined && title.trim() !== '') {
        const entries = pages.get(target.page) ?? [];
        entries.push({ level, title: title.trim(), top: target.top });
        pages.set(target.page, entries);
      }
      await walk(items, level + 1);
    }
  };
  try {
    await walk(await document.getOutline(), 1);
  } catch (error) {
    if (signal.aborted) throw error;
  }
  return pages;
}

async function targetOf(
  document: PdfDocument,
  named: string | readonly unknown[] | null,
): Promise<{ readonly page: number; readonly top: number | undefined } | undefined> {
  try {
    const dest = typeof named === 'string' ? await document.getDestination(named) : named;
    if (dest === null) return undefined;
    const [page, kind, ...places] = dest as [unknown, { readonly name?: string } | undefined, ...unknown[]];
    const index = typeof page === 'number' ? page : await document.getPageIndex(page as { num: number; gen: number });
    const top = { XYZ: places[1], FitH: places[0], FitBH: places[0], FitR: places[3] }[kind?.name ?? ''];
    return { page: index + 1, top: typeof top === 'number' ? top : undefined };
  } catch {
    return undefined;
  }
}

/** Where the headings of a page stand, from its first line to the last: by their words, else by their height. */
export function findHeadings(entries: readonly OutlineEntry[], lines: readonly PdfLine[]): FoundHeading[] {
  const taken = new Set<number>();
  const found = entries.map(({ level, title, top = Number.POSITIVE_INFINITY }): FoundHeading => {
    const distance = ({ line }: { readonly line: number }) => Math.abs(Math.min(top, 1e6) - lines[line]!.y);
    const [best] = linesWith(title, lines)
      .filter(({ line }) => !taken.has(line))
      .sort((a, b) => distance(a) - distance(b));
    if (best !== undefined) {
      taken.add(best.line);
      return { level, ...best };
    }
    const below = lines.findIndex(({ y, size }) => y < top - size / 4);
    return { level, text: title, line: below < 0 ? lines.length : below, lines: 0 };
  });
  return found.sort((a, b) => a.line - b.line);
}

/** Lines that are a title, with a number before it or not. */
function linesWith(title: string, lines: readonly PdfLine[]): { text: string; line: number; lines: number }[] {
  const wanted = lettersOf(title);
  const found: { text: string; line: number; lines: number }[] = [];
  for (const line of lines.keys()) {
    let text = '';
    for (let count = 1; count <= Math.min(MAX_HEADING_LINES, lines.length - line); count++) {
      text = `${text} ${lines[line + count - 1]!.text}`.trim();
      const letters = lettersOf(text);
      if (isNumbered(letters, wanted)) found.push({ text, line, lines: count });
      else if (isNumbered(wanted, letters)) found.push({ text: title, line, lines: count });
      if (letters.length > wanted.length) break;
    }
  }
  return found;
}

/** Whether a text is a title behind nothing or a number. */
function isNumbered(text: string, title: string): boolean {
  const before = text.length - title.length;
  if (title === '' || before < 0 || before > MAX_NUMBER_LENGTH || !text.endsWith(title)) return false;
  return before === 0 || /[\dⅰ-ⅿ]|^[ivxlc]+$/u.test(text.slice(0, before));
}

function lettersOf(text: string): string {
  return text
    .normalize('NFKC')
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, '');
}
