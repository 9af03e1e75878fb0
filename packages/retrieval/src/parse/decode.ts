import { type FilePlace, unreadable } from './document.js';

/** Whether bytes are the beginning of a text: no control characters but those that stand in texts. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for.
const BINARY = /[\x00-\x08\x0e-\x1a\x1c-\x1f]/;

/** A text and what of it is in doubt. */
export interface DecodedText {
  readonly text: string;
  readonly doubts: readonly FilePlace[];
}

/** The text of a file: UTF-8, UTF-16 with its mark, or else Windows' Latin letters, if it is text at all. */
export function decode(bytes: Uint8Array): DecodedText {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return { text: new TextDecoder('utf-16le').decode(bytes), doubts: [] };
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return { text: new TextDecoder('utf-16be').decode(bytes), doubts: [] };
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    text = new TextDecoder('windows-1252').decode(bytes);
  }
  const control = BINARY.exec(text);
  if (control !== null) {
    const line = text.slice(0, control.index).split('\n').length;
    throw unreadable(`it is not a text: line ${line} has control characters`);
  }
  return { text, doubts: [] };
}
