import { ffi } from './ffi.js';
import type { NativeLibraries } from './library.js';

/** `GGML_LOG_LEVEL_ERROR` (ggml.h). */
const ERROR_LEVEL = 4;

/** What llama.cpp writes before a reason: the function's name, and that the load failed. */
const LEAD = /^[\w:]+: |^(?:error loading model|failed to load model)[^:]*: /;

/** Runs some work and returns why it failed, in llama.cpp's words; empty when llama.cpp logs no error. */
export type ErrorsDuring = (work: () => Promise<unknown>) => Promise<string>;

/**
 * Silences llama.cpp's log, or leaves it on stderr.
 *
 * @returns A listener for work that failed before and is tried again: a log callback of JavaScript can deadlock with a
 *   synchronous native call that waits for another thread.
 */
export function nativeLog({ llama, ggmlBase }: NativeLibraries, isShown: boolean): ErrorsDuring {
  const set = llama.func('llama_log_set', 'void', ['void *', 'void *']);
  // `void ggml_time_init(void)` reads none of its arguments and changes nothing: a native callback that is silent.
  const usual: unknown = isShown ? null : ggmlBase.symbol('ggml_time_init');
  set(usual, null);
  return async (work) => {
    const lines: string[] = [];
    const callback = ffi().register(
      (level: number, text: string) => level === ERROR_LEVEL && lines.push(text.trim()),
      ffi().pointer(ffi().proto('void (int, str, void *)')),
    );
    set(callback, null);
    try {
      await work();
    } finally {
      set(usual, null);
      ffi().unregister(callback);
    }
    return reasonIn(lines);
  };
}

/** The first line names the cause; those after it say what failed in consequence. */
function reasonIn([line = '']: readonly string[]): string {
  let reason = line;
  while (LEAD.test(reason)) reason = reason.replace(LEAD, '');
  return reason;
}
