// Preloaded into engine processes by a test: the worker dies at a chosen place, as often as the test says.
// CRASH_AT: `decode` (while the native thread computes), `hang` (it never comes back), `loop` (the event loop stands
// still), `token` (when the poison token is computed), `commit` (a
// defect of the loop), `refused` (llama_decode finds no memory), `context` (no memory for a context), `save` and
// `restore` (between the copy of a node's cells and the tree's knowing of it), `write` (in the middle of a file).
// CRASH_AFTER: calls before it.
// CRASH_MARKS: a folder with one file for each crash; CRASH_TIMES: most of them.
import { readdirSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const { CRASH_AT, CRASH_AFTER = '0', CRASH_TIMES = '1', CRASH_MARKS, CRASH_SIGNAL = 'SIGSEGV' } = process.env;
const POISON = 1_399;

let calls = 0;

/** Whether it is to happen now; leaves a mark when it is, for the next process to count. */
function isDue() {
  if (calls++ < Number(CRASH_AFTER)) {
    return false;
  }
  const crashes = readdirSync(CRASH_MARKS).length;
  if (crashes >= Number(CRASH_TIMES)) {
    return false;
  }
  writeFileSync(join(CRASH_MARKS, String(crashes)), '');
  return true;
}

function die() {
  process.kill(process.pid, CRASH_SIGNAL);
}

if (process.argv[1]?.endsWith('main.js')) {
  const { NativeContext } = await import('../../dist/native/context.js');
  const { NativeBatch } = await import('../../dist/native/batch.js');
  const { PrefixCache } = await import('../../dist/cache/prefix-cache.js');
  const { decode } = NativeContext.prototype;
  const { add } = NativeBatch.prototype;
  const { commit } = PrefixCache.prototype;
  const { create } = NativeContext;
  switch (CRASH_AT) {
    case 'decode':
      NativeContext.prototype.decode = function () {
        const result = decode.call(this);
        if (isDue()) die();
        return result;
      };
      break;
    case 'hang':
      NativeContext.prototype.decode = function () {
        return isDue() ? new Promise(() => undefined) : decode.call(this);
      };
      break;
    case 'loop':
      NativeContext.prototype.decode = function () {
        if (isDue()) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
        return decode.call(this);
      };
      break;
    case 'token':
      NativeBatch.prototype.add = function (token, ...rest) {
        if (token === POISON) die();
        return add.call(this, token, ...rest);
      };
      break;
    case 'commit':
      PrefixCache.prototype.commit = function (...values) {
        if (isDue()) throw new Error('broken for a test');
        return commit.apply(this, values);
      };
      break;
    case 'refused':
      NativeContext.prototype.decode = function () {
        return isDue() ? Promise.resolve(-2) : decode.call(this);
      };
      break;
    case 'context':
      NativeContext.create = async (bindings, ...rest) =>
        create.call(NativeContext, isDue() ? { ...bindings, initFromModel: refusing() } : bindings, ...rest);
      break;
    case 'save':
    case 'restore': {
      const original = NativeContext.prototype[CRASH_AT];
      NativeContext.prototype[CRASH_AT] = function (...values) {
        const result = original.apply(this, values);
        if (isDue()) die();
        return result;
      };
      break;
    }
    case 'write': {
      const handle = await open(fileURLToPath(import.meta.url));
      const prototype = Object.getPrototypeOf(handle);
      await handle.close();
      const { writeFile: writeWhole } = prototype;
      prototype.writeFile = async function (data, ...rest) {
        // A lock and a record's head are smaller than any cells.
        if (data.length > 10_000 && isDue()) {
          await writeWhole.call(this, data.subarray(0, data.length / 2));
          die();
        }
        return writeWhole.call(this, data, ...rest);
      };
      break;
    }
    default:
  }
}

/** llama.cpp answers without a context when it gets no memory for one. */
function refusing() {
  const refuse = () => null;
  refuse.async = (_model, _params, done) => done(null, null);
  return refuse;
}
