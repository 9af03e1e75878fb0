import type { TextMove } from '@warmpath/core/internal';
import type { BodyView, ByteEdit } from '../json/json-body.js';
import { type ByteSpan, JsonScanner } from '../json/json-scanner.js';

/** Adjacent elements of an array. */
export interface ElementRange {
  readonly from: number;
  /** Position of the last one. */
  readonly to: number;
}

/** The path of a value in a body: keys of objects and positions in arrays. */
export type JsonPath = readonly (string | number)[];

/** The path of a text. Its last step may be a range of elements. */
export type TextPlace = readonly (string | number | ElementRange)[];

/** The normalised role of a text: `developer` is `system`, and a tool's result is `tool` in every API. */
export type TextRole = 'system' | 'user' | 'assistant' | 'tool';

/** A text that the model reads, with its position in the body. */
export interface RequestText {
  readonly role: TextRole;
  readonly text: string;
  /** The path of the JSON string, or of the elements, that hold the text (`textEdits`). */
  readonly place: TextPlace;
  /**
   * `elements`: the API's own document parts, as JSON. `verbatim`: answers refer to positions in the text, so it must
   * not change.
   */
  readonly kind?: 'elements' | 'verbatim';
}

/** One message (or item, or prompt) of a request. */
export interface RequestMessage {
  readonly role: TextRole;
  /** The path of the whole message: `['messages', 3]`, `['system']`, `['input', 0]`, `['prompt']`. */
  readonly place: JsonPath;
  /** In their order; none for a message without text, such as a tool call. */
  readonly texts: readonly RequestText[];
}

/**
 * A change of one place: a new text, its own parts in another order with their original bytes, or other JSON in the
 * place of an object.
 */
export type TextChange = { readonly place: TextPlace } & TextEdit;

type TextEdit =
  | { readonly text: string }
  | { readonly moves: readonly TextMove[]; readonly length: number }
  | { readonly json: string };

/** A path as errors write it: `messages[2].content[0].text`. */
export function pathName(place: TextPlace): string {
  const name = place.map(stepName).join('');
  return name.startsWith('.') ? name.slice(1) : name;
}

function stepName(step: TextPlace[number]): string {
  if (typeof step === 'object') return `[${step.from}-${step.to}]`;
  return typeof step === 'number' ? `[${step}]` : `.${step}`;
}

/**
 * Turns changes into edits of the body. The last change of a place counts. Places without a string are skipped.
 * Reordered elements keep their bytes and the text between them. Moves need UTF-8, and the `length` of the text in
 * UTF-16 units. O(bytes of the containers).
 */
export function textEdits({ scan }: BodyView, changes: readonly TextChange[]): readonly ByteEdit[] {
  if (changes.length === 0) return [];
  const root: Branch = { below: new Map(), edit: undefined };
  for (const change of changes) branchAt(root, change.place).edit = change;
  const edits: ByteEdit[] = [];
  collect(scan, scan.space(0), root, edits);
  return edits;
}

/** The parts of one string in their new order. O(string). */
function movedParts(
  scan: JsonScanner,
  start: number,
  { moves, length }: { readonly moves: readonly TextMove[]; readonly length: number },
): readonly ByteEdit[] {
  const end = scan.stringEnd(start);
  const offsets = new Set([length]);
  for (const move of moves) offsets.add(move.start).add(move.end).add(move.from).add(move.to);
  const sorted = [...offsets].sort((a, b) => a - b);
  const places = scan.placesIn({ start, end }, sorted);
  if (places.at(-1) !== end - 1) throw new TypeError('the parts are not of this text');
  const placeOf = new Map(sorted.map((offset, i) => [offset, places[i]!]));
  return moves.map((move) => ({
    start: placeOf.get(move.start)!,
    end: placeOf.get(move.end)!,
    pieces: [scan.bytes.subarray(placeOf.get(move.from)!, placeOf.get(move.to)!)],
  }));
}

/** The elements of `text` in place of the present ones, with their original bytes. O(both). */
function writtenElements(scan: JsonScanner, slots: readonly ByteSpan[], text: string): readonly ByteEdit[] {
  const written = new Map<string, Buffer>();
  for (const { start, end } of slots) {
    written.set(JSON.stringify(scan.parse({ start, end })), scan.bytes.subarray(start, end));
  }
  const array = new JsonScanner(Buffer.from(`[${text}]`));
  return array.elements(0).flatMap((element, place) => {
    const span = slots[place];
    const json = array.text(element);
    return span === undefined ? [] : [{ ...span, pieces: [written.get(json) ?? json] }];
  });
}

/** Changes as a tree, so that the body is read once. */
interface Branch {
  readonly below: Map<TextPlace[number], Branch>;
  edit: TextEdit | undefined;
}

function branchAt(root: Branch, place: TextPlace): Branch {
  let branch = root;
  for (const step of place) {
    let next = branch.below.get(step);
    if (next === undefined) {
      next = { below: new Map(), edit: undefined };
      branch.below.set(step, next);
    }
    branch = next;
  }
  return branch;
}

function collect(scan: JsonScanner, start: number, branch: Branch, edits: ByteEdit[]): void {
  const here = { start, end: start };
  if (branch.edit !== undefined && 'json' in branch.edit) {
    edits.push({ start, end: scan.valueEnd(start), pieces: [branch.edit.json] });
    return;
  }
  if (scan.isString(here)) {
    const { edit } = branch;
    if (edit === undefined || 'json' in edit) return;
    if ('moves' in edit) edits.push(...movedParts(scan, start, edit));
    else edits.push({ start, end: scan.stringEnd(start), pieces: [JSON.stringify(edit.text)] });
  } else if (scan.isObject(here)) {
    // As in `JSON.parse`, the last of equal keys counts.
    const last = new Map(scan.members(start).map((member) => [member.key, member]));
    for (const [step, below] of branch.below) {
      const member = last.get(String(step));
      if (typeof step === 'string' && member !== undefined) collect(scan, member.valueStart, below, edits);
    }
  } else if (scan.isArray(here)) {
    const elements = scan.elements(start);
    for (const [step, below] of branch.below) {
      if (typeof step === 'object') {
        if (below.edit !== undefined && 'text' in below.edit) {
          edits.push(...writtenElements(scan, elements.slice(step.from, step.to + 1), below.edit.text));
        }
        continue;
      }
      const element = typeof step === 'number' ? elements[step] : undefined;
      if (element !== undefined) collect(scan, element.start, below, edits);
    }
  }
}
