// The WebAssembly kernel of vector search: its text, written by a few templates, and its bytes, from `wabt`.
// `npm run kernel -w packages/retrieval` writes src/vector/kernel-bytes.ts; a test compares that file with this one.
import { writeFileSync } from 'node:fs';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';
import wabt from 'wabt';

/** Rows that are scored side by side: they share the query's loads, and their own loads overlap. */
const ROWS = 4;
/** Vectors of four floats in one turn of the loop. A padded dimension is a multiple of 16. */
const LOADS = 4;

const range = (count, line) => Array.from({ length: count }, (_, i) => line(i)).join('\n');
const address = (row) => `(i32.add (local.get $rows)
      (i32.mul (local.get $stride) (i32.load offset=${4 * row} (local.get $ids))))`;

/** Adds what four floats of one row contribute to one of its two sums. */
const accumulate = (row, load) => `(local.set $s${row}${load & 1} (f32x4.add (local.get $s${row}${load & 1})
        (f32x4.mul (local.get $q) (v128.load offset=${16 * load} (i32.add (local.get $r${row}) (local.get $i))))))`;

/** The sum of a row's eight lanes, in an order that does not depend on where in a batch the row stands. */
const total = (row) => `(local.set $t (f32x4.add (local.get $s${row}0) (local.get $s${row}1)))
    (f32.store offset=${4 * row} (local.get $out)
      (f32.add
        (f32.add (f32x4.extract_lane 0 (local.get $t)) (f32x4.extract_lane 1 (local.get $t)))
        (f32.add (f32x4.extract_lane 2 (local.get $t)) (f32x4.extract_lane 3 (local.get $t)))))`;

const block = (rows) => `
    ${range(
      rows,
      (row) => `(local.set $r${row} ${address(row)})
    (local.set $s${row}0 (v128.const f32x4 0 0 0 0)) (local.set $s${row}1 (v128.const f32x4 0 0 0 0))`,
    )}
    (local.set $i (i32.const 0))
    (loop $next
      ${range(
        LOADS,
        (load) => `(local.set $q (v128.load offset=${16 * load} (i32.add (local.get $query) (local.get $i))))
      ${range(rows, (row) => accumulate(row, load))}`,
      )}
      (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const ${16 * LOADS}))) (local.get $stride))))
    ${range(rows, (row) => total(row))}
    (local.set $ids (i32.add (local.get $ids) (i32.const ${4 * rows})))
    (local.set $out (i32.add (local.get $out) (i32.const ${4 * rows})))
    (local.set $count (i32.sub (local.get $count) (i32.const ${rows})))`;

export const KERNEL_TEXT = `(module
  (import "host" "memory" (memory 1 65536))
  (func (export "dot")
    (param $query i32) (param $rows i32) (param $stride i32) (param $ids i32) (param $count i32) (param $out i32)
    (local $i i32) (local $q v128) (local $t v128)
    ${range(ROWS, (row) => `(local $r${row} i32) (local $s${row}0 v128) (local $s${row}1 v128)`)}
    (block $few
      (loop $many
        (br_if $few (i32.lt_u (local.get $count) (i32.const ${ROWS})))
        ${block(ROWS)}
        (br $many)))
    (block $none
      (loop $one
        (br_if $none (i32.eqz (local.get $count)))
        ${block(1)}
        (br $one)))))
`;

/** The module's bytes. */
export async function kernelBytes() {
  const { parseWat } = await wabt();
  const module = parseWat('kernel.wat', KERNEL_TEXT, { simd: true });
  const { buffer } = module.toBinary({});
  module.destroy();
  return buffer;
}

if (fileURLToPath(import.meta.url) === argv[1]) {
  const lines = Buffer.from(await kernelBytes())
    .toString('base64')
    .match(/.{1,112}/g);
  const source = `// Written by \`npm run kernel -w packages/retrieval\` from kernel/kernel.js.

/** The WebAssembly module that scores rows of vectors, in base64. */
export const KERNEL_BYTES =
${lines.map((line) => `  '${line}'`).join(' +\n')};
`;
  writeFileSync(new URL('../src/vector/kernel-bytes.ts', import.meta.url), source);
}
