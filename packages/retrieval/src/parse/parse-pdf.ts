import { readFile } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';
import { BlockWriter, type FilePlace, type ParsedDocument, type ParseOptions, unreadable } from './document.js';
import { goesOn, joined, linesOfPage, type PdfItem, type PdfLine, paragraphsOf, textOfLines } from './pdf-layout.js';
import { findHeadings, outlineOf, type PdfDocument } from './pdf-outline.js';

/** Pages that are read of one file. */
const MAX_PAGES = 10_000;
/** Pages without text that are looked at for pictures: to look takes as long as to paint. */
const MAX_INSPECTED_PAGES = 8;

/** Gives pdf.js Adobe's tables of Chinese, Japanese and Korean characters, for fonts that stand outside of the file. */
class CharacterMaps {
  async fetch({ kind, filename }: { readonly kind: string; readonly filename: string }): Promise<Uint8Array> {
    if (kind !== 'cMapUrl' || !/^[\w-]+\.bcmap$/.test(filename)) throw new RangeError(`no file ${filename}`);
    return new Uint8Array(await readFile(new URL(`../../cmaps/${filename}`, import.meta.url)));
  }
}

const PDF_OPTIONS = { verbosity: 0, isEvalSupported: false, cMapPacked: true, BinaryDataFactory: CharacterMaps };

/** Share of characters of a page that may be unknown: bullets are. */
const MAX_UNKNOWN_SHARE = 0.05;
/** What stands for a glyph without a name: private use, control characters, and the sign for none. */
const UNKNOWN_CHARACTER = /[\p{Co}\p{Cc}\ufffd]/gu;

/**
 * Reads the text of a PDF, a block a paragraph or table, under the headings of its outline. What repeats at the edge of
 * the pages is kept once, page numbers are left out. The reader is loaded when the first PDF comes.
 * Errors: WARMPATH_UNREADABLE_FILE for what is encrypted, broken or has no text; WARMPATH_DOCUMENT_TOO_LARGE as soon as
 * the text is too long.
 */
export async function parsePdf(
  bytes: Uint8Array,
  { signal, longest = Number.POSITIVE_INFINITY, mostPages = MAX_PAGES }: ParseOptions & { readonly mostPages?: number },
): Promise<ParsedDocument> {
  const { getDocumentProxy } = await import('unpdf');
  let document: PdfDocument;
  try {
    document = await getDocumentProxy(new Uint8Array(bytes), PDF_OPTIONS);
  } catch (cause) {
    throw unreadable(
      (cause as Error).name === 'PasswordException' ? 'the PDF is encrypted' : 'the PDF is broken',
      cause,
    );
  }
  try {
    const { pages, unread } = await readPages(document, Math.min(document.numPages, mostPages), { signal, longest });
    const bare = [...pages].flatMap(([page, lines]) => (lines.length === 0 ? [page] : []));
    if (document.numPages > mostPages) {
      const message = `the PDF has ${counted(document.numPages)} pages, and ${counted(mostPages)} are read at most`;
      unread.push({ position: `page ${mostPages + 1}`, message });
    }
    if (bare.length === pages.size) {
      const [first] = unread;
      throw unreadable(
        first === undefined
          ? 'the PDF has no text; it may be scanned'
          : `the PDF has no page that can be read: ${first.position}: ${first.message}`,
      );
    }
    unread.push(...(await scannedPages(document, bare)));
    const outline = await outlineOf(document, signal);
    const headings = new Map([...pages].map(([page, lines]) => [page, findHeadings(outline.get(page) ?? [], lines)]));
    const repeated = repeatedLines(pages);
    const writer = new BlockWriter();
    let open: { text: string; page: number } | undefined;
    const close = () => {
      if (open !== undefined) writer.block(open);
      open = undefined;
    };
    for (const [page, lines] of pages) {
      let from = 0;
      const writeTo = (to: number) => {
        for (const paragraph of paragraphsOf(lines.slice(from, to).filter((line) => !repeated.has(line)))) {
          const text = textOfLines(paragraph);
          const isTable = paragraph[0]!.table !== undefined;
          if (open !== undefined && open.page < page && !isTable && goesOn(open.text, text)) {
            open.text = joined(open.text, text, false);
            continue;
          }
          close();
          if (isTable && paragraph.length > 1) {
            writer.block({ header: paragraph[0]!.text, text: textOfLines(paragraph.slice(1)), page });
          } else open = { text, page };
        }
      };
      for (const { line, lines: covered, level, text } of headings.get(page)!) {
        writeTo(line);
        from = Math.max(from, line + covered);
        close();
        writer.heading(level, text);
      }
      writeTo(lines.length);
    }
    close();
    const { info } = await document.getMetadata();
    const { Title, Language } = info as { readonly Title?: unknown; readonly Language?: unknown };
    const title = String(Title ?? '')
      .trim()
      .replace(/^untitled$/i, '');
    return {
      ...(title !== '' && { title }),
      ...(typeof Language === 'string' && Language !== '' && { language: Language }),
      blocks: writer.finish(),
      unread,
    };
  } finally {
    await document.destroy();
  }
}

async function readPages(
  document: PdfDocument,
  count: number,
  { signal, longest }: { readonly signal: AbortSignal; readonly longest: number },
): Promise<{ readonly pages: Map<number, PdfLine[]>; readonly unread: FilePlace[] }> {
  const pages = new Map<number, PdfLine[]>();
  const unread: FilePlace[] = [];
  let length = 0;
  for (let number = 1; number <= count; number++) {
    signal.throwIfAborted();
    try {
      const page = await document.getPage(number);
      const lines = linesOfPage((await page.getTextContent()).items as readonly PdfItem[]);
      page.cleanup();
      const known = lines.map((line) => ({ ...line, text: line.text.replace(UNKNOWN_CHARACTER, '').trim() }));
      const lengthOf = (some: readonly PdfLine[]) => some.reduce((sum, { text }) => sum + text.length, 0);
      length += lengthOf(lines);
      if (lengthOf(known) < (1 - MAX_UNKNOWN_SHARE) * lengthOf(lines)) {
        unread.push({ position: `page ${number}`, message: 'its fonts do not say which characters they show' });
      }
      if (lines.length === 0 || lengthOf(known) > 0)
        pages.set(
          number,
          known.filter(({ text }) => text !== ''),
        );
    } catch {
      unread.push({ position: `page ${number}`, message: 'the page is broken' });
    }
    if (length > longest) throw new WarmpathError('WARMPATH_DOCUMENT_TOO_LARGE');
  }
  return { pages, unread };
}

/** Pages without text on which something is painted. */
async function scannedPages(document: PdfDocument, bare: readonly number[]): Promise<FilePlace[]> {
  if (bare.length === 0) return [];
  const { OPS } = await (await import('unpdf')).getResolvedPDFJS();
  const painting = new Set(
    Object.entries(OPS as Readonly<Record<string, number>>).flatMap(([name, code]) =>
      /^paint|^shadingFill|^constructPath/.test(name) ? [code] : [],
    ),
  );
  const scanned: number[] = [];
  for (const [at, page] of bare.entries()) {
    const operators = at < MAX_INSPECTED_PAGES ? await (await document.getPage(page)).getOperatorList() : undefined;
    if (operators === undefined || operators.fnArray.some((code: number) => painting.has(code))) scanned.push(page);
  }
  return scanned.map((page) => ({ position: `page ${page}`, message: 'the page has no text; it may be scanned' }));
}

/**
 * Lines to leave out: at a height where half of the pages have a line at their edge that other pages have, too, but for
 * the number of the page. The first of each is kept, unless it is the number alone.
 */
function repeatedLines(pages: ReadonlyMap<number, readonly PdfLine[]>): Set<PdfLine> {
  const edges = [...pages].flatMap(([page, lines]) =>
    edgesOf(lines).map((line) => ({ line, keys: keysOf(line, page) })),
  );
  const counts = countedBy(edges.flatMap(({ keys }) => keys));
  const repeats = edges.flatMap(({ line, keys }) => {
    const key = keys.find((one) => counts.get(one)! > 1);
    return key === undefined ? [] : [{ line, key, height: key.split(' ', 1)[0]! }];
  });
  const heights = countedBy(repeats.map(({ height }) => height));
  const kept = new Set<string>();
  const left = new Set<PdfLine>();
  for (const { line, key, height } of repeats) {
    if (heights.get(height)! < Math.max(3, pages.size / 2)) continue;
    if (kept.has(key) || !/\p{L}/u.test(line.text)) left.add(line);
    kept.add(key);
  }
  return left;
}

/** The two highest and two lowest lines. */
function edgesOf(lines: readonly PdfLine[]): PdfLine[] {
  const sorted = [...lines].sort((a, b) => b.y - a.y);
  return [...new Set([...sorted.slice(0, 2), ...sorted.slice(-2)])];
}

/** Height and text of a line, and the same with each number in it taken for that of the page. */
function keysOf({ text, y }: PdfLine, page: number): string[] {
  const keys = [...text.matchAll(/\d{1,5}/g)].map(({ 0: number, index }) => {
    return `${text.slice(0, index)}#${Number(number) - page}${text.slice(index + number.length)}`;
  });
  return [text, ...keys].map((key) => `${Math.round(y / 3)} ${key}`);
}

function countedBy(keys: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
  return counts;
}

function counted(pages: number): string {
  return pages.toLocaleString('en');
}
