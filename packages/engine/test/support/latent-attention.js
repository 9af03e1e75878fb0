// Computes a prompt of a model with one variant of the CPU code: `node latent-attention.js <model> [variant]`.
import { llamaBindings } from '../../dist/native/bindings.js';
import { NativeContext } from '../../dist/native/context.js';
import { NativeModel } from '../../dist/native/model.js';

const [path, name] = process.argv.slice(2);
const bindings = llamaBindings({ cpuVariant: name });
const model = await NativeModel.load(bindings, path);
const context = await NativeContext.create(bindings, model, { cells: 256, batchTokens: 64, outputs: 1, threads: 1 });
context.batch.clear();
for (let position = 0; position < 64; position++) {
  context.batch.add(position, position, 1, position === 63);
}
process.exitCode = await context.decode();
context.free();
await model.free();
