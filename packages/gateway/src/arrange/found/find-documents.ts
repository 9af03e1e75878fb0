import type { MessageApi, PromptApi } from '../../intake/apis/prompt-api.js';
import { NO_BLOCKS } from './block-report.js';
import { messagesSpan } from './message-bytes.js';
import type { KeptPrompt, KnownBody, MemoScope, PromptMemo } from './prompt-memo.js';
import {
  lookAt,
  lookBehind,
  mayHoldDocuments,
  type PromptFacts,
  type RecognisedRequest,
  type RecogniseRequestOptions,
} from './recognised-request.js';

/** A body in which documents may stand. */
export interface SearchedBody {
  readonly body: Buffer;
  readonly api: PromptApi;
  readonly options: RecogniseRequestOptions;
  /** `undefined` where nothing may be remembered of it. */
  readonly scope: MemoScope | undefined;
}

/** Documents in a body, or in what is left of it without the messages that are known. */
export interface FoundDocuments {
  readonly searched: SearchedBody;
  readonly request: RecognisedRequest;
  readonly facts: PromptFacts;
  readonly known: KnownBody | undefined;
}

/** A body in which nothing is to be changed. */
export interface UnchangedBody {
  /** Remembers that, so that its messages are not read again; call it when the request goes out. */
  keep(now: number): void;
}

/**
 * Looks for the documents of a prompt. Messages of which is known what became of them are not read again. `undefined`
 * where there is nothing to change or to remember. O(messages that are new), and O(body) in native compares and copies.
 */
export function findDocuments(
  memo: PromptMemo,
  searched: SearchedBody,
  now: number,
): FoundDocuments | UnchangedBody | undefined {
  const { body, options, scope } = searched;
  if (!mayHoldDocuments(body, options.mode)) return undefined;
  const known = scope === undefined ? undefined : memo.find(scope, body, now);
  if (known === undefined) return findInAll(memo, searched);
  const looked = lookBehind(known.checkpoint.prompt.facts, known.cut.rest, scope!.api, options);
  if (looked === undefined) return findInAll(memo, searched);
  const { request, facts } = looked;
  if (request !== undefined) return { searched, request, facts, known };
  const kept = known.cut.isLonger ? unchanged(known.body, scope!.api, facts) : undefined;
  if (kept === undefined) return undefined;
  return {
    keep: (keptAt) => {
      const { conversation, checkpoint } = known;
      // Another request of the conversation may have gone on otherwise meanwhile.
      if (!conversation.holds(checkpoint)) return;
      conversation.rewind(checkpoint);
      memo.goOn(known, kept, keptAt);
    },
  };
}

/** The same, of all messages. */
export function findInAll(memo: PromptMemo, searched: SearchedBody): FoundDocuments | UnchangedBody | undefined {
  const { body, api, options, scope } = searched;
  const looked = lookAt(body, api, options);
  if (looked === undefined) return undefined;
  const { request, facts } = looked;
  if (request !== undefined) return { searched, request, facts, known: undefined };
  // A prompt that nobody has answered is seldom the beginning of another.
  if (scope === undefined || !facts.isAnswered) return undefined;
  const kept = unchanged(body, scope.api, facts);
  return kept && { keep: (keptAt) => memo.keep(scope, kept, keptAt) };
}

/** A body that goes out as it came. */
function unchanged(body: Buffer, api: MessageApi, facts: PromptFacts): KeptPrompt | undefined {
  const span = messagesSpan(body, api.conversation);
  if (span === undefined) return undefined;
  const given = { bytes: body, open: span.open };
  const end = span.end - span.open;
  return { given, sent: given, end, sentEnd: end, prompt: { facts, sent: undefined, messages: [], report: NO_BLOCKS } };
}
