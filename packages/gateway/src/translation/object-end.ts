/** Tells when a JSON object that comes in pieces has ended. O(length) in all; whether it is valid is not looked at. */
export class ObjectEnd {
  #depth = 0;
  #inString = false;
  #escaped = false;
  #isReached = false;

  /** Whether the object has been closed. */
  get isReached(): boolean {
    return this.#isReached;
  }

  read(piece: string): void {
    for (const character of piece) {
      if (this.#inString) this.#readInString(character);
      else if (character === '"') this.#inString = true;
      else if (character === '{' || character === '[') this.#depth++;
      else if (character === '}' || character === ']') {
        this.#depth--;
        this.#isReached ||= this.#depth === 0;
      }
    }
  }

  #readInString(character: string): void {
    if (this.#escaped) this.#escaped = false;
    else if (character === '\\') this.#escaped = true;
    else if (character === '"') this.#inString = false;
  }
}
