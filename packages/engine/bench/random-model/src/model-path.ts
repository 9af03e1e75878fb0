import { cacheFolder } from '../../../dist/models/cache-folder.js';
import { parseRandomModel, randomModel } from './random-model.js';

const RANDOM = 'random:';

/**
 * What to give an engine as its model. Benchmarks and tests name a model with random weights `random:<size>`, for
 * instance `random:24m`: its file is made at the first call, and its path is the answer. Every other name is the answer
 * itself.
 *
 * @param cacheDir folder for models; by default the one in which the engine keeps downloads
 * @throws WARMPATH_MODEL_SPEC for a size that is none.
 */
export async function modelPath(name: string, cacheDir: string = cacheFolder()): Promise<string> {
  if (!name.startsWith(RANDOM)) return name;
  return await randomModel(parseRandomModel(name.slice(RANDOM.length)), { cacheDir });
}
