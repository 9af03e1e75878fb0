import { WarmpathError } from '@warmpath/core';
import { describeJsonError } from '@warmpath/core/internal';
import type { Line } from './lines.js';

type Values = Readonly<Record<string, unknown>>;

/**
 * The fields of a JSON object from outside. Every reader answers with a checked value or throws
 * `WARMPATH_INVALID_REQUEST` whose path says where in the input it stands: `corpus.jsonl line 3: contexts[0].text`.
 */
export class JsonFields {
  /** Where this object stands; empty for the input as a whole. */
  readonly path: string;
  readonly #values: Values;
  readonly #separator: string;

  private constructor(values: Values, path: string, separator: string) {
    this.#values = values;
    this.path = path;
    this.#separator = separator;
  }

  /**
   * The object that a line holds. Errors: `WARMPATH_INVALID_JSON`, `WARMPATH_INVALID_REQUEST` if it is JSON but no
   * object.
   *
   * @param file stands before the line's number in every path; nothing by default
   */
  static ofLine({ number, text }: Line, file?: string): JsonFields {
    const path = file === undefined ? `line ${number}` : `${file} line ${number}`;
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (cause) {
      throw new WarmpathError('WARMPATH_INVALID_JSON', { path, detail: describeJsonError(text), cause });
    }
    if (!isObject(value)) throw invalid(path, 'an object was expected');
    return new JsonFields(value, path, ': ');
  }

  has(name: string): boolean {
    return this.#values[name] !== undefined && this.#values[name] !== null;
  }

  /** The value as it came, unchecked. */
  raw(name: string): unknown {
    return this.#values[name];
  }

  text(name: string): string {
    const value = this.#values[name];
    if (typeof value !== 'string') throw invalid(this.pathOf(name), 'a string was expected');
    return value;
  }

  /** Absent and `null` are the same. */
  optionalText(name: string): string | undefined {
    return this.has(name) ? this.text(name) : undefined;
  }

  /** A whole number of 0 or more. */
  count(name: string): number {
    return readCount(this.#values[name], this.pathOf(name));
  }

  optionalCount(name: string): number | undefined {
    return this.has(name) ? this.count(name) : undefined;
  }

  list(name: string): readonly unknown[] {
    const value = this.#values[name];
    if (!Array.isArray(value)) throw invalid(this.pathOf(name), 'an array was expected');
    return value;
  }

  texts(name: string): readonly string[] {
    return this.list(name).map((value, i) => {
      if (typeof value !== 'string') throw invalid(`${this.pathOf(name)}[${i}]`, 'a string was expected');
      return value;
    });
  }

  object(name: string): JsonFields {
    const value = this.#values[name];
    if (!isObject(value)) throw invalid(this.pathOf(name), 'an object was expected');
    return new JsonFields(value, this.pathOf(name), '.');
  }

  objects(name: string): readonly JsonFields[] {
    return this.list(name).map((value, i) => {
      const path = `${this.pathOf(name)}[${i}]`;
      if (!isObject(value)) throw invalid(path, 'an object was expected');
      return new JsonFields(value, path, '.');
    });
  }

  /** Where a field stands, for errors. */
  pathOf(name: string): string {
    return this.path === '' ? name : `${this.path}${this.#separator}${name}`;
  }
}

/** Checks a whole number of 0 or more. Error: `WARMPATH_INVALID_REQUEST` at `path`. */
export function readCount(value: unknown, path: string): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw invalid(path, 'a whole number of 0 or more was expected');
}

export function isObject(value: unknown): value is Values {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** `WARMPATH_INVALID_REQUEST` at a place of the input. */
export function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
