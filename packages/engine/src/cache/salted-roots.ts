import { RadixNode } from './radix-node.js';

/** Where prompts begin: one root for those without a salt, and one for each salt as long as anything hangs on it. */
export class SaltedRoots {
  readonly #plain = new RadixNode(undefined, 0, []);
  readonly #salted = new Map<string, RadixNode>();

  get all(): readonly RadixNode[] {
    return [this.#plain, ...this.#salted.values()];
  }

  /** `undefined` when nothing is held for the salt. */
  existing(salt: string | undefined): RadixNode | undefined {
    return salt === undefined ? this.#plain : this.#salted.get(salt);
  }

  /** The same, made where there is none. */
  of(salt: string | undefined): RadixNode {
    if (salt === undefined) {
      return this.#plain;
    }
    let root = this.#salted.get(salt);
    if (root === undefined) {
      root = new RadixNode(undefined, 0, [], salt);
      this.#salted.set(salt, root);
    }
    return root;
  }

  /** A salt's root goes when the last thing that hung on it is gone. Other nodes may be asked about too. */
  dropIfEmpty({ salt, children, pins }: RadixNode): void {
    if (salt !== undefined && children.size === 0 && pins === 0) {
      this.#salted.delete(salt);
    }
  }

  /** The same for all salts. */
  dropEmpty(): void {
    for (const root of this.#salted.values()) {
      this.dropIfEmpty(root);
    }
  }
}
