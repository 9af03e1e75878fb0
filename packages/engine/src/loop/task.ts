import type { Lease } from '../cache/lease-table.js';
import type { TokensByTier } from '../cache/tokens-by-tier.js';
import type { TokenGrammar } from '../native/grammar.js';
import type {
  ChosenToken,
  FinishReason,
  GenerationListener,
  GenerationRequest,
  GenerationResult,
  RequestTimes,
  TokenChance,
} from './generation.js';
import {
  adjustLogits,
  changesLogits,
  likeliestTokens,
  logOfMass,
  sampleToken,
  sampleWithGrammar,
  seededRandom,
} from './sampler.js';
import { StopStrings } from './stop-strings.js';

/** Fewest and most tokens from one checkpoint to the next; a prompt ends where it ends. */
const MIN_CHECKPOINT_TOKENS = 16;
const MAX_CHECKPOINT_TOKENS = 128;

/** What a task must know of a vocabulary. */
export interface TokenPieces {
  /** The bytes that a token stands for, perhaps a part of a character only; control tokens as text where asked for. */
  piece(token: number, special?: boolean): Uint8Array;
  endsGeneration(token: number): boolean;
  readonly grammars: { open(text: string): TokenGrammar };
}

/**
 * One generation inside the loop: its tokens, how many of them are computed, and its text so far. It outlives its
 * lease: a task that lost its cells to others goes back to the queue with everything it has generated.
 */
export class GenerationTask {
  readonly request: GenerationRequest;
  readonly listener: GenerationListener;
  /** Prompt and generated tokens. */
  readonly tokens: number[];
  readonly #arrivedMs: number;
  readonly #random: () => number;
  readonly #stops: StopStrings;
  readonly #decoder = new TextDecoder('utf-8');
  /** Open while it runs: it has read the tokens of the answer so far. */
  #grammar: TokenGrammar | undefined;
  /** Tokens whose text was not passed on yet, where somebody asked how likely they were. */
  #chosen: ChosenToken[] = [];

  /** The hold on the cache while the task runs. */
  lease: Lease | undefined;
  /** Tokens whose cells the lease has. */
  computed = 0;
  aborted = false;
  /** Whether the step that is computed ends at its next checkpoint. */
  endsAtCheckpoint = false;
  /** Whether the disk holds more of it, to be read before the next step. */
  isAwaitingDisk = false;
  /** Tokens of its prompt that it did not have to compute, by where they were. */
  readonly #found = { device: 0, host: 0, disk: 0 };
  /** Tokens that it had when it lost its cells. */
  #furthest = 0;
  /** When it first got cells. A task that lost them waits again, but its client may have read half an answer. */
  startedMs: number | undefined;
  #promptDoneMs: number | undefined;
  #lastTokenMs: number | undefined;
  /** Milliseconds between its last two tokens. */
  tokenGapMs = 0;

  constructor(request: GenerationRequest, listener: GenerationListener, nowMs: number) {
    this.request = request;
    this.listener = listener;
    this.tokens = [...request.prompt];
    this.#arrivedMs = nowMs;
    this.#random = seededRandom(request.seed);
    this.#stops = new StopStrings(request.stops);
  }

  /** Whether nothing is to be generated: the prompt is computed for the cache alone. */
  get isPrefillOnly(): boolean {
    return this.request.maxTokens === 0;
  }

  /** Most of its tokens that may come from the cache: the last one must be computed for the logits after it. */
  get sharedAtMost(): number {
    return this.tokens.length - (this.isPrefillOnly ? 0 : 1);
  }

  /**
   * The first place behind so many computed tokens at which a checkpoint is saved: where a document or message ends,
   * where it parts from an earlier prompt, the last token that may come from the cache, and every so many tokens in
   * long texts.
   */
  checkpointAfter(computed: number): number {
    const { boundaries = [] } = this.request;
    const { length: from, commonTokens } = this.lease!;
    const isNext = (end: number): boolean => end > computed && end >= from + MIN_CHECKPOINT_TOKENS;
    const last = computed < this.sharedAtMost ? this.sharedAtMost : this.tokens.length;
    const distance = (Math.floor((computed - from) / MAX_CHECKPOINT_TOKENS) + 1) * MAX_CHECKPOINT_TOKENS;
    return Math.min(...[boundaries.find(isNext) ?? last, commonTokens].filter(isNext), last, from + distance);
  }

  /** Whether it has computed tokens that are not in the cache and nobody can share. */
  get hasPrivateTokens(): boolean {
    return this.lease !== undefined && this.computed > this.lease.length;
  }

  /** Tokens that must be computed before the next one can be sampled. */
  get pending(): number {
    return this.tokens.length - this.computed;
  }

  get generated(): number {
    return this.tokens.length - this.request.prompt.length;
  }

  /** Whether it has chosen a token. */
  get hasAnswered(): boolean {
    return this.#promptDoneMs !== undefined && this.generated > 0;
  }

  /** Whether the prompt is computed, so that every step gives a token. */
  get isDecoding(): boolean {
    return this.generated > 0 && this.pending === 1;
  }

  /** Milliseconds from arrival to the first token. */
  get timeToFirstTokenMs(): number | undefined {
    return this.hasAnswered ? this.#promptDoneMs! - this.#arrivedMs : undefined;
  }

  /** What it took until now. */
  times(nowMs: number): RequestTimes {
    return { queueMs: (this.startedMs ?? nowMs) - this.#arrivedMs, totalMs: nowMs - this.#arrivedMs };
  }

  /** The next tokens come from the cache. Those that it had before it lost its cells, or of its answer, count once. */
  share(tokens: TokensByTier): void {
    const most = this.request.prompt.length - (this.isPrefillOnly ? 0 : 1);
    for (const tier of ['device', 'host', 'disk'] as const) {
      const from = Math.max(this.computed, this.#furthest);
      this.computed += tokens[tier];
      this.#found[tier] += this.hasAnswered ? 0 : Math.max(0, Math.min(this.computed, most) - from);
    }
  }

  /** Its lease has ended before it has, and what it had must be found in the cache again, or computed. */
  loseCells(): void {
    this.#furthest = Math.max(this.#furthest, this.computed);
    this.computed = 0;
  }

  /**
   * Chooses the next token and passes on the text that it completes.
   *
   * @returns Why the generation ends here, or `undefined` when it goes on.
   * @throws WARMPATH_ENGINE_FAILED when the model has no token with which the answer can follow its grammar.
   */
  advance(
    logits: Float32Array,
    vocabulary: TokenPieces,
    contextTokens: number,
    nowMs: number,
  ): FinishReason | undefined {
    const token = this.#choose(logits, vocabulary);
    this.#promptDoneMs ??= nowMs;
    this.tokenGapMs = nowMs - (this.#lastTokenMs ?? nowMs);
    this.#lastTokenMs = nowMs;
    this.tokens.push(token);
    const isLast = this.generated >= this.request.maxTokens || this.tokens.length >= contextTokens;
    return this.#passOn(token, vocabulary, isLast);
  }

  #choose(logits: Float32Array, vocabulary: TokenPieces): number {
    const { prompt, sampling, topLogprobs } = this.request;
    const unchanged = topLogprobs === undefined ? undefined : logits.slice();
    if (changesLogits(sampling)) {
      adjustLogits(logits, sampling, { prompt, generated: this.tokens.slice(prompt.length) });
    }
    const grammar = this.#openGrammar(vocabulary);
    const token =
      grammar === undefined
        ? sampleToken(logits, sampling, this.#random)
        : sampleWithGrammar(logits, sampling, grammar, this.#random);
    grammar?.accept(token);
    const isEnd = vocabulary.endsGeneration(token) && !this.request.ignoreEndOfGeneration;
    if (unchanged !== undefined && !isEnd) this.#chosen.push(chosenToken(token, unchanged, topLogprobs!, vocabulary));
    return token;
  }

  /** Passes on the text that a token completes, in one piece. @returns Why the text ends here, if it does. */
  #passOn(token: number, vocabulary: TokenPieces, isLast: boolean): FinishReason | undefined {
    if (vocabulary.endsGeneration(token) && !this.request.ignoreEndOfGeneration) {
      this.#emit(this.#stops.push(this.#decoder.decode()).text + this.#stops.flush(), true);
      return 'stop';
    }
    const bytes = vocabulary.piece(token, this.request.shownTokens?.has(token) ?? false);
    const { text, stopped } = this.#stops.push(this.#decoder.decode(bytes, { stream: true }));
    if (stopped || !isLast) {
      this.#emit(text, stopped);
      return stopped ? 'stop' : undefined;
    }
    const last = this.#stops.push(this.#decoder.decode());
    this.#emit(text + last.text + (last.stopped ? '' : this.#stops.flush()), true);
    return last.stopped ? 'stop' : 'length';
  }

  /** The prompt is in the cache, which is all that was asked for. */
  finishPrefill(nowMs: number): FinishReason {
    this.#promptDoneMs = nowMs;
    return 'length';
  }

  result(finishReason: FinishReason): GenerationResult {
    const promptTokens = this.request.prompt.length;
    const { device, host, disk } = this.#found;
    const cachedTokens = device + host + disk;
    const started = this.startedMs ?? 0;
    const first = this.#promptDoneMs ?? started;
    return {
      finishReason,
      stopString: this.#stops.matched,
      promptTokens,
      cachedTokens,
      cachedByTier: { device, host, disk },
      completionTokens: this.generated,
      timings: {
        prompt_ms: first - started,
        cached: cachedTokens,
        cached_device: device,
        cached_host: host,
        cached_disk: disk,
        prompt_n: promptTokens - cachedTokens,
        predicted_ms: (this.#lastTokenMs ?? first) - first,
        predicted_n: this.generated,
      },
    };
  }

  /** Frees what native memory it has. It may go on nevertheless: its grammar then reads the answer anew. */
  freeGrammar(): void {
    this.#grammar?.free();
    this.#grammar = undefined;
  }

  #openGrammar(vocabulary: TokenPieces): TokenGrammar | undefined {
    const { grammar, prompt } = this.request;
    if (grammar !== undefined && this.#grammar === undefined) {
      this.#grammar = vocabulary.grammars.open(grammar);
      for (const token of this.tokens.slice(prompt.length)) this.#grammar.accept(token);
    }
    return this.#grammar;
  }

  #emit(text: string, isLast: boolean): void {
    const tokens = this.#chosen;
    if (text !== '' || (isLast && tokens.length > 0)) {
      this.#chosen = [];
      this.listener.onText(text, tokens);
    }
  }
}

/** How likely a token was, and the likeliest ones. O(vocabulary). */
function chosenToken(token: number, logits: Float32Array, count: number, vocabulary: TokenPieces): ChosenToken {
  const whole = logOfMass(logits);
  const chance = (each: number): TokenChance => ({
    bytes: vocabulary.piece(each, true),
    logprob: logits[each]! - whole,
  });
  return { ...chance(token), top: (count === 0 ? [] : likeliestTokens(logits, count)).map(chance) };
}
