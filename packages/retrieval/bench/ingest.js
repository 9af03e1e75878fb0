// Ingestion of a folder: MB and passages a second, peak memory, and the same again when nothing has changed.
// Usage: node bench/ingest.js [folder]; without one, a made-up folder of Markdown (megabytes: $MEGABYTES, 64).
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Collections } from '../dist/index.js';

const MEGABYTES = Number(process.env.MEGABYTES ?? 64);
const FILE_BYTES = 16_384;
const scratch = mkdtempSync(join(tmpdir(), 'warmpath-ingest-'));

let state = 7;
const draw = (below) => {
  state = (Math.imul(state, 1103515245) + 12345) >>> 0;
  return Math.floor((state / 2 ** 32) * below);
};
const word = () => `w${draw(1 + draw(20_000)).toString(36)}`;
const sentence = () => `${Array.from({ length: 6 + draw(14) }, word).join(' ')}.`;

/** Pages with headings, paragraphs, lists and code. */
function writePages(folder) {
  const count = Math.ceil((MEGABYTES * 1e6) / FILE_BYTES);
  for (let file = 0; file < count; file++) {
    const part = join(folder, `part-${Math.floor(file / 500)}`);
    mkdirSync(part, { recursive: true });
    const blocks = [`# Page ${file}`];
    for (let bytes = 0; bytes < FILE_BYTES; bytes += blocks.at(-1).length) {
      const kind = draw(10);
      if (kind === 0) blocks.push(`## ${sentence()}`);
      else if (kind === 1) blocks.push(Array.from({ length: 4 }, () => `- ${sentence()}`).join('\n'));
      else if (kind === 2) blocks.push(`\`\`\`js\nconst ${word()} = ${word()}(${draw(99)});\n\`\`\``);
      else blocks.push(Array.from({ length: 1 + draw(5) }, sentence).join(' '));
    }
    writeFileSync(join(part, `page-${file}.md`), blocks.join('\n\n'));
  }
}

const given = process.argv[2];
const folder = given ?? join(scratch, 'pages');
if (given === undefined) writePages(folder);

const collections = new Collections(join(scratch, 'collections'));
const collection = await collections.getOrMake('default', 'bench');
// Longer ago than the time of a file is doubted.
const now = () => Date.now() + 10_000;
const run = async (name) => {
  const start = performance.now();
  const report = await collection.ingest([folder], { now });
  const seconds = (performance.now() - start) / 1000;
  const megabytes = report.bytes / 1e6;
  console.log(
    `${name.padEnd(8)} ${report.files} files, ${megabytes.toFixed(1)} MB, ${collection.totals.passages} passages ` +
      `in ${seconds.toFixed(2)} s: ${(megabytes / seconds).toFixed(1)} MB/s, ` +
      `${Math.round(collection.totals.passages / seconds)} passages/s, ${report.errorCount} errors`,
  );
  return seconds;
};
const first = await run('first');
const again = await run('again');
console.log(`again / first: ${(again / first).toFixed(3)}`);
console.log(`peak memory: ${Math.round(process.resourceUsage().maxRSS / 1024)} MB`);
await collections.close();
rmSync(scratch, { recursive: true, force: true });
