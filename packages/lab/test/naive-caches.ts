import type { Admission, CachedPrompt } from '../src/index.js';

/** A prompt and its answer spelt out token by token: the slow way that the span-wise caches must agree with. */
export function spellOut(prompt: CachedPrompt): string[] {
  const spans = prompt.answer === undefined ? prompt.spans : [...prompt.spans, prompt.answer];
  return spans.flatMap(({ key, tokens }) =>
    Array.from({ length: tokens }, (_, offset) => `${prompt.salt ?? ''}/${key}/${offset}`),
  );
}

function promptLength(prompt: CachedPrompt): number {
  return prompt.spans.reduce((sum, { tokens }) => sum + tokens, 0);
}

interface NaiveBlock {
  chain: string | undefined;
  users: number;
}

/** vLLM's blocks as an array in the order of the free queue: each holds a chained text or nothing. */
export class NaiveBlocks {
  #queue: NaiveBlock[];
  /** All indexed blocks in the order of their creation: of two with the same content the older one is found. */
  #created: NaiveBlock[] = [];

  constructor(
    readonly blockSize: number,
    blocks: number,
  ) {
    this.#queue = Array.from({ length: blocks }, () => ({ chain: undefined, users: 0 }));
  }

  admit(prompt: CachedPrompt): Admission | undefined {
    const tokens = spellOut(prompt);
    const chains: string[] = [];
    for (let end = this.blockSize; end <= tokens.length; end += this.blockSize)
      chains.push(tokens.slice(0, end).join());
    const held: NaiveBlock[] = [];
    const most = Math.floor((promptLength(prompt) - 1) / this.blockSize);
    while (held.length < most) {
      const found = this.#created.find(({ chain }) => chain === chains[held.length]);
      if (found === undefined) break;
      held.push(found);
    }
    const cached = held.length;
    const needed = Math.ceil(tokens.length / this.blockSize);
    const rest = this.#queue.filter((block) => !held.includes(block));
    if (needed - cached > rest.length) return undefined;
    this.#queue = rest;
    for (const block of held) block.users++;
    while (held.length < needed) {
      const evicted = this.#queue.shift();
      this.#created = this.#created.filter((block) => block !== evicted);
      held.push({ chain: undefined, users: 1 });
    }
    return {
      cachedTokens: cached * this.blockSize,
      enter: (computed) => {
        for (const [place, block] of held.entries()) {
          if (block.chain !== undefined || (place + 1) * this.blockSize > Math.min(computed, tokens.length)) continue;
          block.chain = chains[place];
          this.#created.push(block);
        }
      },
      release: () => {
        for (const block of [...held].reverse()) if (--block.users === 0) this.#queue.push(block);
      },
    };
  }
}

interface NaiveNode {
  readonly token: string;
  readonly parent: NaiveNode | undefined;
  readonly children: Map<string, NaiveNode>;
  /** An edge of the radix tree ends here. */
  ends: boolean;
  access: number;
  locks: number;
}

/** SGLang's radix tree with a node for every token, and marks where its edges end. */
export class NaiveRadix {
  readonly #root: NaiveNode = {
    token: '',
    parent: undefined,
    children: new Map(),
    ends: true,
    access: 0,
    locks: 0,
  };
  #access = 0;
  #reserved = 0;

  constructor(readonly capacity: number) {}

  admit(prompt: CachedPrompt): Admission | undefined {
    const tokens = spellOut(prompt);
    const most = promptLength(prompt) - 1;
    const path: NaiveNode[] = [];
    while (path.length < most) {
      const next = (path.at(-1) ?? this.#root).children.get(tokens[path.length]!);
      if (next === undefined) break;
      path.push(next);
    }
    const cached = path.length;
    const free = this.capacity - this.size();
    const evictable = this.#all().filter(({ locks }) => locks === 0).length - path.filter((n) => n.locks === 0).length;
    if (tokens.length - cached > free + evictable) return undefined;
    let last = this.#enter(tokens.slice(0, cached));
    lock(last, 1);
    while (this.size() + tokens.length - cached > this.capacity) this.#removeOldestEdge();
    let open = tokens.length - cached;
    this.#reserved += open;
    return {
      cachedTokens: cached,
      enter: (computed) => {
        const upTo = Math.min(computed, tokens.length);
        const grown = upTo - (tokens.length - open);
        if (grown <= 0) return;
        this.#reserved -= grown;
        open -= grown;
        const next = this.#enter(tokens.slice(0, upTo));
        lock(next, 1);
        lock(last, -1);
        last = next;
      },
      release: () => {
        this.#touch(last);
        lock(last, -1);
        this.#reserved -= open;
      },
    };
  }

  size(): number {
    return this.#all().length + this.#reserved;
  }

  #enter(tokens: readonly string[]): NaiveNode {
    let node = this.#root;
    for (const token of tokens) {
      if (!node.children.has(token)) {
        // An edge that stops where others go on has its end there.
        if (node.children.size > 0) node.ends = true;
        node.children.set(token, { token, parent: node, children: new Map(), ends: false, access: 0, locks: 0 });
      }
      node = node.children.get(token)!;
    }
    node.ends = true;
    this.#touch(node);
    return node;
  }

  #touch(node: NaiveNode): void {
    this.#access++;
    for (let at: NaiveNode | undefined = node; at !== undefined; at = at.parent) at.access = this.#access;
  }

  #removeOldestEdge(): void {
    const leaves = this.#all().filter(({ children, locks }) => children.size === 0 && locks === 0);
    let node = leaves.sort((a, b) => a.access - b.access)[0]!;
    do {
      node.parent!.children.delete(node.token);
      node = node.parent!;
    } while (!node.ends);
  }

  /** All nodes but the root. */
  #all(): NaiveNode[] {
    const all: NaiveNode[] = [];
    const open = [...this.#root.children.values()];
    for (let node = open.pop(); node !== undefined; node = open.pop()) {
      all.push(node);
      open.push(...node.children.values());
    }
    return all;
  }
}

function lock(node: NaiveNode, by: number): void {
  for (let at: NaiveNode | undefined = node.parent === undefined ? undefined : node; at?.parent; at = at.parent)
    at.locks += by;
}
