// Compares what is read of real files with independent parsers: words and headings lost, by kind of file.
// `npm run bench:corpus -w packages/retrieval -- FOLDER…`, for instance /usr/share/doc. PDFs need pdftotext (poppler).
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { parse } from 'parse5';
import { chunk, DEFAULT_CHUNKS } from '../dist/parse/chunk.js';
import { decode } from '../dist/parse/decode.js';
import { formatOfPath, parseDocument } from '../dist/parse/formats.js';

/** Bytes of the largest file that is compared. */
const MAX_BYTES = 8 * 2 ** 20;
/** Files of one kind. */
const MAX_FILES = Number(process.env['CORPUS_FILES'] ?? 1000);
const { signal } = new AbortController();

const KINDS = [
  { kind: 'HTML', is: /\.x?html?$/, reference: htmlReference },
  { kind: 'Markdown', is: /\.(?:md|markdown|mdx)$/, reference: markdownReference },
  { kind: 'PDF', is: /\.pdf$/, reference: pdfReference },
  { kind: 'changelogs', is: /(?:^|\/)(?:changelog|news)[^/]*$/i, reference: textReference },
  { kind: 'man pages', is: /\/man\/.*\.\d\w*$/, reference: textReference },
  { kind: 'other text', is: /\.(?:txt|text)$|(?:^|\/)(?:readme|copyright|todo)[^/]*$/i, reference: textReference },
];

const SILENT = new Set('head script style template noscript svg nav select iframe object'.split(' '));
const INLINE = new Set(
  'a abbr b bdi bdo cite code data dfn em font i kbd mark q s samp small span strong sub sup time tt u var wbr'.split(
    ' ',
  ),
);

async function htmlReference(bytes) {
  const headings = [];
  const textOf = (node) => {
    if (node.nodeName === '#text') return node.value;
    const attributes = Object.fromEntries((node.attrs ?? []).map(({ name, value }) => [name, value]));
    const isNavigation = attributes.role === 'navigation' || attributes.class === 'headerlink';
    if (SILENT.has(node.nodeName) || isNavigation || 'hidden' in attributes) return '';
    const text = (node.childNodes ?? []).map(textOf).join('');
    if (/^h[1-6]$/.test(node.nodeName)) headings.push(text);
    return INLINE.has(node.nodeName) ? text : ` ${text} `;
  };
  return { text: textOf(parse((await decode(bytes, { isHtml: true })).text)), headings };
}

async function markdownReference(bytes) {
  const { text } = await decode(bytes);
  const body = text.replace(/^---\n[\s\S]*?\n---\n/, '').replace(/<!--[\s\S]*?-->/g, '');
  const headings = [];
  let fence;
  const lines = body.split(/\r?\n/);
  // Where links of headings lead to is not read, nor are their elements.
  const addHeading = (heading, at) => {
    lines[at] = heading.replace(
      /\]\([^)]*\)|\]\[[^\]\s,]*\]|\{#[^}]*\}|<\/?(?:a|b|br|code|em|i|img|kbd|span|strong|su[bp])(?:\s[^>]*)?>/g,
      ' ',
    );
    headings.push(lines[at]);
  };
  for (const [at, line] of lines.entries()) {
    const marker = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1];
    if (marker !== undefined && (fence === undefined || marker.startsWith(fence)))
      fence = fence === undefined ? marker : undefined;
    if (fence !== undefined) continue;
    const heading = /^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$/.exec(line)?.[1];
    if (heading !== undefined) addHeading(heading, at);
    const isUnderlined = /^(?:=+|-+)[ \t]*$/.test(lines[at + 1] ?? '') && /^ {0,3}[\p{L}\d[`*]/u.test(line);
    if (isUnderlined && (lines[at - 1] ?? '').trim() === '') addHeading(line, at);
  }
  // Elements with their attributes and places that links lead to are no words.
  const shown = lines
    .join('\n')
    .replace(/^ {0,3}\[[^\]\n]+\]:.*$/gm, ' ')
    .replace(/<\/?[a-z][^<>]*>/gi, ' ');
  return { text: shown, headings };
}

function pdfReference(bytes) {
  const file = join(tmpdir(), `corpus-${process.pid}.pdf`);
  writeFileSync(file, bytes);
  try {
    const text = execFileSync('pdftotext', [file, '-'], { maxBuffer: 2 ** 28, stdio: 'pipe' }).toString();
    return { text: withoutRepeats(text.split('\f')), headings: [] };
  } finally {
    rmSync(file);
  }
}

/** Heads and numbers of pages are kept once: lines at the edge of a page that at least three pages have. */
function withoutRepeats(pages) {
  const lines = pages.map((page) => page.split('\n').filter((line) => line.trim() !== ''));
  const isEdge = (at, { length }) => at < 3 || at >= length - 3;
  const keyOf = (line) => line.replace(/\d+|\b[ivxlc]+\b/g, '#').trim();
  const counts = new Map();
  for (const page of lines) {
    for (const key of new Set(page.filter((_, at) => isEdge(at, page)).map(keyOf)))
      counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const kept = new Set();
  return lines
    .flatMap((page) =>
      page.filter((line, at) => {
        const key = keyOf(line);
        if (!isEdge(at, page) || counts.get(key) < 3) return true;
        const isFirst = !kept.has(key) && /\p{L}/u.test(key);
        kept.add(key);
        return isFirst;
      }),
    )
    .join('\n');
}

async function textReference(bytes) {
  return { text: (await decode(bytes)).text, headings: [] };
}

const CJK = '\\u3040-\\u30ff\\u4e00-\\u9fff\\uac00-\\ud7af';
const WORD = new RegExp(`[${CJK}]|[^\\P{L}${CJK}]+|\\p{N}+`, 'gu');

/** How often each word occurs. Hyphens are none: a line end may have cut a word. */
function countsOf(text) {
  const plain = text
    .normalize('NFKC')
    .toLowerCase()
    .replace(/[-\u2010\u00ad](?:\s*\n\s*)?/g, '');
  const counts = new Map();
  for (const [word] of plain.matchAll(WORD)) counts.set(word, (counts.get(word) ?? 0) + 1);
  return counts;
}

function lettersOf(text) {
  return text
    .normalize('NFKC')
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, '');
}

/** All text of a document, each heading once. */
function textOf({ title = '', blocks }) {
  const headings = new Set(blocks.flatMap((block) => block.headings));
  return [
    title,
    ...[...headings].map(({ text }) => text),
    ...blocks.flatMap(({ header = '', text }) => [header, text]),
  ].join('\n');
}

async function compare(path, bytes, reference) {
  const name = path.replace(/\.gz$/, '');
  const format = formatOfPath(name) ?? 'text';
  const wanted = await reference(bytes);
  const parsed = await parseDocument(bytes, { format, signal });
  const counts = countsOf(textOf(parsed));
  const result = { words: 0, lost: 0, gone: 0, headings: 0, lostHeadings: [], lostWords: [] };
  for (const [word, count] of countsOf(wanted.text)) {
    const here = counts.get(word) ?? 0;
    result.words += count;
    result.lost += Math.max(0, count - here);
    if (here === 0) result.gone += count;
    if (here < count) result.lostWords.push(`${word} ${count - here}`);
  }
  const shown = lettersOf(
    chunk(parsed.blocks, DEFAULT_CHUNKS)
      .map(({ title = '', content }) => `${title}\n${content}`)
      .join('\n') + (parsed.title ?? ''),
  );
  const headings = wanted.headings.map(lettersOf).filter((heading) => heading !== '');
  result.headings = headings.length;
  result.lostHeadings = headings.filter((heading) => !shown.includes(heading));
  return result;
}

function* filesIn(path) {
  if (statSync(path).isFile()) return yield path;
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    if (entry.isDirectory()) yield* filesIn(join(path, entry.name));
    else if (entry.isFile()) yield join(path, entry.name);
  }
}

const folders = process.argv.slice(2).map((folder) => realpathSync(folder));
if (folders.length === 0) throw new Error('Name the folders whose files are compared.');
const seen = new Set();
const sums = new Map(
  KINDS.map(({ kind }) => [kind, { files: 0, refused: 0, words: 0, lost: 0, gone: 0, headings: 0, lostHeadings: 0 }]),
);
const worst = [];
for (const path of folders.flatMap((folder) => [...filesIn(folder)].sort())) {
  const name = path.replace(/\.gz$/, '');
  const entry = KINDS.find(({ is }) => is.test(name));
  const sum = sums.get(entry?.kind);
  if (sum === undefined || sum.files >= MAX_FILES || statSync(path).size > MAX_BYTES) continue;
  const packed = readFileSync(path);
  const bytes = path.endsWith('.gz') ? gunzipSync(packed) : packed;
  const hash = createHash('sha256').update(bytes).digest('hex');
  if (bytes.length === 0 || bytes.length > MAX_BYTES || seen.has(hash)) continue;
  seen.add(hash);
  sum.files++;
  try {
    const result = await compare(path, bytes, entry.reference);
    sum.words += result.words;
    sum.lost += result.lost;
    sum.gone += result.gone;
    sum.headings += result.headings;
    sum.lostHeadings += result.lostHeadings.length;
    if (result.lost > 0 || result.lostHeadings.length > 0) worst.push({ path, kind: entry.kind, ...result });
  } catch (error) {
    sum.refused++;
    worst.push({ path, kind: entry.kind, lost: 0, gone: 0, lostHeadings: [], lostWords: [String(error.message)] });
  }
}
const share = (part, whole) => (whole === 0 ? '-' : `${((100 * part) / whole).toFixed(3)} %`);
console.log(
  '| kind | files | refused | words | lost | nowhere | headings | lost |\n| --- | --: | --: | --: | --: | --: | --: | --: |',
);
for (const [kind, { files, refused, words, lost, gone, headings, lostHeadings }] of sums) {
  console.log(
    `| ${kind} | ${files} | ${refused} | ${words} | ${share(lost, words)} | ${share(gone, words)} | ${headings} | ${lostHeadings} |`,
  );
}
if (process.env['CORPUS_DETAILS'] !== undefined) {
  worst.sort((a, b) => b.lostHeadings.length - a.lostHeadings.length || b.lost - a.lost);
  for (const { path, kind, lost, lostHeadings, lostWords } of worst.slice(0, Number(process.env['CORPUS_DETAILS']))) {
    console.log(
      `${kind} ${path} ${basename(path)}: ${lost} words (${lostWords.slice(0, 12).join(', ')}); headings: ${lostHeadings.slice(0, 5).join(' | ')}`,
    );
  }
}
