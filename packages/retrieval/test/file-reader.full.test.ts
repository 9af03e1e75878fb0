import { deflateSync, gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { FileReader } from '../src/ingest/file-reader.ts';
import type { DocumentFile } from '../src/ingest/read-file.ts';
import { readBounds } from '../src/ingest/reader-process.ts';
import { pdf, pdfOf } from './hand-written-pdf.js';

const SETTINGS = { tokens: 128, overlap: 16 };
const PAGE = Buffer.from(pdf([['The weight of Velka is 42 kg.']]));
const options = { tenant: 'one', signal: new AbortController().signal, longest: 10_000_000 };

const stream = (fields: string, bytes: Buffer | string) =>
  `<<${fields}/Length ${bytes.length}>>stream\n${bytes.toString('latin1')}\nendstream`;
const packed = (plain: string) => stream('/Filter/FlateDecode', deflateSync(plain));
const pageOf = (fields: string) => `<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]${fields}>>`;
const tree = ['<</Type/Catalog/Pages 2 0 R>>', '<</Type/Pages/Kids[3 0 R]/Count 1>>'];
it.each<[string, DocumentFile['format'], () => string | Uint8Array]>([
  ['a page tree that is a circle', 'pdf', () => pdfOf([tree[0]!, '<</Type/Pages/Kids[2 0 R 2 0 R]/Count 100000>>'])],
  [
    'pages within pages',
    'pdf',
    () => {
      const depth = 5_000;
      const nodes = Array.from({ length: depth }, (_, i) => `<</Type/Pages/Kids[${i + 3} 0 R]/Count 1>>`);
      return pdfOf([tree[0]!, ...nodes]);
    },
  ],
  [
    'a form that draws itself',
    'pdf',
    () => {
      const form = stream('/Type/XObject/Subtype/Form/Resources<</XObject<</F 5 0 R>>>>', '/F Do /F Do /F Do');
      return pdfOf([...tree, pageOf('/Contents 4 0 R/Resources<</XObject<</F 5 0 R>>>>'), stream('', '/F Do'), form]);
    },
  ],
  [
    'an image of 100,000 by 100,000',
    'pdf',
    () => {
      const image = '/Type/XObject/Subtype/Image/Width 100000/Height 100000/ColorSpace/DeviceRGB/BitsPerComponent 8';
      const contents = [stream('', '/I Do'), stream(image, 'x')];
      return pdfOf([...tree, pageOf('/Contents 4 0 R/Resources<</XObject<</I 5 0 R>>>>'), ...contents]);
    },
  ],
  [
    'words that are packed',
    'pdf',
    () => {
      const text = `BT /F1 12 Tf\n${'(word word word) Tj\n'.repeat(2_000_000)}ET`;
      const font = '<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>';
      return pdfOf([...tree, pageOf('/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>'), packed(text), font]);
    },
  ],
  [
    'a table of two thousand million objects',
    'pdf',
    () =>
      `%PDF-1.4\nxref\n0 2000000000\n0000000000 65535 f \ntrailer<</Size 2000000000/Root 1 0 R>>\nstartxref\n9\n%%EOF`,
  ],
  ['many elements within elements', 'html', () => '<div>'.repeat(300_000)],
  ['an attribute of 20 MB', 'html', () => `<p title="${'x'.repeat(2e7)}">word</p>`],
  ['an element that does not end', 'html', () => '<'.repeat(2_000_000)],
  ['quotes within quotes', 'markdown', () => `${'> '.repeat(20_000)}a\n`.repeat(20)],
  ['lists within lists', 'markdown', () => Array.from({ length: 2_000 }, (_, i) => `${' '.repeat(i)}- a`).join('\n')],
  ['brackets and stars', 'markdown', () => `${'['.repeat(30_000)}\n\n${'*a **'.repeat(10_000)}`],
  ['a packed file', 'text', () => gzipSync('word '.repeat(100_000))],
])(
  'a file that is handed in takes no memory and no time beyond the bounds, whatever it holds: %s',
  async (_, format, content) => {
    const reader = new FileReader({ ...readBounds(2 ** 28), memoryBytes: 256 * 2 ** 20, answerMs: 5_000 });
    const bytes = Buffer.from(content());
    const before = process.memoryUsage.rss();
    const outcome = await reader.read(bytes, { id: 'a', format }, SETTINGS, options).then(
      () => undefined,
      ({ code }: { code?: string }) => code,
    );
    expect([undefined, 'WARMPATH_UNREADABLE_FILE', 'WARMPATH_DOCUMENT_TOO_LARGE', 'WARMPATH_EMPTY_DOCUMENT']).toContain(
      outcome,
    );
    const next = await reader.read(PAGE, { id: 'a', format: 'pdf' }, SETTINGS, options);
    expect(next.document.passages).toHaveLength(1);
    expect(process.memoryUsage.rss() - before).toBeLessThan(2 ** 27);
    await reader.close();
  },
);
