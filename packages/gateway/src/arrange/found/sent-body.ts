import type { InPlace } from './arrange-in-place.js';
import { reportOnAgain } from './block-report.js';
import type { FoundDocuments } from './find-documents.js';
import { messagesSpan } from './message-bytes.js';
import type { KeptPrompt, KnownBody, PromptMemo } from './prompt-memo.js';
import type { SentMessage } from './sent-orders.js';

/** The body that goes out: what is known of it as it was sent before, the rest as it was placed. O(body), native. */
function wholeBody({ cut, checkpoint, conversation }: KnownBody, placed: Buffer, open: number): Buffer {
  return Buffer.concat([placed.subarray(0, open), conversation.sentUpTo(checkpoint), cut.gap, placed.subarray(open)]);
}

/** A request with its documents in their places, ready to be sent. */
export interface SentBody {
  readonly body: Buffer;
  /** Keeps what later requests of the conversation can use; call it when the request goes out. */
  keep(memo: PromptMemo, messages: readonly SentMessage[], now: number): void;
}

/** What goes to the engine, and what is kept of it. O(body) */
export function sentBody(found: FoundDocuments, placed: InPlace): SentBody {
  return found.known === undefined ? sentAnew(found, placed) : sentBehind(found, placed, found.known);
}

const keepNothing = (): void => {};

function sentAnew({ searched: { body, scope }, facts }: FoundDocuments, placed: InPlace): SentBody {
  // A prompt that nobody has answered is seldom the beginning of another.
  if (scope === undefined || !facts.isAnswered) {
    return { body: placed.body, keep: keepNothing };
  }
  const sent = placed.body.equals(body) ? body : placed.body;
  return {
    body: sent,
    keep: (memo, messages, now) => {
      const from = messagesSpan(body, scope.api.conversation);
      const to = messagesSpan(sent, scope.api.conversation);
      if (from === undefined || to === undefined || placed.sent.seen.looksAtParts) return;
      const kept: KeptPrompt = {
        given: { bytes: body, open: from.open },
        sent: { bytes: sent, open: to.open },
        end: from.end - from.open,
        sentEnd: to.end - to.open,
        prompt: { facts, sent: placed.sent, messages, report: reportOnAgain(placed.blocks) },
      };
      memo.keep(scope, kept, now);
    },
  };
}

function sentBehind({ searched, facts }: FoundDocuments, placed: InPlace, known: KnownBody): SentBody {
  const { conversation: members } = searched.scope!.api;
  const { cut, checkpoint, body } = known;
  const written = placed.body;
  const to = messagesSpan(written, members)!;
  const sent = wholeBody(known, written, to.open);
  return {
    body: sent,
    keep: (memo, messages, now) => {
      if (!cut.isLonger) return;
      const from = messagesSpan(cut.rest, members)!;
      const { prompt } = checkpoint;
      const kept: KeptPrompt = {
        given: { bytes: body, open: cut.open },
        sent: { bytes: sent, open: to.open },
        end: checkpoint.end + cut.gap.length + from.end - from.open,
        sentEnd: checkpoint.sentEnd + cut.gap.length + to.end - to.open,
        prompt: {
          facts,
          sent: placed.sent,
          messages: [...prompt.messages, ...messages],
          report: reportOnAgain(placed.blocks, prompt.report),
        },
      };
      memo.goOn(known, kept, now);
    },
  };
}
