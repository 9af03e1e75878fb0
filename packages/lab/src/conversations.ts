import type { Document } from '@warmpath/core';
import type { PromptSpan, WorkloadRequest } from './workloads/workload.js';

/**
 * Where the earlier turns of a conversation stand in the prompt of the next:
 *
 * - `documents-first`: questions and answers, behind the documents; documents of earlier turns are gone;
 * - `appended`: everything, in front of the documents, as it was sent (RAGBoost §6);
 * - `deduplicated`: the same, and a document that the conversation already holds is replaced by a hint.
 */
export const CONVERSATION_LAYOUTS = ['documents-first', 'appended', 'deduplicated'] as const;

export type ConversationLayout = (typeof CONVERSATION_LAYOUTS)[number];

/** «Please refer to [Doc_1] in the previous conversation.», RAGBoost's location hint. */
const HINT_TOKENS = 12;

/** Conversations remembered; the one that spoke longest ago is forgotten first, and then begins anew. */
const MAX_CONVERSATIONS = 4_096;

/** What stands around the documents of one request. */
export interface Turn {
  /** Between preamble and documents. */
  readonly before: readonly PromptSpan[];
  /** The documents that are sent, in retrieval order. */
  readonly documents: readonly Document[];
  /** From the documents to the end of the prompt. */
  readonly after: readonly PromptSpan[];
}

interface Transcript {
  readonly spans: readonly PromptSpan[];
  readonly documents: ReadonlySet<string>;
}

const NOTHING: Transcript = { spans: [], documents: new Set() };

/** Puts the turns of conversations together. A request without `session` or `answer` belongs to none. Bounded. */
export class Conversations {
  readonly #layout: ConversationLayout;
  /** In order of last use, the oldest first. */
  readonly #transcripts = new Map<string, Transcript>();

  constructor(layout: ConversationLayout = 'documents-first') {
    this.#layout = layout;
  }

  /** What the prompt of a request is made of; changes nothing. O(conversation so far + k). */
  begin(request: WorkloadRequest): Turn {
    const { documents, question, history = [] } = request;
    const { spans, documents: known } = this.#transcriptOf(request);
    if (this.#layout === 'documents-first') return { before: history, documents, after: [...spans, question] };
    const before = [...history, ...spans];
    if (this.#layout === 'appended') return { before, documents, after: [question] };
    const hints = documents.filter(({ key }) => known.has(key));
    return {
      before,
      documents: documents.filter(({ key }) => !known.has(key)),
      after: [...hints.map(({ key }) => ({ key: `see ${key}`, tokens: HINT_TOKENS })), question],
    };
  }

  /** Whether anything of its own stands between the preamble and the documents of a request. O(1). */
  standsBefore(request: WorkloadRequest): boolean {
    if ((request.history?.length ?? 0) > 0) return true;
    return this.#layout !== 'documents-first' && this.#transcriptOf(request).spans.length > 0;
  }

  /** The turn was served, with its documents in this order. O(conversation so far + k). */
  end(request: WorkloadRequest, turn: Turn, arranged: readonly Document[]): void {
    const { session, question, answer } = request;
    if (session === undefined || answer === undefined) return;
    const { spans, documents } = this.#transcriptOf(request);
    this.#transcripts.delete(session);
    this.#transcripts.set(
      session,
      this.#layout === 'documents-first'
        ? { spans: [...spans, question, answer], documents }
        : {
            spans: [...spans, ...arranged, ...turn.after, answer],
            documents: new Set([...documents, ...arranged.map(({ key }) => key)]),
          },
    );
    for (const oldest of this.#transcripts.keys()) {
      if (this.#transcripts.size <= MAX_CONVERSATIONS) break;
      this.#transcripts.delete(oldest);
    }
  }

  #transcriptOf({ session, answer }: WorkloadRequest): Transcript {
    if (session === undefined || answer === undefined) return NOTHING;
    return this.#transcripts.get(session) ?? NOTHING;
  }
}
