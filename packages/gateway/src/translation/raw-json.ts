/** JSON that is written as it stands: numbers beyond 2^53 and `1.0` survive. */
export class RawJson {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** A text, or the JSON string that says it: long ones are copied as the client wrote them instead of being written anew. */
export type JsonText = string | RawJson;

/** `JSON.stringify` for plain data with raw parts in it. O(size): every text is copied once, however deep it stands. */
export function writeJson(value: unknown): string {
  const written: string[] = [];
  write(value, written);
  return written.join('');
}

function write(value: unknown, written: string[]): void {
  if (value instanceof RawJson) written.push(value.text);
  else if (Array.isArray(value)) writeArray(value, written);
  else if (typeof value === 'object' && value !== null) writeObject(value, written);
  else written.push(JSON.stringify(value));
}

function writeArray(elements: readonly unknown[], written: string[]): void {
  written.push('[');
  for (const [place, element] of elements.entries()) {
    if (place > 0) written.push(',');
    write(element ?? null, written);
  }
  written.push(']');
}

function writeObject(object: object, written: string[]): void {
  let before = '{';
  for (const [key, member] of Object.entries(object)) {
    if (member === undefined) continue;
    written.push(`${before}${JSON.stringify(key)}:`);
    write(member, written);
    before = ',';
  }
  written.push(before === '{' ? '{}' : '}');
}
