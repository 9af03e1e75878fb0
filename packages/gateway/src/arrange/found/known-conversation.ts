import { isAscii } from 'node:buffer';
import type { SeenMark } from '@warmpath/core';
import { ownBytes } from '../../render/insert-documents.js';
import type { BlockReport } from './block-report.js';
import type { PromptFacts } from './recognised-request.js';
import type { SentMessage, SentPrompt } from './sent-orders.js';

/** A request's messages up to some point, and all that later ones need to know of them. */
export interface KnownPrompt {
  readonly facts: PromptFacts;
  /** `undefined` where the request went out as it came. */
  readonly sent: SentPrompt | undefined;
  /** The messages with documents. */
  readonly messages: readonly SentMessage[];
  /** What is said of their blocks when they are sent again. */
  readonly report: BlockReport;
}

/** A body, and where its messages begin in it. */
export interface MessageBytes {
  readonly bytes: Buffer;
  /** Behind the bracket. */
  readonly open: number;
}

/**
 * Where a request ended: how far its messages reach behind the bracket, as the client wrote them and as they were sent.
 */
export interface Checkpoint {
  readonly end: number;
  readonly sentEnd: number;
  readonly prompt: KnownPrompt;
  readonly mark: SeenMark | undefined;
}

/** Ends of requests from which a conversation can go on. */
const CHECKPOINTS = 16;
/** Bytes of a conversation beside its texts, and of what is known of one document. Generous. */
const OWN_BYTES = 4_096;
const DOCUMENT_BYTES = 1_024;

/**
 * A conversation as its last request had it, with what became of its messages up to the ends of its last requests.
 * Holds bytes, not hashes: what is taken for known has been compared. One that goes back, by a new try or an edit, goes
 * on from the last end before that.
 */
export class KnownConversation {
  readonly #checkpoints: Checkpoint[];
  #given: MessageBytes;
  #sent: MessageBytes;
  /** Of a character in memory: V8 writes a text with one that is not in Latin-1 with two bytes for each. */
  #characterBytes: number;

  constructor(given: MessageBytes, sent: MessageBytes, checkpoint: Omit<Checkpoint, 'mark'>) {
    this.#given = alone(given);
    this.#sent = sent.bytes === given.bytes ? { bytes: this.#given.bytes, open: sent.open } : alone(sent);
    this.#characterBytes = characterBytes(this.#given);
    this.#checkpoints = [marked(checkpoint)];
  }

  /** Bytes that it holds, estimated: both bodies, the words of its documents, and what stands before the messages. */
  get bytes(): number {
    const { prompt } = this.#last;
    const bodies = this.#given.bytes.length + (this.#sent.bytes === this.#given.bytes ? 0 : this.#sent.bytes.length);
    const words = prompt.sent === undefined ? 0 : this.#characterBytes * this.#given.bytes.length;
    const opening = 2 * (prompt.facts.opening?.length ?? 0);
    return OWN_BYTES + bodies + words + opening + DOCUMENT_BYTES * prompt.report.documents;
  }

  /** Bytes of the messages of its last request. */
  get length(): number {
    return this.#last.end;
  }

  /** The last end of a request up to which a body says the same. O(bytes), native. */
  matching({ bytes, open }: MessageBytes): Checkpoint | undefined {
    const { bytes: given, open: from } = this.#given;
    const isSame = (start: number, end: number): boolean =>
      open + end <= bytes.length && given.compare(bytes, open + start, open + end, from + start, from + end) === 0;
    const last = this.#last;
    if (isSame(0, last.end)) return last;
    let known: Checkpoint | undefined;
    for (const checkpoint of this.#checkpoints) {
      if (!isSame(known?.end ?? 0, checkpoint.end)) break;
      known = checkpoint;
    }
    return known;
  }

  /** Whether that is still known: another request of this conversation may have gone on otherwise from farther up. */
  holds(checkpoint: Checkpoint): boolean {
    return this.#checkpoints.includes(checkpoint);
  }

  /** The messages up to there as they were sent. */
  sentUpTo({ sentEnd }: Checkpoint): Buffer {
    const { bytes, open } = this.#sent;
    return bytes.subarray(open, open + sentEnd);
  }

  /** Takes back what came behind it, so that something else can. */
  rewind(checkpoint: Checkpoint): void {
    const { sent } = checkpoint.prompt;
    if (sent !== undefined && checkpoint.mark !== undefined) sent.seen.rewind(checkpoint.mark);
    this.#checkpoints.length = this.#checkpoints.indexOf(checkpoint) + 1;
  }

  /** A request went out that goes on from the last checkpoint. */
  goOn(given: MessageBytes, sent: MessageBytes, checkpoint: Omit<Checkpoint, 'mark'>): void {
    this.#given = alone(given);
    this.#sent = sent.bytes === given.bytes ? { bytes: this.#given.bytes, open: sent.open } : alone(sent);
    this.#characterBytes = characterBytes(this.#given);
    this.#checkpoints.push(marked(checkpoint));
    if (this.#checkpoints.length > CHECKPOINTS) this.#checkpoints.shift();
  }

  get #last(): Checkpoint {
    return this.#checkpoints.at(-1)!;
  }
}

/** A body that keeps no more memory alive than its own: none with room to spare, or that is a piece of a shared one. */
function alone(body: MessageBytes): MessageBytes {
  const { bytes, open } = body;
  return bytes.length === bytes.buffer.byteLength ? body : { bytes: ownBytes(bytes), open };
}

/** An escape may be any character. O(bytes), native. */
function characterBytes({ bytes }: MessageBytes): 1 | 2 {
  return isAscii(bytes) && !bytes.includes('\\u') ? 1 : 2;
}

function marked({ end, sentEnd, prompt }: Omit<Checkpoint, 'mark'>): Checkpoint {
  return { end, sentEnd, prompt, mark: prompt.sent?.seen.mark() };
}
