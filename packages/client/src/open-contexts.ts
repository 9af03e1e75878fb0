import { estimateTokens } from '@warmpath/core';
import { fingerprint, readUsage } from '@warmpath/core/internal';
import type { ArrangedContext } from './arranger.js';

/** Contexts that wait to be seen in a prompt; the oldest goes first, and then counts as served. */
const CAPACITY = 256;
/** Preambles of which it is known what really stood in front; the oldest goes first. */
const MAX_PREAMBLES = 256;

/** A context and the texts of its documents, in prompt order. */
interface Open {
  readonly context: ArrangedContext;
  readonly texts: readonly string[];
  readonly preamble: string;
}

/** A context that stands in a prompt. */
interface ContextInPrompt extends Open {
  /** Tokens of the prompt in front of it, beyond those it was arranged with. */
  readonly unknownTokens: number;
  /** Whether the text in front of it is that of the last context with its preamble. */
  readonly isComparable: boolean;
}

/**
 * Finds in a prompt the contexts that were put into it. Frameworks separate the step that orders documents from the one
 * that calls the model, and neither knows of the other; the prompt has the documents' texts, and with them proof that
 * they were sent, and in this order. Bounded to 256 contexts.
 */
export class OpenContexts {
  readonly #open = new Set<Open>();
  /** By preamble, a hash of what stood in front of its last context. */
  readonly #fronts = new Map<string, string>();

  /**
   * Remembers a context until a prompt has it. `texts`: of its documents, in prompt order; `preamble`: as it was
   * arranged with.
   */
  add(context: ArrangedContext, texts: readonly string[], preamble = ''): void {
    if (texts.length === 0) return;
    if (this.#open.size >= CAPACITY) this.#open.delete(this.#open.values().next().value!);
    this.#open.add({ context, texts, preamble });
  }

  /** Takes out what stands in this prompt. Cost: O(open contexts · length of the prompt). */
  take(prompt: string): SentContexts {
    const found: ContextInPrompt[] = [];
    for (const open of this.#open) {
      const at = placeOf(open.texts, prompt);
      if (at < 0) continue;
      this.#open.delete(open);
      const before = prompt.slice(0, at);
      const unknownTokens = Math.max(0, tokensOf(before) - tokensOf(open.preamble));
      found.push({ ...open, unknownTokens, isComparable: this.#isFront(open.preamble, before) });
    }
    return new SentContexts(found);
  }

  /**
   * Whether the last context with this preamble, if there was one, stood behind the same text; now this one is the
   * last.
   */
  #isFront(preamble: string, before: string): boolean {
    const front = fingerprint([before]);
    const last = this.#fronts.get(preamble);
    this.#fronts.delete(preamble);
    this.#fronts.set(preamble, front);
    if (this.#fronts.size > MAX_PREAMBLES) this.#fronts.delete(this.#fronts.keys().next().value!);
    return last === undefined || last === front;
  }
}

/** The contexts of one prompt on its way to the model. */
export class SentContexts {
  readonly #found: readonly ContextInPrompt[];

  constructor(found: readonly ContextInPrompt[]) {
    this.#found = found;
  }

  get size(): number {
    return this.#found.length;
  }

  /**
   * The engine has answered. Its counts are about the whole prompt; what stands in front of a context and was not known
   * when it was arranged is taken off. Behind another text than last time (a conversation went on), nothing of a
   * context could be cached: that says nothing of what the engine holds, and no counts are given.
   */
  async completed(usage?: unknown): Promise<void> {
    const { promptTokens, cachedTokens } = readUsage(usage);
    for (const { context, unknownTokens, isComparable } of this.#found) {
      const less = (count: number) => Math.max(0, count - unknownTokens);
      await context.completed({
        ...(isComparable && promptTokens !== undefined && { promptTokens: less(promptTokens) }),
        ...(isComparable && cachedTokens !== undefined && { cachedTokens: less(cachedTokens) }),
      });
    }
  }

  /** The prompt never reached the engine's cache. */
  async failed(): Promise<void> {
    for (const { context } of this.#found) await context.failed();
  }
}

function tokensOf(text: string): number {
  return text === '' ? 0 : estimateTokens(text);
}

/**
 * Where the first of the texts stands, if all do, one after the other; else -1. Of several places the last: history is
 * in front.
 */
function placeOf(texts: readonly string[], prompt: string): number {
  let at = prompt.length;
  for (const text of texts.toReversed()) {
    at = at < text.length ? -1 : prompt.lastIndexOf(text, at - text.length);
    if (at < 0) return -1;
  }
  return at;
}
