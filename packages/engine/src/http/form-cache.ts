import { TenantCache } from '@warmpath/core/internal';

export interface ReadForm {
  readonly grammar?: string;
  /** Whether a whole answer fits what the grammar does not keep; every one does when left out. */
  readonly fits?: (text: string) => boolean;
}

/** Most bytes of the schemas that are kept, and of the grammars made from them. */
const MAX_BYTES = 8 * 1024 * 1024;
const BYTES_PER_CHARACTER = 2;

/** One schema serves all tenants: its grammar depends on nothing else. */
const ALL = '';

/** Grammars by the schemas they were made from. Those used longest ago go first. */
export class FormCache {
  readonly #forms: TenantCache<ReadForm>;

  constructor(capacityBytes = MAX_BYTES) {
    this.#forms = new TenantCache(capacityBytes);
  }

  get bytes(): number {
    return this.#forms.bytes;
  }

  /**
   * @param schema Decides, as JSON, what `read` returns.
   * @throws What `read` throws; that is not kept.
   */
  form(schema: unknown, read: () => ReadForm): ReadForm {
    const key = JSON.stringify(schema);
    const known = this.#forms.get(ALL, key);
    if (known !== undefined) return known;
    const form = read();
    const { grammar = '', fits } = form;
    // A check keeps the schema as objects.
    this.#forms.set(ALL, key, form, BYTES_PER_CHARACTER * (grammar.length + (fits === undefined ? 0 : key.length)));
    return form;
  }
}
