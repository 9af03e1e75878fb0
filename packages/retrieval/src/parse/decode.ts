import { type FilePlace, unreadable } from './document.js';

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for.
const BINARY = /[\x00-\x08\x0e-\x1a\x1c-\x1f]/;
/** Bytes in which a document declares its encoding, and in which a guess finds one. */
const DECLARATION_BYTES = 4096;
const GUESS_BYTES = 65_536;
/** Names of encodings that the decoder has under others. */
const ALIASES: Readonly<Record<string, string>> = {
  'latin-1': 'latin1',
  'utf-8-sig': 'utf-8',
  'utf-16-le': 'utf-16le',
  'utf-16-be': 'utf-16be',
  'mac-roman': 'macintosh',
  macroman: 'macintosh',
  maccyrillic: 'x-mac-cyrillic',
  'mac-cyrillic': 'x-mac-cyrillic',
  cp932: 'shift_jis',
  'shift-jis': 'shift_jis',
  cp949: 'euc-kr',
  cp874: 'windows-874',
  'iso8859-16': 'iso-8859-16',
};

/** A text, and what of it is in doubt. */
export interface DecodedText {
  readonly text: string;
  readonly doubts: readonly FilePlace[];
}

interface DecodeOptions {
  /** Encoding that the sender declared. */
  readonly charset?: string | undefined;
  /** Whether elements of HTML may declare it. */
  readonly isHtml?: boolean;
}

/**
 * The text of a file, by its byte order mark, the sender's declaration, its own, or a guess, which is named.
 * Error: WARMPATH_UNREADABLE_FILE for what is no text.
 */
export async function decode(bytes: Uint8Array, { charset, isHtml = false }: DecodeOptions = {}): Promise<DecodedText> {
  const decoded =
    decodeMarked(bytes) ?? decodeDeclared(bytes, charset ?? declaredIn(bytes, isHtml)) ?? (await guess(bytes));
  const control = BINARY.exec(decoded.text);
  if (control !== null) {
    throw unreadable(`it is not a text: line ${lineAt(decoded.text, control.index)} has control characters`);
  }
  return decoded;
}

function decodeMarked(bytes: Uint8Array): DecodedText | undefined {
  const [first, second, third] = bytes;
  if (first === 0xff && second === 0xfe) return read(bytes, 'utf-16le');
  if (first === 0xfe && second === 0xff) return read(bytes, 'utf-16be');
  return first === 0xef && second === 0xbb && third === 0xbf ? read(bytes, 'utf-8') : undefined;
}

/** The encoding that a document names in its first lines. */
function declaredIn(bytes: Uint8Array, isHtml: boolean): string | undefined {
  const start = new TextDecoder('latin1').decode(bytes.subarray(0, DECLARATION_BYTES));
  const [, xml] = /^\s*<\?xml\s[^>]*?encoding\s*=\s*["']([\w.:-]+)/.exec(start) ?? [];
  const [, meta] = (isHtml && /<meta\s[^>]*?charset\s*=\s*["']?\s*([\w.:-]+)/i.exec(start)) || [];
  const [, sheet] = /^@charset "([\w.:-]+)"/.exec(start) ?? [];
  const [, line] = /^(?:.*\n)?.{0,200}?coding[:=][ \t]*([\w.-]+)/.exec(start) ?? [];
  // A page that can be read as far as this element is not in UTF-16.
  return xml ?? meta?.replace(/^utf-?16.*/i, 'utf-8') ?? sheet ?? line?.replace(/-(?:unix|dos|mac)$/, '');
}

function decodeDeclared(bytes: Uint8Array, charset: string | undefined): DecodedText | undefined {
  const label = charset === undefined ? undefined : labelOf(charset);
  if (label === undefined) return undefined;
  const utf8 = label === 'utf-8' || /^(?:windows|iso-8859)-/.test(label) ? strictUtf8(bytes) : undefined;
  // Only UTF-8 is valid UTF-8 beyond ASCII, whatever a single-byte declaration says.
  if (utf8 !== undefined && !BINARY.test(utf8)) {
    const isOther = label !== 'utf-8' && /[^\0-\x7f]/.test(utf8);
    return { text: utf8, doubts: isOther ? [doubt(`it says ${charset}, and was read as UTF-8`)] : [] };
  }
  return label === 'utf-8' ? damagedUtf8(bytes) : read(bytes, label);
}

async function guess(bytes: Uint8Array): Promise<DecodedText> {
  const wide = wideLabel(bytes);
  if (wide !== undefined) return guessed(bytes, wide);
  const utf8 = strictUtf8(bytes);
  if (utf8 !== undefined && !BINARY.test(utf8)) {
    return ['\x1b$', '\x1b('].some((sequence) => utf8.includes(sequence))
      ? guessed(bytes, 'iso-2022-jp')
      : { text: utf8, doubts: [] };
  }
  const damaged = damagedUtf8(bytes);
  if (damaged !== undefined && !BINARY.test(damaged.text)) return damaged;
  const { default: detector } = await import('jschardet');
  const found = detector.detect(Buffer.from(bytes.subarray(0, GUESS_BYTES)), { minimumThreshold: 0 });
  const detected = labelOf(found?.encoding ?? '') ?? 'windows-1252';
  const label = detected === 'windows-1252' && isPaired(bytes) ? 'gb18030' : detected;
  const read = guessed(bytes, label);
  // Any bytes may look like UTF-16. Only a text has no lone surrogate.
  return label.startsWith('utf-16') && read.text.includes('\ufffd') ? guessed(bytes, 'windows-1252') : read;
}

/** Whether letters beyond ASCII stand in pairs of bytes: a little Chinese, which the detector takes for Latin. */
function isPaired(bytes: Uint8Array): boolean {
  const runs =
    Buffer.from(bytes.subarray(0, GUESS_BYTES))
      .toString('latin1')
      .match(/[\x80-\xff]+/g) ?? [];
  return runs.length > 1 && runs.every(({ length }) => length % 2 === 0);
}

/** UTF-16 by its zeros: every other byte of most letters in the West. */
function wideLabel(bytes: Uint8Array): string | undefined {
  const start = bytes.subarray(0, GUESS_BYTES);
  const zeros = [0, 0];
  for (const [at, byte] of start.entries()) if (byte === 0) zeros[at % 2]!++;
  const [even = 0, odd = 0] = zeros;
  if (10 * Math.max(even, odd) < start.length) return undefined;
  if (20 * even < odd) return 'utf-16le';
  return 20 * odd < even ? 'utf-16be' : undefined;
}

function guessed(bytes: Uint8Array, label: string): DecodedText {
  const { text, doubts } = read(bytes, label);
  return { text, doubts: [doubt(`it does not say its encoding: read as ${label}`), ...doubts] };
}

/** UTF-8 of which a few bytes are not valid; undefined for what is another encoding. */
function damagedUtf8(bytes: Uint8Array): DecodedText | undefined {
  const text = new TextDecoder('utf-8').decode(bytes);
  const bad = countOf(text, /\ufffd/g);
  const good = countOf(text, /[\u0080-\ufffc]+/g);
  return good >= 2 * bad ? { text, doubts: damageIn(text) } : undefined;
}

function read(bytes: Uint8Array, label: string): DecodedText {
  const decoder = new TextDecoder(label);
  // In one go, Node 20 takes windows-1252 for Latin 1.
  const text = decoder.decode(bytes, { stream: true }) + decoder.decode();
  return { text, doubts: damageIn(text) };
}

/** Names the bytes that became U+FFFD. */
function damageIn(text: string): FilePlace[] {
  const first = text.indexOf('\ufffd');
  if (first < 0) return [];
  const message = `${countOf(text, /\ufffd/g)} characters are damaged: each is read as U+FFFD`;
  return [{ position: `line ${lineAt(text, first)}`, message, isRead: true }];
}

function doubt(message: string): FilePlace {
  return { position: 'line 1', message, isRead: true };
}

function strictUtf8(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** The decoder's own name of an encoding; undefined where it has none. */
function labelOf(charset: string): string | undefined {
  const name = charset.trim().toLowerCase().replaceAll('_', '-');
  for (const label of [ALIASES[name] ?? name, name.replace(/^iso(?=\d)/, 'iso-')]) {
    try {
      return new TextDecoder(label).encoding;
    } catch {
      // The next name.
    }
  }
  return undefined;
}

function countOf(text: string, pattern: RegExp): number {
  return text.match(pattern)?.length ?? 0;
}

function lineAt(text: string, index: number): number {
  return text.slice(0, index).split('\n').length;
}
