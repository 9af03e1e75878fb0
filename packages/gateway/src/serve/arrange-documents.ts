import type { RecalledHistory } from '@warmpath/core';
import type { FastifyRequest } from 'fastify';
import { type ComposedRequest, isBadInput } from '../arrange/compose.js';
import type { Gateway } from '../gateway.js';
import type { ExtractedRequest } from '../intake/extract.js';
import { failOpen } from '../observe/fail-open.js';
import type { TenantModel } from '../observe/served-histories.js';
import { type PromptPrefix, prefixOf } from '../warm/warm-prefixes.js';
import type { Prepared } from './prepare.js';

/** What an arranged request was, to learn from its answer. */
export interface Arranged {
  /** Kept only for prefilling ahead: it holds the client's body. */
  readonly extracted: ExtractedRequest | undefined;
  readonly composed: ComposedRequest;
  /** The conversation it belongs to, if any is kept. */
  readonly history: RecalledHistory | undefined;
  readonly state: TenantModel;
  readonly prefix: PromptPrefix;
}

/** The engine has room: the order is decided and the prompt rendered. `undefined` after a defect that leaves nothing but the original body. */
export function arrangeDocuments(
  gateway: Gateway,
  request: FastifyRequest,
  { tenant, prepared }: { readonly tenant: string; readonly prepared: Extract<Prepared, { kind: 'documents' }> },
): Arranged | undefined {
  const { extracted, request: arrangeRequest, conversation } = prepared;
  const { model } = extracted;
  const { preamble } = arrangeRequest;
  try {
    const state = gateway.histories.of(tenant, model);
    const waiting = gateway.queue.waitingBehind(preamble, tenant);
    const known = waiting.length === 0 ? arrangeRequest : { ...arrangeRequest, waiting };
    const composed = gateway.composer.compose(extracted, { request: known, conversation }, state, gateway.now());
    if (composed.fallback !== undefined) failOpen(gateway, request, composed.fallback, composed.defect);
    // What stands before a later turn is one conversation's own: nobody else will ask for it.
    const isShared = conversation === undefined || conversation.history.turns.length === 0;
    const kept = gateway.prewarmer === undefined || !isShared ? undefined : extracted;
    return {
      extracted: kept,
      composed,
      history: conversation?.history,
      state,
      prefix: prefixOf(tenant, model, preamble.key),
    };
  } catch (error) {
    if (isBadInput(error)) throw error;
    failOpen(gateway, request, 'original', error);
    return undefined;
  }
}
