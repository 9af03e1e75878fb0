import { type ArrangeRequest, observe } from '@warmpath/core';
import type { FastifyRequest } from 'fastify';
import { isPrefilled, noteAnswer } from '../answer-counts.js';
import { failOpen, guard } from '../fail-open.js';
import type { ForwardOptions } from '../forward.js';
import type { Gateway } from '../gateway.js';
import { RESPONSE_HEADERS, referenceHeaders } from '../headers.js';
import type { RelayResult } from '../relay.js';
import type { TenantModel } from '../served-histories.js';
import {
  arrangeInPlace,
  firstOpenDocuments,
  type InPlace,
  type InPlaceOptions,
  isTold,
  type PlacedBlock,
  rememberOrders,
} from './arrange-in-place.js';
import type { RecognisedRequest } from './recognised-request.js';

/** A request whose documents stand in its prompt already, as it waits for the engine. */
export interface WaitingInPlace {
  readonly tenant: string;
  readonly recognised: RecognisedRequest;
  /** Policy and dial of the request, or the configured ones. */
  readonly dial: ArrangeRequest;
  /** Whether a document that the prompt shows already is referred to, and parts of one. */
  readonly deduplicate: boolean;
  readonly blocks: boolean;
}

/** How it goes out. */
export type Send = (body: string, options: ForwardOptions) => void;

/**
 * The engine has room: orders the documents where they stand, with references for those that the prompt shows already, and forwards.
 * No order hint is put into a prompt that is not ours, and nothing is refused: a defect sends the body as it came.
 */
export function serveRecognised(
  gateway: Gateway,
  request: FastifyRequest,
  waiting: WaitingInPlace,
  { send, release }: { readonly send: Send; readonly release: () => void },
): void {
  const { tenant, recognised } = waiting;
  const state = gateway.histories.of(tenant, recognised.model);
  let placed: InPlace;
  try {
    placed = inPlace(gateway, waiting, state);
  } catch (error) {
    failOpen(gateway, request, 'original', error);
    send(recognised.body, { responseHeaders: { [RESPONSE_HEADERS.fallback]: 'original' }, onSettled: release });
    return;
  }
  note(request, placed, state);
  const dispatchedAt = gateway.now();
  guard(gateway, () => dispatched(gateway, { tenant, recognised, placed, state, now: dispatchedAt }));
  send(placed.body, {
    // The answer's usage is read on the way through, which a compressed answer would hide.
    requestHeaders: { 'accept-encoding': 'identity' },
    responseHeaders: headersOf(request, placed),
    onSettled: (result) => {
      guard(gateway, () => learn(request, { placed, state, dispatchedAt, now: gateway.now() }, result));
      release();
    },
  });
}

/** The documents that may be told to others while the request waits; none after a defect, which shows again at dispatch. */
export function openDocuments(gateway: Gateway, waiting: WaitingInPlace): ReturnType<typeof firstOpenDocuments> {
  try {
    return firstOpenDocuments(waiting.recognised, optionsOf(gateway, waiting));
  } catch {
    return undefined;
  }
}

function inPlace(gateway: Gateway, waiting: WaitingInPlace, { history }: TenantModel): InPlace {
  const now = gateway.now();
  const { tenant, recognised, dial } = waiting;
  return arrangeInPlace(recognised, {
    ...optionsOf(gateway, waiting),
    arrange: (block) => {
      const others = block.preamble === undefined ? [] : gateway.queue.waitingBehind(block.preamble, tenant);
      const asked = { ...dial, ...block, hints: false, ...(others.length > 0 && { waiting: others }) };
      return gateway.composer.arrange(asked, history, now);
    },
  });
}

function optionsOf(gateway: Gateway, { tenant, deduplicate, blocks }: WaitingInPlace): Omit<InPlaceOptions, 'arrange'> {
  const { arrange } = gateway.config;
  return {
    tenant,
    deduplicate,
    blocks,
    location: arrange.wording.location,
    orders: gateway.sentOrders,
  };
}

function note({ exchange }: FastifyRequest, { blocks: all }: InPlace, { counts }: TenantModel): void {
  const blocks = all.filter(isTold);
  if (blocks.length === 0) return;
  const documents = blocks.reduce((sum, { block }) => sum + block.documents.length, 0);
  exchange.documents = documents;
  exchange.recognised = documents;
  exchange.blocks = blocks.map(({ block, decided, sent, references }) => ({
    format: block.format,
    documents: block.documents.length,
    decided,
    order: sent.order,
    labels: block.labels,
    references: ranksOf(references, false),
    shortened: ranksOf(references, true),
  }));
  for (const { partly, savedTokens } of blocks.flatMap(({ references }) => references)) {
    if (partly) exchange.shortened++;
    else exchange.references++;
    exchange.deduplicatedTokens += savedTokens;
  }
  exchange.documentsMoved = blocks.reduce(
    (sum, { arrangement }) => sum + (arrangement?.trace.moves.filter((places) => places !== 0).length ?? 0),
    0,
  );
  // The path of the last block goes farthest into the prompt.
  const last = blocks.findLast(({ arrangement }) => arrangement !== undefined)?.arrangement;
  if (last !== undefined) exchange.predictedCachedTokens = counts.toEngineTokens(last.predictedCachedTokens);
}

function ranksOf(references: PlacedBlock['references'], partly: boolean): readonly number[] {
  return references.filter((reference) => reference.partly === partly).map(({ rank }) => rank);
}

function dispatched(
  gateway: Gateway,
  {
    tenant,
    recognised,
    placed: { blocks },
    state,
    now,
  }: { tenant: string; recognised: RecognisedRequest; placed: InPlace; state: TenantModel; now: number },
): void {
  rememberOrders(recognised, { tenant, orders: gateway.sentOrders, blocks });
  for (const { arrangement } of blocks) {
    if (arrangement !== undefined) observe({ kind: 'dispatched', arrangement, now }, state.history);
  }
}

function headersOf({ exchange }: FastifyRequest, { blocks }: InPlace): Record<string, string> {
  const found = blocks
    .filter(isTold)
    .map(({ block, decided }) => `${block.format} ${block.documents.length} ${decided}`);
  const policy = blocks.find(({ arrangement }) => arrangement !== undefined)?.arrangement?.trace.policy;
  const predicted = exchange.predictedCachedTokens;
  return {
    ...(found.length > 0 && { [RESPONSE_HEADERS.recognised]: found.join(', ') }),
    ...(policy !== undefined && { [RESPONSE_HEADERS.policy]: policy }),
    ...(predicted !== undefined && { [RESPONSE_HEADERS.predictedCachedTokens]: String(predicted) }),
    ...referenceHeaders(exchange),
  };
}

/** Puts what the engine said into the state: the counts once, with the path that goes farthest into the prompt. */
function learn(
  { exchange }: FastifyRequest,
  { placed, state, dispatchedAt, now }: { placed: InPlace; state: TenantModel; dispatchedAt: number; now: number },
  result: RelayResult,
): void {
  const { counts, history } = state;
  const arranged = placed.blocks.flatMap(({ arrangement }) => arrangement ?? []);
  if (!isPrefilled(result)) {
    for (const arrangement of arranged) observe({ kind: 'failed', arrangement, now }, history);
    return;
  }
  noteAnswer(exchange, counts, result, { dispatchedAt, estimatedTokens: placed.estimatedTokens });
  for (const [place, arrangement] of arranged.entries()) {
    const isLast = place === arranged.length - 1;
    observe({ kind: 'completed', arrangement, now, ...(isLast && counts.outcome(exchange)) }, history);
  }
}
