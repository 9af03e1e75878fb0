import type { StateIdentity } from '../store/stored-state.js';
import { LLAMA_RELEASE, NATIVE_PACKAGE_VERSION } from './library.js';

/**
 * What the states of a context are of. Keys and values are of the library's default type, which is checked at start
 * (`CONTEXT_PARAMS_LAYOUT`).
 *
 * @param model The fingerprint of the model's file.
 */
export function stateIdentity(model: string): StateIdentity {
  return { model, library: `llama.cpp ${LLAMA_RELEASE} (${NATIVE_PACKAGE_VERSION})`, cells: 'f16/f16' };
}
