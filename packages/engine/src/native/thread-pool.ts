import koffi from 'koffi';
import type { NativeLibraries } from './library.js';
import type { NativePointer } from './structs.js';

/** `struct ggml_threadpool_params` (ggml.h): 512 marks of cores, three numbers and two flags, with room to spare. */
const PARAMS_BYTES = 1024;

/** Threads that compute, and sleep when there is nothing to compute. */
export interface ThreadPools {
  /** `undefined` where the library has none to give; then it starts threads for every step. */
  create(threads: number): NativePointer | undefined;
  /** Every context that it was given to must be freed first. */
  free(pool: NativePointer): void;
}

/**
 * The pools of the CPU code that the process has loaded. Without one, llama.cpp starts its threads anew for every
 * graph, and a new thread may begin on the core of the one that waits for it: with two threads a step of one token of
 * `random:24m` took 8 to 13 ms, and takes 3.6 with a pool.
 */
export function threadPools({ ggml, ggmlBase }: NativeLibraries): ThreadPools {
  const registry = ggml.func('ggml_backend_reg_by_name', 'void *', ['str'])('CPU') as NativePointer | null;
  const address = ggmlBase.func('ggml_backend_reg_get_proc_address', 'void *', ['void *', 'str']);
  const initialise = ggmlBase.func('ggml_threadpool_params_init', 'void', ['void *', 'int']);
  const find = (name: string): NativePointer | null =>
    registry === null ? null : (address(registry, name) as NativePointer | null);
  const [creating, freeing] = [find('ggml_threadpool_new'), find('ggml_threadpool_free')];
  const [creator, freer] = [koffi.proto('void *(void *)'), koffi.proto('void (void *)')];
  return {
    create(threads) {
      if (creating === null || freeing === null || threads < 2) {
        return undefined;
      }
      const params = Buffer.alloc(PARAMS_BYTES);
      initialise(params, threads);
      return (koffi.call(creating, creator, params) as NativePointer | null) ?? undefined;
    },
    free(pool) {
      koffi.call(freeing, freer, pool);
    },
  };
}
