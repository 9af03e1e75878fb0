import { type Arrangement, type ArrangeRequest, type Document, type Preamble, WarmpathError } from '@warmpath/core';
import { estimateTokensOfBytes, plainTurn } from '@warmpath/core/internal';
import type { ConversationMemory } from '../conversation/conversation-memory.js';
import type { Engine } from '../engines/engine.js';
import { predictedTokens, type ServedHistories, type TenantModel } from '../memory/served-histories.js';
import type { FailOpen } from '../observe/log.js';
import { traced } from '../observe/tracing.js';
import {
  type Call,
  type DecidedSlot,
  type Decision,
  type DecisionSummary,
  type InsertSlot,
  NOTHING_DONE,
  type PermuteSlots,
  type PlacedBlock,
  type Prompt,
  type Sent,
} from '../shapes/shapes.js';
import { arrangeInPlace, firstOpenDocuments, type InPlaceOptions, isReported, slotOf } from './arrange-in-place.js';
import { type InsertedDocuments, isBadInput } from './insert-slot.js';
import type { PrefixKeeper } from './keep-prefix.js';
import { inRetrievalOrder, type PromptRenderer } from './render.js';

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
  readonly documents: InsertedDocuments;
  readonly histories: ServedHistories;
  readonly memory: ConversationMemory;
  readonly renderer: PromptRenderer;
  readonly prefixKeeper: PrefixKeeper;
  readonly failOpen: FailOpen;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/** Documents whose order is open, and what stands before them. */
export interface OpenDocuments {
  readonly model: string;
  readonly documents: readonly Document[];
  readonly preamble: Preamble;
  /** The same as a policy is asked. */
  readonly request: ArrangeRequest;
}

/** Every engine caches prompts of so many bytes. */
const LONG_PROMPT_BYTES = 65_536;

/**
 * Decides the order of the documents of a prompt, and which of them become references. Renders it for an engine with
 * room. What is believed of the engine, what was sent before and what waits are read and not changed. A defect costs
 * the order and no answer: documents go out in retrieval order, and if that fails as well, the client's own body does.
 */
export class PromptArranger {
  readonly #parts: PromptArrangerParts;

  constructor(parts: PromptArrangerParts) {
    this.#parts = parts;
  }

  /** @throws WarmpathError bad input that only the arrangement brings to light. */
  arrange(call: Call, prompt: Prompt, engine: Engine): ArrangedPrompt {
    const { failOpen } = this.#parts;
    const { report } = call.request;
    const { slots } = prompt;
    if (slots === undefined) return unarranged(prompt);
    try {
      const decision = traced(this.#parts, report, 'arrange', () => this.#decide(slots, call.tenant, engine));
      const arranged = this.#render(call, prompt, decision);
      const fellBack = slots.kind === 'insert' ? decision.arrangements[0]?.trace.fellBack : undefined;
      if (fellBack !== undefined) failOpen(report, 'retrieval', new WarmpathError(fellBack));
      return arranged;
    } catch (defect) {
      if (isBadInput(defect)) throw defect;
      if (slots.kind !== 'insert') return this.#original(call, prompt.body, defect);
      try {
        const anew = { ...slots, repeated: undefined };
        const arranged = this.#render(
          call,
          { ...prompt, slots: anew },
          this.#inRetrievalOrder(anew, call.tenant, engine),
        );
        failOpen(report, 'retrieval', defect);
        return arranged;
      } catch (second) {
        if (isBadInput(second)) throw second;
        return this.#original(call, call.body, second);
      }
    }
  }

  /** As its client wrote it: documents of a field in retrieval order, without references, hint or breakpoints. */
  asWritten(call: Call, { prompt, sent, decision }: ArrangedPrompt, engine: Engine): Buffer {
    const { tenant } = call;
    const { slots } = prompt;
    if (slots?.kind !== 'insert')
      return this.#parts.prefixKeeper.withoutKeeping(call) ?? (decision.state === undefined ? sent.body : prompt.body);
    if (decision.state === undefined) return sent.body;
    const slot = { ...slots, repeated: undefined };
    const written = this.#inRetrievalOrder(slot, tenant, engine);
    return this.#parts.renderer.render({ ...prompt, slots: slot }, written, false).body;
  }

  /**
   * The documents that others may know of while the prompt waits; `undefined` without any whose order is open, or after
   * a defect, which shows again at dispatch. O(1); where documents stand in the prompt, O(text up to the end of the
   * first).
   */
  openDocuments({ slots }: Prompt, tenant: string): OpenDocuments | undefined {
    if (slots === undefined) return undefined;
    if (slots.kind === 'insert') {
      const { request, parsed } = slots;
      return { model: parsed.model, documents: request.documents, preamble: request.preamble, request };
    }
    try {
      const open = firstOpenDocuments(slots.found, this.#inPlaceOptions(slots, tenant));
      return open && { ...open, model: slots.found.model, request: { ...slots.switches, ...open } };
    } catch {
      return undefined;
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

  /** For an engine that has room: what waits for it, and what it was served meanwhile, count. */
  #decide(slots: InsertSlot | PermuteSlots, tenant: string, engine: Engine): Decision {
    return slots.kind === 'insert'
      ? this.#decideInsert(slots, tenant, engine)
      : this.#decidePermute(slots, tenant, engine);
  }

  #inRetrievalOrder(slot: InsertSlot, tenant: string, engine: Engine): Decision {
    const state = this.#parts.histories.of(engine, tenant, slot.parsed.model);
    return insertDecision(slot, inRetrievalOrder(slot.request, state), state);
  }

  #decideInsert(slot: InsertSlot, tenant: string, engine: Engine): Decision {
    const { documents, histories, now } = this.#parts;
    const { parsed } = slot;
    const request = reusesNothing(engine) ? { ...slot.request, policy: 'retrieval' as const } : slot.request;
    const state = histories.of(engine, tenant, parsed.model);
    const waiting = engine.queue.waitingBehind(request.preamble, tenant);
    const asked = waiting.length === 0 ? request : { ...request, waiting };
    return insertDecision(slot, documents.arrange(asked, state, now()), state);
  }

  #decidePermute(slots: PermuteSlots, tenant: string, engine: Engine): Decision {
    const { documents, histories, now: clock } = this.#parts;
    const { found, switches } = slots;
    const now = clock();
    const state = histories.of(engine, tenant, found.model);
    const promptTokens = () => estimateTokensOfBytes(found.view.bytes.subarray(0, LONG_PROMPT_BYTES));
    const placed = arrangeInPlace(found, {
      ...this.#inPlaceOptions(slots, tenant),
      arrange: ({ documents: open, preamble, policy }) => {
        const waiting = preamble === undefined ? [] : engine.queue.waitingBehind(preamble, tenant);
        const request: ArrangeRequest = {
          documents: open,
          preamble,
          policy: reusesNothing(engine) ? 'retrieval' : (policy ?? switches.policy),
          maxShift: switches.maxShift,
          shiftPrice: switches.shiftPrice,
          pin: switches.pin,
          hints: false,
          waiting: waiting.length === 0 ? undefined : waiting,
          warnings: switches.warnings,
        };
        return documents.arrange(request, state, now, promptTokens);
      },
    });
    const arrangements = placed.blocks.flatMap(({ arrangement }) => arrangement ?? []);
    return { state, arrangements, placed, summary: permuteSummary(placed.blocks.filter(isReported), state) };
  }

  #inPlaceOptions({ deduplicate, blocks }: PermuteSlots, tenant: string): Omit<InPlaceOptions, 'arrange'> {
    return { tenant, deduplicate, blocks, memory: this.#parts.memory };
  }
}

/** No order saves anything then, and another one than that of retrieval may change answers. */
function reusesNothing({ dialect }: Engine): boolean {
  return dialect.reuse.kind === 'none';
}

function insertDecision({ history }: InsertSlot, arrangement: Arrangement, state: TenantModel): Decision {
  const { documents, references, trace } = arrangement;
  const shortened = documents.filter(({ whole }) => whole !== undefined);
  return {
    state,
    arrangements: [arrangement],
    placed: undefined,
    summary: {
      policy: trace.policy,
      documents: documents.length + references.length,
      recognised: undefined,
      documentsMoved: movedDocuments(arrangement),
      references: references.length,
      shortened: shortened.length,
      deduplicatedTokens:
        references.reduce((sum, { document }) => sum + document.tokens, 0) +
        shortened.reduce((sum, { whole, tokens }) => sum + whole!.tokens - tokens, 0),
      replayedTurns: history.turns.length,
      slots: documents.length === 0 ? [] : [insertedSlot(arrangement)],
      predictedCachedTokens: predictedTokens(state, arrangement),
      warnings: trace.warnings,
    },
  };
}

/** The documents that the request brought itself and that were sent. */
function insertedSlot({ documents, order }: Arrangement): DecidedSlot {
  return {
    format: 'documents',
    documents: order.length,
    decided: 'arranged',
    order,
    labels: 'none',
    references: [],
    shortened: order.filter((_, place) => documents[place]!.whole !== undefined).sort((a, b) => a - b),
  };
}

/** How many documents stand elsewhere than in retrieval order. */
export function movedDocuments({ trace }: Arrangement): number {
  return trace.moves.filter((places) => places !== 0).length;
}

function permuteSummary(blocks: readonly PlacedBlock[], state: TenantModel): DecisionSummary {
  if (blocks.length === 0) return NOTHING_DONE;
  const references = blocks.flatMap(({ references: own }) => own);
  const shortened = references.filter(({ partly }) => partly).length;
  const documents = blocks.reduce((sum, { block }) => sum + block.documents.length, 0);
  // The path of the last slot goes farthest into the prompt.
  const last = blocks.findLast(({ arrangement }) => arrangement !== undefined)?.arrangement;
  return {
    policy: last?.trace.policy,
    documents,
    recognised: documents,
    documentsMoved: blocks.reduce((sum, { arrangement }) => sum + (arrangement ? movedDocuments(arrangement) : 0), 0),
    references: references.length - shortened,
    shortened,
    deduplicatedTokens: references.reduce((sum, { savedTokens }) => sum + savedTokens, 0),
    replayedTurns: 0,
    slots: blocks.map(slotOf),
    predictedCachedTokens: last && predictedTokens(state, last),
    warnings: [],
  };
}

function unarranged(prompt: Prompt): ArrangedPrompt {
  const { body, history } = prompt;
  const turn = history && { history, sent: plainTurn(history) };
  return { prompt, decision: NOTHING_DECIDED, sent: { body, estimatedTokens: 0, labels: undefined, turn } };
}
