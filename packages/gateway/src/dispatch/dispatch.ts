import type { Document, Preamble, PromptReuse, WarmpathError } from '@warmpath/core';
import type { ColdPrefix } from './leading-prompts.js';

/** What is known of the documents of a request before it is dispatched. */
export interface WaitingContext {
  /** Tells models apart, too. */
  readonly preamble: Preamble;
  readonly documents: readonly Document[];
  /** What the engine is believed to hold of it now. */
  reuse(): PromptReuse;
}

/** A request on its way to the engine. */
export interface Dispatch {
  readonly tenant: string;
  /** Whether the answer is a stream, which says when it begins. */
  readonly tells: boolean;
  /** When its client waits no longer, on the queue's clock; `undefined` for nobody knows. */
  readonly deadline: number | undefined;
  /**
   * Asked for only once the request waits, or may follow another one; `undefined` for one without documents. Must not
   * throw.
   */
  context(): WaitingContext | undefined;
  /**
   * Hashes of what the body of a prompt begins with in which nothing is arranged, the shortest first; none of others.
   * Asked for only where one of a burst goes ahead. Must not throw.
   */
  beginnings(): readonly string[];
  /** What it goes by among its tenant's own: the higher the sooner. Asked for only once it waits. Must not throw. */
  urgency(): number;
  /** Sends it; called once, when the engine has room. Must not throw. */
  start(queuedMs: number, place: EnginePlace): void;
  /** Waited for too long. */
  refuse(error: WarmpathError): void;
  /** The engine takes nothing more: the request goes elsewhere. Must not throw. */
  moved(): void;
}

/** The room that a request was given in the engine. */
export interface EnginePlace {
  /** It is the first to compute what others may begin with; they wait until it has begun to answer, or is over. */
  leads(prefix: ColdPrefix): void;
  /** The same of a body in which nothing is arranged. Answers whether others wait for it. */
  leadsBytes(beginnings: readonly string[]): boolean;
  /** The first token of its answer has come; so many tokens of its prompt had to be computed, by estimate. */
  began(newTokens: number): void;
  /** The engine is done with it; `isComputed`: it has computed the prompt. */
  release(isComputed: boolean): void;
}
