import type { CachedPrompt } from '../src/index.js';

/** A prompt spelt out token by token: the slow way that the span-wise caches must agree with. */
export function spellOut(prompt: CachedPrompt): string[] {
  return prompt.spans.flatMap(({ key, tokens }) =>
    Array.from({ length: tokens }, (_, offset) => `${prompt.salt ?? ''}/${key}/${offset}`),
  );
}

/** vLLM's blocks as an array in the order of the free queue: each slot holds a chained text or nothing. */
export class NaiveBlocks {
  #queue: { chain: string | undefined }[];

  constructor(
    readonly blockSize: number,
    blocks: number,
  ) {
    this.#queue = Array.from({ length: blocks }, () => ({ chain: undefined }));
  }

  serve(prompt: CachedPrompt): number {
    const tokens = spellOut(prompt);
    const chains: string[] = [];
    for (let end = this.blockSize; end <= tokens.length; end += this.blockSize)
      chains.push(tokens.slice(0, end).join());
    const held: { chain: string | undefined }[] = [];
    const most = Math.floor((tokens.length - 1) / this.blockSize);
    while (held.length < most) {
      const found = this.#oldestWith(chains[held.length]!);
      if (found === undefined) break;
      held.push(found);
    }
    const cached = held.length;
    this.#queue = this.#queue.filter((block) => !held.includes(block));
    while (held.length < Math.ceil(tokens.length / this.blockSize)) {
      this.#queue.shift();
      held.push({ chain: chains[held.length] });
      this.#created.push(held.at(-1)!);
    }
    this.#queue.push(...held.reverse());
    this.#created = this.#created.filter((block) => this.#queue.includes(block));
    return cached * this.blockSize;
  }

  /** All indexed blocks in the order of their creation: of two with the same content the older one is found. */
  #created: { chain: string | undefined }[] = [];

  #oldestWith(chain: string): { chain: string | undefined } | undefined {
    return this.#created.find((block) => block.chain === chain);
  }
}

interface NaiveNode {
  readonly token: string;
  readonly parent: NaiveNode | undefined;
  readonly children: Map<string, NaiveNode>;
  /** An edge of the radix tree ends here. */
  ends: boolean;
  access: number;
}

/** SGLang's radix tree with a node for every token, and marks where its edges end. */
export class NaiveRadix {
  readonly #root: NaiveNode = { token: '', parent: undefined, children: new Map(), ends: true, access: 0 };
  #access = 0;

  constructor(readonly capacity: number) {}

  serve(prompt: CachedPrompt): number {
    const tokens = spellOut(prompt);
    this.#access++;
    let node = this.#root;
    let cached = 0;
    while (cached < tokens.length - 1 && node.children.has(tokens[cached]!))
      node = node.children.get(tokens[cached++]!)!;
    node.ends = true;
    for (let at: NaiveNode | undefined = node; at !== undefined; at = at.parent) at.access = this.#access;
    let wanted = this.size() + tokens.length - cached - this.capacity;
    while (wanted > 0) wanted -= this.#removeOldestEdge();
    for (const token of tokens.slice(cached)) {
      if (!node.children.has(token)) {
        // An edge that stops where others go on has its end there.
        if (node.children.size > 0) node.ends = true;
        node.children.set(token, { token, parent: node, children: new Map(), ends: false, access: 0 });
      }
      node = node.children.get(token)!;
      node.access = this.#access;
    }
    node.ends = true;
    return cached;
  }

  size(): number {
    return this.#all().length - 1;
  }

  #removeOldestEdge(): number {
    const leaves = this.#all().filter((node) => node !== this.#root && node.children.size === 0);
    const evictable = leaves.filter((node) => node.access !== this.#access).sort((a, b) => a.access - b.access);
    let node = evictable[0]!;
    let removed = 0;
    do {
      node.parent!.children.delete(node.token);
      node = node.parent!;
      removed++;
    } while (!node.ends);
    return removed;
  }

  #all(): NaiveNode[] {
    const all: NaiveNode[] = [];
    const open = [this.#root];
    for (let node = open.pop(); node !== undefined; node = open.pop()) {
      all.push(node);
      open.push(...node.children.values());
    }
    return all;
  }
}
