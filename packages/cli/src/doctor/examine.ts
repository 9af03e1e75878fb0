import { randomBytes } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import type { ServedModel as EmbeddedModel } from '@warmpath/engine';
import { type Dialect, readPromptTokens, TOKENS_WITH_TEXTS } from '@warmpath/gateway';
import { quantile } from '../demo/statistics.js';
import { cachedTokensOf, type EngineClient, type ServedModel } from '../engine-client.js';
import { divergingText, estimateBlockSize, probeText } from './probe-prompts.js';

/** What the doctor found out about an engine. Counts in tokens; `undefined` where the engine does not say. */
export interface EngineFacts {
  readonly models: readonly ServedModel[];
  readonly model: string;
  /** Who the engine says it is (`owned_by` of its first model). */
  readonly owner: string | undefined;
  /** Of an engine that was started here: how to have its prompts computed faster. */
  readonly buildNote?: string | undefined;
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
  /** What its metrics say of its prefix cache. */
  readonly cache?: CacheConfig | undefined;
  /** Where it publishes KV events, as it says; empty where it publishes none. */
  readonly eventSources?: readonly EventSource[] | undefined;
  /** Medians, in milliseconds, of prompts never seen before and of the same prompts again. */
  readonly ttftMs: { readonly cold: number; readonly warm: number };
}

/** `vllm:cache_config_info`. */
interface CacheConfig {
  readonly isOn: boolean;
  readonly blocks: number;
  readonly blockTokens: number;
}

/** One data-parallel rank of `GET /kv_event_sources`. */
interface EventSource {
  readonly endpoint: string;
  readonly replayEndpoint: string | undefined;
}

/** Long enough for the minimum that hosted APIs cache (1,024 tokens), short enough for a context of 4,096. */
const TARGET_TOKENS = 1_600;
/** Words of the prompt that measures how many tokens a word has here. */
const SAMPLE_WORDS = 100;
/** Where usage is not reported, a word counts as one token. */
const UNKNOWN_TOKENS_PER_WORD = 1;
const TTFT_PAIRS = 3;
const BLOCK_PROBES = 16;
/** Words between two block probes: no divisor of usual block sizes, so that all remainders come up. */
const BLOCK_PROBE_STEP = 17;
/** What the engine is asked to tokenize. */
const TOKENIZED = 'one two three';
/** Requests of an examination: what an engine has is asked once, and its cache and times by prompts. */
export const MAX_PROBES = 5 + 1 + 2 + 2 + (1 + BLOCK_PROBES) + 2 + 2 * TTFT_PAIRS;

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
  model: string | undefined,
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
  const cache = await probe.cacheConfig();
  return {
    cache,
    eventSources: await probe.eventSources(),
    models,
    model: chosen,
    owner: models[0]?.owned_by,
    cpuVariant: await probe.cpuVariant(),
    tokenizes: await probe.tokenizes(),
    repeat: { ...repeat, streamedCachedTokens: streamed.cachedTokens },
    half: await probe.halfShared(words),
    blockSize: cache?.blockTokens ?? (await probe.blockSize(words)),
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

  /** `undefined` for engines without this metric. */
  async cacheConfig(): Promise<CacheConfig | undefined> {
    const { text } = (await this.#optional(
      this.#client.getText('/metrics', this.#signal).then((text) => ({ text })),
    )) as { readonly text?: string };
    const labels = /^vllm:cache_config_info\{(.*)\}/m.exec(text ?? '')?.[1] ?? '';
    const label = (name: string) => new RegExp(`(?:^|,)${name}="([^"]*)"`).exec(labels)?.[1];
    const [blocks, blockTokens] = [Number(label('num_gpu_blocks')), Number(label('block_size'))];
    if (!(blocks > 0 && blockTokens > 0)) return undefined;
    return { isOn: label('enable_prefix_caching') === 'True', blocks, blockTokens };
  }

  /** `undefined` for engines without this route. */
  async eventSources(): Promise<readonly EventSource[] | undefined> {
    const sources = await this.#optional(
      this.#client.get('/kv_event_sources', this.#signal).then((found) => ({ found })),
    );
    const { found } = sources as { readonly found?: unknown };
    if (typeof found !== 'object' || found === null) return undefined;
    return Object.values(found as Record<string, Record<string, unknown> | null>).flatMap((source) => {
      const { enable_kv_cache_events: isOn, endpoint, replay_endpoint: replay } = source ?? {};
      if (isOn !== true || typeof endpoint !== 'string') return [];
      return [{ endpoint, replayEndpoint: typeof replay === 'string' ? replay : undefined }];
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

function nonce(): string {
  return randomBytes(6).toString('hex');
}

function median(values: readonly number[]): number {
  return quantile(
    [...values].sort((a, b) => a - b),
    0.5,
  );
}
