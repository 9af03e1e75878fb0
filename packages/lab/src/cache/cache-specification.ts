import { WarmpathError } from '@warmpath/core';
import { REPLACEMENT_POLICY_NAMES, type ReplacementPolicy, replacementPolicy } from '@warmpath/core/internal';
import { LlamaSlots } from './llama-slots.js';
import type { Admission, PrefixCacheModel } from './prefix-cache.js';
import { SglangRadixCache } from './sglang-radix.js';
import { TieredTree } from './tiered-tree.js';
import { VllmBlockCache } from './vllm-blocks.js';

const ADMISSION: Admission = { cachedTokens: 0, enter: () => {}, release: () => {} };

/** An engine without a prefix cache: every token is computed every time, and memory never ends. */
export function createNoCache(): PrefixCacheModel {
  return {
    name: 'off',
    granularity: 1,
    evictsLeastRecent: true,
    usedTokens: 0,
    capacityTokens: 0,
    cachedTokens: () => 0,
    admit: () => ADMISSION,
    clear: () => {},
  };
}

/** What `readCache` understands, for help texts. */
export const CACHE_SPECIFICATIONS =
  'unlimited, <blocks>[x<tokens of one>], radix, radix:<tokens>[:<replacement policy>], slots, slots:<number>, slots:<number>:<saved tokens>, tiered:<device tokens>/<host tokens>[:<replacement policy>], off';

/**
 * The cache that a short text names: `unlimited` and a number of blocks (of 16 tokens) are vLLM's, `radix` SGLang's
 * and, with a replacement policy, the embedded engine's, `slots` llama-server's (with the tokens that its saved prompts
 * may have together, `--cache-ram`), `tiered` RAGCache's over device and host, `off` none. Returns what makes one.
 * Error: `WARMPATH_INVALID_REQUEST` at `cache`.
 */
export function readCache(specification: string): () => PrefixCacheModel {
  const replaced = readTiered(specification) ?? readReplacedRadix(specification);
  if (replaced !== undefined) return replaced;
  const parsed =
    /^(?:(unlimited|radix|slots|off)|(radix|slots):([1-9]\d{0,8})|([1-9]\d{0,8})(?:x([1-9]\d{0,5}))?|slots:([1-9]\d{0,2}):(\d{1,9}))$/.exec(
      specification,
    );
  if (parsed === null) {
    const detail = `A cache is one of ${CACHE_SPECIFICATIONS}.`;
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'cache', detail });
  }
  const [, name, sized, size, blocks, blockSize = 16, slots, savedTokens] = parsed;
  if (blocks !== undefined) return () => new VllmBlockCache({ blocks: Number(blocks), blockSize: Number(blockSize) });
  if (slots !== undefined) return () => new LlamaSlots({ slots: Number(slots), savedTokens: Number(savedTokens) });
  if (sized === 'radix') return () => new SglangRadixCache({ tokens: Number(size) });
  if (sized === 'slots') return () => new LlamaSlots({ slots: Number(size) });
  if (name === 'radix') return () => new SglangRadixCache();
  if (name === 'slots') return () => new LlamaSlots();
  if (name === 'off') return createNoCache;
  return () => new VllmBlockCache();
}

function readReplacedRadix(specification: string): (() => PrefixCacheModel) | undefined {
  const [, tokens, named] = /^radix:([1-9]\d{0,8}):(\w+)$/.exec(specification) ?? [];
  const policy = policyNamed(named);
  if (tokens === undefined || policy === undefined) return undefined;
  return () => new SglangRadixCache({ tokens: Number(tokens), policy });
}

function policyNamed(text: string | undefined): ReplacementPolicy | undefined {
  const name = REPLACEMENT_POLICY_NAMES.find((known) => known === text);
  return name && replacementPolicy(name);
}

function readTiered(specification: string): (() => PrefixCacheModel) | undefined {
  const [, device, host, named = 'pgdsf'] = /^tiered:([1-9]\d{0,8})\/(\d{1,9})(?::(\w+))?$/.exec(specification) ?? [];
  const policy = policyNamed(named);
  if (device === undefined || policy === undefined) return undefined;
  return () => new TieredTree({ deviceTokens: Number(device), hostTokens: Number(host), policy });
}
