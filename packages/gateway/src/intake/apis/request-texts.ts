import { arrayElements, type JsonSpan, objectMembers } from '../json-members.js';
import { JsonView } from '../json-view.js';

/** Elements of an array that stand side by side. */
export interface ElementRange {
  readonly from: number;
  /** The last of them. */
  readonly to: number;
}

/** Steps from the top of a body to one of its values: keys of objects and places in arrays. */
export type JsonPath = readonly (string | number)[];

/** The same, to a text: its last step may be several elements. */
export type TextPlace = readonly (string | number | ElementRange)[];

/** A JSON object as `JSON.parse` gives it. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** Whose words a text is, under one name for all APIs: `developer` is `system`, and a tool's result is `tool` wherever it stands. */
export type TextRole = 'system' | 'user' | 'assistant' | 'tool';

/** A text that a request puts before the model, with its place in the body. */
export interface RequestText {
  readonly role: TextRole;
  readonly text: string;
  /** Leads to the JSON string that holds the text, or to the elements that are the text: what `rewriteTexts` takes. */
  readonly place: TextPlace;
  /** `elements`: documents of the API's own, as JSON. `verbatim`: answers refer to places in it, so it must stay. */
  readonly kind?: 'elements' | 'verbatim';
}

/** One message (or item, or prompt) of a request. */
export interface RequestMessage {
  readonly role: TextRole;
  /** Leads to the whole message: `['messages', 3]`, `['system']`, `['input', 0]`, `['prompt']`. */
  readonly place: JsonPath;
  /** In their order; empty for a message without text, such as a call of a tool. */
  readonly texts: readonly RequestText[];
}

/** Another text for one place of a body. */
export interface TextChange {
  readonly place: TextPlace;
  readonly text: string;
}

/** `messages[2].content[0].text`, as errors name it. */
export function pathName(place: TextPlace): string {
  const name = place.map(stepName).join('');
  return name.startsWith('.') ? name.slice(1) : name;
}

function stepName(step: TextPlace[number]): string {
  if (typeof step === 'object') return `[${step.from}-${step.to}]`;
  return typeof step === 'number' ? `[${step}]` : `.${step}`;
}

/**
 * The body with other texts at these places and every other byte as it was; with no changes, the very same string. Of changes
 * to one place the last one counts; a place that does not lead to a string is passed over. Elements in another order keep the bytes
 * that each was written with, and what stands between them its place. O(body × depth of the places).
 *
 * `body` must be the text of one JSON object that `JSON.parse` accepts.
 */
export function rewriteTexts(body: string, changes: readonly TextChange[]): string {
  if (changes.length === 0) return body;
  const root: Branch = { below: new Map(), text: undefined };
  for (const { place, text } of changes) branchAt(root, place).text = text;
  const found: Written[] = [];
  collect(body, { start: 0, end: body.length }, root, found);
  const parts: string[] = [];
  let copied = 0;
  for (const { span, json } of found.sort((one, other) => one.span.start - other.span.start)) {
    parts.push(body.slice(copied, span.start), json);
    copied = span.end;
  }
  parts.push(body.slice(copied));
  return parts.join('');
}

/** Where the value that the path leads to stands; `undefined` if there is none. O(body × depth). */
export function valueAt(body: string, place: JsonPath): JsonSpan | undefined {
  return new JsonView(body).at(place)?.span;
}

/** JSON for a part of the body. */
interface Written {
  readonly span: JsonSpan;
  readonly json: string;
}

/** The elements of `text`, each in the place of one that stands there: as the client wrote it, if it did. O(both). */
function writtenElements(body: string, slots: readonly JsonSpan[], text: string): readonly Written[] {
  const written = new Map<string, string>();
  for (const { start, end } of slots) {
    const raw = body.slice(start, end);
    written.set(JSON.stringify(JSON.parse(raw)), raw);
  }
  const array = `[${text}]`;
  return arrayElements(array, 0).flatMap(({ start, end }, place) => {
    const span = slots[place];
    const json = array.slice(start, end);
    return span === undefined ? [] : [{ span, json: written.get(json) ?? json }];
  });
}

/** Changes as a tree, so that the body is walked once for all of them. */
interface Branch {
  readonly below: Map<TextPlace[number], Branch>;
  text: string | undefined;
}

function branchAt(root: Branch, place: TextPlace): Branch {
  let branch = root;
  for (const step of place) {
    let next = branch.below.get(step);
    if (next === undefined) {
      next = { below: new Map(), text: undefined };
      branch.below.set(step, next);
    }
    branch = next;
  }
  return branch;
}

function collect(body: string, span: JsonSpan, branch: Branch, found: Written[]): void {
  const first = body[skipToValue(body, span.start)];
  if (branch.text !== undefined && first === '"') found.push({ span, json: JSON.stringify(branch.text) });
  if (first === '{') {
    // Of a key that occurs twice the last one counts, as in `JSON.parse`.
    const last = new Map(objectMembers(body, span.start).map((member) => [member.key, member]));
    for (const [step, below] of branch.below) {
      const member = last.get(String(step));
      if (typeof step === 'string' && member !== undefined)
        collect(body, { start: member.valueStart, end: member.end }, below, found);
    }
  } else if (first === '[') {
    const elements = arrayElements(body, skipToValue(body, span.start));
    for (const [step, below] of branch.below) {
      if (typeof step === 'object') {
        if (below.text !== undefined)
          found.push(...writtenElements(body, elements.slice(step.from, step.to + 1), below.text));
        continue;
      }
      const element = typeof step === 'number' ? elements[step] : undefined;
      if (element !== undefined) collect(body, element, below, found);
    }
  }
}

function skipToValue(body: string, from: number): number {
  let at = from;
  while (body.charCodeAt(at) <= 0x20) at++;
  return at;
}
