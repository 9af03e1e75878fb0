// How many real texts are decoded wrong: manual pages and message catalogs in their languages' older encodings, written
// by `iconv`, without a mark or a declaration. `node bench/encodings.js [MAN_FOLDER LOCALE_FOLDER]`, after a build.
// A text is silent where nothing says that its encoding was guessed. ENCODINGS_DETAILS=1 names what was wrong.
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { decode } from '../dist/parse/decode.js';

const [man = '/usr/share/man', locale = '/usr/share/locale'] = process.argv.slice(2);
const TEXTS = 10;
/** Fewer letters beyond ASCII say too little. */
const MIN_LETTERS = 40;
/** What is no text, and text that was encoded twice. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for.
const BROKEN = /[\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd]|[ÃÂ][\u0080-\u00bf]/;
const LANGUAGES = {
  ar: ['WINDOWS-1256', 'ISO-8859-6'],
  bg: ['WINDOWS-1251', 'ISO-8859-5'],
  cs: ['ISO-8859-2', 'WINDOWS-1250'],
  da: ['ISO-8859-1', 'WINDOWS-1252'],
  de: ['ISO-8859-1', 'ISO-8859-15', 'WINDOWS-1252', 'MACINTOSH'],
  el: ['ISO-8859-7', 'WINDOWS-1253'],
  eo: ['ISO-8859-3'],
  es: ['ISO-8859-1', 'WINDOWS-1252'],
  et: ['ISO-8859-15', 'WINDOWS-1257'],
  fr: ['ISO-8859-1', 'ISO-8859-15', 'WINDOWS-1252', 'MACINTOSH'],
  ga: ['ISO-8859-14', 'WINDOWS-1252'],
  he: ['ISO-8859-8', 'WINDOWS-1255'],
  hr: ['ISO-8859-2', 'WINDOWS-1250'],
  hu: ['ISO-8859-2', 'WINDOWS-1250'],
  ja: ['SHIFT_JIS', 'CP932', 'EUC-JP', 'ISO-2022-JP', 'UTF-16LE', 'UTF-16BE'],
  ko: ['EUC-KR', 'CP949'],
  lt: ['ISO-8859-13', 'WINDOWS-1257'],
  lv: ['ISO-8859-4', 'ISO-8859-13', 'WINDOWS-1257'],
  pl: ['ISO-8859-2', 'WINDOWS-1250'],
  ro: ['ISO-8859-16', 'ISO-8859-2'],
  ru: ['KOI8-R', 'WINDOWS-1251', 'ISO-8859-5', 'IBM866', 'MAC-CYRILLIC', 'UTF-16LE', 'UTF-16BE'],
  sv: ['ISO-8859-10', 'ISO-8859-1', 'WINDOWS-1252'],
  th: ['TIS-620', 'CP874'],
  tr: ['ISO-8859-9', 'WINDOWS-1254'],
  uk: ['KOI8-U', 'WINDOWS-1251'],
  vi: ['WINDOWS-1258'],
  zh_CN: ['GB2312', 'GBK', 'GB18030', 'UTF-16LE', 'UTF-16BE'],
  zh_TW: ['BIG5', 'BIG5-HKSCS'],
};

/** Translations of a GNU message catalog, which is in UTF-8. */
function translations(path) {
  const bytes = readFileSync(path);
  if (bytes.readUInt32LE(0) !== 0x950412de) return '';
  const [count, table] = [bytes.readUInt32LE(8), bytes.readUInt32LE(16)];
  const texts = [];
  for (let index = 1; index < count; index++) {
    const [length, at] = [bytes.readUInt32LE(table + 8 * index), bytes.readUInt32LE(table + 8 * index + 4)];
    texts.push(bytes.toString('utf8', at, at + length).replaceAll('\0', '\n'));
  }
  return texts.join('\n').slice(0, 20_000);
}

function filesIn(folder, ending) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true })
    .filter((name) => name.endsWith(ending))
    .sort()
    .map((name) => join(folder, name));
}

function* textsOf(language) {
  const pages = filesIn(join(man, language), '.gz').map((path) => () => gunzipSync(readFileSync(path)).toString());
  const catalogs = filesIn(join(locale, language), '.mo').map((path) => () => translations(path));
  let left = TEXTS;
  for (const read of [...pages, ...catalogs]) {
    // A declaration would make it easy.
    const text = read()
      .replace(/^.*coding:.*\n/m, '')
      .toWellFormed();
    const letters = text.match(/[^\0-\x7f]/g)?.length ?? 0;
    if (letters < MIN_LETTERS || BROKEN.test(text)) continue;
    // `iconv` parts Vietnamese letters from their tones.
    yield text.normalize('NFC');
    if (--left === 0) return;
  }
}

function encoded(text, encoding) {
  try {
    const run = { input: text, stdio: ['pipe', 'pipe', 'ignore'], maxBuffer: 2 ** 26 };
    return execFileSync('iconv', ['-f', 'UTF-8', '-t', encoding], run);
  } catch {
    // The encoding lacks a letter of the text.
    return undefined;
  }
}

const totals = { texts: 0, wrong: 0, silent: 0 };
const encodings = new Set();
for (const [language, names] of Object.entries(LANGUAGES)) {
  for (const text of textsOf(language)) {
    for (const name of names) {
      const bytes = encoded(text, name);
      if (bytes === undefined) continue;
      const read = await decode(bytes).catch(() => undefined);
      encodings.add(name);
      totals.texts++;
      if (read?.text.normalize('NFC') === text) continue;
      totals.wrong++;
      const isSilent = read !== undefined && read.doubts.length === 0;
      if (isSilent) totals.silent++;
      if (process.env.ENCODINGS_DETAILS) {
        const said = read === undefined ? 'refused' : read.doubts.map(({ message }) => message).join('; ');
        const at = read === undefined ? 0 : [...text].findIndex((letter, index) => [...read.text][index] !== letter);
        const parts = read && [text, read.text].map((one) => JSON.stringify([...one].slice(at, at + 12).join('')));
        console.log(language, name, said || 'silent', parts?.join(' '));
      }
    }
  }
}
console.log(`${totals.texts} texts in ${encodings.size} encodings: ${totals.wrong} wrong, ${totals.silent} silent`);
console.log(`share wrong: ${((100 * totals.wrong) / totals.texts).toFixed(1)} %`);
