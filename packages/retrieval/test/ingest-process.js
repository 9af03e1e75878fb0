// Ingests a folder in a process of its own, for tests that kill it: writes how many documents are committed after each
// transaction, and holds still after the first one until it is told to go on.
import { readSync, writeSync } from 'node:fs';
import { Collections } from '../dist/index.js';

const [, , folder, root] = process.argv;
const collection = await new Collections(folder).getOrMake('default', 'handbook');
let told = -1;
await collection.ingest([root], {
  onProgress: () => {
    const { documents } = collection.totals;
    if (documents === told) return;
    writeSync(1, `${documents}\n`);
    if (told < 0) readSync(0, Buffer.alloc(16));
    told = documents;
  },
});
await collection.close();
