import type { Arrangement, ArrangeRequest } from '@warmpath/core';
import { estimateTokensOfBytes, plainTurn, type RecalledConversation } from '@warmpath/core/internal';
import type { FastifyRequest } from 'fastify';
import type { Engine } from '../../engines/engine.js';
import { predictedTokens } from '../../engines/expected-reuse.js';
import type { Gateway } from '../../gateway.js';
import type { TenantModel } from '../../memory/served-histories.js';
import type { Exchange } from '../../observe/exchange.js';
import { traced } from '../../observe/tracing.js';
import type { ArrangedPrompt } from '../arranged-prompt.js';
import {
  arrangeInPlace,
  firstOpenDocuments,
  type InPlace,
  type InPlaceOptions,
  rememberOrders,
} from './arrange-in-place.js';
import { type BlockReport, reportOn } from './block-report.js';
import type { RecognisedRequest } from './recognised-request.js';

/** A request whose documents stand in its prompt already, before their order is decided. */
export interface FoundRequest {
  readonly kind: 'found';
  readonly tenant: string;
  readonly found: RecognisedRequest;
  /** Policy and bounds of the request, or the configured ones. */
  readonly switches: ArrangeRequest;
  /** Whether a document that the prompt shows already is referred to, and parts of one. */
  readonly deduplicate: boolean;
  readonly blocks: boolean;
  /** Of a named conversation. */
  readonly history: RecalledConversation | undefined;
}

/**
 * The engine has room: orders the documents where they stand, with references for those that the prompt shows already.
 * No order hint is put into a prompt that is not ours.
 */
export function arrangeFound(
  gateway: Gateway,
  engine: Engine,
  request: FastifyRequest,
  waiting: FoundRequest,
): ArrangedPrompt {
  const { tenant, found, history } = waiting;
  const state = gateway.histories.of(engine, tenant, found.model);
  const placed = inPlace(gateway, engine, waiting, state, request.exchange);
  note(request, placed, (arrangement) => predictedTokens(state, arrangement));
  return {
    body: placed.inPlace.body,
    state,
    isInserted: false,
    arrangements: placed.inPlace.blocks.flatMap(({ arrangement }) => arrangement ?? []),
    estimatedTokens: placed.inPlace.estimatedTokens,
    turn: history && { history, sent: plainTurn(history) },
    prefix: undefined,
    parsed: undefined,
    keepFound: () => keepOrders(gateway, tenant, placed),
  };
}

/**
 * The documents that others may know of while the request waits; none after a defect, which shows again at dispatch.
 */
export function openDocuments(
  gateway: Gateway,
  waiting: FoundRequest,
): (NonNullable<ReturnType<typeof firstOpenDocuments>> & { readonly model: string }) | undefined {
  try {
    const open = firstOpenDocuments(waiting.found, optionsOf(gateway, waiting));
    return open && { ...open, model: waiting.found.model };
  } catch {
    return undefined;
  }
}

/** What goes out, and what was decided about it. */
interface PlacedRequest {
  readonly found: RecognisedRequest;
  readonly inPlace: InPlace;
  readonly report: BlockReport;
}

const NONE: readonly never[] = [];

/** Every engine caches prompts of so many bytes. */
const LONG_PROMPT_BYTES = 65_536;

function inPlace(
  gateway: Gateway,
  { queue }: Engine,
  waiting: FoundRequest,
  state: TenantModel,
  exchange: Exchange,
): PlacedRequest {
  const now = gateway.now();
  const { tenant, found, switches } = waiting;
  const promptTokens = () => estimateTokensOfBytes(found.view.bytes.subarray(0, LONG_PROMPT_BYTES));
  const { deduplicate, blocks, location, orderHint, orders } = optionsOf(gateway, waiting);
  const options: InPlaceOptions = {
    tenant,
    deduplicate,
    blocks,
    location,
    orderHint,
    orders,
    arrange: ({ documents, preamble, policy }) => {
      const others = preamble === undefined ? NONE : queue.waitingBehind(preamble, tenant);
      const asked: ArrangeRequest = {
        documents,
        preamble,
        policy: policy ?? switches.policy,
        maxShift: switches.maxShift,
        shiftPrice: switches.shiftPrice,
        pin: switches.pin,
        hints: false,
        waiting: others.length === 0 ? undefined : others,
        warnings: switches.warnings,
      };
      return gateway.documents.arrange(asked, state, now, promptTokens);
    },
  };
  const placed = traced(gateway, exchange, 'arrange', () => arrangeInPlace(found, options));
  return { found, inPlace: placed, report: reportOn(placed.blocks) };
}

function optionsOf(gateway: Gateway, { tenant, deduplicate, blocks }: FoundRequest): Omit<InPlaceOptions, 'arrange'> {
  const { arrange, recognise } = gateway.config;
  return {
    tenant,
    deduplicate,
    blocks,
    location: arrange.wording.location,
    orderHint: recognise.hints ? arrange.wording.order : undefined,
    orders: gateway.sentOrders,
  };
}

function note(
  { exchange }: FastifyRequest,
  { inPlace, report }: PlacedRequest,
  predicted: (arrangement: Arrangement) => number,
): void {
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
  exchange.policy = last?.trace.policy;
  if (last !== undefined) exchange.predictedCachedTokens = predicted(last);
}

/** Remembers how the documents of a prompt were sent, so that they are sent the same when they come again. */
function keepOrders(gateway: Gateway, tenant: string, { found, inPlace }: PlacedRequest): void {
  rememberOrders(found, { tenant, orders: gateway.sentOrders, blocks: inPlace.blocks });
}
