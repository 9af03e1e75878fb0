// Preloaded into engine processes by a test: the first request breaks the loop of the first worker, and no other worker
// comes to listen. BROKEN_MARKS: a folder.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { PrefixCache } from '../../dist/cache/prefix-cache.js';
import { NativeModel } from '../../dist/native/model.js';

/** Whether this is the first worker. */
function isFirst() {
  try {
    mkdirSync(join(process.env.BROKEN_MARKS, 'first'));
    return true;
  } catch {
    return false;
  }
}

if (process.argv[1]?.endsWith('main.js')) {
  PrefixCache.prototype.commit = () => {
    throw new Error('broken for a test');
  };
  if (!isFirst()) {
    NativeModel.load = () => Promise.reject(new Error('broken for a test'));
  }
}
