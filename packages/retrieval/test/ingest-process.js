// Ingests a folder in a process of its own, for tests that kill it: writes how much is committed after each
// transaction (documents, or passages with vectors where there is an endpoint), and holds still after the first one
// until it is told to go on. Where it fails, it writes the code of the error, and ends with 3.
import { readSync, writeSync } from 'node:fs';
import { Collections } from '../dist/index.js';

const [, , folder, root, url] = process.argv;
const embeddings = url === undefined ? undefined : { url, model: 'fake' };
const collection = await new Collections(folder, { embeddings }).getOrMake('default', 'handbook');
let told = -1;
const tell = (count) => {
  if (count === told) return;
  writeSync(1, `${count}\n`);
  if (told < 0) readSync(0, Buffer.alloc(16));
  told = count;
};
const progress =
  url === undefined ? { onProgress: () => tell(collection.totals.documents) } : { onEmbedded: (count) => tell(count) };
try {
  await collection.ingest([root], progress);
} catch (error) {
  writeSync(1, `${error.code}\n`);
  process.exit(3);
}
await collection.close();
process.exit(0);
