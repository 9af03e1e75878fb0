import { WarmpathError } from '@warmpath/core';
import { describe, expect, it } from 'vitest';
import { writeGrammar } from '../../src/structured/gbnf.js';
import { readJsonSchema } from '../../src/structured/json-schema.js';

function grammarOf(schema: unknown): string {
  return writeGrammar(readJsonSchema(schema, 's').node, 's');
}

/** The path at which a schema is refused, and why. */
function refusal(schema: unknown): [path: unknown, message: string] {
  try {
    grammarOf(schema);
  } catch (error) {
    if (WarmpathError.isInstance(error)) {
      expect(error.code).toBe('WARMPATH_INVALID_REQUEST');
      return [error.path, error.message];
    }
    throw error;
  }
  throw new Error('It was taken');
}

const pair = (next: object): object => ({
  anyOf: [
    { type: 'object', properties: { a: next }, required: ['a'] },
    { type: 'object', properties: { a: next, b: {} }, required: ['a'] },
  ],
});

describe('a schema', () => {
  it.each<[what: string, schema: unknown, path: string]>([
    ['no object', 'string', 's'],
    ['false', { properties: { a: false }, required: ['a'] }, 's.properties.a'],
    ['a type that is none', { type: 'text' }, 's.type'],
    ['a lookbehind', { properties: { a: { type: 'string', pattern: '(?<=a)b' } } }, 's.properties.a.pattern'],
    ['no pattern', { type: 'string', pattern: '(' }, 's.pattern'],
    ['a pattern of too many states', { type: 'string', pattern: '^(a|b)*a(a|b){30}$' }, 's.pattern'],
    ['a pattern that no text of the format fits', { type: 'string', format: 'date', pattern: '^a' }, 's.pattern'],
    ['a pattern that no text of the length fits', { type: 'string', pattern: '^abc$', maxLength: 2 }, 's.pattern'],
    ['half a length', { type: 'string', maxLength: 0.5 }, 's.maxLength'],
    ['a length beyond all', { type: 'string', maxLength: 1e9 }, 's.maxLength'],
    ['lengths that contradict', { type: 'string', minLength: 3, maxLength: 2 }, 's.maxLength'],
    ['too many items', { type: 'array', items: {}, minItems: 1e6 }, 's.minItems'],
    ['bounds without a number', { type: 'integer', minimum: 3, exclusiveMaximum: 3 }, 's'],
    ['fewer properties than it must have', { properties: { a: {} }, minProperties: 2 }, 's.minProperties'],
    ['fewer items than it must have', { prefixItems: [{}], items: false, minItems: 2 }, 's.minItems'],
    ['a multiple of nothing', { type: 'number', multipleOf: 0 }, 's.multipleOf'],
    ['a negated pattern', { type: 'string', not: { pattern: '^a' } }, 's.not'],
    ['two schemas that contradict', { allOf: [{ const: 1 }, { const: 2 }] }, 's.const'],
    ['an unknown keyword', { type: 'string', maximumLength: 2 }, 's.maximumLength'],
    ['no constant', { enum: [] }, 's.enum'],
    ['a constant of another type', { type: 'string', const: 1 }, 's.const'],
    ['a reference elsewhere', { $ref: 'https://example.com/a.json' }, 's.$ref'],
    ['a reference to nothing', { $ref: '#/$defs/a' }, 's.$ref'],
    ['a reference to what every object has', { $ref: '#/constructor' }, 's.$ref'],
    ['itself alone', { $ref: '#' }, 's'],
    ['itself as an alternative', { anyOf: [{ type: 'null' }, { $ref: '#' }] }, 's'],
    [
      'alternatives that stay open for ever',
      { $defs: { a: pair({ anyOf: [{ $ref: '#/$defs/a' }, { type: 'null' }] }) }, $ref: '#/$defs/a' },
      's.$defs.a.anyOf',
    ],
    [
      'too many alternatives that begin alike',
      { anyOf: Array.from({ length: 65 }, () => ({ type: 'array', items: {} })) },
      's.anyOf',
    ],
    [
      'too many optional properties',
      { properties: Object.fromEntries(Array.from({ length: 80 }, (_, i) => [`p${i}`, {}])) },
      's',
    ],
  ])('is refused with its path: %s', (_, schema, path) => {
    expect(refusal(schema)[0]).toBe(path);
  });

  it('is refused where the readings of an answer would double with every level', () => {
    let schema: object = { type: 'string' };
    const $defs: Record<string, unknown> = {};
    for (let level = 0; level < 12; level++) {
      $defs[`l${level}`] = pair(schema);
      schema = { $ref: `#/$defs/l${level}` };
    }
    expect(refusal({ ...schema, $defs })[1]).toContain('begin alike');
  });

  it('may have such alternatives where their first property tells them apart', () => {
    const node = (kind: string): object => ({
      type: 'object',
      properties: { kind: { const: kind }, left: { $ref: '#' }, right: { $ref: '#' } },
      required: ['kind'],
    });
    expect(grammarOf({ anyOf: ['a', 'b', 'c', 'd'].map(node) })).toContain('root ::=');
  });

  it.each<[string, unknown]>([
    ['deep', Array.from({ length: 100 }).reduce<object>((items) => ({ type: 'array', items }), {})],
    ['wide', { properties: Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`p${i}`, true])), required: [] }],
    ['long constants', { enum: Array.from({ length: 1000 }, (_, i) => `${i}`.padEnd(5000, 'x')) }],
    ['many constants', { enum: Array.from({ length: 100_000 }, (_, i) => i) }],
    ['a key that is a book', { properties: { ['x'.repeat(2_000_000)]: {} }, required: ['x'.repeat(2_000_000)] }],
  ])('is refused, and soon, where it is too large: %s', (_, schema) => {
    expect(refusal(schema)[1]).toMatch(/at most|too large/);
  });

  it('of a string with a length weighs little, however long the string', () => {
    expect(grammarOf({ type: 'string', maxLength: 65_536 }).length).toBeLessThan(10_000);
  });

  it('has lengths that no grammar counts checked when the answer is whole', () => {
    const { node, check } = readJsonSchema({ type: 'string', minLength: 2000, maxLength: 3000 }, 's');
    expect(node).toEqual({ kind: 'reference', path: 's', target: { kind: 'string', min: 1024, max: undefined } });
    expect([1999, 2000, 3000, 3001].map((length) => check!('é'.repeat(length)))).toEqual([false, true, true, false]);
    expect(readJsonSchema({ type: 'string', maxLength: 1024 }, 's').check).toBeUndefined();
  });
});
