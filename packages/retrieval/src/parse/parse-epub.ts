import { posix } from 'node:path';
import { Archive, propertiesIn } from './archive.js';
import { decode } from './decode.js';
import { type Block, type ParsedDocument, unreadable, withoutLines } from './document.js';
import { parseHtml } from './parse-html.js';
import { elementsOf, find, findAll } from './xml.js';

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
    for (const block of withoutLines(parseHtml(text).blocks)) blocks.push(block);
  }
  return { ...propertiesIn(find(book, 'metadata')), blocks, unread: [] };
}

function decoded(href: string): string {
  try {
    return decodeURIComponent(href);
  } catch {
    return href;
  }
}
