import { createRequire } from 'node:module';
import { WarmpathError } from '@warmpath/core';
import type Koffi from 'koffi';
import type { KoffiFunc } from 'koffi';

let loaded: typeof Koffi | undefined;

/**
 * The library that calls native functions, loaded on first use: without it, the rest of the package works.
 *
 * @throws WarmpathError `WARMPATH_NATIVE_MISSING` with the command that installs it.
 */
export function ffi(): typeof Koffi {
  loaded ??= load();
  return loaded;
}

/** Calls a native function on a thread of its own, so that the event loop stays free. */
export function callBeside<Values extends unknown[], Result>(
  native: KoffiFunc<(...values: Values) => Result>,
  ...values: Values
): Promise<Result> {
  return new Promise((resolve, reject) => {
    native.async(...values, (error: unknown, result: Result) =>
      error === null || error === undefined ? resolve(result) : reject(error),
    );
  });
}

function load(): typeof Koffi {
  try {
    return createRequire(import.meta.url)('koffi') as typeof Koffi;
  } catch (cause) {
    throw new WarmpathError('WARMPATH_NATIVE_MISSING', {
      detail: `The library koffi, which calls llama.cpp, cannot be loaded. Run: npm install --include=optional koffi`,
      cause,
    });
  }
}
