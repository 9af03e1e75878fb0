import type { ArrangeRequest, RecalledHistory } from '@warmpath/core';
import type { FastifyRequest } from 'fastify';
import { type Conversation, type Fallback, isBadInput, type PromptRequest } from '../compose.js';
import type { Caller } from '../conversations.js';
import { type ExtractedRequest, extract, type RequestSwitches } from '../extract.js';
import { failOpen } from '../fail-open.js';
import type { Gateway } from '../gateway.js';
import { SESSION_HEADER } from '../headers.js';
import { recogniseRequest } from '../recognised/recognised-request.js';
import type { WaitingInPlace } from '../recognised/serve-recognised.js';
import { type Call, isReadable } from './call.js';

/** A request as it waits for the engine: the client's body as it came, one without the gateway's fields, or documents to arrange. */
export type Prepared =
  | { readonly kind: 'untouched'; readonly fallback?: Fallback }
  | { readonly kind: 'plain'; readonly body: string }
  | {
      readonly kind: 'documents';
      readonly extracted: ExtractedRequest;
      readonly request: PromptRequest;
      readonly conversation: Conversation | undefined;
    }
  | { readonly kind: 'recognised'; readonly waiting: WaitingInPlace };

/**
 * Reads a request as far as the gateway has to: whether it concerns it, which conversation it continues, where its documents are.
 * Error: bad input, with a path; a defect forwards the original.
 */
export function prepare(gateway: Gateway, call: Call, tenant: string): Prepared | Promise<Prepared> {
  const { request, api, body } = call;
  if (!isReadable(request)) return { kind: 'untouched' };
  const { composer, conversations } = gateway;
  const header = request.headers[SESSION_HEADER];
  const caller = { tenant, header: typeof header === 'string' ? header : undefined };
  try {
    const extracted = extract(body, api, { all: conversations.mayContinue(caller, body) });
    if (extracted === undefined) return inPlace(gateway, call, { tenant, body }) ?? { kind: 'untouched' };
    if (extracted.bypass) return { kind: 'plain', body: extracted.rewrite(new Map()) };
    const asked = composer.prepare(extracted, tenant, 'warmpath');
    const history = recall(gateway, request, { extracted, caller });
    const ready = (known: RecalledHistory | undefined) =>
      asTurn(gateway, call, { tenant, extracted, asked, history: known });
    return history instanceof Promise ? history.then(ready) : ready(history);
  } catch (error) {
    if (isBadInput(error)) throw error;
    failOpen(gateway, request, 'original', error);
    return { kind: 'untouched', fallback: 'original' };
  }
}

/** A request without `documents`: whether some stand in its prompt, as far as the configuration or the request wants to know. */
function inPlace(
  gateway: Gateway,
  { api, route }: Call,
  { tenant, body, extracted }: { tenant: string; body: Buffer | string; extracted?: ExtractedRequest },
): Prepared | undefined {
  const { recognise, limits } = gateway.config;
  if (body.length > recognise.maxBodyBytes) return undefined;
  const mode = extracted?.recognise ?? recognise[route];
  const options = { mode, relabel: recognise.relabel, maxDocuments: limits.documents };
  const recognised = recogniseRequest(body, api, options);
  if (recognised === undefined) return undefined;
  const switches: RequestSwitches = extracted?.switches ?? {};
  const dial = gateway.composer.prepare({ documents: [], switches }, tenant, 'warmpath');
  return { kind: 'recognised', waiting: { tenant, recognised, dial } };
}

/** A store that fails costs the conversation, not the answer. */
function recall(
  gateway: Gateway,
  request: FastifyRequest,
  { extracted, caller }: { readonly extracted: ExtractedRequest; readonly caller: Caller },
): RecalledHistory | Promise<RecalledHistory | undefined> | undefined {
  const failed = (error: unknown): undefined => {
    if (isBadInput(error)) throw error;
    failOpen(gateway, request, 'conversation', error);
    return undefined;
  };
  try {
    const history = gateway.conversations.recall(extracted, caller, gateway.now());
    return history instanceof Promise ? history.catch(failed) : history;
  } catch (error) {
    return failed(error);
  }
}

/** The request as a turn of its conversation, if one is kept; else on its own. */
function asTurn(
  gateway: Gateway,
  call: Call,
  {
    tenant,
    extracted,
    asked,
    history,
  }: {
    readonly tenant: string;
    readonly extracted: ExtractedRequest;
    readonly asked: ArrangeRequest;
    readonly history: RecalledHistory | undefined;
  },
): Prepared {
  const { composer } = gateway;
  const plain = (): Prepared =>
    extracted.hasOwnFields ? { kind: 'plain', body: extracted.rewrite(new Map()) } : { kind: 'untouched' };
  try {
    // A conversation that has turns to replay goes before documents that stand in its prompt.
    if (asked.documents.length === 0 && (history?.turns ?? []).length === 0) {
      const body = extracted.hasOwnFields ? extracted.rewrite(new Map()) : call.body;
      const recognised = inPlace(gateway, call, { tenant, body, extracted });
      if (recognised !== undefined) return recognised;
    }
    if (extracted.prompt === undefined) return plain();
    if (history !== undefined) return { kind: 'documents', extracted, ...composer.converse(extracted, asked, history) };
    if (asked.documents.length === 0) return plain();
    const preamble = composer.preamble(extracted);
    return { kind: 'documents', extracted, request: { ...asked, preamble }, conversation: undefined };
  } catch (error) {
    // Without documents nothing is asked of the gateway that it could refuse.
    if (isBadInput(error) && asked.documents.length === 0) return plain();
    if (isBadInput(error)) throw error;
    failOpen(gateway, call.request, 'original', error);
    return { kind: 'untouched', fallback: 'original' };
  }
}
