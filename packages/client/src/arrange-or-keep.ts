import type { ArrangedContext, Arranger, CallOptions, ContextRequest } from './arranger.js';

export interface KeepOptions extends CallOptions {
  /** Hears why documents kept their retrieval order. */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/**
 * An order, or `undefined` where there is none to be had: a gateway that is down, a passage without text. For
 * frameworks that hand documents through: an order is never worth an answer, so that they go on in retrieval order. An
 * abort is passed on.
 */
export async function arrangeOrKeep(
  arranger: Arranger,
  request: ContextRequest,
  { signal, onError }: KeepOptions = {},
): Promise<ArrangedContext | undefined> {
  try {
    return await arranger.arrange(request, signal === undefined ? {} : { signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    onError?.(error);
    return undefined;
  }
}
