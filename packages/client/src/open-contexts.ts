import { estimateTokens } from '@warmpath/core';
import type { ArrangedContext, EngineUsage } from './arranger.js';

/** Contexts that wait to be seen in a prompt; the oldest goes first, and then counts as served. */
const CAPACITY = 256;

/** A context and the texts of its documents, in prompt order. */
interface Open {
  readonly context: ArrangedContext;
  readonly texts: readonly string[];
  readonly preambleTokens: number;
}

/** A context that stands in a prompt. */
interface Found extends Open {
  /** Tokens of the prompt in front of it. */
  readonly before: number;
}

/**
 * Finds in a prompt the contexts that were put into it. Frameworks part the step that orders documents from the one that calls
 * the model, and tell neither of the other; the prompt has the documents' texts, and with them proof that they were sent, and in
 * this order. Bounded to 256 contexts.
 */
export class OpenContexts {
  readonly #open = new Set<Open>();

  /** Remembers a context until a prompt has it. `texts`: of its documents, in prompt order; `preamble`: as it was arranged with. */
  add(context: ArrangedContext, texts: readonly string[], preamble = ''): void {
    if (texts.length === 0) return;
    if (this.#open.size >= CAPACITY) this.#open.delete(this.#open.values().next().value!);
    const preambleTokens = preamble === '' ? 0 : estimateTokens(preamble);
    this.#open.add({ context, texts, preambleTokens });
  }

  /** Takes out what stands in this prompt. Cost: O(open contexts · length of the prompt). */
  take(prompt: string): SentContexts {
    const found: Found[] = [];
    for (const open of this.#open) {
      const at = placeOf(open.texts, prompt);
      if (at < 0) continue;
      this.#open.delete(open);
      found.push({ ...open, before: estimateTokens(prompt.slice(0, at)) });
    }
    return new SentContexts(found);
  }
}

/** The contexts of one prompt on its way to the model. */
export class SentContexts {
  readonly #found: readonly Found[];

  constructor(found: readonly Found[]) {
    this.#found = found;
  }

  get size(): number {
    return this.#found.length;
  }

  /**
   * The engine has answered. Its counts are about the whole prompt; what stands in front of a context and was not known when it
   * was arranged is taken off.
   */
  async completed({ promptTokens, cachedTokens }: EngineUsage = {}): Promise<void> {
    for (const { context, before, preambleTokens } of this.#found) {
      const less = (count: number) => Math.max(0, count - Math.max(0, before - preambleTokens));
      await context.completed({
        ...(promptTokens !== undefined && { promptTokens: less(promptTokens) }),
        ...(cachedTokens !== undefined && { cachedTokens: less(cachedTokens) }),
      });
    }
  }

  /** The prompt never reached the engine's cache. */
  async failed(): Promise<void> {
    for (const { context } of this.#found) await context.failed();
  }
}

/** Where the first of the texts stands, if all do, one after the other; else -1. */
function placeOf(texts: readonly string[], prompt: string): number {
  const first = prompt.indexOf(texts[0]!);
  let end = first;
  for (const text of texts) {
    const at = end < 0 ? -1 : prompt.indexOf(text, end);
    if (at < 0) return -1;
    end = at + text.length;
  }
  return first;
}
