import type { Tier } from '../replacement/replacement.js';

/** Full blocks were stored in a tier. Each continues the one before it. */
export interface BlocksStored {
  readonly kind: 'stored';
  readonly tier: Tier;
  /** The engine's hashes of the blocks, as text. */
  readonly hashes: readonly string[];
  /** The hash of the block before the first one; `undefined` at the start of a prompt. */
  readonly parent: string | undefined;
  /** The tokens of all blocks in order; empty for blocks that are already known. */
  readonly tokens: readonly number[];
  /** Tokens of a block; 0 if `tokens` is empty. */
  readonly blockSize: number;
  /**
   * What each block hash covers beside the tokens: salt, images. Blocks with equal tokens and other extras differ. The
   * name of an adapter only belongs to the first block of a prompt (`firstExtra`).
   */
  readonly extras?: readonly (string | undefined)[];
  /** The name of the adapter (LoRA) of these blocks, as requests name it for their model. */
  readonly adapter?: string;
  /**
   * Set for engines where blocks of different scopes can have equal hashes (SGLang, whose hash does not cover the
   * salt).
   */
  readonly scope?: string;
}

/** Blocks were removed from a tier. */
export interface BlocksRemoved {
  readonly kind: 'removed';
  readonly tier: Tier;
  readonly hashes: readonly string[];
  /** Copies of each block left in the tier, if the engine reports them. */
  readonly copiesLeft?: readonly number[];
}

/** All blocks were removed. */
interface BlocksCleared {
  readonly kind: 'cleared';
}

/** A KV event of an engine, independent of its wire format. */
export type KvEvent = BlocksStored | BlocksRemoved | BlocksCleared;

export interface BlockIndexOptions {
  /** Blocks at most. Default 262,144: four million tokens in blocks of 16, about 64 MiB. */
  readonly maxBlocks?: number;
  /** Called when the first copy of a block is stored, or the last one removed. Must not call the index. */
  readonly onChange?: (chain: number, isResident: boolean) => void;
}

/** Events, or parts of events, that could not be applied, since the start. */
export interface BlockAnomalies {
  /** Unknown blocks removed. */
  unknownRemoved: number;
  /** Unknown blocks stored without tokens. */
  unknownStored: number;
  /** Stored events whose tokens do not fit their blocks. */
  malformed: number;
  /** Blocks ignored because the index is full. */
  overflow: number;
  /** Removed blocks whose hash names blocks of several scopes. */
  ambiguous: number;
}

interface Block {
  readonly hash: string;
  readonly scope: string | undefined;
  /** `undefined` until the block before it is known. */
  chain: number | undefined;
  /** Tokens and parent, while the parent is unknown. */
  waiting: WaitingBlock | undefined;
  /** Physical copies in each tier. */
  device: number;
  host: number;
  disk: number;
  /** Losses before its copies were counted (`BlockIndex.eventsLost`). */
  losses: number;
  /** Hash of the block before it. */
  parent: string | undefined;
  /** A block of another scope with the same hash. */
  next: Block | undefined;
}

interface WaitingBlock {
  readonly parent: string;
  readonly tokens: readonly number[];
  readonly extra: string | undefined;
}

const DEFAULT_MAX_BLOCKS = 262_144;
/** In place of a number of losses: not counted since any. */
const NEVER = -1;
const TIERS: readonly Tier[] = ['device', 'host', 'disk'];

/**
 * Mirrors the KV cache of an engine by its events. Names blocks by its own hash over all tokens from the start of the
 * prompt (`chainsOf`), so the engine's hash function does not matter.
 *
 * Counts copies in several tiers; a block is gone with its last copy (ai-dynamo/dynamo#8012). A block with an unknown
 * parent waits for it (llm-d/llm-d-kv-cache#372). O(blocks) an event, O(tokens) if stored.
 */
export class BlockIndex {
  readonly anomalies: BlockAnomalies = {
    unknownRemoved: 0,
    unknownStored: 0,
    malformed: 0,
    overflow: 0,
    ambiguous: 0,
  };
  readonly #maxBlocks: number;
  readonly #onChange: (chain: number, isResident: boolean) => void;
  /** By the engine's hash. Blocks of other scopes with the same hash are linked (`next`). */
  readonly #blocks = new Map<string, Block>();
  /** By chain: blocks with a copy. Two hashes may name equal tokens. */
  readonly #resident = new Map<number, number>();
  /** Waiting blocks, by the hash of their parent. */
  readonly #waiting = new Map<string, Block[]>();
  #size = 0;
  #waitingBlocks = 0;
  #blockSize = 0;
  #losses = 0;
  #certainCopies = 0;
  /** Blocks of which no event was received. Nothing tells by which hash they are removed. */
  readonly #unreported = new Set<Block>();

  constructor(options: BlockIndexOptions = {}) {
    this.#maxBlocks = options.maxBlocks ?? DEFAULT_MAX_BLOCKS;
    this.#onChange = options.onChange ?? (() => {});
  }

  /** Known blocks, waiting ones included. */
  get size(): number {
    return this.#size;
  }

  /** Blocks whose parent is unknown. */
  get waitingBlocks(): number {
    return this.#waitingBlocks;
  }

  /** Tokens of a block, by the latest stored event; 0 before the first. */
  get blockSize(): number {
    return this.#blockSize;
  }

  /** Whether there are blocks that an event may remove by a hash that is not known. */
  get hasUnreported(): boolean {
    return this.#unreported.size > 0;
  }

  /** Copies on the device of blocks that were stored since events were lost, and whose place is known. */
  get certainCopies(): number {
    return this.#certainCopies;
  }

  /** Events were lost: every block may be gone, until it is stored again. O(1). */
  eventsLost(): void {
    this.#losses++;
    this.#certainCopies = 0;
  }

  /**
   * Finds the place of blocks that continue one of which no event was received: those that end a prompt of known
   * tokens. The blocks before them are there: the engine computed these behind them. O(waiting blocks × blocks).
   */
  placeWaiting(tokens: readonly number[], chains: readonly number[]): void {
    for (const [parent, children] of [...this.#waiting]) {
      if (this.#blocks.has(parent)) continue;
      for (const child of children) {
        const place = chains.findIndex((_, at) => at > 0 && this.#endsPrompt(child, tokens, at, chains.length));
        if (place < 0) continue;
        this.#addUnreported(parent, child.scope, chains.slice(0, place));
        break;
      }
    }
  }

  /** Removes blocks that were not stored since events were lost. O(blocks). */
  removeUncertain(): void {
    for (const first of [...this.#blocks.values()]) {
      for (let block: Block | undefined = first; block !== undefined; block = block.next) {
        if (block.losses === this.#losses) continue;
        for (const tier of TIERS) this.#setCopies(block, tier, 0);
      }
    }
  }

  apply(event: KvEvent): void {
    if (event.kind === 'stored') this.#store(event);
    else if (event.kind === 'removed') this.#remove(event);
    else this.clear();
  }

  /** Whether the last block of this chain is in any tier. O(1). */
  has(chain: number): boolean {
    return this.#resident.has(chain);
  }

  /** Leading blocks of a prompt that are in any tier (`chainsOf`). O(result). */
  prefixBlocks(chains: readonly number[]): number {
    let count = 0;
    while (count < chains.length && this.#resident.has(chains[count]!)) count++;
    return count;
  }

  /** Removes all blocks, for an engine that was restarted or dropped its cache. O(blocks). */
  clear(): void {
    const chains = [...this.#resident.keys()];
    this.#blocks.clear();
    this.#resident.clear();
    this.#waiting.clear();
    this.#size = 0;
    this.#waitingBlocks = 0;
    this.#certainCopies = 0;
    this.#unreported.clear();
    for (const chain of chains) this.#onChange(chain, false);
  }

  #store({ tier, hashes, parent, tokens, blockSize, extras, scope }: BlocksStored): void {
    if (tokens.length === 0) {
      for (const hash of hashes) this.#storeKnown(hash, scope, tier);
      return;
    }
    if (!(blockSize > 0) || tokens.length !== hashes.length * blockSize) {
      this.anomalies.malformed++;
      return;
    }
    this.#blockSize = blockSize;
    let before = parent;
    for (const [place, hash] of hashes.entries()) {
      let block = this.#find(hash, scope);
      if (block === undefined) {
        if (this.#size >= this.#maxBlocks) {
          this.anomalies.overflow += hashes.length - place;
          return;
        }
        block = this.#add(hash, scope);
        const own = tokens.slice(place * blockSize, (place + 1) * blockSize);
        const extra = extras?.[place];
        const previous = before === undefined ? undefined : this.#find(before, scope);
        this.#renew(previous);
        block.parent = before;
        const chain = before === undefined ? PROMPT_START : previous?.chain;
        if (chain === undefined) this.#wait(block, { parent: before!, tokens: own, extra });
        else this.#setChain(block, extendChain(chain, own, extra));
      }
      this.#addCopy(block, tier);
      before = hash;
    }
  }

  /** Each of the blocks without events may be the one. */
  #removeUnknown(): void {
    this.anomalies.unknownRemoved++;
    for (const block of this.#unreported) {
      if (this.#isCertain(block)) this.#certainCopies -= block.device;
      block.losses = NEVER;
    }
  }

  /** A block that the engine continues is there, and so are those before it. */
  #renew(last: Block | undefined): void {
    let block = last;
    while (block !== undefined && (block.losses !== this.#losses || this.#unreported.size > 0)) {
      if (block.losses !== this.#losses) this.#addCopy(block, 'device');
      block = block.parent === undefined ? undefined : this.#find(block.parent, block.scope);
    }
  }

  /** Whether a block, from place `at` on, and those that continue it are the rest of the prompt. */
  #endsPrompt(block: Block, tokens: readonly number[], at: number, blocks: number): boolean {
    const own = block.waiting?.tokens;
    const start = at * this.#blockSize;
    if (own === undefined || !own.every((token, place) => token === tokens[start + place])) return false;
    if (at === blocks - 1) return true;
    const children = this.#waiting.get(block.hash) ?? [];
    return children.some((child) => child.scope === block.scope && this.#endsPrompt(child, tokens, at + 1, blocks));
  }

  /** Adds the block with this hash, at the last of these chains, and the blocks before it, of unknown hashes. */
  #addUnreported(hash: string, scope: string | undefined, chains: readonly number[]): void {
    let before: string | undefined;
    for (const [place, chain] of chains.entries()) {
      const isLast = place === chains.length - 1;
      if (this.#size >= this.#maxBlocks || (!isLast && this.#resident.has(chain))) continue;
      const block = this.#add(isLast ? hash : unreportedHash(chain), scope);
      block.parent = before;
      before = block.hash;
      this.#addCopy(block, 'device');
      this.#setChain(block, chain);
      if (!isLast) this.#unreported.add(block);
    }
  }

  /** Stores a known block by its hash alone, as connectors that move blocks between tiers report it. */
  #storeKnown(hash: string, scope: string | undefined, tier: Tier): void {
    const block = this.#find(hash, scope) ?? this.#blocks.get(hash);
    if (block === undefined) this.anomalies.unknownStored++;
    else this.#addCopy(block, tier);
  }

  #remove({ tier, hashes, copiesLeft }: BlocksRemoved): void {
    for (const [place, hash] of hashes.entries()) {
      const block = this.#removable(hash, tier);
      if (block === undefined) this.#removeUnknown();
      else this.#setCopies(block, tier, copiesLeft?.[place] ?? block[tier] - 1);
    }
  }

  /** The block of a removed event, which names no scope: one with a copy in the tier. */
  #removable(hash: string, tier: Tier): Block | undefined {
    let found: Block | undefined;
    for (let block = this.#blocks.get(hash); block !== undefined; block = block.next) {
      if (block[tier] === 0) continue;
      if (found !== undefined) {
        this.anomalies.ambiguous++;
        return found;
      }
      found = block;
    }
    return found;
  }

  #addCopy(block: Block, tier: Tier): void {
    if (block.losses !== this.#losses) {
      for (const each of TIERS) block[each] = 0;
      block.losses = this.#losses;
      block[tier] = 1;
      if (tier === 'device' && this.#isCertain(block)) this.#certainCopies++;
    } else this.#setCopies(block, tier, block[tier] + 1);
  }

  #setCopies(block: Block, tier: Tier, copies: number): void {
    const was = isStored(block);
    if (tier === 'device' && this.#isCertain(block)) this.#certainCopies += copies - block.device;
    block[tier] = copies;
    const is = isStored(block);
    if (was === is) return;
    if (block.chain !== undefined) this.#changeResident(block.chain, is ? 1 : -1);
    if (!is) this.#forget(block);
  }

  #isCertain({ losses, chain }: Block): boolean {
    return losses === this.#losses && chain !== undefined;
  }

  #changeResident(chain: number, change: 1 | -1): void {
    const count = (this.#resident.get(chain) ?? 0) + change;
    if (count === 0) this.#resident.delete(chain);
    else this.#resident.set(chain, count);
    if (count === 0 || (count === 1 && change === 1)) this.#onChange(chain, count === 1);
  }

  #find(hash: string, scope: string | undefined): Block | undefined {
    let block = this.#blocks.get(hash);
    while (block !== undefined && block.scope !== scope) block = block.next;
    return block;
  }

  #add(hash: string, scope: string | undefined): Block {
    const next = this.#blocks.get(hash);
    const block: Block = {
      hash,
      scope,
      chain: undefined,
      waiting: undefined,
      device: 0,
      host: 0,
      disk: 0,
      losses: this.#losses,
      parent: undefined,
      next,
    };
    this.#blocks.set(hash, block);
    this.#size++;
    return block;
  }

  #forget(block: Block): void {
    const first = this.#blocks.get(block.hash)!;
    if (first === block) {
      if (block.next === undefined) this.#blocks.delete(block.hash);
      else this.#blocks.set(block.hash, block.next);
    } else {
      let before = first;
      while (before.next !== block) before = before.next!;
      before.next = block.next;
    }
    this.#size--;
    this.#unreported.delete(block);
    if (block.waiting !== undefined) this.#stopWaiting(block, block.waiting.parent);
  }

  #wait(block: Block, waiting: WaitingBlock): void {
    block.waiting = waiting;
    this.#waitingBlocks++;
    const siblings = this.#waiting.get(waiting.parent);
    if (siblings === undefined) this.#waiting.set(waiting.parent, [block]);
    else siblings.push(block);
  }

  #stopWaiting(block: Block, parent: string): void {
    const siblings = this.#waiting.get(parent)!.filter((sibling) => sibling !== block);
    if (siblings.length === 0) this.#waiting.delete(parent);
    else this.#waiting.set(parent, siblings);
    block.waiting = undefined;
    this.#waitingBlocks--;
  }

  /** Sets the chain of a block, and of the blocks that wait for it. */
  #setChain(block: Block, chain: number): void {
    const pending: [Block, number][] = [[block, chain]];
    for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
      const [parent, known] = next;
      parent.chain = known;
      if (this.#isCertain(parent)) this.#certainCopies += parent.device;
      if (isStored(parent)) this.#changeResident(known, 1);
      // An event of a block that was taken to be there without one: it was removed and is stored again.
      const again = this.#unreported.size > 0 ? this.#find(unreportedHash(known), parent.scope) : undefined;
      if (again !== undefined && again !== parent) this.#setCopies(again, 'device', 0);
      for (const child of this.#waiting.get(parent.hash) ?? []) {
        if (child.scope !== parent.scope) continue;
        const { tokens, extra } = child.waiting!;
        pending.push([child, extendChain(known, tokens, extra)]);
        this.#stopWaiting(child, parent.hash);
      }
    }
  }
}

/** In place of the engine's hash of a block of which no event was received. */
function unreportedHash(chain: number): string {
  return `unreported ${chain}`;
}

function isStored({ device, host, disk }: Block): boolean {
  return device + host + disk > 0;
}

/**
 * The chains of the full blocks of a prompt, in order. A chain is a 53-bit hash over all tokens up to the end of the
 * block and the extras. A collision gives a wrong prediction, not a wrong answer. O(tokens).
 *
 * @param first extra of the first block (`firstExtra`)
 */
export function chainsOf(tokens: readonly number[], blockSize: number, first?: string): number[] {
  const chains: number[] = [];
  let chain = PROMPT_START;
  for (let start = 0; start + blockSize <= tokens.length; start += blockSize) {
    chain = extendChain(chain, tokens.slice(start, start + blockSize), start === 0 ? first : undefined);
    chains.push(chain);
  }
  return chains;
}

/** The extra of the first block of a prompt: the adapter's name and the cache salt. */
export function firstExtra(adapter: string | undefined, salt: string | undefined): string | undefined {
  const parts = [adapter, salt].filter((part) => part !== undefined);
  return parts.length === 0 ? undefined : parts.join('\n');
}

const PROMPT_START = 0;
const WORD = 0x1_0000_0000;

/** Two lanes of 32 bits: FNV-like products, mixed as in MurmurHash3. */
function extendChain(chain: number, tokens: readonly number[], extra = ''): number {
  let high = 0x811c9dc5 ^ Math.floor(chain / WORD);
  let low = 0x41c6ce57 ^ (chain % WORD);
  for (const token of tokens) {
    high = Math.imul(high ^ token, 0x9e3779b1);
    low = Math.imul(low ^ token ^ (high >>> 15), 0x5f356495);
  }
  for (let place = 0; place < extra.length; place++) {
    high = Math.imul(high ^ (extra.charCodeAt(place) + 0x10000), 0x9e3779b1);
    low = Math.imul(low ^ extra.charCodeAt(place) ^ (high >>> 15), 0x5f356495);
  }
  high = mixed(high ^ (low >>> 11));
  low = mixed(low ^ (high >>> 7));
  return (low & 0x1fffff) * WORD + (high >>> 0);
}

function mixed(lane: number): number {
  const once = Math.imul(lane ^ (lane >>> 16), 0x85ebca6b);
  const twice = Math.imul(once ^ (once >>> 13), 0xc2b2ae35);
  return twice ^ (twice >>> 16);
}
