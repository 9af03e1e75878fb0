import { type BlockAnomalies, BlockIndex, chainsOf, firstExtra, type KvEvent } from './block-index.js';
import { pathOf, type ServedHistory, type ServedRequest } from './history.js';

export interface EventResidencyOptions {
  /** Bound on blocks of the mirror. See `BlockIndexOptions`. */
  readonly maxBlocks?: number;
  /**
   * Bytes of the documents in their places whose tokens are remembered, and of the names of their blocks; the least
   * recently used go first. Default 32 MiB: 65,536 documents, or four million tokens in blocks of 16.
   */
  readonly maxBytes?: number;
}

/** The tokens that the engine made of a served prompt. */
export interface PromptTokens {
  /** At least up to the end of the last document. */
  readonly tokens: readonly number[];
  /** Position behind the last token of what stands before the documents. */
  readonly preambleEnd: number;
  /** The same for each document, in prompt order. */
  readonly documentEnds: readonly number[];
  /** The cache salt that the prompt was sent with. */
  readonly salt?: string | undefined;
  /** The model that it was sent to, which may be an adapter. */
  readonly model?: string | undefined;
}

/** A document in its place: behind all others up to the prompt's start. */
interface PlacedDocument {
  readonly key: string;
  readonly parent: PlacedDocument | undefined;
  readonly root: PathRoot;
  /** Position behind its last token. */
  readonly end: number;
  /** Chains of the blocks that end within it. */
  readonly chains: readonly number[];
  readonly children: Map<string, PlacedDocument>;
  isResident: boolean;
}

interface PathRoot {
  /** A history may be forgotten while its paths are remembered. */
  readonly history: WeakRef<ServedHistory>;
  readonly children: Map<string, PlacedDocument>;
  /** Whether tokens of its prompts could not be had, and none were learned since. */
  isBlind: boolean;
  /** Prompts in a row whose beginning the engine had cached, without an event for it. */
  unreported: number;
  /** The model of its prompts. */
  model: string | undefined;
}

/** After so many prompts in a row, the events are taken to name other blocks than those that are looked up. */
const MAX_UNREPORTED_PROMPTS = 3;

/** Names of adapters that are remembered; the one seen first goes first. */
const MAX_ADAPTERS = 1_024;

const DEFAULT_MAX_BYTES = 33_554_432;
/** Bytes of a document in its place beside its blocks: an object, its map of children, its places in others. */
const DOCUMENT_BYTES = 512;
/** Bytes of a block that a document needs: its name, a map slot and a list of those that need it. */
const CHAIN_BYTES = 128;

/**
 * What one engine holds, by its own events: the most certain residency source. Learns once which blocks a path's
 * documents need (`learn`). A document leaves and returns with these blocks.
 *
 * `isExact` is false while events were lost, and for histories whose tokens are unknown (`giveUp`): then the histories
 * believe what they served. O(1) for blocks that no learned path needs, else O(documents that come or go). Bounded in
 * blocks and in bytes of learned paths.
 */
export class EventResidency {
  readonly #index: BlockIndex;
  readonly #maxBytes: number;
  readonly #roots = new WeakMap<ServedHistory, PathRoot>();
  readonly #byChain = new Map<number, PlacedDocument[]>();
  /** By last use, the oldest first; a document is always newer than those behind it. */
  readonly #recent = new Set<PlacedDocument>();
  /** Models whose blocks the engine keeps apart from those of the model that they adapt. */
  readonly #adapters = new Set<string>();
  #chains = 0;
  #isExact = false;
  #now = 0;

  constructor(options: EventResidencyOptions = {}) {
    this.#maxBytes = options.maxBytes ?? DEFAULT_MAX_BYTES;
    this.#index = new BlockIndex({
      ...(options.maxBlocks !== undefined && { maxBlocks: options.maxBlocks }),
      onChange: (chain, isResident) => this.#blockChanged(chain, isResident),
    });
  }

  get isExact(): boolean {
    return this.#isExact;
  }

  get blocks(): number {
    return this.#index.size;
  }

  get blockSize(): number {
    return this.#index.blockSize;
  }

  get anomalies(): Readonly<BlockAnomalies> {
    return this.#index.anomalies;
  }

  /** Documents in their places whose tokens are known. */
  get documents(): number {
    return this.#recent.size;
  }

  /** Bytes of these documents and of the names of their blocks, estimated. */
  get bytes(): number {
    return DOCUMENT_BYTES * this.#recent.size + CHAIN_BYTES * this.#chains;
  }

  /** The mirror begins with an empty cache, and all events are received from now on. */
  begin(now: number): void {
    this.#now = now;
    this.#index.clear();
    this.#isExact = true;
  }

  /** Events were lost for good: what is known may be gone, and what is not known may be there. */
  eventsLost(): void {
    this.#isExact = false;
  }

  apply(event: KvEvent, now: number): void {
    this.#now = now;
    if (event.kind === 'stored' && event.adapter !== undefined) this.#hearOfAdapter(event.adapter);
    this.#index.apply(event);
    // After that nothing is held without an event for it.
    if (event.kind === 'cleared') this.#isExact = true;
  }

  /** Whether no events were lost, and events tell of this history's prompts, as far as that was seen. O(1). */
  isExactFor(history: ServedHistory): boolean {
    const root = this.#roots.get(history);
    return this.#isExact && (root === undefined || (!root.isBlind && root.unreported < MAX_UNREPORTED_PROMPTS));
  }

  /** Leading steps of a request's path whose tokens are known. O(k). */
  followedSteps(history: ServedHistory, request: ServedRequest): number {
    return this.#find(history, pathOf(request).keys).length;
  }

  /** Whether the tokens of a request's whole path are known. O(k). */
  knowsTokens(history: ServedHistory, request: ServedRequest): boolean {
    const { keys } = pathOf(request);
    return this.#find(history, keys).length === keys.length;
  }

  /**
   * The tokens of a completed request's prompt. Call `settle` behind it. Does nothing before the first event, which
   * says how long blocks are. O(tokens).
   */
  learn(history: ServedHistory, request: ServedRequest, prompt: PromptTokens): void {
    const { blockSize } = this.#index;
    if (blockSize === 0) return;
    const { keys } = pathOf(request);
    const ends = endsOf(request, prompt);
    const { model } = prompt;
    const adapter = model !== undefined && this.#adapters.has(model) ? model : undefined;
    const chains = chainsOf(prompt.tokens, blockSize, firstExtra(adapter, prompt.salt));
    const root = this.#rootOf(history);
    root.isBlind = false;
    root.model = model;
    let parent: PlacedDocument | undefined;
    let siblings = root.children;
    for (const [place, key] of keys.entries()) {
      const own = chains.slice(Math.floor((parent?.end ?? 0) / blockSize), Math.floor(ends[place]! / blockSize));
      let document = siblings.get(key);
      if (document !== undefined && !hasChains(document, own)) {
        // The engine's tokenizer, or what the key stands for, has changed.
        this.#forget(document);
        document = undefined;
      }
      document ??= this.#add({
        key,
        parent,
        root,
        end: ends[place]!,
        chains: own,
        children: new Map(),
        isResident: false,
      });
      parent = document;
      siblings = document.children;
    }
    this.#touch(parent);
    while (this.bytes > this.#maxBytes) this.#forget(this.#recent.values().next().value!);
  }

  /**
   * The tokens of a completed request's prompt cannot be had: the engine has no way to ask, or its answer does not show
   * the documents. While that is so for all prompts of a history, it believes by itself. O(1).
   */
  tokensUnavailable(history: ServedHistory): void {
    const root = this.#rootOf(history);
    if (root.children.size === 0) root.isBlind = true;
  }

  /**
   * A completed request's path counts as resident by itself. What of it is gone again leaves the history here; where
   * its tokens are unknown, nothing is known to be gone. O(k).
   *
   * @param cachedTokens What the engine had cached of the prompt, by its own report: it tells whether its events name
   *   the blocks of this history's prompts, which they may not (salts in vLLM up to 0.11, adapters in SGLang).
   */
  reconcile(history: ServedHistory, request: ServedRequest, cachedTokens?: number): void {
    const { keys } = pathOf(request);
    const found = this.#find(history, keys);
    this.#touch(found.at(-1));
    if (!this.#isExact || this.#index.blockSize === 0) return;
    const [first] = found.flatMap(({ chains }) => chains.slice(0, 1));
    if (first !== undefined) this.#compare(history, first, cachedTokens);
    if (!this.isExactFor(history)) return;
    const held = found.findIndex((document) => !document.isResident);
    if (held >= 0) history.removed(keys.slice(0, held + 1));
  }

  /**
   * Tokens of a request's prompt that the engine holds, in any tier, as far as the tokens of its path are known.
   * `undefined` where even its beginning is unknown, or events were lost. O(blocks of the path).
   *
   * @param unit What the engine reuses, in tokens: whole blocks if left out. One that reuses single tokens holds a
   *   document to its end, though the block in which it ends is full only with what stood behind it.
   */
  cachedTokens(history: ServedHistory, request: ServedRequest, unit = this.#index.blockSize): number | undefined {
    if (!this.isExactFor(history)) return undefined;
    const found = this.#find(history, pathOf(request).keys);
    if (found.length === 0) return undefined;
    const { blockSize } = this.#index;
    let blocks = 0;
    for (const { chains } of found) {
      const held = this.#index.prefixBlocks(chains);
      blocks += held;
      if (held < chains.length) return blocks * blockSize;
    }
    return Math.max(blocks * blockSize, Math.floor(found.at(-1)!.end / unit) * unit);
  }

  /** Holds what the engine reports against what its events say of a prompt's first block. */
  #compare(history: ServedHistory, first: number, cachedTokens: number | undefined): void {
    const root = this.#rootOf(history);
    if (this.#index.has(first)) root.unreported = 0;
    else if (cachedTokens !== undefined && cachedTokens >= this.#index.blockSize) root.unreported++;
  }

  /** Prompts of a model that was not known to be an adapter were looked up among other blocks than theirs. O(paths). */
  #hearOfAdapter(name: string): void {
    if (this.#adapters.has(name)) return;
    if (this.#adapters.size === MAX_ADAPTERS) this.#adapters.delete(this.#adapters.values().next().value!);
    this.#adapters.add(name);
    for (const document of this.#recent) {
      if (document.parent === undefined && document.root.model === name) this.#forget(document);
    }
  }

  #rootOf(history: ServedHistory): PathRoot {
    let root = this.#roots.get(history);
    if (root === undefined) {
      root = { history: new WeakRef(history), children: new Map(), isBlind: false, unreported: 0, model: undefined };
      this.#roots.set(history, root);
    }
    return root;
  }

  /** The leading documents of a path whose tokens are known. */
  #find(history: ServedHistory, keys: readonly string[]): PlacedDocument[] {
    const found: PlacedDocument[] = [];
    let siblings = this.#roots.get(history)?.children;
    for (const key of keys) {
      const document = siblings?.get(key);
      if (document === undefined) break;
      found.push(document);
      siblings = document.children;
    }
    return found;
  }

  #add(document: PlacedDocument): PlacedDocument {
    const { parent, root, key, chains } = document;
    (parent?.children ?? root.children).set(key, document);
    this.#chains += chains.length;
    for (const chain of chains) {
      const others = this.#byChain.get(chain);
      if (others === undefined) this.#byChain.set(chain, [document]);
      else others.push(document);
    }
    document.isResident = this.#canBeResident(document);
    return document;
  }

  /** Forgets a document's tokens, and those of all behind it; says nothing about what the engine holds. */
  #forget(document: PlacedDocument): void {
    (document.parent?.children ?? document.root.children).delete(document.key);
    for (const each of subtree(document)) {
      this.#recent.delete(each);
      this.#chains -= each.chains.length;
      for (const chain of each.chains) {
        const others = this.#byChain.get(chain)!.filter((other) => other !== each);
        if (others.length === 0) this.#byChain.delete(chain);
        else this.#byChain.set(chain, others);
      }
    }
  }

  #touch(leaf: PlacedDocument | undefined): void {
    for (let document = leaf; document !== undefined; document = document.parent) {
      this.#recent.delete(document);
      this.#recent.add(document);
    }
  }

  #canBeResident({ parent, chains }: PlacedDocument): boolean {
    return parent?.isResident !== false && chains.every((chain) => this.#index.has(chain));
  }

  #blockChanged(chain: number, isResident: boolean): void {
    for (const document of this.#byChain.get(chain) ?? []) {
      if (isResident) this.#arrive(document);
      else if (document.isResident) this.#leave(document);
    }
  }

  #leave(document: PlacedDocument): void {
    for (const each of subtree(document)) each.isResident = false;
    document.root.history.deref()?.removed(keysOf(document));
  }

  /** The document, and what is behind it, as far as all blocks are there. */
  #arrive(first: PlacedDocument): void {
    const history = first.root.history.deref();
    if (history === undefined) return;
    const candidates = [first];
    for (let document = candidates.pop(); document !== undefined; document = candidates.pop()) {
      if (document.isResident || !this.#canBeResident(document)) continue;
      document.isResident = true;
      const path = pathTo(document);
      history.restored({ keys: path.map(({ key }) => key), tokens: path.map(tokensOf) }, this.#now);
      candidates.push(...document.children.values());
    }
  }
}

/**
 * Where each step of a path ends, in tokens. Where earlier turns of a conversation end is not looked for: they stand
 * before the documents in proportion to their estimates.
 */
function endsOf({ preamble }: ServedRequest, { preambleEnd, documentEnds }: PromptTokens): number[] {
  if (preamble === undefined) return [...documentEnds];
  const ends: number[] = [];
  let estimated = 0;
  for (const step of preamble.steps ?? []) {
    estimated += step.tokens;
    ends.push(Math.floor((preambleEnd * estimated) / Math.max(1, preamble.tokens)));
  }
  return [...ends, preambleEnd, ...documentEnds];
}

function hasChains({ chains }: PlacedDocument, others: readonly number[]): boolean {
  return chains.length === others.length && chains.every((chain, place) => chain === others[place]);
}

function* subtree(root: PlacedDocument): Generator<PlacedDocument> {
  const pending = [root];
  for (let document = pending.pop(); document !== undefined; document = pending.pop()) {
    pending.push(...document.children.values());
    yield document;
  }
}

function pathTo(document: PlacedDocument): PlacedDocument[] {
  const path: PlacedDocument[] = [];
  for (let each: PlacedDocument | undefined = document; each !== undefined; each = each.parent) path.push(each);
  return path.reverse();
}

function keysOf(document: PlacedDocument): string[] {
  return pathTo(document).map(({ key }) => key);
}

function tokensOf({ parent, end }: PlacedDocument): number {
  return end - (parent?.end ?? 0);
}
