import { fingerprint } from '../fingerprint.js';
import type { DocumentBlock, DocumentSpan, PromptText } from '../recognise/block.js';
import { isCounted } from '../recognise/rewrite.js';
import { CitationMapper, labelWords, withoutRanges } from './citations.js';
import { DIGIT_RUN, plainDigits } from './digits.js';

/** Tries with this many digits before a label gets more. */
const TRIES_PER_LENGTH = 8;
/** Digits of a label, unless all numbers of this length that a document tries are taken. */
const LABEL_DIGITS = 3;

/** A text with other labels, and its blocks where they stand in it. */
export interface RelabelledText {
  readonly text: string;
  readonly blocks: readonly DocumentBlock[];
}

/** What else the prompt says, beside its texts. */
export interface OtherText {
  readonly text: string;
  /** The text that it follows; -1 before all of them. */
  readonly behind: number;
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
  readonly #words: ReadonlySet<string>;

  private constructor(documents: ReadonlyMap<DocumentBlock, readonly LabelledDocument[]>, words: ReadonlySet<string>) {
    this.#documents = documents;
    this.#words = words;
  }

  /**
   * Labels for the blocks of a prompt that count their documents; other blocks keep their text. A label depends on
   * texts up to the next answer only, so it stays the same while the conversation grows. O(texts).
   */
  static of(
    texts: readonly PromptText[],
    blocks: readonly DocumentBlock[],
    others: readonly OtherText[] = [],
  ): LabelMap {
    const counted = blocks.filter(isCounted);
    const documents = new Map<DocumentBlock, readonly LabelledDocument[]>();
    const words = new Set<string>();
    for (const block of counted) {
      const { text } = texts[block.text]!;
      documents.set(block, labelledDocuments(text, block));
      const starts = block.documents.map(({ labels }) => labels[0]!.start);
      for (const word of labelWords(text, starts)) words.add(word);
    }
    chooseLabels({ texts, others }, counted, documents);
    return new LabelMap(documents, words);
  }

  /** Whether no document has a label to be mapped. */
  get isEmpty(): boolean {
    return this.#documents.size === 0;
  }

  /** What stands at the label of a block's document in the prompt that is sent. */
  labelOf(block: DocumentBlock, rank: number): string | undefined {
    return this.#documents.get(block)?.[rank]?.label;
  }

  /**
   * A text with the labels of this map: those of its documents, and those that it cites behind them. `blocks` are all
   * of the text, in its order. O(text).
   */
  relabel({ role, text, kind }: PromptText, index: number, blocks: readonly DocumentBlock[]): RelabelledText {
    const isQuoted = role === 'tool' || kind !== undefined;
    const parts: string[] = [];
    let from = 0;
    let shift = 0;
    const write = (to: number, written: string) => {
      parts.push(written);
      shift += written.length - (to - from);
      from = to;
    };
    /** What stands beside the documents. In front of the first ones are examples of citations. */
    const writeBeside = (to: number) => {
      const said = text.slice(from, to);
      const isInFront = blocks.length > 0 && from < blocks[0]!.end;
      const labels = this.#labelsOf((block) => block.text < index || (block.text === index && block.start < from));
      write(to, isQuoted || isInFront ? said : this.#cited(said, labels, role === 'assistant' ? 'model' : 'user'));
    };
    const written = blocks.map((block) => {
      writeBeside(block.start);
      const documents = this.#documents.get(block);
      const spans = block.documents.map((span, rank) => {
        const label = documents?.[rank]?.label;
        const start = span.start + shift;
        const shifts: { readonly at: number; readonly by: number }[] = [{ at: 0, by: shift }];
        const labels = span.labels.map((place) => {
          write(place.start, text.slice(from, place.start));
          const moved = place.start + shift;
          write(place.end, label ?? text.slice(place.start, place.end));
          shifts.push({ at: place.end, by: shift });
          return { start: moved, end: place.end + shift };
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
      const end = block.documents.at(-1)!.end;
      write(end, text.slice(from, end));
      return { ...block, start: spans[0]!.start, end: spans.at(-1)!.end, documents: spans };
    });
    writeBeside(text.length);
    return { text: parts.join(''), blocks: written };
  }

  /** An answer with the labels that the client wrote. O(answer). */
  inAnswer(answer: string): string {
    const mapper = this.answerMapper();
    return mapper.write(answer) + mapper.end();
  }

  /**
   * The same for an answer that comes in pieces. A label whose number the client gave to a later document as well
   * stays: the client would read it as that one.
   */
  answerMapper(): CitationMapper {
    const labels = new Map([...this.#labelsOf(() => true)].map(([given, label]) => [label, given]));
    return new CitationMapper({ labels, words: this.#words, by: 'answer' });
  }

  /** What the model said behind the text at `index`, in the client's labels, with the labels that are sent. */
  inPrompt(said: string, index: number): string {
    return this.#cited(
      said,
      this.#labelsOf(({ text }) => text <= index),
      'model',
    );
  }

  #cited(said: string, labels: ReadonlyMap<string, string>, by: 'model' | 'user'): string {
    if (labels.size === 0) return said;
    const mapper = new CitationMapper({ labels, words: this.#words, by });
    return mapper.write(by === 'user' ? withoutRanges(said, labels) : said) + mapper.end();
  }

  /** By the number that the client gave: where two documents have one, the later one counts. */
  #labelsOf(isMeant: (block: DocumentBlock) => boolean): ReadonlyMap<string, string> {
    const labels = new Map<string, string>();
    for (const [block, documents] of this.#documents) {
      if (isMeant(block)) for (const { label, given } of documents) labels.set(given, label);
    }
    return labels;
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
  { texts, others }: { readonly texts: readonly PromptText[]; readonly others: readonly OtherText[] },
  blocks: readonly DocumentBlock[],
  documents: ReadonlyMap<DocumentBlock, readonly LabelledDocument[]>,
): void {
  const chosen = new Map<string, string>();
  const taken = new Set<string>();
  let read = -1;
  for (let next = 0; next < blocks.length; ) {
    const answer = texts.findIndex(({ role }, index) => index > blocks[next]!.text && role === 'assistant');
    const end = answer < 0 ? texts.length : answer;
    for (; read < end; read++) {
      for (const { text, behind } of others) if (behind === read) addNumbers(text, [], taken);
      if (read < 0) continue;
      const own = blocks.filter(({ text }) => text === read);
      addNumbers(texts[read]!.text, own, taken);
    }
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

/** The numbers of a text that are no labels of these blocks. */
function addNumbers(text: string, blocks: readonly DocumentBlock[], taken: Set<string>): void {
  const labels = new Set(
    blocks.flatMap(({ documents }) => documents.flatMap((span) => span.labels.map((l) => l.start))),
  );
  for (const { index, 0: run } of text.matchAll(DIGIT_RUN)) if (!labels.has(index)) taken.add(plainDigits(run));
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
