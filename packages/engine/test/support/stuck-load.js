// Preloaded into engine processes by a test: the second worker never ends loading its model, for which it has a second
// and a half. STUCK_MARKS: a folder.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { NativeModel } from '../../dist/native/model.js';

/** Which worker this is, counted from 1. */
function place() {
  for (let number = 1; ; number++) {
    try {
      mkdirSync(join(process.env.STUCK_MARKS, String(number)));
      return number;
    } catch {
      // Another was this one.
    }
  }
}

if (process.argv.includes('--worker') && place() === 2) {
  NativeModel.load = () => new Promise(() => undefined);
  const { send } = process;
  process.send = (message, ...rest) => {
    const isLoading = message.type === 'pong' && message.loading?.limitMs !== undefined;
    return send.call(process, isLoading ? { ...message, loading: { limitMs: 1_500 } } : message, ...rest);
  };
}
