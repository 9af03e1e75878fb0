import type { ScoredDocument, SearchOptions, Stage, StagedRetriever } from '@warmpath/retrieval';

const passage = (id: string, place: number): ScoredDocument => {
  return { id, content: `What is known of ${id}.`, score: 1 / (place + 1) };
};

/** A search whose stages come when the test says so. */
export class ScriptedSearch implements StagedRetriever {
  readonly #passageOf: typeof passage;
  readonly #stages: (Stage | Error)[] = [];
  #index = 0;
  #wake: () => void = () => {};
  /** Resolves when somebody has searched and left before the end. */
  readonly left: Promise<unknown>;
  #leave: (reason: unknown) => void = () => {};

  constructor(passageOf = passage) {
    this.#passageOf = passageOf;
    this.left = new Promise((resolve) => {
      this.#leave = resolve;
    });
  }

  /** One letter a document. */
  stage(ids: string, final = false): void {
    this.#stages.push({ candidates: [...ids].map(this.#passageOf), index: this.#index++, final });
    this.#wake();
  }

  fail(error: Error): void {
    this.#stages.push(error);
    this.#wake();
  }

  async *search(_: unknown, { signal }: SearchOptions): AsyncGenerator<Stage, void> {
    signal.addEventListener('abort', () => {
      this.#leave(signal.reason);
      this.#wake();
    });
    for (;;) {
      const stage = this.#stages.shift();
      signal.throwIfAborted();
      if (stage instanceof Error) throw stage;
      if (stage !== undefined) yield stage;
      if (stage?.final) return;
      if (stage === undefined) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }
}
