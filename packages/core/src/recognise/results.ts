import type { DocumentBlock, PromptText } from './block.js';

/** Characters from which a result is worth a reference: a hint that quotes it has about a hundred. */
const MIN_RESULT = 400;

/**
 * What tools returned, as blocks of one document each: texts in which no documents were recognised, and which are long
 * enough to be referred to when they come again. Nothing is guessed here: the same result is the same text. `blocks`
 * are those of `recognise`, in the order of the texts; so is the answer, with them. O(texts + blocks).
 */
export function withResults(texts: readonly PromptText[], blocks: readonly DocumentBlock[]): readonly DocumentBlock[] {
  const all: DocumentBlock[] = [];
  let next = 0;
  for (const [index, { role, text }] of texts.entries()) {
    const first = next;
    for (; next < blocks.length && blocks[next]!.text === index; next++) all.push(blocks[next]!);
    if (next === first && role === 'tool' && text.length >= MIN_RESULT) all.push(resultBlock(index, text.length));
  }
  return all;
}

/** Whether one of these results is another one once more. O(length of those that are as long as another). */
export function hasRepeatedResult(texts: readonly PromptText[], blocks: readonly DocumentBlock[]): boolean {
  const byLength = new Map<number, Set<string>>();
  for (const { format, text: index } of blocks) {
    if (format !== 'result') continue;
    const { text } = texts[index]!;
    const alike = byLength.get(text.length);
    if (alike?.has(text)) return true;
    if (alike === undefined) byLength.set(text.length, new Set([text]));
    else alike.add(text);
  }
  return false;
}

function resultBlock(text: number, end: number): DocumentBlock {
  const place = { start: 0, end, contentStart: 0, contentEnd: end };
  return {
    text,
    format: 'result',
    marked: false,
    start: 0,
    end,
    documents: [{ ...place, id: undefined, title: undefined, labels: [] }],
    labels: 'none',
    fixed: undefined,
  };
}
