import type { Outcome } from './arrangement.js';
import type { ServedHistory } from './residency/history.js';

/**
 * The one way state changes: tells the history what became of a request. Report `dispatched` when the request goes to
 * the engine, then `completed` or `failed`, each with the arrangement object that `arrange` returned; `heard` when
 * another gateway sent a request there; and `prewarmed` when it has prefilled a path of `planPrewarm`. Cost: O(path).
 */
export function observe(outcome: Outcome, history: ServedHistory): void {
  switch (outcome.kind) {
    case 'dispatched':
      history.dispatched(outcome.arrangement, outcome.now);
      return;
    case 'completed':
      history.completed(outcome.arrangement, outcome.now, outcome);
      return;
    case 'failed':
      history.failed(outcome.arrangement);
      return;
    case 'heard':
      history.heard(outcome.arrangement, outcome.now);
      return;
    case 'prewarmed':
      history.prewarmed(outcome.path, outcome.now);
  }
}
