import { posix } from 'node:path';
import { Archive } from './archive.js';
import { decode } from './decode.js';
import { type Block, type ParsedDocument, unreadable } from './document.js';
import { parseHtml } from './parse-html.js';
import { elementsOf, find, findAll, textOf } from './xml.js';

/** Reads an EPUB: its chapters as HTML, in the order of the spine. */
export async function parseEpub(bytes: Uint8Array): Promise<ParsedDocument> {
  const archive = Archive.open(bytes);
  const path = find(archive.main('META-INF/container.xml'), 'rootfile')?.attributes['full-path'] ?? '';
  const book = archive.main(path);
  const items = new Map(
    findAll(find(book, 'manifest'), 'item').map(({ attributes }) => [attributes['id'], attributes['href'] ?? '']),
  );
  const encrypted = new Set(
    findAll(archive.xml('META-INF/encryption.xml'), 'CipherReference').map(({ attributes }) => attributes['URI']),
  );
  const blocks: Block[] = [];
  for (const { name, attributes } of elementsOf(find(book, 'spine'))) {
    const href = name === 'itemref' ? items.get(attributes['idref']) : undefined;
    if (href === undefined) continue;
    const chapter = posix.join(posix.dirname(path), decoded(href.replace(/#.*$/s, '')));
    if (encrypted.has(chapter)) throw unreadable('the book is encrypted');
    const content = archive.bytes(chapter);
    if (content === undefined) continue;
    const { text } = await decode(content, { isHtml: true });
    // Lines of a chapter are none of the file.
    for (const { line: _, lines: __, ...block } of parseHtml(text).blocks) blocks.push(block);
  }
  const metadata = find(book, 'metadata');
  const title = textOf(find(metadata, 'title')).trim();
  const language = textOf(find(metadata, 'language')).trim();
  return { ...(title !== '' && { title }), ...(language !== '' && { language }), blocks, unread: [] };
}

function decoded(href: string): string {
  try {
    return decodeURIComponent(href);
  } catch {
    return href;
  }
}
