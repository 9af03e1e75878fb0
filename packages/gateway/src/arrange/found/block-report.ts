import type { RecordedBlock } from '../../observe/exchange.js';
import { isReported, type PlacedBlock } from './arrange-in-place.js';

/** What headers, metrics and records say of blocks in a prompt. */
export interface BlockReport {
  readonly recorded: readonly RecordedBlock[];
  readonly documents: number;
  /** Documents referred to, those of which parts are, and the tokens that both spares, estimated. */
  readonly references: number;
  readonly shortened: number;
  readonly deduplicatedTokens: number;
}

/** What is said of these blocks. */
export function reportOn(placed: readonly PlacedBlock[]): BlockReport {
  const recorded = placed.filter(isReported).map(({ block, decided, sent, references }) => ({
    format: block.format,
    documents: block.documents.length,
    decided,
    order: sent.order,
    labels: block.labels,
    references: ranksOf(references, false),
    shortened: ranksOf(references, true),
  }));
  const references = placed.flatMap(({ references: own }) => own);
  const shortened = references.filter(({ partly }) => partly).length;
  return {
    recorded,
    documents: recorded.reduce((sum, { documents }) => sum + documents, 0),
    references: references.length - shortened,
    shortened,
    deduplicatedTokens: references.reduce((sum, { savedTokens }) => sum + savedTokens, 0),
  };
}

function ranksOf(references: PlacedBlock['references'], partly: boolean): readonly number[] {
  return references.filter((reference) => reference.partly === partly).map(({ rank }) => rank);
}
