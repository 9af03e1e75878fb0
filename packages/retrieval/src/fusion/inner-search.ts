import { WarmpathError, type Warning } from '@warmpath/core';
import type { Query, SearchOptions, Stage, StagedRetriever } from '../staged-retriever.js';

/**
 * A search that another one has begun. It starts at once, whether or not its stages are taken yet, and ends with the
 * outer search, however that ends.
 */
export class InnerSearch {
  readonly #end = new AbortController();
  readonly #stages: AsyncIterator<Stage>;
  readonly #signal: AbortSignal;
  readonly #abort = () => this.#end.abort(this.#signal.reason);
  #next: Promise<IteratorResult<Stage>>;

  constructor(retriever: StagedRetriever, query: Query, { signal, ...options }: SearchOptions) {
    this.#signal = signal;
    signal.addEventListener('abort', this.#abort);
    this.#stages = retriever.search(query, { ...options, signal: this.#end.signal })[Symbol.asyncIterator]();
    this.#next = this.#advance();
  }

  /** The stages, up to the final one. @throws what the search throws, or the outer signal's reason. */
  async *stages(): AsyncGenerator<Stage, void> {
    for (;;) {
      const { value, done } = await this.#next;
      this.#signal.throwIfAborted();
      if (done) return;
      if (!value.final) this.#next = this.#advance();
      yield value;
      if (value.final) return;
    }
  }

  /** Ends the search, if it has not ended. */
  end(): void {
    this.#signal.removeEventListener('abort', this.#abort);
    this.#end.abort();
    this.#stages.return?.()?.catch(() => undefined);
  }

  #advance(): Promise<IteratorResult<Stage>> {
    const next = this.#stages.next();
    // Who takes the stages hears of it; nobody may be there yet.
    next.catch(() => undefined);
    return next;
  }
}

/**
 * What a search may go on without, as a warning: a failure of a server.
 * @throws the error itself where it is the caller's to mend, or where the caller has gone.
 */
export function toleratedFailure(error: unknown, path: string, signal: AbortSignal): Warning {
  if (signal.aborted) throw signal.reason;
  if (!WarmpathError.isInstance(error) || error.status < 500) throw error;
  return { code: error.code, path, message: error.message };
}
