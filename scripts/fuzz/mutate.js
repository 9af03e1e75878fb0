// Makes new inputs from inputs that are known. Every choice comes from `random`, so a seed repeats a run.

const INTERESTING_BYTES = [
  0x00, 0x01, 0x0a, 0x0d, 0x20, 0x22, 0x2c, 0x5c, 0x7b, 0x7d, 0x5b, 0x5d, 0x7f, 0x80, 0xc0, 0xff,
];
const INTERESTING_NUMBERS = [0, 1, -1, 2, 16, 127, 128, 255, 256, 65_535, 65_536, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1];
const INTERESTING_VALUES = [
  null,
  true,
  false,
  0,
  -1,
  0.5,
  2 ** 53,
  '',
  'a',
  '__proto__',
  'constructor',
  '\u0000',
  '\ud800',
  'é😀',
  [],
  {},
  [[]],
  [null],
];

/** Steps that are made one on the other at most. */
const MAX_STEPS = 6;

export class Mutator {
  #random;
  #tokens;
  #maxBytes;

  /**
   * @param random numbers in [0, 1).
   * @param tokens words of the input's language, as buffers.
   */
  constructor({ random, tokens, maxBytes }) {
    this.#random = random;
    this.#tokens = tokens.map((token) => Buffer.from(token));
    this.#maxBytes = maxBytes;
  }

  /** A new input from `input`, perhaps with something of `other`. */
  mutate(input, other) {
    let bytes = input;
    for (let step = 1 + this.#below(MAX_STEPS); step > 0; step--) bytes = this.#step(bytes, other);
    return bytes.length > this.#maxBytes ? bytes.subarray(0, this.#maxBytes) : bytes;
  }

  #step(bytes, other) {
    switch (this.#below(12)) {
      case 0:
        return changed(bytes, (copy) => {
          if (copy.length > 0) copy[this.#below(copy.length)] ^= 1 << this.#below(8);
        });
      case 1:
        return changed(bytes, (copy) => {
          if (copy.length > 0) copy[this.#below(copy.length)] = this.#one(INTERESTING_BYTES);
        });
      case 2:
        return changed(bytes, (copy) => {
          if (copy.length > 0) copy[this.#below(copy.length)] = this.#below(256);
        });
      case 3:
        return this.#withNumber(bytes);
      case 4: {
        const [from, to] = this.#range(bytes);
        return Buffer.concat([bytes.subarray(0, from), bytes.subarray(to)]);
      }
      case 5: {
        const [from, to] = this.#range(bytes);
        const at = this.#below(bytes.length + 1);
        const copies = Array.from({ length: 1 + this.#below(4) }, () => bytes.subarray(from, to));
        return Buffer.concat([bytes.subarray(0, at), ...copies, bytes.subarray(at)]);
      }
      case 6:
      case 7:
        return this.#tokens.length === 0 ? bytes : this.#put(bytes, this.#one(this.#tokens));
      case 8: {
        const [from, to] = this.#range(other);
        return this.#put(bytes, other.subarray(from, to));
      }
      case 9: {
        const cut = this.#below(Math.min(bytes.length, other.length) + 1);
        return Buffer.concat([bytes.subarray(0, cut), other.subarray(cut)]);
      }
      case 10:
        return this.#withDigits(bytes);
      default:
        return this.#withJson(bytes, other);
    }
  }

  /** Inserts a piece, or writes it over what is there. */
  #put(bytes, piece) {
    const at = this.#below(bytes.length + 1);
    const behind = this.#below(2) === 0 ? at : Math.min(bytes.length, at + piece.length);
    return Buffer.concat([bytes.subarray(0, at), piece, bytes.subarray(behind)]);
  }

  /** A number of 2, 4 or 8 bytes in either byte order. */
  #withNumber(bytes) {
    const size = this.#one([2, 4, 8]);
    if (bytes.length < size) return bytes;
    return changed(bytes, (copy) => {
      const at = this.#below(copy.length - size + 1);
      const value = BigInt(this.#one(INTERESTING_NUMBERS)) + BigInt(this.#below(3) - 1);
      const number = Buffer.alloc(8);
      number.writeBigInt64LE(BigInt.asIntN(64, value));
      const piece = number.subarray(0, size);
      copy.set(this.#below(2) === 0 ? piece : piece.reverse(), at);
    });
  }

  /** A number in digits, such as a label or a length, becomes another. */
  #withDigits(bytes) {
    const text = bytes.toString('latin1');
    const numbers = [...text.matchAll(/\d+/g)];
    if (numbers.length === 0) return bytes;
    const { 0: digits, index } = this.#one(numbers);
    const near = Number(digits.slice(0, 9)) + this.#below(5) - 2;
    const value = this.#below(2) === 0 ? String(near) : String(this.#one(INTERESTING_NUMBERS));
    return Buffer.from(text.slice(0, index) + value + text.slice(index + digits.length), 'latin1');
  }

  /** Where the input is JSON: one of its values goes, comes twice, changes places, or becomes another. */
  #withJson(bytes, other) {
    const root = parsed(bytes);
    if (root === undefined) return bytes;
    const holder = { root };
    const places = [];
    collect(holder, places);
    const [parent, key] = this.#one(places);
    switch (this.#below(5)) {
      case 0:
        if (Array.isArray(parent)) parent.splice(key, 1);
        else delete parent[key];
        break;
      case 1:
        if (Array.isArray(parent)) parent.splice(key, 0, parent[key]);
        else define(parent, this.#word(), parent[key]);
        break;
      case 2: {
        const [from, name] = this.#one(places);
        define(parent, key, structuredClone(from[name]));
        break;
      }
      case 3: {
        const foreign = { root: parsed(other) ?? null };
        const others = [];
        collect(foreign, others);
        const [from, name] = this.#one(others);
        define(parent, key, from[name]);
        break;
      }
      default:
        define(parent, key, this.#below(3) === 0 ? this.#word() : this.#one(INTERESTING_VALUES));
    }
    return Buffer.from(JSON.stringify(holder.root) ?? '');
  }

  #word() {
    return this.#tokens.length === 0 ? 'a' : this.#one(this.#tokens).toString();
  }

  #range(bytes) {
    const from = this.#below(bytes.length + 1);
    const most = this.#below(3) === 0 ? bytes.length - from : Math.min(bytes.length - from, 32);
    return [from, from + this.#below(most + 1)];
  }

  #one(list) {
    return list[this.#below(list.length)];
  }

  #below(limit) {
    return Math.floor(this.#random() * limit);
  }
}

function changed(bytes, change) {
  const copy = Buffer.from(bytes);
  change(copy);
  return copy;
}

function parsed(bytes) {
  const first = bytes[0];
  if (first !== 0x7b && first !== 0x5b) return undefined;
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}

/** Places in a value that are looked at. */
const MAX_PLACES = 2_000;

/** Every place of a value, as what holds it and under which key. */
function collect(holder, places) {
  const open = [holder];
  for (let value = open.pop(); value !== undefined && places.length < MAX_PLACES; value = open.pop()) {
    for (const key of Array.isArray(value) ? value.keys() : Object.keys(value)) {
      places.push([value, key]);
      if (typeof value[key] === 'object' && value[key] !== null) open.push(value[key]);
    }
  }
}

/** As JSON.parse does it: `__proto__` is a key like any other. */
function define(parent, key, value) {
  Object.defineProperty(parent, key, { value, configurable: true, enumerable: true, writable: true });
}
