import type { Document } from '@warmpath/core';
import { MersenneTwister } from './mersenne-twister.js';
import type { Trace } from './trace.js';

/** A stretch of a prompt: equal keys stand for equal tokens, so a prompt need not be spelt out token by token. */
export interface PromptSpan {
  readonly key: string;
  /** Whole number of 0 or more. */
  readonly tokens: number;
}

/** One request as the simulator serves it. */
export interface WorkloadRequest {
  /** In retrieval order, without duplicates. */
  readonly documents: readonly Document[];
  /** What stands behind the documents. */
  readonly question: PromptSpan;
  readonly session?: string;
  /** What the model says to it: with a session, part of the conversation that later turns bring along. */
  readonly answer?: PromptSpan;
  /** Stands between the preamble and the documents and never moves, for instance blocks of a recorded prefix. */
  readonly history?: readonly PromptSpan[];
  /** Milliseconds after the first request at which it came, where that is known. */
  readonly arrivalMs?: number;
}

/** Requests in order of arrival, and what stands before their documents. */
export interface Workload {
  readonly name: string;
  readonly preamble: PromptSpan;
  readonly requests: readonly WorkloadRequest[];
}

/** How many tokens a document has: all as many, or evenly spread between two bounds (both included). */
export type DocumentLengths = number | { readonly least: number; readonly most: number; readonly seed: number };

/** Lengths in tokens of everything a trace names. */
export interface WorkloadLengths {
  readonly documents: DocumentLengths;
  readonly preamble: number;
  readonly question: number;
  /**
   * Of what the model says, for conversations: with it, later turns bring earlier ones along. Default: requests stand
   * alone.
   */
  readonly answer?: number;
}

/** Lengths that fit the papers' prompts: 28 + k × 200 + 24 tokens. */
export const PAPER_LENGTHS = { documents: 200, preamble: 28, question: 24 } as const satisfies WorkloadLengths;

/**
 * A trace with lengths given to everything in it. A document has the same length in every request. O(total documents).
 */
export function toWorkload(name: string, trace: Trace, lengths: WorkloadLengths = PAPER_LENGTHS): Workload {
  const lengthOf = lengthsOf(trace, lengths.documents);
  const known = new Map<number, Document>();
  const documentOf = (number: number): Document => {
    const existing = known.get(number);
    if (existing !== undefined) return existing;
    const document = labDocument(`doc_${String(number).padStart(4, '0')}`, lengthOf(number));
    known.set(number, document);
    return document;
  };
  return {
    name,
    preamble: { key: 'preamble', tokens: lengths.preamble },
    requests: trace.map(({ documents, question, session }, number) => ({
      documents: documents.map(documentOf),
      question: { key: `question_${question}`, tokens: lengths.question },
      ...(session !== undefined && { session: `session_${session}` }),
      ...(lengths.answer !== undefined && { answer: { key: `answer_${number}`, tokens: lengths.answer } }),
    })),
  };
}

/** A document without text: all that a simulation needs of it is its identity and its length. */
export function labDocument(id: string, tokens: number): Document {
  return { id, key: id, label: id, title: undefined, content: '', metadata: undefined, tokens };
}

function lengthsOf(trace: Trace, lengths: DocumentLengths): (number: number) => number {
  if (typeof lengths === 'number') return () => lengths;
  // Drawn for every number up to the largest, so that a document's length depends on nothing but its number and the
  // seed.
  const largest = trace.reduce((most, { documents }) => Math.max(most, ...documents), -1);
  const random = new MersenneTwister(lengths.seed);
  const drawn = Array.from({ length: largest + 1 }, () => random.randint(lengths.least, lengths.most));
  return (number) => drawn[number]!;
}
