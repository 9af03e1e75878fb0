import type { Vocabulary } from '../native/vocabulary.js';

/** A prompt and the places where its documents end. */
export interface SegmentedPrompt {
  readonly tokens: readonly number[];
  /** Numbers of tokens, ascending, above 0 and below the prompt's length. */
  readonly boundaries: readonly number[];
}

/** A stretch of a prompt's text and what it was tokenised to. */
export interface TokenizedText {
  readonly text: string;
  readonly tokens: readonly number[];
}

/**
 * Turns places in a text into places between tokens. A token that a place would cut belongs to what follows: it depends
 * on that, so what stands before it is the longest part that is the same whatever follows.
 *
 * @param stretches The whole text, in order.
 * @param offsets Places in the text, in UTF-16 code units, ascending.
 * @returns For each place that leaves a token on both sides, the number of tokens before it; each number once.
 * Cost: O(tokens + text).
 */
export function tokenBoundaries(
  stretches: readonly TokenizedText[],
  offsets: readonly number[],
  vocabulary: Pick<Vocabulary, 'pieceBytes'>,
): number[] {
  const boundaries = new Set<number>();
  let place = 0;
  let textStart = 0;
  let tokensBefore = 0;
  for (const { text, tokens } of stretches) {
    const pieces = tokens.map((token) => vocabulary.pieceBytes(token));
    const total = pieces.reduce((sum, bytes) => sum + bytes, 0);
    // Some vocabularies put a space before the first token that is not in the text.
    let end = Buffer.byteLength(text) - total;
    let count = 0;
    const bytesTo = bytePlaces(text);
    for (; place < offsets.length && offsets[place]! <= textStart + text.length; place++) {
      const bytes = bytesTo(offsets[place]! - textStart);
      while (count < tokens.length && end + pieces[count]! <= bytes) {
        end += pieces[count]!;
        count++;
      }
      boundaries.add(tokensBefore + count);
    }
    textStart += text.length;
    tokensBefore += tokens.length;
  }
  boundaries.delete(0);
  boundaries.delete(tokensBefore);
  return [...boundaries];
}

/** @returns The UTF-8 bytes before each of several places, which must ascend. Cost of all of them: O(text). */
function bytePlaces(text: string): (offset: number) => number {
  let from = 0;
  let bytes = 0;
  return (offset) => {
    // Half a character is counted, but not gone on from: its two halves have more bytes than it has.
    const isInside = /[\ud800-\udbff]/.test(text.charAt(offset - 1)) && /[\udc00-\udfff]/.test(text.charAt(offset));
    const whole = isInside ? offset - 1 : offset;
    bytes += Buffer.byteLength(text.slice(from, whole));
    from = whole;
    return bytes + Buffer.byteLength(text.slice(whole, offset));
  };
}
