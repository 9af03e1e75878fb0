import type { DocumentInterface } from '@langchain/core/documents';
import { BaseDocumentCompressor } from '@langchain/core/retrievers/document_compressors';
import type { Arranger } from '@warmpath/client';
import { OpenContexts } from '@warmpath/client/internal';
import { type ArrangeOptions, arrangeDocuments } from './arranged-documents.js';
import { WarmpathFeedback } from './feedback.js';

/**
 * Orders what a retriever found so that the prompt starts with what the engine holds; drops nothing but repetitions.
 * For `ContextualCompressionRetriever`, as its `baseCompressor`.
 *
 * Make one and keep it. Pass `feedback` to the chain's `callbacks`: it tells the arranger which prompts were sent and
 * what the engine had cached.
 */
export class WarmpathCompressor extends BaseDocumentCompressor {
  /** Callbacks for the chain that calls the model. */
  readonly feedback: WarmpathFeedback;
  readonly #arranger: Arranger;
  readonly #options: ArrangeOptions;
  readonly #open = new OpenContexts();

  constructor(arranger: Arranger, options: ArrangeOptions = {}) {
    super();
    this.#arranger = arranger;
    this.#options = options;
    this.feedback = new WarmpathFeedback(this.#open);
  }

  /** Never fails: without an order, documents come back as they were, and `onError` hears why. */
  override compressDocuments(documents: DocumentInterface[]): Promise<DocumentInterface[]> {
    return arrangeDocuments(documents, this.#arranger, { ...this.#options, open: this.#open });
  }
}
