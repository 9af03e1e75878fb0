// Follows every link of the built site to its page and its heading. Links to other hosts are not followed.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';

const site = join(import.meta.dirname, 'dist');
const files = readdirSync(site, { recursive: true, encoding: 'utf8' });
const pages = new Map(
  files.filter((path) => path.endsWith('.html')).map((path) => [path, readFileSync(join(site, path), 'utf8')]),
);
const ids = new Map([...pages].map(([path, html]) => [path, new Set(matchesOf(html, /\sid="([^"]+)"/g))]));

const broken = [];
let count = 0;
for (const [path, html] of pages) {
  for (const link of matchesOf(html, /<(?:a|img)\s[^>]*?(?:href|src)="([^"]+)"/g)) {
    if (/^[a-z]+:/.test(link)) continue;
    count += 1;
    const [target, anchor = ''] = decodeURIComponent(link).replaceAll('&amp;', '&').split('#');
    const file = fileOf(target, path);
    const isThere = file !== undefined && (anchor === '' || ids.get(file)?.has(anchor));
    if (!isThere) broken.push(`${path}: ${link}`);
  }
}
for (const link of broken) process.stderr.write(`broken link in ${link}\n`);
process.stdout.write(`${count} links in ${pages.size} pages, ${broken.length} broken\n`);
process.exitCode = broken.length === 0 && count > 0 ? 0 : 1;

/** The file of the site that a link leads to. */
function fileOf(target, from) {
  if (target === '') return from;
  const path = target.startsWith('/') ? target.slice(1) : normalize(join(dirname(from), target));
  const candidates = [path, `${path}.html`, join(path, 'index.html')];
  return candidates
    .map((candidate) => relative('.', candidate))
    .find((candidate) => files.includes(candidate) && candidate.includes('.'));
}

function matchesOf(text, pattern) {
  return [...text.matchAll(pattern)].map(([, match]) => match);
}
