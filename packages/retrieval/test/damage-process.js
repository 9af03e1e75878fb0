// Uses a collection whose files are damaged in many ways, in a process of its own, for the damage may end it. Writes a
// line for each way: its name, and the codes of the errors, or "ok".
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Collections } from '../dist/index.js';

const [, , whole, scratch, kind, count] = process.argv;
const PAGE = 4096;
const bytes = readFileSync(join(whole, 'default', 'damaged', 'data.mdb'));
const pages = bytes.length / PAGE;

/** Numbers from 0 to below 1 that follow from a seed (mulberry32). */
function seeded(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The file with one damage. */
const DAMAGES = {
  'cut at a page': (number) => bytes.subarray(0, Math.floor((number * pages) / count) * PAGE),
  'cut anywhere': (_, random) => bytes.subarray(0, Math.floor(random() * bytes.length)),
  'pages of zeros': (_, random) => {
    const copy = Buffer.from(bytes);
    const from = Math.floor(random() * pages) * PAGE;
    return copy.fill(0, from, Math.min(copy.length, from + PAGE * (1 + Math.floor(random() * 8))));
  },
  'a page in the place of another': (_, random) => {
    const copy = Buffer.from(bytes);
    const [from, to] = [Math.floor(random() * pages) * PAGE, Math.floor(random() * pages) * PAGE];
    copy.copy(copy, to, from, from + PAGE);
    return copy;
  },
  'flipped bits at the beginning of a page': (_, random) => {
    const copy = Buffer.from(bytes);
    const page = Math.floor(random() * pages) * PAGE;
    for (let left = 1 + 3 * random(); left > 0; left--) {
      copy[page + Math.floor(random() * 200)] ^= 1 << Math.floor(random() * 8);
    }
    return copy;
  },
  'random bytes': (_, random) => {
    const copy = Buffer.from(bytes);
    for (let left = 1 + 19 * random(); left > 0; left--) copy[Math.floor(random() * copy.length)] = 256 * random();
    return copy;
  },
};

const search = async (collection, text) => {
  let found = 0;
  const options = { k: 5, signal: new AbortController().signal };
  for await (const { candidates } of collection.retriever.search({ text }, options)) found = candidates.length;
  return found;
};

for (let number = 0; number < Number(count); number++) {
  rmSync(scratch, { recursive: true, force: true });
  cpSync(whole, scratch, { recursive: true });
  writeFileSync(join(scratch, 'default', 'damaged', 'data.mdb'), DAMAGES[kind](number, seeded(number + 1)));
  const collections = new Collections(scratch);
  const codes = new Set();
  const attempt = async (action) => {
    try {
      return await action();
    } catch (error) {
      codes.add(error.code ?? error.stack);
    }
  };
  const collection = await attempt(() => collections.get('default', 'damaged'));
  if (collection !== undefined) {
    await attempt(() => search(collection, 'word12'));
    await attempt(() => [...collection.export()]);
    await attempt(() => collection.put([{ id: 'new', content: 'new words '.repeat(3_000) }]));
    await attempt(() => collection.remove(Array.from({ length: 60 }, (_, id) => `d${2 * id}`)));
    await attempt(() => collection.put([{ id: 'newer', content: 'newer words '.repeat(5_000) }]));
  }
  if ((await search(await collections.get('default', 'other'), 'Velka')) !== 1) codes.add('the other one');
  await collections.close();
  process.stdout.write(`${kind} ${number}: ${[...codes].join(', ') || 'ok'}\n`);
}
