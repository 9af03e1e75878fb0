/**
 * A map that can go back to how it was: every change is written down with what stood there before. Memory: an entry for
 * every `set` since the start. `rewind` costs O(changes taken back), everything else O(1).
 */
export class RewindableMap<Key, Value> {
  readonly #values = new Map<Key, Value>();
  readonly #changes: { readonly key: Key; readonly before: Value | undefined }[] = [];

  /** Stands for the map as it is now. */
  get mark(): number {
    return this.#changes.length;
  }

  get(key: Key): Value | undefined {
    return this.#values.get(key);
  }

  set(key: Key, value: Value): void {
    this.#changes.push({ key, before: this.#values.get(key) });
    this.#values.set(key, value);
  }

  /** Takes back every change since then. Later marks are void. */
  rewind(mark: number): void {
    while (this.#changes.length > mark) {
      const { key, before } = this.#changes.pop()!;
      if (before === undefined) this.#values.delete(key);
      else this.#values.set(key, before);
    }
  }
}
