import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { GgufValue } from '../../bench/random-model/src/gguf-format.js';
import { readGgufHeader } from '../../bench/random-model/src/gguf-reader.js';
import { type GgufTensorSource, writeGguf } from '../../bench/random-model/src/gguf-writer.js';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { decodeWeights } from '../random-model/decode.js';

const PARTS = 2;

/** Writes one part of a model in two: the embedding with all metadata, or all other weights. @returns Its path. */
export async function writePart(folder: string, spec: string, part: 1 | 2): Promise<string> {
  const whole = await modelPath(spec);
  const { metadata, tensors, dataOffset } = await readGgufHeader(whole);
  const bytes = await readFile(whole);
  const sources = tensors
    .filter(({ name }) => (name === 'token_embd.weight') === (part === 1))
    .map(({ name, shape, type, offset, bytes: length }): GgufTensorSource => {
      const start = dataOffset + offset;
      const weights = decodeWeights(type.name, bytes.subarray(start, start + length));
      return { name, shape, type: type.name as GgufTensorSource['type'], weights: [Float32Array.from(weights)] };
    });
  const split: [string, GgufValue][] = [
    ['split.no', { type: 'uint16', value: part - 1 }],
    ['split.count', { type: 'uint16', value: PARTS }],
    ['split.tensors.count', { type: 'int32', value: tensors.length }],
  ];
  const path = join(folder, `model-0000${part}-of-0000${PARTS}.gguf`);
  await writeGguf(path, new Map([...(part === 1 ? metadata : []), ...split]), sources);
  return path;
}
