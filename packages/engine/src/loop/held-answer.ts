import type { WarmpathError } from '@warmpath/core';
import type { ChosenToken, GenerationListener, GenerationResult } from './generation.js';

/**
 * A listener that hears nothing but errors before it is let go: texts and the end are kept back and told in one go
 * then. What it keeps is bounded by the generation's own limit of tokens.
 */
export class HeldAnswer implements GenerationListener {
  readonly #listener: GenerationListener;
  #text = '';
  #tokens: ChosenToken[] = [];
  #result: GenerationResult | undefined;
  #isLetGo = false;

  constructor(listener: GenerationListener) {
    this.#listener = listener;
  }

  /** Passes on what was kept back; from now on, everything goes straight through. */
  letGo(): void {
    this.#isLetGo = true;
    if (this.#text !== '' || this.#tokens.length > 0) {
      this.#listener.onText(this.#text, this.#tokens);
      this.#text = '';
      this.#tokens = [];
    }
    if (this.#result !== undefined) {
      this.#listener.onFinish(this.#result);
    }
  }

  onText(text: string, tokens: readonly ChosenToken[] = []): void {
    if (this.#isLetGo) {
      this.#listener.onText(text, tokens);
    } else {
      this.#text += text;
      this.#tokens.push(...tokens);
    }
  }

  onFinish(result: GenerationResult): void {
    if (this.#isLetGo) {
      this.#listener.onFinish(result);
    } else {
      this.#result = result;
    }
  }

  onError(error: WarmpathError): void {
    this.#listener.onError(error);
  }
}
