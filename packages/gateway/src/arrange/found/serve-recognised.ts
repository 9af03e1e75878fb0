import { type ArrangeRequest, observe } from '@warmpath/core';
import type { FastifyRequest } from 'fastify';
import { isPrefilled, noteAnswer } from '../../answer/answer-counts.js';
import type { RelayResult } from '../../answer/relay.js';
import type { ForwardOptions } from '../../dispatch/forward.js';
import { RESPONSE_HEADERS, referenceHeaders } from '../../dispatch/headers.js';
import type { Gateway } from '../../gateway.js';
import { failOpen, guard } from '../../observe/fail-open.js';
import type { TenantModel } from '../../observe/served-histories.js';
import {
  arrangeInPlace,
  firstOpenDocuments,
  type InPlace,
  type InPlaceOptions,
  rememberOrders,
} from './arrange-in-place.js';
import { type BlockReport, reportOn } from './block-report.js';
import { type FoundDocuments, findInAll } from './find-documents.js';
import { type SentBody, sentBody } from './sent-body.js';

/** A request whose documents stand in its prompt already, as it waits for the engine. */
export interface WaitingInPlace {
  readonly tenant: string;
  readonly found: FoundDocuments;
  /** Policy and dial of the request, or the configured ones. */
  readonly dial: ArrangeRequest;
  /** Whether a document that the prompt shows already is referred to, and parts of one. */
  readonly deduplicate: boolean;
  readonly blocks: boolean;
}

/** How it goes out. */
export type Send = (body: Buffer | string, options: ForwardOptions) => void;

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
  const { tenant, found } = waiting;
  const state = gateway.histories.of(tenant, found.request.model);
  let placed: PlacedRequest;
  try {
    placed = inPlace(gateway, waiting, state);
  } catch (error) {
    failOpen(gateway, request, 'original', error);
    const { body } = found.searched;
    send(body, { responseHeaders: { [RESPONSE_HEADERS.fallback]: 'original' }, onSettled: release });
    return;
  }
  note(request, placed, state);
  const dispatchedAt = gateway.now();
  guard(gateway, () => dispatched(gateway, { tenant, placed, state, now: dispatchedAt }));
  send(placed.sent.body, {
    // The answer's usage is read on the way through, which a compressed answer would hide.
    requestHeaders: { 'accept-encoding': 'identity' },
    responseHeaders: headersOf(request, placed),
    onSettled: (result) => {
      guard(gateway, () => learn(request, { placed: placed.inPlace, state, dispatchedAt, now: gateway.now() }, result));
      release();
    },
  });
}

/** The documents that may be told to others while the request waits; none after a defect, which shows again at dispatch. */
export function openDocuments(
  gateway: Gateway,
  waiting: WaitingInPlace,
): (NonNullable<ReturnType<typeof firstOpenDocuments>> & { readonly model: string }) | undefined {
  try {
    const { request, facts, known } = waiting.found;
    const first = facts.first;
    if (known !== undefined && first !== undefined) {
      const isNew = first.isSystem || !first.isAnswered;
      if (!isNew || first.isFixed || gateway.sentOrders.isCurrent(known.checkpoint.prompt.messages[0]!))
        return undefined;
    }
    const { request: whole } = known === undefined ? { request } : foundInAll(gateway, waiting);
    const open = firstOpenDocuments(whole, optionsOf(gateway, waiting));
    return open && { ...open, model: whole.model };
  } catch {
    return undefined;
  }
}

/** What goes out, and what was decided about it. */
interface PlacedRequest {
  readonly found: FoundDocuments;
  readonly inPlace: InPlace;
  readonly report: BlockReport;
  readonly sent: SentBody;
}

function inPlace(gateway: Gateway, waiting: WaitingInPlace, { history }: TenantModel): PlacedRequest {
  const now = gateway.now();
  const { tenant, dial } = waiting;
  const found = isStillKnown(gateway, waiting) ? waiting.found : foundInAll(gateway, waiting);
  const before = found.known?.checkpoint.prompt;
  const placed = arrangeInPlace(
    found.request,
    {
      ...optionsOf(gateway, waiting),
      arrange: (block) => {
        const others = block.preamble === undefined ? [] : gateway.queue.waitingBehind(block.preamble, tenant);
        const asked = { ...dial, ...block, hints: false, ...(others.length > 0 && { waiting: others }) };
        return gateway.composer.arrange(asked, history, now);
      },
    },
    before?.sent,
  );
  return { found, inPlace: placed, report: reportOn(placed.blocks, before?.report), sent: sentBody(found, placed) };
}

/** Whether the messages that were left out would still be sent as they were; if so, their conversation can go on from there. */
function isStillKnown({ sentOrders }: Gateway, { tenant, found: { known, request } }: WaitingInPlace): boolean {
  if (known === undefined) return true;
  const { conversation, checkpoint, cut } = known;
  if (!conversation.holds(checkpoint)) return false;
  if (!checkpoint.prompt.messages.every((message) => sentOrders.isCurrent(message))) return false;
  // What was shortened once is shortened again, and then all texts count.
  const orders = request.messages.flatMap(({ link, blocks }) => sentOrders.of(tenant, link, blocks) ?? []);
  if (orders.some(({ shortened }) => shortened.length > 0)) return false;
  if (cut.isLonger) conversation.rewind(checkpoint);
  return true;
}

/** The same request with all of its messages. */
function foundInAll(gateway: Gateway, { found }: WaitingInPlace): FoundDocuments {
  const all = found.known === undefined ? found : findInAll(gateway.promptMemo, found.searched, gateway.now());
  if (all === undefined) throw new TypeError('what was found before is not found in the whole body');
  return all;
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

function note({ exchange }: FastifyRequest, { inPlace, report }: PlacedRequest, { counts }: TenantModel): void {
  if (report.recorded.length === 0) return;
  const { blocks } = inPlace;
  exchange.documents = report.documents;
  exchange.recognised = report.documents;
  exchange.blocks = report.recorded;
  exchange.references = report.references;
  exchange.shortened = report.shortened;
  exchange.deduplicatedTokens = report.deduplicatedTokens;
  exchange.documentsMoved = blocks.reduce(
    (sum, { arrangement }) => sum + (arrangement?.trace.moves.filter((places) => places !== 0).length ?? 0),
    0,
  );
  // The path of the last block goes farthest into the prompt.
  const last = blocks.findLast(({ arrangement }) => arrangement !== undefined)?.arrangement;
  if (last !== undefined) exchange.predictedCachedTokens = counts.toEngineTokens(last.predictedCachedTokens);
}

function dispatched(
  gateway: Gateway,
  {
    tenant,
    placed: { found, inPlace, sent },
    state,
    now,
  }: { tenant: string; placed: PlacedRequest; state: TenantModel; now: number },
): void {
  const { blocks } = inPlace;
  for (const message of found.known?.checkpoint.prompt.messages ?? []) gateway.sentOrders.sentAgain(message);
  const messages = rememberOrders(found.request, { tenant, orders: gateway.sentOrders, blocks });
  sent.keep(gateway.promptMemo, messages, now);
  for (const { arrangement } of blocks) {
    if (arrangement !== undefined) observe({ kind: 'dispatched', arrangement, now }, state.history);
  }
}

function headersOf({ exchange }: FastifyRequest, { inPlace, report }: PlacedRequest): Record<string, string> {
  const policy = inPlace.blocks.find(({ arrangement }) => arrangement !== undefined)?.arrangement?.trace.policy;
  const predicted = exchange.predictedCachedTokens;
  return {
    ...(report.found !== '' && { [RESPONSE_HEADERS.recognised]: report.found }),
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
