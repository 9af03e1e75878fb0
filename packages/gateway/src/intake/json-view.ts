import { arrayElements, type JsonSpan, objectMembers } from './json-members.js';

/** A value inside of JSON text: what stands below it is found once, when it is first asked for. */
export class JsonView {
  readonly #text: string;
  readonly #span: JsonSpan;
  #members: ReadonlyMap<string, JsonView> | undefined;
  #elements: readonly JsonView[] | undefined;

  /** `text`: JSON that `JSON.parse` accepts. */
  constructor(text: string, span: JsonSpan = { start: firstCharacter(text), end: text.length }) {
    this.#text = text;
    this.#span = span;
  }

  /** The value as it is written. */
  get raw(): string {
    return this.#text.slice(this.#span.start, this.#span.end);
  }

  /** Where the value stands in the text. */
  get span(): JsonSpan {
    return this.#span;
  }

  /** The value that the steps lead to; `undefined` if there is none. O(the containers on the way), the first time. */
  at(steps: readonly (string | number)[]): JsonView | undefined {
    let view: JsonView | undefined = this;
    for (const step of steps) {
      view = typeof step === 'number' ? view.#below()[step] : view.#named().get(step);
      if (view === undefined) return undefined;
    }
    return view;
  }

  /** Of a key that occurs twice the last one counts, as in `JSON.parse`. */
  #named(): ReadonlyMap<string, JsonView> {
    if (this.#text[this.#span.start] !== '{') return NOTHING;
    this.#members ??= new Map(
      objectMembers(this.#text, this.#span.start).map(({ key, valueStart: start, end }) => [
        key,
        new JsonView(this.#text, { start, end }),
      ]),
    );
    return this.#members;
  }

  #below(): readonly JsonView[] {
    if (this.#text[this.#span.start] !== '[') return [];
    this.#elements ??= arrayElements(this.#text, this.#span.start).map((span) => new JsonView(this.#text, span));
    return this.#elements;
  }
}

const NOTHING: ReadonlyMap<string, JsonView> = new Map();

function firstCharacter(text: string): number {
  let at = 0;
  while (text.charCodeAt(at) <= 0x20) at++;
  return at;
}
