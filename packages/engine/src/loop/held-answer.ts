import type { WarmpathError } from '@warmpath/core';
import type { GenerationListener, GenerationResult } from './generation.js';

/**
 * A listener that hears nothing but errors before it is let go: texts and the end are kept back and told in one go
 * then. What it keeps is bounded by the generation's own limit of tokens.
 */
export class HeldAnswer implements GenerationListener {
  readonly #listener: GenerationListener;
  #text = '';
  #result: GenerationResult | undefined;
  #isLetGo = false;

  constructor(listener: GenerationListener) {
    this.#listener = listener;
  }

  /** Passes on what was kept back; from now on, everything goes straight through. */
  letGo(): void {
    this.#isLetGo = true;
    if (this.#text !== '') {
      this.#listener.onText(this.#text);
      this.#text = '';
    }
    if (this.#result !== undefined) {
      this.#listener.onFinish(this.#result);
    }
  }

  onText(text: string): void {
    if (this.#isLetGo) {
      this.#listener.onText(text);
    } else {
      this.#text += text;
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
