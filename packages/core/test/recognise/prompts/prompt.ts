import type { FormatName } from '../../../src/internal.js';
import type { PromptRole } from '../../../src/recognise/block.js';

/** A prompt as a tool would write it, and what is to be recognised in it. */
export interface PromptCase {
  readonly name: string;
  /** Role and text of each message, in order. */
  readonly texts: readonly (readonly [PromptRole, string])[];
  readonly blocks: readonly ExpectedBlock[];
}

interface ExpectedBlock {
  readonly format: FormatName;
  /** One passage of each document, in the order of the text. */
  readonly documents: readonly string[];
  /** Whether labels count the documents. */
  readonly counted?: boolean;
  /** Which text it stands in; 0 if left out. */
  readonly text?: number;
  readonly marked?: true;
  /** The order must not change. */
  readonly fixed?: true;
  /** What the prompt calls the documents. */
  readonly ids?: readonly (string | undefined)[];
  /** What stands between each document and the next one. */
  readonly between?: string;
  /** How each document begins. */
  readonly starts?: readonly string[];
}

/** Passages about things that never were. */
export const HARBOUR =
  'The harbour of Velmora was dredged in 1931 so that grain ships could moor at the inner quay even at low tide.';
export const LANTERN =
  'Lanterns from the Tiber workshop burn colza oil; a full reservoir lasts nine hours with the wick at half height.';
export const ORCHARD =
  'The north orchard carries forty rows of late pears, which are picked after the first frost and kept on straw.';
export const GLACIER =
  'Between two surveys the Aster glacier lost eleven metres of thickness, most of it along the western margin.';
export const BRIDGE =
  'The footbridge at Callow is closed to cyclists from November to March because its oak planks ice over at night.';
export const CLOCK =
  'The tower clock is wound by hand every Thursday; if the weight is not raised, it stops within thirty hours.';
/** Two paragraphs in one passage. */
export const FERRY =
  'The night ferry to Sund leaves at eleven and takes at most sixty passengers.\n\nDogs travel in the forward cabin and must be on a lead, whatever their size.';
