import { type Arrangement, type ArrangeRequest, arrange, observe, ServedHistory } from '@warmpath/core';
import { chatApi } from '../apis/prompt-apis.js';
import type { RequestText } from '../apis/request-texts.js';
import { ConversationMemory, MemoryConversationStore } from '../conversation/conversation-memory.js';
import type { PlacedBlock, RecognisedRequest } from '../shapes/shapes.js';
import { arrangeInPlace, type InPlaceOptions, permuted, rememberOrders } from './arrange-in-place.js';
import { formedBlocks, mapPromptLabels, recogniseRequest } from './find-documents.js';

/** A prompt with its documents in their places. */
export interface PlacedPrompt {
  readonly body: string;
  readonly blocks: readonly PlacedBlock[];
}

/** What may become of the documents of a prompt beside their order. */
type PlaceOptions = Pick<InPlaceOptions, 'deduplicate' | 'blocks'> & { readonly labels: 'kept' | 'mapped' };

/** How documents may be ordered where they stand. */
export type InPlaceSwitches = Pick<ArrangeRequest, 'policy' | 'maxShift' | 'shiftPrice'>;

/** Bytes of the orders that are remembered. */
const REMEMBERED_BYTES = 4_194_304;

/**
 * Prompts with their documents in their places, one after the other, as a gateway with one client sends them: ordered
 * by what was sent before, with references for those that stand farther up already. Sends nothing.
 */
export class InPlacePrompts {
  readonly #memory = new ConversationMemory(new MemoryConversationStore({}), REMEMBERED_BYTES);
  readonly #history = new ServedHistory();
  readonly #switches: InPlaceSwitches;
  /** Prompts so far: the history's clock. */
  #now = 0;

  /** `switches`: core's defaults for what is left out. */
  constructor(switches: InPlaceSwitches = {}) {
    this.#switches = switches;
  }

  /** Places the documents that have a known form in the body of a chat completion. O(body). */
  placeChat(body: string): PlacedPrompt {
    const find = (texts: readonly RequestText[]) => formedBlocks(texts, { refersToParts: false });
    const found = recogniseRequest(Buffer.from(body), chatApi, { find, markerKey: '' });
    return found === undefined
      ? { body, blocks: [] }
      : this.place(found, { deduplicate: true, blocks: false, labels: 'kept' });
  }

  /** Places a prompt, and lets it count as served. O(body). */
  place(given: RecognisedRequest, { labels, ...refers }: PlaceOptions): PlacedPrompt {
    const now = this.#now++;
    const recognised = mapPromptLabels(given, {
      labelsOf: () => labels,
      ordersOf: (message) => this.#memory.ordersOf('', message),
    });
    const placed = arrangeInPlace(recognised, {
      tenant: '',
      memory: this.#memory,
      arrange: (block) => this.#arrange(block, now),
      ...refers,
    });
    rememberOrders(recognised, placed.blocks, { tenant: '', memory: this.#memory });
    for (const { arrangement } of placed.blocks) {
      if (arrangement !== undefined) observe({ kind: 'completed', arrangement, now }, this.#history);
    }
    return { body: permuted(recognised, placed.changes).toString(), blocks: placed.blocks };
  }

  #arrange(block: Pick<ArrangeRequest, 'documents' | 'preamble' | 'policy'>, now: number): Arrangement {
    return arrange({ ...this.#switches, ...block, hints: false }, this.#history, now);
  }
}
