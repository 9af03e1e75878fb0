import { WarmpathError } from '@warmpath/core';
import { type Block, type FilePlace, type ParsedDocument, type ParseOptions, unreadable } from './document.js';

/** Pages that are read of one file. */
const MAX_PAGES = 10_000;

/**
 * Reads the text of a PDF, a block a paragraph, with its page.
 * The reader is loaded when the first PDF comes. Errors: WARMPATH_UNREADABLE_FILE for what is encrypted, broken or has
 * no text; WARMPATH_DOCUMENT_TOO_LARGE as soon as the text is too long.
 */
export async function parsePdf(
  bytes: Uint8Array,
  { signal, longest = Number.POSITIVE_INFINITY, mostPages = MAX_PAGES }: ParseOptions & { readonly mostPages?: number },
): Promise<ParsedDocument> {
  const { getDocumentProxy } = await import('unpdf');
  let document: Awaited<ReturnType<typeof getDocumentProxy>>;
  try {
    // pdf.js takes no Buffer.
    document = await getDocumentProxy(new Uint8Array(bytes), { verbosity: 0, isEvalSupported: false });
  } catch (cause) {
    throw unreadable(
      (cause as Error).name === 'PasswordException' ? 'the PDF is encrypted' : 'the PDF is broken',
      cause,
    );
  }
  try {
    const blocks: Block[] = [];
    const unread: FilePlace[] = [];
    const { numPages } = document;
    let length = 0;
    for (let page = 1; page <= Math.min(numPages, mostPages); page++) {
      signal.throwIfAborted();
      try {
        const content = await (await document.getPage(page)).getTextContent();
        for (const text of paragraphs(content.items as readonly PdfItem[])) {
          blocks.push({ headings: [], text, page });
          length += text.length;
        }
      } catch {
        unread.push({ position: `page ${page}`, message: 'the page is broken' });
      }
      if (length > longest) throw new WarmpathError('WARMPATH_DOCUMENT_TOO_LARGE');
    }
    if (numPages > mostPages) {
      const message = `the PDF has ${counted(numPages)} pages, and ${counted(mostPages)} are read at most`;
      unread.push({ position: `page ${mostPages + 1}`, message });
    }
    if (blocks.length === 0) {
      const [first] = unread;
      throw unreadable(
        first === undefined
          ? 'the PDF has no text; it may be scanned'
          : `the PDF has no page that can be read: ${first.position}: ${first.message}`,
      );
    }
    const { info } = await document.getMetadata();
    const title = String((info as Record<string, unknown>)['Title'] ?? '').trim();
    return { ...(title !== '' && { title }), blocks, unread };
  } finally {
    await document.destroy();
  }
}

/** A run of text on a page, as pdf.js gives it. */
interface PdfItem {
  readonly str?: string;
  readonly hasEOL?: boolean;
  /** The last two: where it stands. */
  readonly transform?: readonly number[];
  readonly height?: number;
}

/** Lines that stand close are one paragraph; words that a line end has cut are joined. */
function paragraphs(items: readonly PdfItem[]): string[] {
  const lines: { text: string; y: number; height: number }[] = [];
  let open: { text: string; y: number; height: number } | undefined;
  for (const { str = '', hasEOL, transform, height = 0 } of items) {
    open ??= { text: '', y: transform?.[5] ?? 0, height };
    open.text += str;
    open.height = Math.max(open.height, height);
    if (hasEOL) {
      lines.push(open);
      open = undefined;
    }
  }
  if (open !== undefined) lines.push(open);
  const found: string[] = [];
  let text = '';
  let before: { y: number; height: number } | undefined;
  for (const line of lines) {
    if (line.text.trim() === '') continue;
    const gap = before === undefined ? 0 : before.y - line.y;
    if (before !== undefined && (gap > 1.8 * Math.max(before.height, line.height, 1) || gap < 0)) {
      found.push(text);
      text = '';
    }
    if (/\p{Ll}-$/u.test(text.slice(-3)) && /^\p{Ll}/u.test(line.text)) text = text.slice(0, -1) + line.text.trim();
    else text = text === '' ? line.text.trim() : `${text} ${line.text.trim()}`;
    before = line;
  }
  if (text !== '') found.push(text);
  return found;
}

function counted(pages: number): string {
  return pages.toLocaleString('en');
}
