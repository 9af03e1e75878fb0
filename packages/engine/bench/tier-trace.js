// RAGCache's workload in small, as prompts of token ids: for `tiers.js`.
import { ragCacheWorkload } from '../../lab/dist/index.js';
import { seeded } from './draw.js';

/** llama.cpp rounds cells up to a multiple of this. */
const CELL_STEP = 256;
/** Of the working set. */
const DEVICE_SHARE = 0.1;

/** Tokens that stand for a text: the same for the same key. */
export function tokensOf({ key, tokens }) {
  const next = seeded([...key].reduce((hash, letter) => Math.imul(hash, 31) + letter.charCodeAt(0), tokens));
  return Array.from({ length: tokens }, () => 300 + Math.floor(next() * 900));
}

/**
 * The prompts of a seed, the tokens that a cache which never forgets would hold of their documents, each in the context
 * of what stands before it, and the cells of a device for a tenth of them, but at least for the longest prompt and its
 * answer.
 */
export function drawTrace(seed, { requests, documents, shrink, drift }) {
  const workload = ragCacheWorkload(seed, { dataset: 'mmlu', k: 2, requests, documents, drift, shrink });
  const preamble = tokensOf(workload.preamble);
  const texts = new Map();
  const held = new Map();
  const trace = workload.requests.map((request) => {
    const prompt = [...preamble];
    const segments = [prompt.length];
    let path = '';
    for (const { id, tokens } of request.documents) {
      if (!texts.has(id)) {
        texts.set(id, tokensOf({ key: id, tokens }));
      }
      prompt.push(...texts.get(id));
      segments.push(prompt.length);
      path += ` ${id}`;
      held.set(path, tokens);
    }
    prompt.push(...tokensOf(request.question));
    return { prompt, segments };
  });
  const workingSet = [...held.values()].reduce((sum, tokens) => sum + tokens, preamble.length);
  const longest = Math.max(...trace.map(({ prompt }) => prompt.length)) + 1;
  const contextTokens = CELL_STEP * Math.ceil(Math.max(DEVICE_SHARE * workingSet, longest) / CELL_STEP);
  return { trace, workingSet, contextTokens };
}
