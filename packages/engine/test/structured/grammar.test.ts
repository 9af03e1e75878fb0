import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isFull, runs } from '../../../../test/suite.js';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { seededRandom } from '../../src/loop/sampler.js';
import { llamaBindings } from '../../src/native/bindings.js';
import { utf8Ends } from '../../src/native/grammar.js';
import { NativeModel } from '../../src/native/model.js';
import { writeGrammar } from '../../src/structured/gbnf.js';
import { readJsonSchema } from '../../src/structured/json-schema.js';
import { anySchema, misfit, RECURSIVE_SCHEMAS, type TestSchema } from './random-schema.js';

let model: NativeModel;
beforeAll(async () => {
  model = await NativeModel.load(llamaBindings(), await modelPath('random:1m'));
});
afterAll(() => model.free());

function grammarOf(schema: TestSchema): string {
  return writeGrammar(readJsonSchema(schema, 'schema').node, 'schema');
}

/** Tokens after which most answers are soon over. */
const CLOSING = /^["}\]]$/;

/**
 * An answer of a model that says anything: tokens drawn from those that the grammar allows. What closes something is
 * drawn more often, the more so the longer the answer is.
 */
function babble(grammar: string, seed: number): string {
  const { vocabulary } = model;
  const random = seededRandom(seed);
  const open = vocabulary.grammars.open(grammar);
  const pieces: Uint8Array[] = [];
  try {
    for (let count = 0; count < 3000; count++) {
      const allowed = open.allowed();
      const closing = allowed.filter(
        (token) => vocabulary.endsGeneration(token) || CLOSING.test(Buffer.from(vocabulary.piece(token)).toString()),
      );
      const choice = closing.length > 0 && random() < Math.min(0.9, 0.2 + count / 100) ? closing : allowed;
      expect(choice.length).toBeGreaterThan(0);
      const token = choice[Math.floor(random() * choice.length)]!;
      open.accept(token);
      if (vocabulary.endsGeneration(token)) {
        return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(pieces));
      }
      pieces.push(vocabulary.piece(token));
    }
  } finally {
    open.free();
  }
  throw new Error(`No end: ${Buffer.concat(pieces).toString()}`);
}

/** Follows a grammar for some tokens, opening what can be opened and ending nothing; says how many there were. */
function follow(text: string, count: number, seed: number): number {
  const { vocabulary } = model;
  const random = seededRandom(seed);
  const grammar = vocabulary.grammars.open(text);
  let followed = 0;
  for (; followed < count; followed++) {
    const allowed = grammar.allowed().filter((token) => !vocabulary.endsGeneration(token));
    if (allowed.length === 0) {
      break;
    }
    const opening = allowed.filter((token) => /^[[{]/.test(Buffer.from(vocabulary.piece(token)).toString()));
    const choice = opening.length > 0 ? opening : allowed;
    grammar.accept(choice[Math.floor(random() * choice.length)]!);
  }
  grammar.free();
  return followed;
}

describe('an answer that follows the grammar of a schema', () => {
  it('fits the schema, whatever the model says', () => {
    fc.assert(
      fc.property(anySchema, fc.nat(), (schema, seed) => {
        expect(misfit(babble(grammarOf(schema), seed), schema)).toBeUndefined();
      }),
      { seed: 1, numRuns: runs(400) },
    );
  });

  it('may go on with exactly the tokens that may follow when all are asked about', () => {
    const { vocabulary } = model;
    const all = Array.from({ length: vocabulary.size }, (_, token) => token);
    const schemas = [
      { type: 'object' },
      { type: 'array', items: { type: 'string', minLength: 2 } },
      { enum: ['ключ', '🌍', 'alpha', 'al'] },
      { type: 'integer', minimum: -12, maximum: 4000 },
    ];
    for (const [index, schema] of schemas.entries()) {
      const random = seededRandom(index);
      const open = vocabulary.grammars.open(grammarOf(schema));
      for (let count = 0; count < 40; count++) {
        const allowed = open.allowed();
        const isAllowed = open.allows(all);
        expect([...allowed].sort((a, b) => a - b)).toEqual(all.filter((token) => isAllowed[token]));
        const token = allowed[Math.floor(random() * allowed.length)]!;
        open.accept(token);
        if (vocabulary.endsGeneration(token)) {
          break;
        }
      }
      open.free();
    }
  });

  it.each(RECURSIVE_SCHEMAS)('fits a schema that holds itself: %j', (schema) => {
    const grammar = grammarOf(schema);
    for (let seed = 0; seed < 20; seed++) {
      expect(misfit(babble(grammar, seed), schema)).toBeUndefined();
    }
  });

  it('may be every constant of an enumeration, and every number of a range', () => {
    fc.assert(
      fc.property(fc.integer({ min: -130, max: 130 }), fc.nat({ max: 140 }), (minimum, width) => {
        const grammar = grammarOf({ type: 'integer', minimum, maximum: minimum + width });
        for (const number of [
          minimum - 1,
          minimum,
          minimum + Math.floor(width / 2),
          minimum + width,
          minimum + width + 1,
        ]) {
          const isWithin = number >= minimum && number <= minimum + width;
          expect(accepts(grammar, String(number)), `${number} in ${minimum} + ${width}`).toBe(isWithin);
        }
      }),
      { seed: 2, numRuns: runs(200) },
    );
    const texts = ['a', 'ab', 'b', '', 'ключ', '🌍', '🌎', 'a"\\'];
    const grammar = grammarOf({ enum: [...texts, 1, 12, -1, null, true] });
    for (const value of [...texts, 1, 12, -1, null, true]) {
      expect(accepts(grammar, JSON.stringify(value)), String(value)).toBe(true);
    }
    for (const value of ['ba', 'c', 2, 121, false]) {
      expect(accepts(grammar, JSON.stringify(value)), String(value)).toBe(false);
    }
  });

  it('matches a pattern', () => {
    const character = fc.constantFrom('a', 'Z', '7', '_', ' ', ':', '-', '/');
    const inClass = fc.constantFrom('a-f', 'A-Z', '0-9', '\\d', '\\w', '_', '.', '+', '\\-', '#-&', ' -!', '^');
    const item = fc.oneof(
      character.filter((each) => each !== '-' && each !== '/'),
      fc.constantFrom('\\d', '\\w', '\\.', '\\(', '\\$', '-'),
      fc.array(inClass, { minLength: 1, maxLength: 4 }).map((members) => `[a${members.join('')}-]`),
    );
    const times = fc.constantFrom('', '', '?', '*', '+', '{3}', '{0}', '{1,4}', '{2,}', '{0,2}');
    const pattern = fc.array(fc.tuple(item, times), { maxLength: 6 }).map((items) => `^${items.flat().join('')}$`);
    const text = fc.string({
      unit: fc.oneof(character, fc.constantFrom('.', '(', '$', '%', '"', ']', 'é')),
      maxLength: 8,
    });
    const cases = pattern.chain((source) =>
      fc.record({ source: fc.constant(source), answer: fc.stringMatching(new RegExp(source)), other: text }),
    );
    let matching = 0;
    fc.assert(
      fc.property(cases, ({ source, answer, other }) => {
        const grammar = grammarOf({ type: 'string', pattern: source });
        const regular = new RegExp(source, 'u');
        for (const given of [answer, other, answer.slice(0, -1), answer + other, `a${answer}`]) {
          expect(accepts(grammar, JSON.stringify(given)), `${source} ${given}`).toBe(regular.test(given));
          matching += regular.test(given) ? 1 : 0;
        }
      }),
      { seed: 6, numRuns: runs(300) },
    );
    expect(matching).toBeGreaterThan(runs(200));
    expect(accepts(grammarOf({ type: 'string', pattern: '^[a\\]]$' }), '"]"')).toBe(true);
  });

  it.each([
    [255, 256],
    [0, 255],
    [0, 256],
    [300, 800],
    [512, 512],
    [0, 1024],
  ])('has from %i to %i characters', (minLength, maxLength) => {
    const grammar = grammarOf({ type: 'string', minLength, maxLength });
    for (const length of [minLength - 1, minLength, maxLength, maxLength + 1].filter((each) => each >= 0)) {
      expect(accepts(grammar, JSON.stringify('é'.repeat(length))), String(length)).toBe(
        length >= minLength && length <= maxLength,
      );
    }
  });

  it('never holds a control token or half a character', () => {
    const { vocabulary } = model;
    const grammar = vocabulary.grammars.open(grammarOf({ type: 'string' }));
    grammar.accept(tokensOf('"')[0]!);
    const control = Array.from({ length: vocabulary.size }, (_, token) => token).filter(
      (token) => vocabulary.piece(token).length === 0 && !vocabulary.endsGeneration(token),
    );
    expect(control.length).toBeGreaterThan(2);
    expect(grammar.allows(control)).toEqual(control.map(() => false));
    // 0xE0 is followed by 0xA0 to 0xBF only, though 0x80 is a continuation byte as well.
    const byteToken = (byte: number): number =>
      Array.from({ length: vocabulary.size }, (_, token) => token).find((token) => {
        const piece = vocabulary.piece(token);
        return piece.length === 1 && piece[0] === byte;
      })!;
    grammar.accept(byteToken(0xe0));
    expect(grammar.allows([0x80, 0x9f, 0xa0, 0xbf, 0x41].map(byteToken))).toEqual([false, false, true, true, false]);
    expect(grammar.allowed().every((token) => vocabulary.piece(token)[0]! >= 0xa0)).toBe(true);
    grammar.free();
  });

  it.runIf(isFull).each<[string, TestSchema]>([
    ['constants within constants', { enum: Array.from({ length: 1000 }, (_, i) => 'x'.repeat(i * 20)) }],
    ['long strings', { anyOf: Array.from({ length: 60 }, (_, i) => ({ type: 'string', maxLength: 250 - i })) }],
    ['many numbers', { anyOf: Array.from({ length: 60 }, (_, i) => ({ type: 'integer', minimum: i, maximum: 1e15 })) }],
    ['optional properties', { properties: Object.fromEntries(Array.from({ length: 63 }, (_, i) => [`p${i}`, {}])) }],
    ['a deep schema', Array.from({ length: 60 }).reduce<TestSchema>((items) => ({ type: 'array', items }), {})],
  ])('can be followed in a schema that is nearly too large: %s', (_, schema) => {
    expect(follow(grammarOf(schema), 300, 1)).toBeGreaterThan(0);
  });

  it('can be followed in every schema that is not refused, however its parts refer to each other', () => {
    const names = ['a', 'b', 'c', 'd'];
    const reference = fc.constantFrom(...names).map((name) => ({ $ref: `#/$defs/${name}` }));
    const leaf = fc.constantFrom<object>({ type: 'null' }, { type: 'string' }, { const: 1 }, {});
    const part = fc.oneof(reference, reference, leaf);
    const definition = fc.oneof(
      fc.array(part, { minLength: 1, maxLength: 3 }).map((anyOf): object => ({ anyOf })),
      fc.dictionary(fc.constantFrom('a', 'b'), part).map((properties): object => ({ type: 'object', properties })),
      part.map((items): object => ({ type: 'array', items })),
    );
    let taken = 0;
    fc.assert(
      fc.property(fc.tuple(definition, definition, definition, definition), fc.nat(), ([a, b, c, d], seed) => {
        let grammar: string;
        try {
          grammar = grammarOf({ $ref: '#/$defs/a', $defs: { a, b, c, d } });
        } catch {
          return;
        }
        taken++;
        follow(grammar, 40, seed);
      }),
      { seed: 5, numRuns: runs(120) },
    );
    expect(taken).toBeGreaterThan(runs(40));
  });

  it('leaves no grammar open', () => {
    expect(model.vocabulary.grammars.counts.open).toBe(0);
  });
});

/** A text in tokens, each the longest that fits: which of the ways to write it is chosen does not matter here. */
function tokensOf(text: string): number[] {
  const { vocabulary } = model;
  byPiece ??= new Map(
    Array.from({ length: vocabulary.size }, (_, token) => [
      Buffer.from(vocabulary.piece(token)).toString('latin1'),
      token,
    ]),
  );
  const bytes = Buffer.from(text).toString('latin1');
  const tokens: number[] = [];
  for (let at = 0; at < bytes.length; ) {
    let length = Math.min(32, bytes.length - at);
    while (!byPiece.has(bytes.slice(at, at + length))) {
      length--;
    }
    tokens.push(byPiece.get(bytes.slice(at, at + length))!);
    at += length;
  }
  return tokens;
}

let byPiece: Map<string, number> | undefined;

/** Whether a text, token by token, can be a whole answer. */
function accepts(text: string, answer: string): boolean {
  const { vocabulary } = model;
  const grammar = vocabulary.grammars.open(text);
  const end = Array.from({ length: vocabulary.size }, (_, token) => token).filter((token) =>
    vocabulary.endsGeneration(token),
  );
  expect(end).toHaveLength(1);
  try {
    for (const token of tokensOf(answer)) {
      if (!grammar.allows([token])[0]!) {
        return false;
      }
      grammar.accept(token);
    }
    return grammar.allows(end)[0]!;
  } finally {
    grammar.free();
  }
}

describe('pieces of UTF-8', () => {
  it('are those that a valid text can be cut into', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', minLength: 1 }), fc.nat(), fc.nat(), (text, a, b) => {
        const bytes = new TextEncoder().encode(text);
        const [start, end] = [a % bytes.length, b % (bytes.length + 1)].sort((x, y) => x - y);
        expect(utf8Ends(bytes.slice(start, end))).toBeDefined();
      }),
      { seed: 3 },
    );
  });

  it('are only those', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 5 }), (bytes) => {
        const decoder = new TextDecoder('utf-8', { fatal: true });
        const isValid = (before: number[], after: number[]): boolean => {
          try {
            decoder.decode(Uint8Array.from([...before, ...bytes, ...after]));
            return true;
          } catch {
            return false;
          }
        };
        const rests = [[], [0x80], [0x80, 0x80], [0x80, 0x80, 0x80], [0xa0, 0x80], [0x90, 0x80, 0x80], [0x80, 0x80]];
        const starts = [[], [0xc3], [0xe1], [0xe1, 0x80], [0xf1], [0xf1, 0x80], [0xf1, 0x80, 0x80]];
        const others = [[0xe0], [0xf0], [0xed], [0xf4]];
        const isPiece = [...starts, ...others].some((before) => rests.some((after) => isValid(before, after)));
        expect(utf8Ends(bytes) !== undefined, bytes.join(' ')).toBe(isPiece);
      }),
      { seed: 4, numRuns: runs(3000) },
    );
  });
});
