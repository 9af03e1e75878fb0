import { WarmpathError } from '@warmpath/core';
import { plainTurn } from '@warmpath/core/internal';
import type { Engine } from '../engines/engine.js';
import type { FailOpen } from '../observe/fail-open.js';
import { traced } from '../observe/tracing.js';
import { type Call, type Decision, NOTHING_DONE, type Prompt, type Sent } from '../shapes/shapes.js';
import type { PromptDecider } from './decide.js';
import { isBadInput } from './insert-slot.js';
import type { PromptRenderer } from './render.js';

/** A prompt that is ready for the engine. */
export interface ArrangedPrompt {
  readonly prompt: Prompt;
  readonly decision: Decision;
  readonly sent: Sent;
}

const NOTHING_DECIDED: Decision = {
  state: undefined,
  arrangements: [],
  placed: undefined,
  summary: NOTHING_DONE,
};

export interface PromptArrangerParts {
  readonly decider: PromptDecider;
  readonly renderer: PromptRenderer;
  readonly failOpen: FailOpen;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/**
 * Decides and renders a prompt for an engine that has room. A defect costs the order, not the answer: documents go out
 * in retrieval order, and where that fails as well, the client's own body does.
 */
export class PromptArranger {
  readonly #parts: PromptArrangerParts;

  constructor(parts: PromptArrangerParts) {
    this.#parts = parts;
  }

  /** @throws WarmpathError bad input that only the arrangement brings to light. */
  arrange(call: Call, prompt: Prompt, engine: Engine): ArrangedPrompt {
    const { decider, failOpen } = this.#parts;
    const { report } = call.request;
    const { slots } = prompt;
    if (slots === undefined) return unarranged(prompt);
    try {
      const decision = traced(this.#parts, report, 'arrange', () => decider.decide(slots, call.tenant, engine));
      const arranged = this.#render(call, prompt, decision);
      const fellBack = slots.kind === 'insert' ? decision.arrangements[0]?.trace.fellBack : undefined;
      if (fellBack !== undefined) failOpen(report, 'retrieval', new WarmpathError(fellBack));
      return arranged;
    } catch (defect) {
      if (isBadInput(defect)) throw defect;
      if (slots.kind !== 'insert') return this.#original(call, prompt.body, defect);
      try {
        const anew = { ...slots, repeated: undefined };
        const decision = decider.inRetrievalOrder(anew, call.tenant, engine);
        const arranged = this.#render(call, { ...prompt, slots: anew }, decision);
        failOpen(report, 'retrieval', defect);
        return arranged;
      } catch (second) {
        if (isBadInput(second)) throw second;
        return this.#original(call, call.body, second);
      }
    }
  }

  #render({ request }: Call, prompt: Prompt, decision: Decision): ArrangedPrompt {
    const sent = traced(this.#parts, request.report, 'render', () => this.#parts.renderer.render(prompt, decision));
    return { prompt, decision, sent };
  }

  #original({ request }: Call, body: Buffer, defect: unknown): ArrangedPrompt {
    this.#parts.failOpen(request.report, 'original', defect);
    return unarranged({ body, history: undefined, slots: undefined });
  }
}

function unarranged(prompt: Prompt): ArrangedPrompt {
  const { body, history } = prompt;
  const turn = history && { history, sent: plainTurn(history) };
  return { prompt, decision: NOTHING_DECIDED, sent: { body, estimatedTokens: 0, labels: undefined, turn } };
}
