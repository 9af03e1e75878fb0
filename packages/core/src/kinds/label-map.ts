import { fingerprint } from '../fingerprint.js';
import type { DocumentBlock, DocumentSpan, PromptText } from '../recognise/block.js';
import { isCounted } from '../recognise/rewrite.js';
import { type CitationForms, CitationMapper, citationForms } from './citations.js';

/** Tries with this many digits before a label gets more. */
const TRIES_PER_LENGTH = 8;
/** Digits of a label, unless all numbers of this length that a document tries are taken. */
const LABEL_DIGITS = 3;

/** A text with other labels, and its blocks where they stand in it. */
export interface RelabelledText {
  readonly text: string;
  readonly blocks: readonly DocumentBlock[];
}

interface LabelledDocument {
  /** Hash of the document without its labels. */
  readonly hash: string;
  readonly given: string;
  label: string;
}

/**
 * Labels that belong to documents instead of places, and the way back. A label follows from the document's text alone,
 * unless that number occurs in the prompt: every process gives a document the same label.
 */
export class LabelMap {
  readonly #documents: ReadonlyMap<DocumentBlock, readonly LabelledDocument[]>;
  readonly #forms: CitationForms;

  private constructor(documents: ReadonlyMap<DocumentBlock, readonly LabelledDocument[]>, forms: CitationForms) {
    this.#documents = documents;
    this.#forms = forms;
  }

  /**
   * Labels for the blocks of a prompt that count their documents; other blocks keep their text. A label depends on
   * texts up to the next answer only, so it stays the same while the conversation grows. O(texts).
   */
  static of(texts: readonly PromptText[], blocks: readonly DocumentBlock[]): LabelMap {
    const counted = blocks.filter(isCounted);
    const documents = new Map<DocumentBlock, readonly LabelledDocument[]>();
    const words = new Set<string>();
    let isBare = false;
    for (const block of counted) {
      const { text } = texts[block.text]!;
      documents.set(block, labelledDocuments(text, block));
      const forms = citationForms(
        text,
        block.documents.map(({ labels }) => labels[0]!.start),
      );
      for (const word of forms.words) words.add(word);
      isBare ||= forms.isBare;
    }
    chooseLabels(texts, counted, documents);
    return new LabelMap(documents, { words, isBare });
  }

  /** Whether no document has a label to be mapped. */
  get isEmpty(): boolean {
    return this.#documents.size === 0;
  }

  /** What stands at the label of a block's document in the prompt that is sent. */
  labelOf(block: DocumentBlock, rank: number): string | undefined {
    return this.#documents.get(block)?.[rank]?.label;
  }

  /** A text with the labels of this map; `blocks` are those of the text, in its order. O(text). */
  relabel(text: string, blocks: readonly DocumentBlock[]): RelabelledText {
    const parts: string[] = [];
    let from = 0;
    let shift = 0;
    const written = blocks.map((block) => {
      const documents = this.#documents.get(block);
      const spans = block.documents.map((span, rank) => {
        const label = documents?.[rank]?.label;
        const start = span.start + shift;
        const shifts: { readonly at: number; readonly by: number }[] = [{ at: 0, by: shift }];
        const labels = span.labels.map((place) => {
          if (label === undefined) return { start: place.start + shift, end: place.end + shift };
          parts.push(text.slice(from, place.start), label);
          from = place.end;
          const moved = { start: place.start + shift, end: place.start + shift + label.length };
          shift += label.length - (place.end - place.start);
          shifts.push({ at: place.end, by: shift });
          return moved;
        });
        const movedTo = (at: number) => at + shifts.findLast((each) => each.at <= at)!.by;
        const { contentStart, contentEnd, end } = span;
        return {
          ...span,
          start,
          end: movedTo(end),
          contentStart: movedTo(contentStart),
          contentEnd: movedTo(contentEnd),
          labels,
        };
      });
      return { ...block, start: spans[0]!.start, end: spans.at(-1)!.end, documents: spans };
    });
    parts.push(text.slice(from));
    return { text: parts.join(''), blocks: written };
  }

  /** An answer with the labels that the client wrote. O(answer). */
  inAnswer(answer: string): string {
    const mapper = this.answerMapper();
    return mapper.write(answer) + mapper.end();
  }

  /** The same for an answer that comes in pieces. Where a label stands for two documents, the later one counts. */
  answerMapper(): CitationMapper {
    const back = new Map<string, string>();
    for (const documents of this.#documents.values()) for (const { label, given } of documents) back.set(label, given);
    return new CitationMapper(back, this.#forms);
  }

  /** What is said behind the documents about them (an earlier answer, a question) with the labels that are sent. */
  inPrompt(said: string, text: number): string {
    const forth = new Map<string, string>();
    for (const [block, documents] of this.#documents) {
      if (block.text > text) continue;
      for (const { label, given } of documents) forth.set(given, label);
    }
    const mapper = new CitationMapper(forth, this.#forms);
    return mapper.write(said) + mapper.end();
  }
}

function labelledDocuments(text: string, block: DocumentBlock): LabelledDocument[] {
  const seen = new Map<string, number>();
  return block.documents.map((span) => {
    const parts = withoutLabels(text, span);
    const key = parts.join('');
    const earlier = seen.get(key) ?? 0;
    seen.set(key, earlier + 1);
    const [first] = span.labels;
    return { hash: fingerprint([...parts, `${earlier}`]), given: text.slice(first!.start, first!.end), label: '' };
  });
}

function withoutLabels(text: string, { start, end, labels }: DocumentSpan): string[] {
  const parts: string[] = [];
  let from = start;
  for (const label of labels) {
    parts.push(text.slice(from, label.start));
    from = label.end;
  }
  parts.push(text.slice(from, end));
  return parts;
}

/** Gives each document the first number that it tries and that is free. In the order of hashes, not of places. */
function chooseLabels(
  texts: readonly PromptText[],
  blocks: readonly DocumentBlock[],
  documents: ReadonlyMap<DocumentBlock, readonly LabelledDocument[]>,
): void {
  const chosen = new Map<string, string>();
  const taken = new Set<string>();
  let read = 0;
  for (let next = 0; next < blocks.length; ) {
    const answer = texts.findIndex(({ role }, index) => index > blocks[next]!.text && role === 'assistant');
    const end = answer < 0 ? texts.length : answer;
    for (; read < end; read++) addNumbers(texts[read]!.text, read, { blocks, taken });
    const turn: LabelledDocument[] = [];
    for (; next < blocks.length && blocks[next]!.text < end; next++) turn.push(...documents.get(blocks[next]!)!);
    turn.sort((a, b) => (a.hash < b.hash ? -1 : a.hash > b.hash ? 1 : 0));
    for (const document of turn) {
      let label = chosen.get(document.hash);
      if (label === undefined) {
        label = freeLabel(document.hash, taken);
        chosen.set(document.hash, label);
        taken.add(label);
      }
      document.label = label;
    }
  }
}

/** The numbers of a text that are no labels. */
function addNumbers(
  text: string,
  index: number,
  { blocks, taken }: { readonly blocks: readonly DocumentBlock[]; readonly taken: Set<string> },
): void {
  const own = blocks.filter((block) => block.text === index);
  const labels = new Set(own.flatMap((block) => block.documents.flatMap((span) => span.labels.map((l) => l.start))));
  for (const { index: start, 0: number } of text.matchAll(/\d+/g)) if (!labels.has(start)) taken.add(number);
}

function freeLabel(hash: string, taken: ReadonlySet<string>): string {
  for (let attempt = 0; ; attempt++) {
    const length = LABEL_DIGITS + Math.floor(attempt / TRIES_PER_LENGTH);
    const least = 10 ** (length - 1);
    const tried = Number.parseInt(fingerprint([hash, `${attempt}`]).slice(0, 12), 16);
    const label = String(least + (tried % (9 * least)));
    if (!taken.has(label)) return label;
  }
}
