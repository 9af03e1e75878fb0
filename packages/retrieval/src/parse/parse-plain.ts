import { BlockWriter, type ParsedDocument } from './document.js';

/** Reads a text without marks: its paragraphs. O(length). */
export function parsePlain(text: string): ParsedDocument {
  const writer = new BlockWriter();
  let line = 1;
  for (const part of text.split(/(\n{2,})/)) {
    const breaks = part.split('\n').length - 1;
    writer.block({ text: part, line, lines: breaks + 1 });
    line += breaks;
  }
  return { blocks: writer.finish(), unread: [] };
}
