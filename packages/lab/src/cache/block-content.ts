import { allSpans, type CachedPrompt } from './prefix-cache.js';

/**
 * The content of each full block of a prompt and its answer, as text that is equal for equal tokens: the pieces of spans in it, each by
 * offset, length and key. The salt goes into the first block, as in vLLM, where it reaches every later one through the chained hash.
 * O(blocks + spans).
 */
export function blockContents(prompt: CachedPrompt, blockSize: number): string[] {
  const contents: string[] = [];
  let content = `${prompt.salt ?? ''}\u0000`;
  let room = blockSize;
  for (const { key, tokens } of allSpans(prompt)) {
    let offset = 0;
    while (offset < tokens) {
      const taken = Math.min(room, tokens - offset);
      content += `${offset}+${taken}@${key.length}:${key}`;
      offset += taken;
      room -= taken;
      if (room > 0) continue;
      contents.push(content);
      content = '';
      room = blockSize;
    }
  }
  return contents;
}
