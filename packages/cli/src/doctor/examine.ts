import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import { WarmpathError } from '@warmpath/core';
import type { ServedModel as EmbeddedModel } from '@warmpath/engine';
import {
  type CacheFacts,
  canHearKvEvents,
  type Dialect,
  dialectOf,
  dialectOfOwner,
  type EventSource,
  reachableSource,
  readCacheFacts,
  readPromptTokens,
  TOKENS_WITH_TEXTS,
} from '@warmpath/gateway';
import { quantile } from '../demo/statistics.js';
import { cachedTokensOf, type EngineClient, type ServedModel } from '../engine-client.js';
import { divergingText, estimateBlockSize, probeText } from './probe-prompts.js';

/** What the doctor found out about an engine. Counts in tokens; `undefined` where the engine does not say. */
export interface EngineFacts {
  readonly models: readonly ServedModel[];
  readonly model: string;
  /** Who the engine says it is (`owned_by` of its first model). */
  readonly owner: string | undefined;
  /** Of an embedded engine: the CPU code that computes its model. */
  readonly cpuVariant?: EmbeddedModel['cpuVariant'] | undefined;
  /** What its address says it is. */
  readonly dialect?: Dialect | undefined;
  /** What `/tokenize` tells the tokens of, and the text of each: chats, which KV events need; texts alone; nothing. */
  readonly tokenizes: 'chats' | 'texts' | 'nothing';
  /** The same prompt a second time, as one body and as a stream. */
  readonly repeat: {
    readonly promptTokens: number | undefined;
    readonly cachedTokens: number | undefined;
    readonly streamedCachedTokens: number | undefined;
  };
  /** A prompt that shares the first half of its words with the one before. */
  readonly half: { readonly promptTokens: number | undefined; readonly cachedTokens: number | undefined };
  readonly blockSize: number | undefined;
  /** What the engine says about its cache. */
  readonly cache: CacheFacts;
  /** Its KV events as a gateway on this machine finds them; `undefined` where it publishes none. */
  readonly events?: FoundEvents | undefined;
  /** Medians, in milliseconds, of prompts never seen before and of the same prompts again. */
  readonly ttftMs: { readonly cold: number; readonly warm: number };
}

/** Of the first data-parallel rank. */
interface FoundEvents {
  /** `undefined` where they are on another host than the engine. */
  readonly source: EventSource | undefined;
  readonly isConnectable: boolean;
  /** Whether the library for KV events is installed. */
  readonly isSupported: boolean;
}

/** Long enough for the minimum that hosted APIs cache (1,024 tokens), short enough for a context of 4,096. */
const TARGET_TOKENS = 1_600;
/** Words of the prompt that measures how many tokens a word has here. */
const SAMPLE_WORDS = 100;
/** Where usage is not reported, a word counts as one token. */
const UNKNOWN_TOKENS_PER_WORD = 1;
const TTFT_PAIRS = 3;
const CONNECT_MS = 2_000;
const BLOCK_PROBES = 16;
/** Words between two block probes: no divisor of usual block sizes, so that all remainders come up. */
const BLOCK_PROBE_STEP = 17;
/** What the engine is asked to tokenize. */
const TOKENIZED = 'one two three';
/** Requests of an examination: what an engine has is asked once, and its cache and times by prompts. */
export const MAX_PROBES = 5 + 1 + 2 + 3 + (1 + BLOCK_PROBES) + 2 + 2 * TTFT_PAIRS;

/** What goes with an examination. */
interface ProbeHooks {
  readonly signal: AbortSignal;
  /** Called after every answer. */
  readonly onRequest: () => void;
}

/**
 * Asks the engine a few dozen one-token questions and reports what they showed. Every prompt opens with a fresh nonce.
 */
export async function examine(
  client: EngineClient,
  { url, model }: { readonly url: string; readonly model: string | undefined },
  { signal, onRequest }: ProbeHooks,
): Promise<EngineFacts> {
  const models = await client.models(signal);
  onRequest();
  const chosen = model ?? models[0]?.id;
  if (chosen === undefined) {
    throw new WarmpathError('WARMPATH_MODEL_NOT_FOUND', { path: '--model', detail: 'the engine names no model' });
  }
  const probe = new Probe(client, chosen, { signal, onRequest });
  const words = await probe.wordsForTarget();
  const text = probeText(nonce(), words);
  await probe.ask(text);
  const repeat = await probe.ask(text);
  const streamed = await probe.stream(text);
  const dialect = dialectOfOwner(models[0]?.owned_by) ?? dialectOf('generic');
  const cache = await probe.cacheFacts(dialect);
  const [firstSource] = cache.eventSources ?? [];
  return {
    cache,
    ...(firstSource !== undefined && { events: await findEvents(firstSource, url) }),
    models,
    model: chosen,
    owner: models[0]?.owned_by,
    cpuVariant: await probe.cpuVariant(),
    tokenizes: await probe.tokenizes(),
    repeat: { ...repeat, streamedCachedTokens: streamed.cachedTokens },
    half: await probe.halfShared(words),
    blockSize: cache.cacheSize?.blockTokens ?? (dialect.reusesTokens ? 1 : await probe.blockSize(words)),
    ttftMs: await probe.ttft(words),
  };
}

interface Counts {
  readonly promptTokens: number | undefined;
  readonly cachedTokens: number | undefined;
}

class Probe {
  readonly #client: EngineClient;
  readonly #model: string;
  readonly #signal: AbortSignal;
  readonly #onRequest: () => void;

  constructor(client: EngineClient, model: string, { signal, onRequest }: ProbeHooks) {
    this.#client = client;
    this.#model = model;
    this.#signal = signal;
    this.#onRequest = onRequest;
  }

  async ask(text: string): Promise<Counts> {
    const answer = (await this.#client.post('/v1/chat/completions', this.#body(text), this.#signal)) as {
      usage?: { prompt_tokens?: number };
    };
    this.#onRequest();
    return { promptTokens: answer.usage?.prompt_tokens, cachedTokens: cachedTokensOf(answer.usage) };
  }

  async stream(text: string) {
    const answer = await this.#client.measureChat(this.#body(text), this.#signal);
    this.#onRequest();
    return answer;
  }

  async wordsForTarget(): Promise<number> {
    const { promptTokens } = await this.ask(probeText(nonce(), SAMPLE_WORDS));
    const tokensPerWord = promptTokens === undefined ? UNKNOWN_TOKENS_PER_WORD : promptTokens / SAMPLE_WORDS;
    return Math.ceil(TARGET_TOKENS / tokensPerWord);
  }

  async halfShared(words: number): Promise<Counts> {
    const start = nonce();
    await this.ask(probeText(start, words));
    return this.ask(divergingText(start, words, Math.floor(words / 2)));
  }

  /**
   * From the longest shared prefix to the shortest, so that an engine that remembers only its last prompt shows it too.
   */
  async blockSize(words: number): Promise<number | undefined> {
    const start = nonce();
    await this.ask(probeText(start, words));
    const cachedTokens: number[] = [];
    const step = Math.min(BLOCK_PROBE_STEP, Math.floor(words / (BLOCK_PROBES + 1)));
    for (let i = 1; i <= BLOCK_PROBES; i++) {
      const counts = await this.ask(divergingText(start, words, words - i * step));
      cachedTokens.push(counts.cachedTokens ?? 0);
    }
    return estimateBlockSize(cachedTokens);
  }

  async ttft(words: number): Promise<EngineFacts['ttftMs']> {
    const cold: number[] = [];
    const warm: number[] = [];
    for (let i = 0; i < TTFT_PAIRS; i++) {
      const text = probeText(nonce(), words);
      cold.push((await this.stream(text)).ttftMs);
      warm.push((await this.stream(text)).ttftMs);
    }
    return { cold: median(cold), warm: median(warm) };
  }

  /** `undefined` for every engine but an embedded one that is asked directly. */
  async cpuVariant(): Promise<EngineFacts['cpuVariant']> {
    const health = (await this.#optional(this.#client.get('/health', this.#signal))) as Pick<EngineFacts, 'cpuVariant'>;
    const { name, reason } = health.cpuVariant ?? {};
    return typeof name === 'string' && typeof reason === 'string' ? { name, reason } : undefined;
  }

  cacheFacts(dialect: Dialect): Promise<CacheFacts> {
    return readCacheFacts(dialect, async (path) => {
      const answer = await this.#optional(this.#client.getText(path, this.#signal).then((text) => ({ text })));
      return (answer as { readonly text?: string }).text;
    });
  }

  /** Asks as the gateway does, which looks for documents in the texts of a chat's tokens. */
  async tokenizes(): Promise<EngineFacts['tokenizes']> {
    const { model, messages } = this.#body(TOKENIZED);
    const chat = await this.#tokenize({ model, messages, ...TOKENS_WITH_TEXTS });
    if (readPromptTokens(Buffer.from(JSON.stringify(chat)), [TOKENIZED]) !== undefined) return 'chats';
    // vLLM wants `prompt`, llama-server and the embedded engine `content`; each ignores the other.
    const { tokens } = await this.#tokenize({ model, prompt: TOKENIZED, content: TOKENIZED });
    return Array.isArray(tokens) && tokens.length > 0 ? 'texts' : 'nothing';
  }

  #tokenize(body: object): Promise<{ readonly tokens?: unknown }> {
    return this.#optional(this.#client.post('/tokenize', body, this.#signal));
  }

  /** What a route answers that an engine need not have; empty where it has none. */
  async #optional(request: Promise<unknown>): Promise<object> {
    try {
      const answer = await request;
      return typeof answer === 'object' && answer !== null ? answer : {};
    } catch (error) {
      if (this.#signal.aborted) throw error;
      return {};
    } finally {
      this.#onRequest();
    }
  }

  #body(text: string) {
    return { model: this.#model, messages: [{ role: 'user', content: text }], max_tokens: 1, temperature: 0 };
  }
}

async function findEvents(published: EventSource, url: string): Promise<FoundEvents> {
  const source = reachableSource(published, url);
  return {
    source,
    isConnectable: source !== undefined && (await isConnectable(source.endpoint)),
    isSupported: await canHearKvEvents(),
  };
}

function isConnectable(endpoint: string): Promise<boolean> {
  const { hostname, port } = new URL(endpoint.replace('tcp:', 'http:'));
  return new Promise((resolve) => {
    const socket = connect({ host: hostname.replace(/[[\]]/g, ''), port: Number(port || 80) });
    const answer = (isReached: boolean) => {
      socket.destroy();
      resolve(isReached);
    };
    socket.setTimeout(CONNECT_MS, () => answer(false));
    socket.once('connect', () => answer(true));
    socket.once('error', () => answer(false));
  });
}

function nonce(): string {
  return randomBytes(6).toString('hex');
}

function median(values: readonly number[]): number {
  return quantile(
    [...values].sort((a, b) => a - b),
    0.5,
  );
}
