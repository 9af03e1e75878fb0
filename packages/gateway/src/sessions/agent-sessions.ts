import {
  type AnsweredPrompt,
  findSessionBreak,
  isSameThread,
  lostCost,
  type PromptOutline,
  promptCost,
  SESSION_BREAK_CAUSES,
  sharedCharacters,
  TenantCache,
} from '@warmpath/core/internal';
import type { ListedSession } from '@warmpath/dashboard';
import type { TokenPrice } from '../config/schema.js';
import { type Dialect, keptMsOf, reusable } from '../dialects/dialects.js';
import type { RecordedSession } from '../intake/parse-request.js';
import type { OutlinedPrompt } from '../observe/prompt-pieces.js';
import type { RecordedBreak } from '../shapes/shapes.js';

/** Threads of a session that are followed: beside the main one, short prompts for titles and the like. */
const MAX_THREADS = 4;
/** Breaks of a session that are listed, the latest ones. */
const MAX_BREAKS = 20;
/** Sessions of one answer. */
const MAX_LISTED = 500;
/** Estimated bytes of a session, of a break, and of a piece of an outline beside its hashes. */
const SESSION_BYTES = 1_024;
const BREAK_BYTES = 320;
const PIECE_BYTES = 320;

/** A prompt of a session that the engine answered. */
export interface SessionPrompt {
  readonly tenant: string;
  readonly session: RecordedSession;
  readonly requestId: string;
  readonly model: string;
  /** What the engine got. */
  readonly body: Buffer;
  readonly outlined: OutlinedPrompt | undefined;
  readonly engine: { readonly name: string; readonly dialect: Dialect };
  readonly price: TokenPrice | undefined;
  /** As the engine counted them. */
  readonly promptTokens: number;
  readonly cachedTokens: number | undefined;
  readonly cacheWriteTokens: number | undefined;
  /** Milliseconds of the gateway's clock. */
  readonly dispatchedAt: number;
  readonly answeredAt: number;
}

interface Account {
  readonly tenant: string;
  readonly session: RecordedSession;
  /** The latest last. */
  threads: readonly AnsweredPrompt[];
  breaks: readonly (RecordedBreak & { readonly requestId: string; readonly at: number })[];
  readonly sums: { -readonly [Name in keyof ListedSession['sums']]: ListedSession['sums'][Name] };
  model: string;
  usedAt: number;
}

/**
 * The account of each session: tokens that were read from caches, written and computed, and what was lost of the cache
 * and why. Of prompts it holds hashes. Bounded in bytes, shared fairly among tenants.
 */
export class AgentSessions {
  readonly #accounts: TenantCache<Account>;

  constructor(maxBytes: number) {
    this.#accounts = new TenantCache(maxBytes);
  }

  get size(): number {
    return this.#accounts.size;
  }

  get bytes(): number {
    return this.#accounts.bytes;
  }

  /** The engine that answered the latest prompt of a session, and the tokens that it should have cached. */
  latest(tenant: string, { id }: RecordedSession): Pick<AnsweredPrompt, 'engine' | 'heldTokens'> | undefined {
    return this.#accounts.peek(tenant, id)?.threads.at(-1);
  }

  /** Of earlier prompts of a session. */
  outlines(tenant: string, { id }: RecordedSession): readonly PromptOutline[] {
    return this.#accounts.peek(tenant, id)?.threads.map(({ outline }) => outline) ?? [];
  }

  /** @returns what the prompt lost of the cache; `undefined` where it lost nothing. O(body) */
  answered(prompt: SessionPrompt): RecordedBreak | undefined {
    const { tenant, session, promptTokens, price } = prompt;
    const account = this.#accounts.get(tenant, session.id) ?? newAccount(prompt);
    const lost = prompt.outlined === undefined ? undefined : this.#compare(account, prompt, prompt.outlined);
    const tokens = tokensOf(prompt);
    const { sums } = account;
    sums.prompts++;
    sums.promptTokens += promptTokens;
    sums.cachedTokens += tokens.cachedTokens;
    sums.cacheWriteTokens += tokens.cacheWriteTokens;
    sums.computedTokens += promptTokens - tokens.cachedTokens - tokens.cacheWriteTokens;
    if (price !== undefined) sums.cost = (sums.cost ?? 0) + promptCost(tokens, price);
    if (lost !== undefined) {
      sums.breaks++;
      sums.lostTokens += lost.lostTokens;
      if (lost.cost !== null) sums.lostCost = (sums.lostCost ?? 0) + lost.cost;
      const { requestId, answeredAt: at } = prompt;
      account.breaks = [...account.breaks, { ...lost, requestId, at }].slice(-MAX_BREAKS);
    }
    account.model = prompt.model;
    account.usedAt = prompt.answeredAt;
    this.#keep(account);
    return lost;
  }

  /** Of a tenant, or of all; the latest first. */
  list(tenant: string | undefined, now: number): ListedSession[] {
    const accounts = [...this.#accounts.values()].filter((each) => tenant === undefined || each.tenant === tenant);
    return accounts
      .toSorted((a, b) => b.usedAt - a.usedAt)
      .slice(0, MAX_LISTED)
      .map((account) => listed(account, now));
  }

  #compare(account: Account, prompt: SessionPrompt, { pieces, outline }: OutlinedPrompt): RecordedBreak | undefined {
    const { engine, model, dispatchedAt, promptTokens, price } = prompt;
    const { thread: before, shared } = threadOf(account.threads, outline, dispatchedAt);
    const found =
      before &&
      findSessionBreak(before, {
        pieces,
        outline,
        engine: engine.name,
        dispatchedAt,
        promptTokens,
        cachedTokens: prompt.cachedTokens,
        reusable: (tokens) => reusable(engine.dialect, model, tokens),
      });
    // A prompt that parts from its thread may be another one: then the thread goes on later.
    const isParted = before !== undefined && shared < lengthOf(before.outline);
    const others = isParted ? account.threads : account.threads.filter((thread) => thread !== before);
    account.threads = [
      ...others.slice(1 - MAX_THREADS),
      {
        outline,
        engine: engine.name,
        heldTokens: heldTokensOf(prompt),
        answeredAt: prompt.answeredAt,
        keptMs: keptMsOf(engine.dialect, model, prompt.body),
      },
    ];
    if (found === undefined) return undefined;
    const cost = price === undefined ? null : lostCost(found.lostTokens, tokensOf(prompt), price);
    return { ...found, remedy: SESSION_BREAK_CAUSES[found.cause], cost };
  }

  /** A session that is too large for the memory keeps its counts. */
  #keep(account: Account): void {
    const { tenant, session } = account;
    const bytes = SESSION_BYTES + BREAK_BYTES * account.breaks.length;
    const ofThreads = account.threads.reduce((sum, { outline }) => sum + bytesOf(outline), 0);
    if (this.#accounts.set(tenant, session.id, account, bytes + ofThreads)) return;
    account.threads = [];
    this.#accounts.set(tenant, session.id, account, bytes);
  }
}

function newAccount({ tenant, session, model, answeredAt }: SessionPrompt): Account {
  const sums = {
    prompts: 0,
    promptTokens: 0,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    computedTokens: 0,
    cost: null,
    breaks: 0,
    lostTokens: 0,
    lostCost: null,
  };
  return { tenant, session, threads: [], breaks: [], sums, model, usedAt: answeredAt };
}

/** The earlier prompt that this one goes on with, broken or not. One that was under way could not be reused. */
function threadOf(threads: readonly AnsweredPrompt[], outline: PromptOutline, dispatchedAt: number) {
  let best: { readonly thread: AnsweredPrompt | undefined; readonly shared: number } = { thread: undefined, shared: 0 };
  for (const thread of threads) {
    if (thread.answeredAt > dispatchedAt || !isSameThread(thread.outline, outline)) continue;
    const shared = sharedCharacters(thread.outline, outline);
    if (shared >= best.shared) best = { thread, shared };
  }
  return best;
}

function lengthOf({ pieces }: PromptOutline): number {
  return pieces.reduce((sum, { length }) => sum + length, 0);
}

/** Engines with breakpoints hold what they read and wrote; others the whole prompt. */
function heldTokensOf({ engine, promptTokens, cachedTokens = 0, cacheWriteTokens = 0 }: SessionPrompt): number {
  const isMarked = cacheWriteTokens > 0 || engine.dialect.reuse.kind === 'breakpoints';
  return isMarked ? Math.min(promptTokens, cachedTokens + cacheWriteTokens) : promptTokens;
}

function tokensOf({ promptTokens, cachedTokens = 0, cacheWriteTokens = 0 }: SessionPrompt) {
  const cached = Math.min(promptTokens, cachedTokens);
  return { promptTokens, cachedTokens: cached, cacheWriteTokens: Math.min(cacheWriteTokens, promptTokens - cached) };
}

function bytesOf({ pieces }: PromptOutline): number {
  return pieces.reduce((sum, { name, chunks }) => sum + PIECE_BYTES + 2 * name.length + chunks.byteLength, 0);
}

function listed({ tenant, session, breaks, sums, model, usedAt }: Account, now: number): ListedSession {
  return {
    object: 'session',
    id: session.id,
    tenant,
    client: session.client,
    startedBy: session.parent ?? null,
    model,
    idleMs: Math.round(now - usedAt),
    sums: { ...sums },
    breaks: breaks.map(({ at, ...found }) => ({ ...found, agoMs: Math.round(now - at) })).toReversed(),
  };
}
