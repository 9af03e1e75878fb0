import {
  type Arrangement,
  arrange,
  blockDocuments,
  type DocumentBlock,
  estimateTokens,
  observe,
  type PolicyName,
  type PromptText,
  ServedHistory,
} from '@warmpath/core';
import { LabelMap } from '@warmpath/core/internal';

/** Bytes of what each simulated cache remembers. */
const TREE_BYTES = 131_072;

/** Estimated tokens of the prompts of a kind, and how many of them an engine would have cached. */
export interface GainEstimate {
  readonly prompts: number;
  readonly promptTokens: number;
  /** With documents as they come. */
  readonly cachedTokens: number;
  /** With documents that move and keep their labels, and with stable labels. */
  readonly cachedIfAllowed: number;
  readonly cachedIfMapped: number;
}

/** A cache of prompts in one order. */
class SimulatedCache {
  readonly #policy: PolicyName | undefined;
  readonly #history = new ServedHistory({ tree: { maxBytes: TREE_BYTES } });
  cachedTokens = 0;

  constructor(policy?: PolicyName) {
    this.#policy = policy;
  }

  add(text: string, block: DocumentBlock, now: number): void {
    const before = text.slice(0, block.start);
    const preamble = { key: before, tokens: estimateTokens(before) };
    const request = { documents: blockDocuments(text, block), preamble, policy: this.#policy, hints: false };
    const arrangement: Arrangement = arrange(request, this.#history, now);
    this.cachedTokens += arrangement.predictedCachedTokens;
    observe({ kind: 'completed', arrangement, now }, this.#history);
  }
}

/**
 * What the prompts of a kind would gain if their documents might move. Serves each prompt to three simulated caches: as
 * it came, ordered, and ordered with stable labels.
 */
export class PotentialGain {
  readonly #given = new SimulatedCache('retrieval');
  readonly #ordered = new SimulatedCache();
  readonly #mapped = new SimulatedCache();
  #prompts = 0;
  #tokens = 0;

  get estimate(): GainEstimate {
    return {
      prompts: this.#prompts,
      promptTokens: this.#tokens,
      cachedTokens: this.#given.cachedTokens,
      cachedIfAllowed: this.#ordered.cachedTokens,
      cachedIfMapped: this.#mapped.cachedTokens,
    };
  }

  /** A prompt came. O(text). */
  add(texts: readonly PromptText[], block: DocumentBlock): void {
    const now = this.#prompts++;
    const { text } = texts[block.text]!;
    this.#tokens += texts.reduce((sum, each) => sum + (each.text === '' ? 0 : estimateTokens(each.text)), 0);
    this.#given.add(text, block, now);
    this.#ordered.add(text, block, now);
    const { text: mapped, blocks } = LabelMap.of(texts, [block]).relabel(texts[block.text]!, block.text, [block]);
    this.#mapped.add(mapped, blocks[0]!, now);
  }
}
