import { extname } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { decode } from './decode.js';
import type { ParsedDocument, ParseOptions } from './document.js';

const MIB = 2 ** 20;

interface FormatNames {
  /** Lower case, with the dot. */
  readonly extensions: readonly string[];
  readonly mediaTypes: readonly string[];
  readonly maxBytes: number;
}

/** Reads a text that is decoded. Parsers are loaded with the first document of their format. */
interface TextFormatEntry extends FormatNames {
  readonly parseText: (text: string) => Promise<ParsedDocument>;
}

interface BinaryFormatEntry extends FormatNames {
  readonly parseBytes: (bytes: Uint8Array, options: ParseOptions) => Promise<ParsedDocument>;
}

const TEXT_FORMATS = {
  markdown: {
    extensions: ['.md', '.markdown'],
    mediaTypes: ['text/markdown'],
    maxBytes: 64 * MIB,
    parseText: async (text) => (await import('./parse-markdown.js')).parseMarkdown(text),
  },
  mdx: {
    extensions: ['.mdx'],
    mediaTypes: ['text/mdx'],
    maxBytes: 64 * MIB,
    parseText: async (text) => (await import('./parse-markdown.js')).parseMdx(text),
  },
  html: {
    extensions: ['.html', '.htm', '.xhtml'],
    mediaTypes: ['text/html'],
    maxBytes: 64 * MIB,
    parseText: async (text) => (await import('./parse-html.js')).parseHtml(text),
  },
  text: {
    extensions: ['.txt', '.text'],
    mediaTypes: ['text/plain'],
    maxBytes: 64 * MIB,
    parseText: async (text) => (await import('./parse-plain.js')).parsePlain(text),
  },
  notebook: {
    extensions: ['.ipynb'],
    mediaTypes: ['application/x-ipynb+json'],
    maxBytes: 64 * MIB,
    parseText: async (text) => (await import('./parse-notebook.js')).parseNotebook(text),
  },
  csv: {
    extensions: ['.csv', '.tsv'],
    mediaTypes: ['text/csv', 'text/tab-separated-values'],
    maxBytes: 64 * MIB,
    parseText: async (text) => (await import('./parse-csv.js')).parseCsv(text),
  },
  json: {
    extensions: ['.json'],
    mediaTypes: [],
    maxBytes: 64 * MIB,
    parseText: async (text) => (await import('./parse-plain.js')).parsePlain(text),
  },
} satisfies Record<string, TextFormatEntry>;

const BINARY_FORMATS = {
  pdf: {
    extensions: ['.pdf'],
    mediaTypes: ['application/pdf'],
    maxBytes: 256 * MIB,
    parseBytes: async (bytes, options) => (await import('./parse-pdf.js')).parsePdf(bytes, options),
  },
  docx: {
    extensions: ['.docx', '.docm', '.dotx'],
    mediaTypes: ['application/vnd.openxmlformats-officedocument.wordprocessingml.document'],
    maxBytes: 256 * MIB,
    parseBytes: async (bytes) => (await import('./parse-docx.js')).parseDocx(bytes),
  },
  pptx: {
    extensions: ['.pptx', '.pptm', '.ppsx'],
    mediaTypes: ['application/vnd.openxmlformats-officedocument.presentationml.presentation'],
    maxBytes: 256 * MIB,
    parseBytes: async (bytes) => (await import('./parse-pptx.js')).parsePptx(bytes),
  },
  xlsx: {
    extensions: ['.xlsx', '.xlsm'],
    mediaTypes: ['application/vnd.openxmlformats-officedocument.spreadsheetml.sheet'],
    maxBytes: 256 * MIB,
    parseBytes: async (bytes) => (await import('./parse-xlsx.js')).parseXlsx(bytes),
  },
  opendocument: {
    extensions: ['.odt', '.ods', '.odp'],
    mediaTypes: [
      'application/vnd.oasis.opendocument.text',
      'application/vnd.oasis.opendocument.spreadsheet',
      'application/vnd.oasis.opendocument.presentation',
    ],
    maxBytes: 256 * MIB,
    parseBytes: async (bytes) => (await import('./parse-opendocument.js')).parseOpenDocument(bytes),
  },
  epub: {
    extensions: ['.epub'],
    mediaTypes: ['application/epub+zip'],
    maxBytes: 256 * MIB,
    parseBytes: async (bytes) => (await import('./parse-epub.js')).parseEpub(bytes),
  },
} satisfies Record<string, BinaryFormatEntry>;

/** What a text is written in. */
export type TextFormat = keyof typeof TEXT_FORMATS;
/** What a file is read as that is one document. */
export type DocumentFormat = TextFormat | keyof typeof BINARY_FORMATS;

const FORMATS: Readonly<Record<DocumentFormat, TextFormatEntry | BinaryFormatEntry>> = {
  ...TEXT_FORMATS,
  ...BINARY_FORMATS,
};
const names = Object.keys(FORMATS) as DocumentFormat[];
const BY_EXTENSION = new Map(names.flatMap((name) => FORMATS[name].extensions.map((extension) => [extension, name])));

/** Formats of whole documents by media type. */
export const MEDIA_TYPES: ReadonlyMap<string, DocumentFormat> = new Map(
  names.flatMap((name) => FORMATS[name].mediaTypes.map((type) => [type, name])),
);

/** The format that the extension of a file names. */
export function formatOfPath(path: string): DocumentFormat | undefined {
  return BY_EXTENSION.get(extname(path).toLowerCase());
}

/** Kinds of files that are left out unread, by extension, and why. */
export const LEFT_OUT_KINDS: readonly { readonly reason: string; readonly extensions: readonly string[] }[] = [
  { reason: 'a picture', extensions: '.png .jpg .jpeg .gif .webp .tif .tiff .bmp .ico .heic .avif .svg'.split(' ') },
  { reason: 'sound or film', extensions: '.mp3 .wav .ogg .flac .m4a .mp4 .mkv .webm .mov .avi'.split(' ') },
  {
    reason: 'an archive: unpack it first',
    extensions: '.zip .gz .tgz .xz .bz2 .zst .7z .rar .tar .jar .whl .deb .rpm'.split(' '),
  },
  {
    reason: 'an older or closed format: save it as one that is read',
    extensions: '.doc .xls .ppt .rtf .pages .numbers .msg .mobi .azw3 .djvu'.split(' '),
  },
  { reason: 'a font', extensions: '.ttf .otf .woff .woff2 .eot'.split(' ') },
  { reason: 'a program', extensions: '.exe .dll .so .dylib .class .pyc .o .wasm'.split(' ') },
  { reason: 'data of a program', extensions: '.sqlite .db .parquet .gguf .safetensors .onnx .npy'.split(' ') },
];
const LEFT_OUT_REASONS = new Map(
  LEFT_OUT_KINDS.flatMap(({ reason, extensions }) => extensions.map((extension) => [extension, reason] as const)),
);

/** Formats of files by name, with their extensions and the largest size that is read. */
export const READ_KINDS = names.map((name) => ({ name, ...FORMATS[name] }));

/** Why a file with this extension is left out unread. */
export function leftOutReason(path: string): string | undefined {
  const reason = LEFT_OUT_REASONS.get(extname(path).toLowerCase());
  return reason === undefined ? undefined : `it is ${reason}`;
}

/** Bytes of the largest file of a format that is read. */
export function maxBytesOf(format: DocumentFormat): number {
  return FORMATS[format].maxBytes;
}

/** Reads a text. O(length). */
export function parseText(text: string, format: TextFormat): Promise<ParsedDocument> {
  return TEXT_FORMATS[format].parseText(text.toWellFormed().replaceAll('\r\n', '\n').replaceAll('\0', ' '));
}

/** Reads a file that is one document. Errors: WARMPATH_UNREADABLE_FILE, WARMPATH_DOCUMENT_TOO_LARGE. */
export async function parseDocument(
  bytes: Uint8Array,
  { format, ...options }: ParseOptions & { readonly format: DocumentFormat },
): Promise<ParsedDocument> {
  const entry = FORMATS[format];
  if ('parseBytes' in entry) return entry.parseBytes(bytes, options);
  const { text, doubts } = await decode(bytes, { charset: options.charset, isHtml: format === 'html' });
  if (text.length > (options.longest ?? Number.POSITIVE_INFINITY)) {
    throw new WarmpathError('WARMPATH_DOCUMENT_TOO_LARGE');
  }
  const parsed = await parseText(text, format as TextFormat);
  return { ...parsed, unread: [...doubts, ...parsed.unread] };
}
