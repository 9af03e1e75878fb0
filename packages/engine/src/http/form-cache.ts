/** What an answer is held to. */
export interface ReadForm {
  /** What the answer must follow. */
  readonly grammar?: string;
  /** Whether a whole answer fits what the grammar does not keep; every one does when left out. */
  readonly fits?: (text: string) => boolean;
}

/** Most bytes of the schemas that are kept, and of the grammars made from them. */
const MAX_BYTES = 8 * 1024 * 1024;
const BYTES_PER_CHARACTER = 2;

/** Grammars by the schemas they were made from. Those used longest ago go first. */
export class FormCache {
  readonly #forms = new Map<string, ReadForm>();
  readonly #capacityBytes: number;
  #bytes = 0;

  constructor(capacityBytes = MAX_BYTES) {
    this.#capacityBytes = capacityBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /**
   * @param schema Decides, as JSON, what `read` returns.
   * @throws What `read` throws; that is not kept.
   */
  form(schema: unknown, read: () => ReadForm): ReadForm {
    const key = JSON.stringify(schema);
    const known = this.#forms.get(key);
    const form = known ?? read();
    this.#forms.delete(key);
    this.#forms.set(key, form);
    this.#bytes += known === undefined ? bytesOf(key, form) : 0;
    for (const [oldest, each] of this.#forms) {
      if (this.#bytes <= this.#capacityBytes) {
        break;
      }
      this.#forms.delete(oldest);
      this.#bytes -= bytesOf(oldest, each);
    }
    return form;
  }
}

/** A check keeps the schema as objects. */
function bytesOf(key: string, { grammar = '', fits }: ReadForm): number {
  return BYTES_PER_CHARACTER * (key.length * (fits === undefined ? 1 : 2) + grammar.length);
}
