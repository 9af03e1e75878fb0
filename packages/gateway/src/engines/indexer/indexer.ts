import { randomUUID } from 'node:crypto';
import { type PromptTokens, WarmpathError } from '@warmpath/core';
import type { GatewayConfig } from '../../config/schema.js';
import { Upstream } from '../../dispatch/upstream.js';
import { TenantCache } from '../../observe/tenant-cache.js';
import { askText } from '../engine-probe.js';
import { INDEXER_FORMATS, type IndexerFormat, type IndexerQuestion, type InstanceMatches } from './wire-formats.js';

/** A prompt's tokens, and where its documents end among them. */
export type TokenisedPrompt = Omit<PromptTokens, 'salt'>;

/** What became of prompts that an index could have been asked about. */
const OUTCOMES = [
  'answered',
  /** It names none of the engines, or has nobody for the model. */
  'silent',
  /** The engine did not say which tokens the prompt is. */
  'untokenised',
  /** No answer in time, or a status that says that it failed. */
  'failed',
  'unreadable',
  /** Not asked: it does not keep salts apart; so many are asked at the moment; it failed of late. */
  'salted',
  'busy',
  'paused',
] as const;
export type IndexerOutcome = (typeof OUTCOMES)[number];

/** What an index says of one prompt. */
export interface IndexerAnswer {
  /** How many tokens the prompt has. */
  readonly promptTokens: number;
  /** The prompt's tokens at its beginning that an engine holds; `undefined` where nothing is said of it. */
  readonly tokensOn: (engine: IndexedEngine) => number | undefined;
  /** Whether an engine holds no more than that. */
  readonly isComplete: boolean;
  /** Tokens of a block, or of several: no path of so many more than what is held is there; none where not known. */
  readonly blockTokens: number | undefined;
}

/** What names an engine to an index. */
export interface IndexedEngine {
  readonly instance: string;
  /** `undefined` for an engine without data-parallel ranks. */
  readonly rank: number | undefined;
}

/** Prompts that ask at once; one while it has failed and nobody knows whether it is back. */
const MAX_ASKING = 64;
/** Failures in a row after which nobody asks for a while. */
const FAILURES = 3;
const PAUSE_MS = 10_000;
const ANSWER_BYTES = 1_048_576;
/** Bytes of a cached token, and of an entry beside its tokens. */
const TOKEN_BYTES = 8;
const ENTRY_BYTES = 256;

/** One prompt's turn to ask. */
export interface IndexerTurn {
  /** Milliseconds that are left of its time. */
  leftMs(): number;
  /** Notes what became of it; once. */
  end(outcome: IndexerOutcome): void;
}

/**
 * An index of what several engines hold, which somebody else keeps. A prompt asks it once, and waits a short time for
 * the answer; an index that fails is left alone for a while, and the gateway goes by its own view.
 *
 * Tenants whose prompts are salted share nothing in the engines' caches, so an answer by tokens alone would be wrong,
 * and would tell one tenant what another has sent. An index that gets salts may be of a version that leaves them
 * out: before the first match of a salted prompt is believed, the same tokens are asked for with a salt that nobody
 * has, of which nothing may be found.
 */
export class Indexer {
  readonly counts: Readonly<Record<IndexerOutcome, number>>;
  readonly #counts: Record<IndexerOutcome, number>;
  readonly #format: IndexerFormat;
  readonly #upstream: Upstream;
  readonly #timeoutMs: number;
  readonly #now: () => number;
  readonly #tokens: TenantCache<TokenisedPrompt>;
  #asking = 0;
  #failures = 0;
  #notBefore = Number.NEGATIVE_INFINITY;
  /** Whether it keeps salts apart; `undefined` for nobody knows. */
  #keepsSalts: boolean | undefined;
  /** The greatest common divisor of what was matched: a multiple of its blocks. */
  #blockTokens: number | undefined;

  /** `now`: the monotonic clock, in milliseconds. `maxBytes` of tokens are kept. */
  constructor(
    { kind, url, timeoutMs }: NonNullable<GatewayConfig['residency']['indexer']>,
    timeouts: GatewayConfig['upstream']['timeouts'],
    { now, maxBytes }: { readonly now: () => number; readonly maxBytes: number },
  ) {
    this.#timeoutMs = timeoutMs;
    this.#format = INDEXER_FORMATS[kind];
    this.#upstream = new Upstream(url, { timeouts, maxConcurrent: MAX_ASKING });
    this.#now = now;
    this.#tokens = new TenantCache(maxBytes);
    this.#counts = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, 0])) as Record<IndexerOutcome, number>;
    this.counts = this.#counts;
  }

  /** Bytes of the tokens that are kept. */
  get bytes(): number {
    return this.#tokens.bytes;
  }

  async close(): Promise<void> {
    await this.#upstream.destroy();
  }

  /** A prompt's turn; `undefined` where it is not to ask. */
  turn(): IndexerTurn | undefined {
    const refused = this.#refusal();
    if (refused !== undefined) {
      this.#counts[refused]++;
      return undefined;
    }
    this.#asking++;
    const until = this.#now() + this.#timeoutMs;
    return {
      leftMs: () => Math.max(1, until - this.#now()),
      end: (outcome) => {
        this.#asking--;
        this.#counts[outcome]++;
        if (outcome === 'failed' || outcome === 'unreadable') this.#failed();
        else if (outcome === 'answered' || outcome === 'silent') this.#failures = 0;
      },
    };
  }

  /** Whether it can be asked about a prompt with that salt. */
  takes(salt: string | undefined): boolean {
    return salt === undefined || (this.#format.takesSalt && this.#keepsSalts !== false);
  }

  /** The tokens of a prompt that were asked for before. */
  tokensOf(tenant: string, prompt: string): TokenisedPrompt | undefined {
    return this.#tokens.get(tenant, prompt);
  }

  keepTokens(tenant: string, prompt: string, tokens: TokenisedPrompt): void {
    const count = tokens.tokens.length + tokens.documentEnds.length;
    this.#tokens.set(tenant, prompt, tokens, ENTRY_BYTES + TOKEN_BYTES * count);
  }

  /** Asks, and ends the turn. Never rejects. */
  async ask(
    question: IndexerQuestion,
    engines: readonly IndexedEngine[],
    turn: IndexerTurn,
  ): Promise<IndexerAnswer | undefined> {
    const found = await this.#post(question, turn);
    if (typeof found === 'string') {
      turn.end(found);
      return undefined;
    }
    const isMatched = engines.some((engine) => (matchOf(found, engine) ?? 0) > 0);
    if (!isMatched) {
      turn.end('silent');
      return undefined;
    }
    if (question.salt !== undefined && !(await this.#isSaltKept(question, turn))) {
      turn.end('salted');
      return undefined;
    }
    for (const { tokens } of found.values()) {
      if (tokens > 0) this.#blockTokens = greatestCommonDivisor(tokens, this.#blockTokens ?? 0);
    }
    turn.end('answered');
    const { isComplete } = this.#format;
    return {
      promptTokens: question.tokens.length,
      // Whoever is not named among others holds nothing.
      tokensOn: (engine) => matchOf(found, engine) ?? (isComplete ? 0 : undefined),
      isComplete,
      blockTokens: this.#blockTokens,
    };
  }

  #refusal(): IndexerOutcome | undefined {
    if (this.#now() < this.#notBefore) return 'paused';
    return this.#asking >= (this.#failures < FAILURES ? MAX_ASKING : 1) ? 'busy' : undefined;
  }

  #failed(): void {
    // Another one may come in its place.
    this.#keepsSalts = undefined;
    this.#blockTokens = undefined;
    if (++this.#failures >= FAILURES) this.#notBefore = this.#now() + PAUSE_MS;
  }

  async #isSaltKept(question: IndexerQuestion, turn: IndexerTurn): Promise<boolean> {
    if (this.#keepsSalts !== undefined) return this.#keepsSalts;
    const found = await this.#post({ ...question, salt: randomUUID() }, turn);
    if (typeof found === 'string') return false;
    this.#keepsSalts = [...found.values()].every(({ tokens }) => tokens === 0);
    return this.#keepsSalts;
  }

  async #post(question: IndexerQuestion, turn: IndexerTurn): Promise<InstanceMatches | IndexerOutcome> {
    const { path, body, read } = this.#format;
    const request = { path, headers: HEADERS, body: body(question) };
    const answer = await askText(this.#upstream, request, { totalMs: turn.leftMs(), limitBytes: ANSWER_BYTES });
    if (WarmpathError.isInstance(answer)) return 'failed';
    // It has nobody for a model that a client may have made up.
    if (answer.status === 404) return 'silent';
    if (answer.status !== 200) return 'failed';
    try {
      return read(JSON.parse(answer.text), question.tokens.length);
    } catch {
      return 'unreadable';
    }
  }
}

const HEADERS = { 'content-type': 'application/json', accept: 'application/json', 'accept-encoding': 'identity' };

function matchOf(found: InstanceMatches, { instance, rank }: IndexedEngine): number | undefined {
  const match = found.get(instance);
  return rank === undefined ? match?.tokens : (match?.ranks.get(String(rank)) ?? match?.tokens);
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
