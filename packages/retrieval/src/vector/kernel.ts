import { KERNEL_BYTES } from './kernel-bytes.js';

/** The part of the platform that this file uses. */
declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object, imports: object) => { readonly exports: unknown };
  readonly Memory: new (size: { initial: number; maximum: number; shared: true }) => KernelMemory;
};

/** Memory of WebAssembly that threads may share. */
export interface KernelMemory {
  /** Another one after each `grow`, over the same bytes. */
  readonly buffer: SharedArrayBuffer;
  grow(pages: number): number;
}

/** Bytes of a page. */
export const PAGE = 65_536;
/** WebAssembly addresses 32 bits: 4 GiB. */
export const MAX_PAGES = 65_536;

/** Scores `count` rows, whose numbers stand at `ids`, against the vector at `query`. All places are in bytes. */
type ScoreRows = (query: number, rows: number, stride: number, ids: number, count: number, out: number) => void;

/** What compares vectors. Higher is closer: the dot product, and the negative squared distance. */
export interface Kernel {
  readonly dot: ScoreRows;
  readonly l2: ScoreRows;
}

/** Floats in one turn of the kernel's loop; rows are padded with zeros to a multiple of it. */
export const KERNEL_WIDTH = 16;

let compiled: object | null | undefined;

/** A memory of so many pages, which may grow to 4 GiB. */
export function createKernelMemory(pages: number): KernelMemory {
  return new WebAssembly.Memory({ initial: pages, maximum: MAX_PAGES, shared: true });
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
  let floats = new Float32Array(memory.buffer);
  let words = new Int32Array(memory.buffer);
  const over =
    (compare: (floats: Float32Array, a: number, b: number, length: number) => number): ScoreRows =>
    (query, rows, stride, ids, count, out) => {
      if (floats.buffer !== memory.buffer) {
        floats = new Float32Array(memory.buffer);
        words = new Int32Array(memory.buffer);
      }
      for (let i = 0; i < count; i++) {
        const row = rows + words[ids / 4 + i]! * stride;
        floats[out / 4 + i] = compare(floats, query / 4, row / 4, stride / 4);
      }
    };
  return { dot: over(plainDot), l2: over(plainL2) };
}

function plainDot(floats: Float32Array, a: number, b: number, length: number): number {
  let [even, odd] = [0, 0];
  for (let i = 0; i < length; i += 2) {
    even += floats[a + i]! * floats[b + i]!;
    odd += floats[a + i + 1]! * floats[b + i + 1]!;
  }
  return even + odd;
}

function plainL2(floats: Float32Array, a: number, b: number, length: number): number {
  let [even, odd] = [0, 0];
  for (let i = 0; i < length; i += 2) {
    const first = floats[a + i]! - floats[b + i]!;
    const second = floats[a + i + 1]! - floats[b + i + 1]!;
    even += first * first;
    odd += second * second;
  }
  return -(even + odd);
}
