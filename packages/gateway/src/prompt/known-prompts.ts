import {
  type Arrangement,
  arrange,
  blockDocuments,
  type DocumentBlock,
  estimateTokens,
  observe,
  type PolicyName,
  type PromptText,
  ServedHistory,
} from '@warmpath/core';
import {
  fingerprint,
  type KindDocuments,
  type KindNotice,
  LabelMap,
  type PromptKind,
  type PromptKinds,
  TenantCache,
} from '@warmpath/core/internal';
import type { PromptApi } from '../apis/prompt-view.js';
import type { Recognition } from '../config/schema.js';
import { isReadable } from '../json/json-body.js';
import type { JsonObject } from '../json/json-scanner.js';
import type { PromptConsents } from '../memory/prompt-consents.js';
import type { DecidedSlot, NoGainReason } from '../shapes/shapes.js';

/** Bytes of a body from which prompts are learned, and bodies that wait for it. */
const MAX_LEARNED_BYTES = 1_048_576;
const MAX_WAITING = 64;
/** Milliseconds of rest for each millisecond of learning. */
const REST = 9;
/** Kinds whose gain is estimated. */
const MAX_ESTIMATES = 64;
/** Estimated bytes of a remembered document. */
const SPAN_BYTES = 320;

/** What is true of a kind: whether it gains nothing as long as this is so. */
export const PREVENTS_GAIN: Readonly<Record<KindNotice, boolean>> = {
  'too-short': true,
  'question-first': true,
  'changing-text-first': true,
  'labels-by-position': true,
  'few-documents': true,
  'own-order': false,
  'tool-result': false,
  'program-text': false,
};

/** The first that holds is told. */
const NOTICES = Object.keys(PREVENTS_GAIN) as readonly KindNotice[];

/** Documents of an allowed prompt kind. */
export interface AllowedDocuments extends KindDocuments {
  readonly block: NonNullable<KindDocuments['block']>;
  readonly labels: 'kept' | 'mapped';
}

export interface KnownPromptsParts {
  readonly kinds: PromptKinds;
  readonly consents: PromptConsents;
  /** Bytes for the places of documents that were found, and for bodies that wait: half each. */
  readonly maxBytes: number;
  /** Called once for each kind that is found. */
  readonly found?: ((kind: PromptKind, tenant: string) => void) | undefined;
  /** The monotonic clock of the process, in milliseconds. */
  readonly now: () => number;
}

interface WaitingBody {
  readonly tenant: string;
  readonly api: PromptApi;
  readonly body: Buffer;
}

/** The prompt kinds of all tenants: learned behind the requests, and found in those that follow. */
export class KnownPrompts {
  readonly #parts: KnownPromptsParts;
  /** Tenants with an allowed kind. */
  #allowing: ReadonlySet<string> = new Set();
  /** What was found in a text, so that the same text always has the same documents. */
  readonly #found: TenantCache<readonly AllowedDocuments[]>;
  readonly #estimates = new Map<string, PotentialGain>();
  readonly #waiting: WaitingBody[] = [];
  #waitingBytes = 0;
  #isLearning = false;

  constructor(parts: KnownPromptsParts) {
    this.#parts = parts;
    this.#found = new TenantCache(Math.floor(parts.maxBytes / 2));
    parts.consents.onChange(() => this.#restore());
    this.#restore();
  }

  /** Estimated bytes of the documents that were found, and of the bodies that wait. */
  get bytes(): number {
    return this.#found.bytes + this.#waitingBytes;
  }

  /** Whether prompts wait to be learned from. */
  get isLearning(): boolean {
    return this.#isLearning;
  }

  /** Whether prompts of a tenant may hold documents that may move. O(1). */
  mayFind(tenant: string, recognition: Recognition): boolean {
    return recognition === 'auto' || (recognition === 'ask' && this.#allowing.has(tenant));
  }

  /**
   * The documents that may move, in the order of the texts. The same text has the same documents as before, as long as
   * it is remembered: what the engine has had does not change. O(texts).
   */
  find(tenant: string, texts: readonly PromptText[], recognition: Recognition): readonly AllowedDocuments[] {
    if (!this.mayFind(tenant, recognition)) return [];
    return texts.flatMap((text, index) => {
      if (text.role === 'assistant' || text.kind === 'verbatim') return [];
      return this.#findIn(tenant, text, recognition).map((each) => ({
        ...each,
        block: { ...each.block, text: index },
      }));
    });
  }

  /** Learns from a prompt when the event loop has time. Prompts beyond that are passed over. O(1). */
  learn({ tenant, api, body }: WaitingBody): void {
    if (body.length > MAX_LEARNED_BYTES || this.#waiting.length >= MAX_WAITING) return;
    if (this.#waitingBytes + body.length > this.#parts.maxBytes / 2) return;
    this.#waiting.push({ tenant, api, body });
    this.#waitingBytes += body.length;
    if (this.#isLearning) return;
    this.#isLearning = true;
    setImmediate(() => this.#learnNext());
  }

  /**
   * Why a prompt gains nothing, as far as its kind tells. `slots`: the documents that were found. `undefined` for a
   * prompt of no kind, and for one whose documents may move. One `JSON.parse`.
   */
  noGainReason(
    { tenant, api, body }: WaitingBody,
    recognition: Recognition,
    slots: readonly DecidedSlot[],
  ): NoGainReason | undefined {
    const isFound = slots.some(({ decided }) => decided !== 'fixed');
    if (recognition === 'off') return isFound ? undefined : 'recognise-off';
    const { kinds, consents } = this.#parts;
    if (body.length > MAX_LEARNED_BYTES) return undefined;
    const found = kinds.kindsOf(tenant, textsOf(api, body));
    const kind = found.find(({ withDocuments }) => withDocuments > 0) ?? found[0];
    if (kind === undefined) return undefined;
    const { state, labels } = consents.of(tenant, kind.id) ?? {};
    if (state === 'refused' && !isFound) return 'kind-refused';
    const isMapped = labels === 'mapped' || slots.some((slot) => slot.labels === 'mapped');
    const notices = NOTICES.filter((name) => kind.notices.includes(name));
    const preventing = notices.find(
      (name) =>
        PREVENTS_GAIN[name] && !(isMapped && name === 'labels-by-position') && !(isFound && name === 'few-documents'),
    );
    if (isFound || preventing !== undefined) return preventing;
    if (state === 'allowed' || (recognition === 'auto' && kind.isSafe)) return 'few-documents';
    const unsafe = recognition === 'auto' ? notices.find((name) => !PREVENTS_GAIN[name]) : undefined;
    return unsafe ?? 'kind-not-allowed';
  }

  /** What a kind would gain if it were allowed; `undefined` until some of its prompts came. */
  gainOf(tenant: string, kind: string): GainEstimate | undefined {
    return this.#estimates.get(estimateKey(tenant, kind))?.estimate;
  }

  #findIn(tenant: string, text: PromptText, recognition: Recognition): readonly AllowedDocuments[] {
    const { kinds, consents } = this.#parts;
    const key = fingerprint([text.role, text.text]);
    const isAllowed = ({ kind, isSafe }: KindDocuments) => {
      const consent = consents.of(tenant, kind);
      return consent === undefined ? recognition === 'auto' && isSafe : consent.state === 'allowed';
    };
    const known = this.#found.get(tenant, key);
    if (known !== undefined) return known.filter(isAllowed);
    const found = kinds.find(tenant, [text]).flatMap((each): AllowedDocuments[] => {
      const { block } = each;
      if (block === undefined || !isAllowed(each)) return [];
      return [{ ...each, block, labels: consents.of(tenant, each.kind)?.labels ?? 'kept' }];
    });
    if (found.length > 0) {
      const documents = found.reduce((sum, { block }) => sum + block.documents.length, 0);
      this.#found.set(tenant, key, found, SPAN_BYTES * documents);
    }
    return found;
  }

  #restore(): void {
    const { kinds, consents } = this.#parts;
    const allowing = new Set<string>();
    for (const { tenant, program, state } of consents.all()) {
      kinds.restore(tenant, program);
      if (state === 'allowed') allowing.add(tenant);
    }
    this.#allowing = allowing;
  }

  #learnNext(): void {
    const next = this.#waiting.shift();
    if (next === undefined) {
      this.#isLearning = false;
      return;
    }
    this.#waitingBytes -= next.body.length;
    const { now } = this.#parts;
    const startedAt = now();
    try {
      this.#learnFrom(next);
    } catch {
      // What cannot be read is the engine's to refuse.
    }
    setTimeout(() => this.#learnNext(), REST * (now() - startedAt)).unref();
  }

  #learnFrom({ tenant, api, body }: WaitingBody): void {
    if (!isReadable(body)) return;
    const { kinds, consents, found } = this.#parts;
    const texts = textsOf(api, body);
    const { documents, program } = kinds.learn(tenant, texts);
    for (const { kind, block } of documents) {
      if (block === undefined || consents.of(tenant, kind)?.state === 'refused') continue;
      this.#estimateOf(tenant, kind).add(texts, block);
    }
    if (program === undefined || found === undefined) return;
    const kind = kinds.list(tenant).find(({ id }) => id === program.id);
    if (kind !== undefined) found(kind, tenant);
  }

  #estimateOf(tenant: string, kind: string): PotentialGain {
    const key = estimateKey(tenant, kind);
    const estimate = this.#estimates.get(key) ?? new PotentialGain();
    this.#estimates.delete(key);
    this.#estimates.set(key, estimate);
    if (this.#estimates.size > MAX_ESTIMATES) this.#estimates.delete(this.#estimates.keys().next().value!);
    return estimate;
  }
}

function textsOf(api: PromptApi, body: Buffer): readonly PromptText[] {
  return api.messages(JSON.parse(body.toString('utf8')) as JsonObject).flatMap((message) => message.texts);
}

function estimateKey(tenant: string, kind: string): string {
  return JSON.stringify([tenant, kind]);
}

/** Bytes of what each simulated cache remembers. */
const TREE_BYTES = 131_072;

/** Estimated tokens of the prompts of a kind, and how many of them an engine would have cached. */
export interface GainEstimate {
  readonly prompts: number;
  readonly promptTokens: number;
  /** With documents as they come. */
  readonly cachedTokens: number;
  /** With documents that move and keep their labels, and with stable labels. */
  readonly cachedIfAllowed: number;
  readonly cachedIfMapped: number;
}

/** A cache of prompts in one order. */
class SimulatedCache {
  readonly #policy: PolicyName | undefined;
  readonly #history = new ServedHistory({ tree: { maxBytes: TREE_BYTES } });
  cachedTokens = 0;

  constructor(policy?: PolicyName) {
    this.#policy = policy;
  }

  add(text: string, block: DocumentBlock, now: number): void {
    const before = text.slice(0, block.start);
    const preamble = { key: before, tokens: estimateTokens(before) };
    const request = { documents: blockDocuments(text, block), preamble, policy: this.#policy, hints: false };
    const arrangement: Arrangement = arrange(request, this.#history, now);
    this.cachedTokens += arrangement.predictedCachedTokens;
    observe({ kind: 'completed', arrangement, now }, this.#history);
  }
}

/**
 * What the prompts of a kind would gain if their documents might move. Serves each prompt to three simulated caches: as
 * it came, ordered, and ordered with stable labels.
 */
export class PotentialGain {
  readonly #given = new SimulatedCache('retrieval');
  readonly #ordered = new SimulatedCache();
  readonly #mapped = new SimulatedCache();
  #prompts = 0;
  #tokens = 0;

  get estimate(): GainEstimate {
    return {
      prompts: this.#prompts,
      promptTokens: this.#tokens,
      cachedTokens: this.#given.cachedTokens,
      cachedIfAllowed: this.#ordered.cachedTokens,
      cachedIfMapped: this.#mapped.cachedTokens,
    };
  }

  /** A prompt came. O(text). */
  add(texts: readonly PromptText[], block: DocumentBlock): void {
    const now = this.#prompts++;
    const { text } = texts[block.text]!;
    this.#tokens += texts.reduce((sum, each) => sum + (each.text === '' ? 0 : estimateTokens(each.text)), 0);
    this.#given.add(text, block, now);
    this.#ordered.add(text, block, now);
    const { text: mapped, blocks } = LabelMap.of(texts, [block]).relabel(texts[block.text]!, block.text, [block]);
    this.#mapped.add(mapped, blocks[0]!, now);
  }
}
