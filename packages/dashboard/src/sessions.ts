/** What `GET /v1/sessions` answers. */
export interface SessionList {
  readonly object: 'list';
  /** The latest first. */
  readonly data: readonly ListedSession[];
}

/** The account of one session. Tokens are as engines counted them. */
export interface ListedSession {
  readonly object: 'session';
  /** A digest of tenant, end user, header and name. */
  readonly id: string;
  readonly tenant: string;
  /** Whose headers named it: `claude-code`, `codex`, …; `warmpath` for a name of the gateway's own. */
  readonly client: string;
  /** The session that started this one; `null` for one of a main agent. */
  readonly startedBy: string | null;
  /** Of its latest prompt. */
  readonly model: string;
  /** Milliseconds since its latest answer. */
  readonly idleMs: number;
  readonly sums: {
    readonly prompts: number;
    /** Of these, tokens that were read from the cache, that were written for a price of their own, and the others. */
    readonly promptTokens: number;
    readonly cachedTokens: number;
    readonly cacheWriteTokens: number;
    readonly computedTokens: number;
    /** `null` without `prices`. */
    readonly cost: number | null;
    readonly breaks: number;
    /** Tokens that were in the cache before, and were computed or written again. */
    readonly lostTokens: number;
    /** What they cost beyond the price of cached tokens. */
    readonly lostCost: number | null;
  };
  /** The latest first. */
  readonly breaks: readonly ListedBreak[];
}

/** What a prompt lost of the cache, and why. */
interface ListedBreak {
  readonly requestId: string;
  readonly agoMs: number;
  readonly cause: string;
  readonly remedy: string;
  /** Whether the gateway can avoid it. */
  readonly isAvoidable: boolean;
  /** Where the prompt parts from the earlier one, for instance `messages[3].content`; `null` where it does not. */
  readonly piece: string | null;
  /** UTF-16 units of the piece before the difference, which is within 64 units behind it. */
  readonly offset: number;
  readonly lostTokens: number;
  readonly cost: number | null;
}
