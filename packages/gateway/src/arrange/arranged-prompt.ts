import type { Arrangement, SentTurn } from '@warmpath/core';
import type { RecalledConversation } from '@warmpath/core/internal';
import type { ParsedRequest } from '../intake/parse-request.js';
import type { TenantModel } from '../memory/served-histories.js';
import type { PromptPrefix } from '../memory/warm-prefixes.js';

/** A prompt whose order is decided, ready for the engine, with everything that is to be learned from its answer. */
export interface ArrangedPrompt {
  readonly body: Buffer;
  /** `undefined` for a prompt in which nothing was arranged. */
  readonly state: TenantModel | undefined;
  /** In the order of the prompt; the last one goes farthest into it. */
  readonly arrangements: readonly Arrangement[];
  /** Whether the documents were put into the prompt, not found there. */
  readonly isInserted: boolean;
  /** The whole prompt, in estimated tokens. */
  readonly estimatedTokens: number;
  /** What is to be remembered of the turn, and behind what; only of named conversations. */
  readonly turn: { readonly history: RecalledConversation; readonly sent: SentTurn } | undefined;
  /** The name under which what stands before the documents counts as warm. */
  readonly prefix: PromptPrefix | undefined;
  /** The request, where others may begin like it: kept only to prefill ahead. */
  readonly parsed: ParsedRequest | undefined;
  /** Keeps how documents in the prompt were sent; called when the prompt goes out. */
  readonly keepFound: (() => void) | undefined;
}
