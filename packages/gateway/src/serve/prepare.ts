import type { ArrangeRequest, RecalledHistory } from '@warmpath/core';
import { type Conversation, type Fallback, isBadInput, type PromptRequest } from '../arrange/compose.js';
import { replayInPlace } from '../arrange/found/arrange-in-place.js';
import { findDocuments, type SearchedBody } from '../arrange/found/find-documents.js';
import { type RecogniseRequestOptions, recogniseRequest } from '../arrange/found/recognised-request.js';
import type { WaitingInPlace } from '../arrange/found/serve-recognised.js';
import { type Caller, historyOf } from '../conversation/conversations.js';
import type { StoreFailure } from '../conversation/session-store.js';
import { SESSION_HEADER } from '../dispatch/headers.js';
import type { Gateway } from '../gateway.js';
import { hasMessages } from '../intake/apis/prompt-api.js';
import { type ExtractedRequest, extract, type RequestSwitches } from '../intake/extract.js';
import { isWorthReading } from '../intake/json-body.js';
import { failOpen } from '../observe/fail-open.js';
import { type Call, isReadable } from './call.js';

/** A request as it waits for the engine. */
export type Prepared =
  | PlainRequest
  | {
      readonly kind: 'documents';
      readonly extracted: ExtractedRequest;
      readonly request: PromptRequest;
      readonly conversation: Conversation | undefined;
    }
  | { readonly kind: 'recognised'; readonly waiting: WaitingInPlace };

/** Nothing is added to it: the client's very bytes, but for fields of the gateway's own. */
export interface PlainRequest {
  readonly kind: 'plain';
  readonly body: Buffer | string;
  /** Set where a defect is why. */
  readonly fallback?: Fallback;
  /** What is known of the conversation that it is a turn of, if one is kept. */
  readonly history?: RecalledHistory | undefined;
}

/** What a request says of itself, and what is known of its conversation. */
interface Asked {
  readonly tenant: string;
  /** `undefined` for a body that has none of the gateway's fields; the same for what it asks of the order. */
  readonly extracted: ExtractedRequest | undefined;
  readonly dial: ArrangeRequest | undefined;
  readonly history: RecalledHistory | undefined;
}

/**
 * Reads a request as far as the gateway has to: whether it concerns it, which conversation it continues, where its documents are.
 * A body that has neither documents nor earlier turns to replay is not parsed for that. Error: bad input, with a path; a defect
 * forwards the original.
 */
export function prepare(gateway: Gateway, call: Call, tenant: string): Prepared | Promise<Prepared> {
  const { request, api, body } = call;
  if (!isReadable(request)) return { kind: 'plain', body };
  try {
    const extracted = extract(body, api);
    if (extracted === undefined && !isWorthReading(body)) return { kind: 'plain', body };
    if (extracted?.bypass) return { kind: 'plain', body: extracted.rewrite(new Map()) };
    const dial = extracted && gateway.composer.prepare(extracted, tenant, 'warmpath');
    const ready = (history: RecalledHistory | undefined) => asTurn(gateway, call, { tenant, extracted, dial, history });
    const header = request.headers[SESSION_HEADER];
    const caller = { tenant, session: extracted?.session ?? (typeof header === 'string' ? header : undefined) };
    const hasDocuments = dial !== undefined && dial.documents.length > 0;
    if (!hasDocuments && !gateway.conversations.mayContinue(caller, body)) return ready(undefined);
    const history = recall(gateway, call, caller, hasDocuments);
    return history instanceof Promise ? history.then(ready) : ready(history);
  } catch (error) {
    return refused(gateway, call, error);
  }
}

/** A store that fails costs the conversation, not the answer. */
function recall(
  gateway: Gateway,
  call: Call,
  caller: Caller,
  hasDocuments: boolean,
): RecalledHistory | Promise<RecalledHistory | undefined> | undefined {
  const failed = (error: unknown): undefined => {
    if (isBadInput(error)) throw error;
    failOpen(gateway, call.request, 'conversation', error);
    return undefined;
  };
  const missed = (failure: StoreFailure): void =>
    call.request.exchange.wentWithout({ fallback: 'conversation', reason: `store ${failure}` });
  try {
    const history = gateway.conversations.recall(call, caller, { hasDocuments, now: gateway.now(), missed });
    return history instanceof Promise ? history.catch(failed) : history;
  } catch (error) {
    return failed(error);
  }
}

/** The request as a turn of its conversation, if one is kept; else on its own. */
function asTurn(gateway: Gateway, call: Call, asked: Asked): Prepared {
  const { tenant, extracted, dial, history } = asked;
  const { composer } = gateway;
  const replays = history !== undefined && history.turns.length > 0;
  const hasDocuments = dial !== undefined && dial.documents.length > 0;
  try {
    // A conversation to which something was added goes before documents that stand in its prompt.
    const hasAdded = replays && history.turns.some(({ edits }) => edits.length > 0);
    const recognised = hasDocuments || hasAdded ? undefined : inPlace(gateway, call, asked);
    if (recognised !== undefined) return recognised;
    if (!hasDocuments && !replays) return plain(call, asked);
    const replayed = replayedInPlace(gateway, call, asked);
    const whole =
      replayed === undefined
        ? (extracted ?? extract(call.body, call.api, { all: true }))
        : extract(Buffer.from(replayed), call.api, { all: true });
    if (whole?.prompt === undefined) return plain(call, asked);
    const request = dial ?? composer.prepare(whole, tenant, 'warmpath');
    if (history !== undefined) {
      const viewed = historyOf(whole.prompt, history);
      return { kind: 'documents', extracted: whole, ...composer.converse(whole, request, viewed) };
    }
    const preamble = composer.preamble(whole);
    return { kind: 'documents', extracted: whole, request: { ...request, preamble }, conversation: undefined };
  } catch (error) {
    // Without documents nothing is asked of the gateway that it could refuse.
    if (isBadInput(error) && !hasDocuments) return plain(call, asked);
    return refused(gateway, call, error);
  }
}

function plain(call: Call, { extracted, history }: Asked): PlainRequest {
  return { kind: 'plain', body: ownBody(call, extracted), history };
}

/** The client's body, without what is only for the gateway. */
function ownBody({ body }: Call, extracted: ExtractedRequest | undefined): Buffer | string {
  return extracted?.hasOwnFields ? extracted.rewrite(new Map()) : body;
}

/** Bad input is the client's to mend; of a defect the client is not to know more than it must. */
function refused(gateway: Gateway, call: Call, error: unknown): PlainRequest {
  if (isBadInput(error)) throw error;
  failOpen(gateway, call.request, 'original', error);
  return { kind: 'plain', body: call.body, fallback: 'original' };
}

/** How documents in the prompt are looked for; `undefined` where they are not. */
function searchOptions(
  gateway: Gateway,
  { route, body }: Call,
  extracted: ExtractedRequest | undefined,
): RecogniseRequestOptions | undefined {
  const { recognise, limits, session } = gateway.config;
  const mode = extracted?.recognise ?? recognise[route];
  if (mode === 'off' || body.length > recognise.maxBodyBytes) return undefined;
  const blocks = extracted?.blocks ?? session.blocks;
  return { mode, relabel: recognise.relabel, templates: recognise.templates, maxDocuments: limits.documents, blocks };
}

/**
 * The body in which documents of earlier prompts stand as they were sent, where this request is arranged otherwise: a conversation may
 * bring documents of its own after results of tools. `undefined` if nothing in it was changed.
 */
function replayedInPlace(gateway: Gateway, call: Call, { tenant, extracted }: Asked): string | undefined {
  const options = searchOptions(gateway, call, extracted);
  const recognised = options && recogniseRequest(call.body, call.api, options);
  if (recognised === undefined) return undefined;
  const { location } = gateway.config.arrange.wording;
  const body = replayInPlace(recognised, { tenant, orders: gateway.sentOrders, location });
  return body === recognised.body ? undefined : body;
}

/** Whether documents stand in the prompt of a request that brings none, as far as the configuration or the request wants to know. */
function inPlace(gateway: Gateway, call: Call, { tenant, extracted }: Asked): Prepared | undefined {
  const options = searchOptions(gateway, call, extracted);
  if (options === undefined) return undefined;
  const { session } = gateway.config;
  const deduplicate = extracted?.deduplicate ?? (session.enabled && session.deduplicate);
  const { mode, blocks } = options;
  const { api } = call;
  const searched: SearchedBody = {
    body: ownBody(call, extracted),
    object: extracted?.object,
    api,
    options,
    // What was seen of parts cannot be taken back.
    scope: hasMessages(api) && !blocks ? { tenant, api, switches: `${mode} ${deduplicate}` } : undefined,
  };
  const found = findDocuments(gateway.promptMemo, searched, gateway.now());
  if (found === undefined) return undefined;
  const switches: RequestSwitches = extracted?.switches ?? {};
  const dial = gateway.composer.prepare({ documents: [], switches }, tenant, 'warmpath');
  return { kind: 'recognised', waiting: { tenant, found, dial, deduplicate, blocks } };
}
