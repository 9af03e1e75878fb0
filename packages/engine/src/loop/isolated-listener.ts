import { WarmpathError } from '@warmpath/core';
import type { GenerationListener } from './generation.js';

/**
 * A listener whose exceptions cost its own request only: it hears of the failure once, when it still can, then nothing
 * more, and everybody else goes on.
 *
 * @param onBroken Called once, with what the listener threw.
 */
export function isolatedListener(listener: GenerationListener, onBroken: (cause: unknown) => void): GenerationListener {
  let isBroken = false;
  const guarded = (call: () => void): void => {
    if (isBroken) {
      return;
    }
    try {
      call();
    } catch (cause) {
      isBroken = true;
      onBroken(cause);
      try {
        listener.onError(new WarmpathError('WARMPATH_INTERNAL', { cause }));
      } catch {
        // It cannot be told; its request ends all the same.
      }
    }
  };
  return {
    ...(listener.onToken !== undefined && { onToken: (token) => guarded(() => listener.onToken!(token)) }),
    onText: (text, tokens) => guarded(() => listener.onText(text, tokens)),
    onFinish: (result) => guarded(() => listener.onFinish(result)),
    onError: (error) => guarded(() => listener.onError(error)),
  };
}
