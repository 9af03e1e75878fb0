import { type BlockAnomalies, BlockIndex, chainsOf, firstExtra, type KvEvent } from './block-index.js';
import { pathOf, type ServedHistory, type ServedRequest } from './history.js';

export interface EventResidencyOptions {
  /** Blocks of the mirror at most (`BlockIndexOptions`). */
  readonly maxBlocks?: number;
  /**
   * Bytes of the learned paths at most; the least recently used documents go first. Default 32 MiB: 65,536 documents,
   * or four million tokens in blocks of 16.
   */
  readonly maxBytes?: number;
}

/** The token ids of a served prompt, by the engine's tokenizer. */
export interface PromptTokens {
  /** At least up to the end of the last document. */
  readonly tokens: readonly number[];
  /** Tokens before the first document. */
  readonly preambleEnd: number;
  /** Tokens up to the end of each document, in prompt order. */
  readonly documentEnds: readonly number[];
  /** The cache salt of the prompt. */
  readonly salt?: string | undefined;
  /** The model of the request, which may be an adapter. */
  readonly model?: string | undefined;
}

/** A document behind all steps of its path. */
interface PlacedDocument {
  readonly key: string;
  readonly parent: PlacedDocument | undefined;
  readonly root: PathRoot;
  /** Tokens of the prompt up to its end. */
  readonly end: number;
  /** Chains of the blocks that end within it. */
  readonly chains: readonly number[];
  readonly children: Map<string, PlacedDocument>;
  isResident: boolean;
}

interface PathRoot {
  /** A weak reference, because paths may live longer than their history. */
  readonly history: WeakRef<ServedHistory>;
  readonly children: Map<string, PlacedDocument>;
  /** Whether the tokens of its prompts are unavailable, and none were learned since. */
  hasNoTokens: boolean;
  /** Prompts in a row whose start was cached without an event for it. */
  unreportedPrompts: number;
  /** The model of its prompts. */
  model: string | undefined;
}

/** After so many prompts in a row, the events are assumed to name other blocks than those looked up. */
const MAX_UNREPORTED_PROMPTS = 3;

/** Blocks of a full cache without events, at most: vLLM's null block, and one that is not full yet. */
const UNREPORTED_BLOCKS = 2;

/** Adapter names remembered; the oldest goes first. */
const MAX_ADAPTERS = 1_024;

const DEFAULT_MAX_BYTES = 33_554_432;
/** Estimated bytes of a placed document beside its blocks. */
const DOCUMENT_BYTES = 512;
/** Estimated bytes of a block of a document. */
const CHAIN_BYTES = 128;

/**
 * What one engine holds, by its KV events: the most certain residency source. `learn` records once which blocks a path
 * needs. A document leaves and returns with these blocks.
 *
 * While events were lost, or for histories whose tokens are unavailable, the history decides by itself. O(1) for blocks
 * of no learned path, else O(documents that come or go). Bounded in blocks and bytes.
 */
export class EventResidency {
  readonly #index: BlockIndex;
  readonly #maxBytes: number;
  readonly #roots = new WeakMap<ServedHistory, PathRoot>();
  readonly #byChain = new Map<number, PlacedDocument[]>();
  /** By last use, the oldest first. A document is always newer than those behind it. */
  readonly #recent = new Set<PlacedDocument>();
  /** Names of adapters: the engine keeps their blocks apart from those of the base model. */
  readonly #adapters = new Set<string>();
  #chains = 0;
  #isExact = false;
  #engineBlocks = Number.POSITIVE_INFINITY;
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

  /** Learned documents. */
  get documents(): number {
    return this.#recent.size;
  }

  /** Estimated bytes of the learned documents and their blocks. */
  get bytes(): number {
    return DOCUMENT_BYTES * this.#recent.size + CHAIN_BYTES * this.#chains;
  }

  /** The engine's cache is empty, and all events follow from now on. */
  begin(now: number): void {
    this.#now = now;
    this.#index.clear();
    this.#isExact = true;
  }

  /** Blocks of the engine's cache. They tell when the mirror is complete again after a loss. */
  setEngineBlocks(blocks: number): void {
    this.#engineBlocks = blocks;
  }

  /** Events were lost: the mirror is not exact until it is cleared, or (`reconcile`) known blocks fill the cache. */
  eventsLost(): void {
    this.#isExact = false;
    this.#index.eventsLost();
  }

  apply(event: KvEvent, now: number): void {
    this.#now = now;
    if (event.kind === 'stored' && event.adapter !== undefined) this.#addAdapter(event.adapter);
    const { waitingBlocks } = this.#index;
    const { unknownRemoved } = this.#index.anomalies;
    this.#index.apply(event);
    const isUnknown =
      this.#index.waitingBlocks > waitingBlocks || this.#index.anomalies.unknownRemoved > unknownRemoved;
    // It is about a block whose hash is not known, or behind one.
    if (this.#isExact && isUnknown && this.#index.hasUnreported) this.eventsLost();
    // After this event the mirror is complete again.
    if (event.kind === 'cleared') this.#isExact = true;
  }

  /** Whether events are complete and cover the prompts of this history. O(1). */
  isExactFor(history: ServedHistory): boolean {
    const root = this.#roots.get(history);
    return (
      this.#isExact && (root === undefined || (!root.hasNoTokens && root.unreportedPrompts < MAX_UNREPORTED_PROMPTS))
    );
  }

  /** Leading learned steps of a request's path. O(k). */
  followedSteps(history: ServedHistory, request: ServedRequest): number {
    return this.#find(history, pathOf(request).keys).length;
  }

  /** Leading learned steps of a request's path whose blocks the engine holds. O(k). */
  residentSteps(history: ServedHistory, request: ServedRequest): number {
    const found = this.#find(history, pathOf(request).keys);
    const missing = found.findIndex((document) => !document.isResident);
    return missing < 0 ? found.length : missing;
  }

  /** Whether all steps of a request's path are learned. O(k). */
  knowsTokens(history: ServedHistory, request: ServedRequest): boolean {
    const { keys } = pathOf(request);
    return this.#find(history, keys).length === keys.length;
  }

  /** Whether all blocks of a request's learned path are resident. O(k). */
  isResident(history: ServedHistory, request: ServedRequest): boolean {
    return this.#find(history, pathOf(request).keys).every((document) => document.isResident);
  }

  /**
   * Learns the path of a completed request from its token ids. Call `reconcile` afterwards. Does nothing before the
   * first stored event, which gives the block size. O(tokens).
   */
  learn(history: ServedHistory, request: ServedRequest, prompt: PromptTokens): void {
    const { blockSize } = this.#index;
    if (blockSize === 0) return;
    const { keys } = pathOf(request);
    const ends = endsOf(request, prompt);
    const { model } = prompt;
    const adapter = model !== undefined && this.#adapters.has(model) ? model : undefined;
    const chains = chainsOf(prompt.tokens, blockSize, firstExtra(adapter, prompt.salt));
    this.#index.placeWaiting(prompt.tokens, chains);
    const root = this.#rootOf(history);
    root.hasNoTokens = false;
    root.model = model;
    let parent: PlacedDocument | undefined;
    let siblings = root.children;
    for (const [place, key] of keys.entries()) {
      const own = chains.slice(Math.floor((parent?.end ?? 0) / blockSize), Math.floor(ends[place]! / blockSize));
      let document = siblings.get(key);
      if (document !== undefined && !hasChains(document, own)) {
        // The tokenizer, or the text of the key, has changed.
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
   * The token ids of a completed request are unavailable. Until some are learned, the history decides by itself. O(1).
   */
  tokensUnavailable(history: ServedHistory): void {
    const root = this.#rootOf(history);
    if (root.children.size === 0) root.hasNoTokens = true;
  }

  /**
   * Removes the steps of a completed request's path that are no longer resident. O(k).
   *
   * @param cachedTokens as the engine reports them: they show whether its events name the blocks of this history (salts
   * in vLLM up to 0.11 and adapters in SGLang do not)
   */
  reconcile(history: ServedHistory, request: ServedRequest, cachedTokens?: number): void {
    const { keys } = pathOf(request);
    const found = this.#find(history, keys);
    this.#touch(found.at(-1));
    // Between two batches: within one, blocks are stored that others make room for.
    if (!this.#isExact && this.#index.certainCopies >= this.#engineBlocks - UNREPORTED_BLOCKS) {
      this.#index.removeUncertain();
      this.#isExact = true;
    }
    if (!this.#isExact || this.#index.blockSize === 0) return;
    const [first] = found.flatMap(({ chains }) => chains.slice(0, 1));
    if (first !== undefined) this.#compare(history, first, cachedTokens);
    if (!this.isExactFor(history)) return;
    const held = found.findIndex((document) => !document.isResident);
    if (held >= 0) history.removed(keys.slice(0, held + 1));
  }

  /**
   * Leading tokens of a request's prompt that the engine holds in any tier. `undefined` if its start is not learned, or
   * events were lost. O(blocks of the path).
   *
   * @param unit tokens that the engine reuses as a unit. Default: whole blocks. With single tokens, a document is held
   * to its end, though its last block is only full with the text behind it.
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

  /** Compares reported cached tokens with the events of the first block of a prompt. */
  #compare(history: ServedHistory, first: number, cachedTokens: number | undefined): void {
    const root = this.#rootOf(history);
    if (this.#index.has(first)) root.unreportedPrompts = 0;
    else if (cachedTokens !== undefined && cachedTokens >= this.#index.blockSize) root.unreportedPrompts++;
  }

  /** Forgets the paths of a model that is now known to be an adapter: its blocks have other extras. O(paths). */
  #addAdapter(name: string): void {
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
      root = {
        history: new WeakRef(history),
        children: new Map(),
        hasNoTokens: false,
        unreportedPrompts: 0,
        model: undefined,
      };
      this.#roots.set(history, root);
    }
    return root;
  }

  /** The leading learned documents of a path. */
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

  /** Forgets what was learned of a document and of all behind it. Does not change residency. */
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
      if (isResident) this.#markResident(document);
      else if (document.isResident) this.#markGone(document);
    }
  }

  #markGone(document: PlacedDocument): void {
    for (const each of subtree(document)) each.isResident = false;
    document.root.history.deref()?.removed(keysOf(document));
  }

  /** Marks a document, and those behind it, as resident if all their blocks are. */
  #markResident(first: PlacedDocument): void {
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

/** Tokens up to the end of each step of a path. Ends of earlier turns are estimated in proportion to their tokens. */
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
