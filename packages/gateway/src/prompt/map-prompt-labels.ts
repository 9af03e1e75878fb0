import type { DocumentBlock } from '@warmpath/core';
import { isCounted, LabelMap } from '@warmpath/core/internal';
import type { TextChange } from '../apis/request-texts.js';
import { callInputs } from '../apis/tool-calls.js';
import { isObject, type JsonObject } from '../json/json-scanner.js';
import type { RecognisedMessage, RecognisedRequest, SentOrder } from '../shapes/shapes.js';

/** What decides which documents get labels of their own. */
export interface MapLabelsOptions {
  /** For messages that are not remembered. Documents that must not move keep their labels. */
  readonly labelsOf: (block: DocumentBlock) => 'kept' | 'mapped';
  /** How a message was sent before: its labels stay as they were. */
  readonly ordersOf: (message: RecognisedMessage) => readonly SentOrder[] | undefined;
}

/**
 * The request with labels that belong to documents, in place of those that count places, and with these labels in what
 * is said behind the documents. The very request where no document has such a label. O(texts).
 */
export function mapPromptLabels(
  request: RecognisedRequest,
  { labelsOf, ordersOf }: MapLabelsOptions,
): RecognisedRequest {
  const mapped: DocumentBlock[] = [];
  for (const message of request.messages) {
    const sent = ordersOf(message);
    for (const [at, block] of message.blocks.entries()) {
      const wanted = block.fixed === undefined ? labelsOf(block) : 'kept';
      if ((sent?.[at]?.labels ?? wanted) === 'mapped' && isCounted(block)) mapped.push(block);
    }
  }
  // Prompts of one request are answered each for itself, and may count their documents alike.
  const isBatch = request.api.conversation === undefined && request.texts.length > 1;
  if (mapped.length === 0 || isBatch) return request;
  const calls = answeredCalls(request);
  const map = LabelMap.of(request.texts, mapped, [{ text: request.scope, behind: -1 }, ...calls]);
  const written = new Map<DocumentBlock, DocumentBlock>();
  const ownLabels = new Map<DocumentBlock, string>();
  const all = request.messages.flatMap(({ blocks }) => blocks);
  const texts = request.texts.map((given, index) => {
    const own = all.filter(({ text }) => text === index);
    const { text, blocks } = map.relabel(given, index, own);
    for (const [at, block] of own.entries()) {
      written.set(block, blocks[at]!);
      const names = block.documents.map((_, rank) => map.labelOf(block, rank) ?? '');
      if (names[0] !== '') ownLabels.set(blocks[at]!, names.join());
    }
    return text === given.text ? given : { ...given, text };
  });
  return {
    ...request,
    texts,
    messages: request.messages.map((message) => ({
      ...message,
      blocks: message.blocks.map((block) => written.get(block)!),
    })),
    mapped: {
      map,
      labels: ownLabels,
      changes: calls.flatMap(({ place, text, behind, isObject: isJson }): readonly TextChange[] => {
        const said = map.inPrompt(text, behind);
        if (said === text) return [];
        return [isJson ? { place, json: said } : { place, text: said }];
      }),
    },
  };
}

/** Inputs of the tool calls that the model made, with the text that each follows. */
function answeredCalls({ api, view }: RecognisedRequest) {
  const body = JSON.parse(view.bytes.toString('utf8')) as JsonObject;
  let before = 0;
  return api.messages(body).flatMap(({ place, texts: own }) => {
    before += own.length;
    const [field, at] = place;
    const message: unknown = at === undefined ? undefined : (body[field as string] as unknown[])[at as number];
    const inputs = isObject(message) ? callInputs(message, place) : [];
    return inputs.map((input) => ({ ...input, behind: before - 1 }));
  });
}
