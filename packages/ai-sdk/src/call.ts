import type { OrderSwitches } from '@warmpath/client';
import type { PromptMessage } from '@warmpath/client/internal';
import type { DocumentInput } from '@warmpath/core';

/**
 * Parameters of a call to a language model: the part of the AI SDK's contract that is used here, equal in its versions
 * 6 (`V3`) and 7 (`V4`), so that one package serves both, and neither's types are needed to compile against the other.
 */
export interface CallParams {
  readonly prompt: readonly PromptMessage[];
  readonly tools?: readonly unknown[];
  readonly providerOptions?: Readonly<Record<string, unknown>>;
}

/** What users write under `providerOptions.warmpath`. */
export interface CallDocuments extends OrderSwitches {
  /** In retrieval order. */
  readonly documents: readonly DocumentInput[];
  /** Names the conversation that the messages are the history of. */
  readonly session?: string;
  /** The end user whose conversation it is. */
  readonly user?: string;
}

/** Key of the provider options that the middleware reads. */
const OPTIONS_KEY = 'warmpath';

/**
 * The documents of a call; `undefined` if it has none and is no turn of a conversation. What they are is checked when
 * they are arranged.
 */
export function documentsOf({ prompt, providerOptions }: CallParams): CallDocuments | undefined {
  const options = providerOptions?.[OPTIONS_KEY] as Partial<CallDocuments> | undefined;
  if (options?.documents !== undefined) return { ...options, documents: options.documents };
  const isTurn = options?.session !== undefined && prompt.some(({ role }) => role === 'user');
  return isTurn ? { ...options, documents: [] } : undefined;
}

/** The call without what was meant for Warmpath. */
export function withoutDocuments<Params extends CallParams>(params: Params): Params {
  const { [OPTIONS_KEY]: _, ...providerOptions } = params.providerOptions ?? {};
  return { ...params, providerOptions };
}
