// Preloaded into engine processes by a test: the worker dies at a chosen place, as often as the test says.
// CRASH_AT: `decode` (while the native thread computes), `token` (when the poison token is computed), `commit` (a defect of
// the loop), `refused` (llama_decode finds no memory), `context` (no memory for a context). CRASH_AFTER: calls before it.
// CRASH_MARKS: a folder with one file for each crash; CRASH_TIMES: most of them.
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

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

if (process.argv.includes('--worker')) {
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
    default:
  }
}

/** llama.cpp answers without a context when it gets no memory for one. */
function refusing() {
  const refuse = () => null;
  refuse.async = (_model, _params, done) => done(null, null);
  return refuse;
}
