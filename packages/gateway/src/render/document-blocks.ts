import { type Arrangement, type ChatMessage, type Document, renderDocuments, type TemplateName } from '@warmpath/core';
import type { GatewayConfig } from '../config/schema.js';
import type { ExtractedRequest } from '../intake/extract.js';
import { cachedBlocks, roomForBreakpoints, withBreakpoints, withPlace } from './cache-breakpoints.js';
import { cutAtDocuments } from './document-ends.js';

export interface BlockOptions {
  /** What stands for the documents in the rendered messages, exactly once. */
  readonly place: string;
  readonly template: TemplateName;
  readonly upstream: Pick<GatewayConfig['upstream'], 'segments' | 'cacheBreakpoints'>;
  /** The messages are those of a turn sent before, documents and all. */
  readonly isRepeated: boolean;
  /** The messages will be sent again, as the history of later turns. */
  readonly isTurn: boolean;
}

/** Messages in which `${place}-${n}-` stands for the block of documents `n`, or `place` for the only one. */
export interface DocumentBlocks {
  readonly messages: readonly ChatMessage[];
  readonly blocks: readonly (readonly Document[])[];
}

/**
 * The documents of a chat as the engine is to see where they end: each by itself (`segments`), up to cache breakpoints, or all in
 * one. The text as a whole stays the same.
 */
export function documentBlocks(
  extracted: Pick<ExtractedRequest, 'api' | 'rawValue'>,
  messages: readonly ChatMessage[],
  arrangement: Arrangement,
  { place, template, upstream, isRepeated, isTurn }: BlockOptions,
): DocumentBlocks {
  const { name } = extracted.api;
  const { documents } = arrangement;
  const standIns = (blocks: readonly unknown[]) => blocks.map((_, at) => `${place}-${at}-`);
  if (upstream.segments && name === 'chat') {
    const blocks = documents.map((document) => [document]);
    return { messages: cutAtDocuments(messages, place, standIns(blocks)), blocks };
  }
  const whole = { messages, blocks: [documents] };
  if (!upstream.cacheBreakpoints || name !== 'messages' || documents.length === 0) return whole;
  const room = roomForBreakpoints(extracted);
  if (room < 1) return whole;
  const open = isRepeated ? withPlace(messages, renderDocuments(documents, template), place) : messages;
  // What is replayed in later turns has no cuts: a conversation's cache is found again at the ends of its messages only.
  if (isTurn) return { messages: withBreakpoints(open, [place]), blocks: [documents] };
  const blocks = cachedBlocks(arrangement, room);
  const texts = standIns(blocks);
  return { messages: withBreakpoints(cutAtDocuments(open, place, texts), texts), blocks };
}
