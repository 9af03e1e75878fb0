import { KERNEL_BYTES } from './kernel-bytes.js';

/** The part of the platform that this file uses. */
declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object, imports: object) => { readonly exports: unknown };
  readonly Memory: new (size: { initial: number; maximum: number }) => KernelMemory;
};

/** Memory of WebAssembly. */
export interface KernelMemory {
  /** Another one after each `grow`, over the same bytes. */
  readonly buffer: ArrayBuffer;
  grow(pages: number): number;
}

/** Bytes of a page. */
export const PAGE = 65_536;
/** WebAssembly addresses 32 bits: 4 GiB. */
export const MAX_PAGES = 65_536;

/** Scores `count` rows, whose numbers stand at `ids`, against the vector at `query`. All places are in bytes. */
type ScoreRows = (query: number, rows: number, stride: number, ids: number, count: number, out: number) => void;

/** What compares vectors, by their dot product. */
export interface Kernel {
  readonly dot: ScoreRows;
}

/** Floats in one turn of the kernel's loop; rows are padded with zeros to a multiple of it. */
export const KERNEL_WIDTH = 16;

let compiled: object | null | undefined;

/** A memory of so many pages, which may grow to 4 GiB. */
export function createKernelMemory(pages: number): KernelMemory {
  return new WebAssembly.Memory({ initial: pages, maximum: MAX_PAGES });
}

/** The kernel over a memory: WebAssembly with SIMD where the platform has it, else plain JavaScript. */
export function kernelOver(memory: KernelMemory): Kernel {
  if (compiled === undefined) compiled = compileKernel();
  if (compiled === null) return plainKernel(memory);
  return new WebAssembly.Instance(compiled, { host: { memory } }).exports as Kernel;
}

function compileKernel(): object | null {
  try {
    return new WebAssembly.Module(Buffer.from(KERNEL_BYTES, 'base64'));
  } catch {
    // A processor or a runtime without SIMD.
    return null;
  }
}

/** The same in JavaScript, for platforms without SIMD and as the reference of tests. */
export function plainKernel(memory: KernelMemory): Kernel {
  const dot: ScoreRows = (query, rows, stride, ids, count, out) => {
    const floats = new Float32Array(memory.buffer);
    const numbers = new Int32Array(memory.buffer, ids, count);
    for (const [i, number] of numbers.entries()) {
      const [a, b] = [query / 4, (rows + number * stride) / 4];
      let [even, odd] = [0, 0];
      for (let at = 0; at < stride / 4; at += 2) {
        even += floats[a + at]! * floats[b + at]!;
        odd += floats[a + at + 1]! * floats[b + at + 1]!;
      }
      floats[out / 4 + i] = even + odd;
    }
  };
  return { dot };
}
