import type { Arrangement, ServedHistory } from '@warmpath/core';
import { EventResidency } from '@warmpath/core/internal';
import type { KvEventSettings } from '../config/schema.js';
import type { EventSource } from '../dialects/cache-facts.js';
import { decodeBatch, noDecodeAnomalies } from './kv-events/decode-batch.js';
import type { EventSink, EventStreamCounts } from './kv-events/event-stream.js';
import { ZmqSubscriber } from './kv-events/zmq-subscriber.js';
import { readPromptTokens } from './prompt-tokens.js';
import type { Upstream, UpstreamRequest } from './upstream.js';

/** A completed prompt whose tokens are not known yet. */
export interface CompletedPrompt {
  readonly history: ServedHistory;
  /** In prompt order. */
  readonly arrangements: readonly Arrangement[];
  /** The text of each document in the prompt. */
  readonly texts: () => readonly string[];
  /** The request for the prompt's tokens; `undefined` if the engine cannot be asked. */
  readonly request: () => UpstreamRequest | undefined;
  /** Tokens by the engine's count, where its tokenizer gets a translation: the answer must have as many. */
  readonly promptTokens: number | undefined;
  readonly salt: string | undefined;
  /** The model of the request. */
  readonly model: string | undefined;
  /** Cached tokens, as the engine reported them. */
  readonly cachedTokens: number | undefined;
  /** Bytes of the bodies that it keeps in memory. */
  readonly bytes: number;
}

export interface KvResidencyParts {
  readonly upstream: Upstream;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** Called when events begin or are lost, and with the first message that is none. */
  readonly changed: (state: 'exact' | 'lost' | 'unreadable', reason?: string) => void;
  /** Called with the tokens of a block, when the events first name them and when they change. */
  readonly blockSize: (tokens: number) => void;
  /** Called when the engine's events are connected, and when the connection broke. */
  readonly connection: (state: 'up' | 'broken') => void;
}

type ServedPrompt = Pick<CompletedPrompt, 'history' | 'arrangements' | 'cachedTokens'>;

/** A prompt whose blocks were not in the events when it was completed. */
interface LatePrompt {
  readonly prompt: ServedPrompt;
  /** Number of the batch by which they are. */
  readonly until: number;
}

/** Prompts that wait for their tokens, and bytes of their bodies, at most. Further prompts are not followed. */
const MAX_WAITING = 64;
const MAX_WAITING_BYTES = 8 * 1024 * 1024;
/** Bytes of an engine's answer, at most: a hundred thousand tokens with their texts. */
const MAX_ANSWER_BYTES = 8 * 1024 * 1024;
const ANSWER_MS = 10_000;
/** Batches behind a prompt's answer after which its events count as received. */
const LATE_BATCHES = 2;
/** Statuses of an engine without a tokenizer, and milliseconds until it is asked again. */
const HAS_NO_TOKENIZER: ReadonlySet<number> = new Set([404, 405, 501]);
const AGAIN_MS = 60_000;

/**
 * Applies the events of one engine. Unreadable batches and events count as lost, because they may have named removed
 * blocks. So do blocks of adapters with a number but no name (vLLM up to 0.11).
 */
export class EngineEvents implements EventSink {
  readonly residency = new EventResidency();
  readonly anomalies = noDecodeAnomalies();
  readonly #parts: Omit<KvResidencyParts, 'upstream' | 'connection'>;
  readonly #rank: number | undefined;
  readonly #applied: () => void;

  /**
   * @param rank the data-parallel rank to follow, if the engine has several
   * @param applied called after each batch
   */
  constructor(parts: Omit<KvResidencyParts, 'upstream' | 'connection'>, rank?: number, applied = () => {}) {
    this.#parts = parts;
    this.#rank = rank;
    this.#applied = applied;
  }

  began(): void {
    this.residency.begin(this.#parts.now());
    this.#parts.changed('exact');
  }

  batch(payload: Uint8Array): void {
    const { undecodable, unreadable, unnamedAdapters } = this.anomalies;
    const before = undecodable + unreadable + unnamedAdapters;
    const { isExact: wasExact, blockSize } = this.residency;
    for (const event of decodeBatch(payload, this.anomalies, this.#rank))
      this.residency.apply(event, this.#parts.now());
    if (this.residency.blockSize !== blockSize) this.#parts.blockSize(this.residency.blockSize);
    const after = this.anomalies;
    if (after.undecodable + after.unreadable + after.unnamedAdapters > before) this.lost();
    else if (wasExact !== this.residency.isExact) this.#parts.changed(wasExact ? 'lost' : 'exact');
    this.#applied();
  }

  lost(): void {
    const wasExact = this.residency.isExact;
    this.residency.eventsLost();
    if (wasExact) this.#parts.changed('lost');
  }
}

/**
 * The engine's cache by its own KV events. Events name tokens, so the engine is asked once for
 * the tokens of each new order, after its answer, one prompt at a time. Until then, and if the engine cannot be asked,
 * served prompts count as cached (`EventResidency.giveUp`).
 */
export class KvResidency {
  readonly #parts: KvResidencyParts;
  readonly #events: EngineEvents;
  readonly #waiting: CompletedPrompt[] = [];
  #late: LatePrompt[] = [];
  #waitingBytes = 0;
  #subscriber: ZmqSubscriber | undefined;
  /** Whether the engine is asked about a prompt. */
  #isAsking = false;
  /** Prompts that could not be followed since the start. */
  #unlearned = 0;
  /** Whether the tokens of the latest prompt could not be had. */
  #hasNoTokens = false;
  /** The engine is not asked before this time. */
  #notBefore = Number.NEGATIVE_INFINITY;

  private constructor(parts: KvResidencyParts, rank: number | undefined) {
    this.#parts = parts;
    this.#events = new EngineEvents(parts, rank, () => this.#received());
  }

  get events(): EventResidency {
    return this.#events.residency;
  }

  /** @throws WarmpathError `WARMPATH_CONFIG_INVALID`: see `ZmqSubscriber.open`. */
  static async open(
    { endpoint, replayEndpoint, rank }: EventSource & Partial<KvEventSettings>,
    parts: KvResidencyParts,
  ): Promise<KvResidency> {
    const residency = new KvResidency(parts, rank);
    residency.#subscriber = await ZmqSubscriber.open({
      endpoint,
      replayEndpoint,
      sink: residency.#events,
      connection: parts.connection,
      unreadable: (frameBytes) => {
        const form = `A message has frames of ${frameBytes.join(', ')} bytes. Expected: a topic, a number of 8 or 24 bytes, a payload.`;
        parts.changed('unreadable', form);
      },
    });
    return residency;
  }

  /** Whether all events were received, and the tokens of the latest prompt are known. Else served prompts count. */
  get isExact(): boolean {
    return this.events.isExact && !this.#hasNoTokens;
  }

  /** Counts of the event stream and of its errors. */
  get counts(): EventStreamCounts & Readonly<Record<string, number>> {
    const { stream, unreadableMessages } = this.#subscriber!;
    const { anomalies } = this.#events;
    return {
      ...stream.counts,
      ...anomalies,
      ...this.events.anomalies,
      unreadableMessages,
      unlearned: this.#unlearned,
    };
  }

  /** Number of the next expected batch. */
  get nextSequence(): number {
    return this.#subscriber!.stream.next;
  }

  /** Prompts whose tokens are not known yet. */
  get waiting(): number {
    return this.#waiting.length + Number(this.#isAsking);
  }

  /** Follows a completed prompt, after its history has recorded it. */
  completed(prompt: CompletedPrompt): void {
    const isKnown = prompt.arrangements.every((arrangement) => this.events.knowsTokens(prompt.history, arrangement));
    if (isKnown) this.#reconcileWithEvents(prompt);
    else if (this.#hasRoomFor(prompt) && this.#parts.now() >= this.#notBefore) {
      this.#waiting.push(prompt);
      this.#waitingBytes += prompt.bytes;
      if (!this.#isAsking) this.#askNext();
    } else this.#tokensUnavailable(prompt);
  }

  async close(): Promise<void> {
    this.#waiting.length = 0;
    this.#late = [];
    this.#waitingBytes = 0;
    await this.#subscriber?.close();
  }

  #hasRoomFor({ bytes }: CompletedPrompt): boolean {
    return this.#waiting.length < MAX_WAITING && this.#waitingBytes + bytes <= MAX_WAITING_BYTES;
  }

  #askNext(): void {
    const prompt = this.#waiting.shift();
    this.#isAsking = prompt !== undefined;
    if (prompt === undefined) return;
    this.#waitingBytes -= prompt.bytes;
    const request = prompt.request();
    if (request === undefined) {
      this.#tokensUnavailable(prompt);
      this.#askNext();
      return;
    }
    const chunks: Buffer[] = [];
    let bytes = 0;
    let status = 0;
    this.#parts.upstream.start(
      request,
      {
        onHead: (answered) => {
          status = answered;
        },
        onData: (chunk) => {
          bytes += chunk.length;
          if (bytes <= MAX_ANSWER_BYTES) chunks.push(chunk);
          return true;
        },
        onEnd: () => {
          if (status === 200 && bytes <= MAX_ANSWER_BYTES) this.#learn(prompt, Buffer.concat(chunks));
          else this.#tokensUnavailable(prompt);
          if (HAS_NO_TOKENIZER.has(status)) this.#notBefore = this.#parts.now() + AGAIN_MS;
          this.#askNext();
        },
        onError: () => {
          this.#tokensUnavailable(prompt);
          this.#askNext();
        },
      },
      { totalMs: ANSWER_MS, isBackground: true },
    );
  }

  #learn(prompt: CompletedPrompt, answer: Buffer): void {
    const { history, arrangements, promptTokens, salt, model } = prompt;
    const found = readPromptTokens(answer, prompt.texts());
    if (found === undefined || found.tokens.length !== (promptTokens ?? found.tokens.length)) {
      this.#tokensUnavailable(prompt);
      return;
    }
    this.#hasNoTokens = false;
    let place = 0;
    let preambleEnd = found.preambleEnd;
    for (const arrangement of arrangements) {
      const documentEnds = found.documentEnds.slice(place, place + arrangement.documents.length);
      place += documentEnds.length;
      this.events.learn(history, arrangement, { tokens: found.tokens, preambleEnd, documentEnds, salt, model });
      preambleEnd = documentEnds.at(-1) ?? preambleEnd;
    }
    this.#reconcileWithEvents(prompt);
  }

  /** Engines publish events beside answers. A prompt that was just computed is there, even if its events are late. */
  #reconcileWithEvents({ history, arrangements, cachedTokens }: CompletedPrompt): void {
    const prompt = { history, arrangements, cachedTokens };
    if (this.#isResident(prompt) || this.#late.length === MAX_WAITING) this.#reconcile(prompt);
    else this.#late.push({ prompt, until: this.nextSequence + LATE_BATCHES });
  }

  #isResident({ history, arrangements }: ServedPrompt): boolean {
    return arrangements.every((arrangement) => this.events.isResident(history, arrangement));
  }

  /** A batch was applied. */
  #received(): void {
    const late = this.#late;
    this.#late = [];
    for (const each of late) {
      if (this.#isResident(each.prompt) || this.nextSequence >= each.until) this.#reconcile(each.prompt);
      else this.#late.push(each);
    }
  }

  #tokensUnavailable(prompt: CompletedPrompt): void {
    this.#unlearned++;
    this.#hasNoTokens = true;
    this.#reconcile(prompt);
    this.events.tokensUnavailable(prompt.history);
  }

  #reconcile({ history, arrangements, cachedTokens }: ServedPrompt): void {
    const wasExact = this.events.isExact;
    for (const arrangement of arrangements) this.events.reconcile(history, arrangement, cachedTokens);
    if (!wasExact && this.events.isExact) this.#parts.changed('exact');
  }
}
