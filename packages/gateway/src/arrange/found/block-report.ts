import type { RecordedBlock } from '../../observe/exchange.js';
import { isReported, type PlacedBlock } from './arrange-in-place.js';

/** What headers, metrics and records say of blocks in a prompt. */
export interface BlockReport {
  readonly recorded: readonly RecordedBlock[];
  /** Each block's format, number of documents, and what was decided. */
  readonly found: string;
  readonly documents: number;
  /** Documents referred to, those of which parts are, and the tokens that both spares, estimated. */
  readonly references: number;
  readonly shortened: number;
  readonly deduplicatedTokens: number;
}

export const NO_BLOCKS: BlockReport = {
  recorded: [],
  found: '',
  documents: 0,
  references: 0,
  shortened: 0,
  deduplicatedTokens: 0,
};

/** What is said of these blocks behind others. */
export function reportOn(placed: readonly PlacedBlock[], before: BlockReport = NO_BLOCKS): BlockReport {
  const blocks = placed.filter(isReported);
  if (blocks.length === 0) return before;
  const recorded = blocks.map(({ block, decided, sent, references }) => ({
    format: block.format,
    documents: block.documents.length,
    decided,
    order: sent.order,
    labels: block.labels,
    references: ranksOf(references, false),
    shortened: ranksOf(references, true),
  }));
  const found = recorded.map(({ format, documents, decided }) => `${format} ${documents} ${decided}`).join(', ');
  const references = blocks.flatMap(({ references: own }) => own);
  const shortened = references.filter(({ partly }) => partly).length;
  return {
    recorded: [...before.recorded, ...recorded],
    found: before.found === '' ? found : `${before.found}, ${found}`,
    documents: recorded.reduce((sum, { documents }) => sum + documents, before.documents),
    references: before.references + references.length - shortened,
    shortened: before.shortened + shortened,
    deduplicatedTokens: references.reduce((sum, { savedTokens }) => sum + savedTokens, before.deduplicatedTokens),
  };
}

/** What will be said of blocks when their messages come again: they are sent the same. */
export function reportOnAgain(blocks: readonly PlacedBlock[], before: BlockReport = NO_BLOCKS): BlockReport {
  return reportOn(
    blocks.map((block) => ({ ...block, decided: 'replayed' })),
    before,
  );
}

function ranksOf(references: PlacedBlock['references'], partly: boolean): readonly number[] {
  return references.filter((reference) => reference.partly === partly).map(({ rank }) => rank);
}
