import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeModel } from '../../src/native/model.js';
import { writeGrammar } from '../../src/structured/gbnf.js';
import { readJsonSchema } from '../../src/structured/json-schema.js';

let model: NativeModel;
beforeAll(async () => {
  model = await NativeModel.load(llamaBindings(), await modelPath('random:1m'));
});
afterAll(() => model.free());

/** A kind of schema, values that fit it and values that do not. */
type Kind = readonly [name: string, schema: unknown, right: readonly unknown[], wrong: readonly unknown[]];

const zod = (schema: z.ZodType): unknown => z.toJSONSchema(schema);
const old = (schema: z.ZodType): unknown => z.toJSONSchema(schema, { target: 'draft-7' });

const Cat = z.object({ kind: z.literal('cat'), lives: z.int() });
const Dog = z.object({ kind: z.literal('dog'), name: z.string() });
const Tree: z.ZodType = z.lazy(() => z.object({ value: z.number(), children: z.array(Tree) }));

/** As pydantic 2 writes a model. */
const pydantic = (properties: object, more: object = {}): object => ({
  title: 'Model',
  type: 'object',
  properties,
  required: Object.keys(properties),
  ...more,
});
const UUID = '123e4567-e89b-42d3-a456-426614174000';

const KINDS: readonly Kind[] = [
  // Strings of zod.
  ['z.string', zod(z.string()), ['', 'a "quoted"\n word', 'ß🌍'], [1, null, ['a']]],
  ['z.string.min.max', zod(z.string().min(2).max(4)), ['ab', 'abcd', '🌍🌍'], ['a', 'abcde', '']],
  ['z.email', zod(z.email()), ['a@b.org', 'a.b+c@x-y.co.uk', 'A1@b.de'], ['a', 'a@b', 'a..b@c.org']],
  ['z.url', zod(z.url()), ['https://a.org/b?c=d#e', 'http://a.b', 'ftp://x.y/z'], ['a.org', '//a', 'http://a b']],
  [
    'z.uuid',
    zod(z.uuid()),
    [UUID, UUID.replace('4266', '4111'), '123e4567-e89b-12d3-b456-426614174000'],
    ['1', `${UUID}0`, UUID.replace('4', 'x')],
  ],
  [
    'z.uuidv4',
    zod(z.uuidv4()),
    [UUID, UUID.replace('e89b', 'e000'), UUID.replace('4266', '4111')],
    ['1', UUID.replace('42d3', '12d3'), ''],
  ],
  ['z.iso.date', zod(z.iso.date()), ['2024-02-29', '1999-12-31', '2000-01-01'], ['2023-02-29', '2023-13-01', '23-1-1']],
  ['z.iso.time', zod(z.iso.time()), ['23:59:59', '01:02:03.5', '00:00:00'], ['24:00:00', '1:2:3', 'x']],
  [
    'z.iso.datetime',
    zod(z.iso.datetime()),
    ['2024-02-29T23:59:59Z', '2000-01-01T00:00:00.123Z', '1999-12-31T12:00:00Z'],
    ['2024-02-29', '2024-02-29 23:59:59Z', '2023-02-29T00:00:00Z'],
  ],
  ['z.iso.duration', zod(z.iso.duration()), ['P3W', 'P1Y2M3DT4H5M6S', 'PT36H'], ['P', 'PT', '3W']],
  ['z.ipv4', zod(z.ipv4()), ['0.0.0.0', '255.255.255.255', '10.1.2.3'], ['256.0.0.1', '1.2.3', 'a']],
  ['z.ipv6', zod(z.ipv6()), ['::1', '2001:db8::1', '1:2:3:4:5:6:7:8'], [':', '1:2', '12345::']],
  ['z.cidrv4', zod(z.cidrv4()), ['10.0.0.0/8', '1.2.3.4/32', '0.0.0.0/0'], ['10.0.0.0', '10.0.0.0/33', '/8']],
  ['z.base64', zod(z.base64()), ['', 'YQ==', 'YWJj'], ['Y', 'YQ=', '*']],
  ['z.e164', zod(z.e164()), ['+4912345678', '+12025550123', '+33123456789'], ['0123', '+', '+1a']],
  ['z.jwt', zod(z.jwt()), ['eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.c2ln', 'a.b.c', 'x'], [1, null, []]],
  [
    'z.regex of alternatives',
    zod(z.string().regex(/^(?:red|gr(?:e|a)y)$/)),
    ['red', 'grey', 'gray'],
    ['gry', 'redgrey', ''],
  ],
  [
    'z.regex of groups',
    zod(z.string().regex(/^([A-Z]{2}-)+\d{1,3}$/)),
    ['AB-1', 'AB-CD-123', 'XY-00'],
    ['AB', 'ab-1', 'AB-1234'],
  ],
  ['z.regex of classes', zod(z.string().regex(/^[^\s,;"]+$/)), ['abc', 'é', 'a-b'], ['a b', 'a,b', '']],
  ['z.startsWith', zod(z.string().startsWith('ab')), ['ab', 'abc', 'ab\n'], ['b', 'xab', '']],
  ['z.includes', zod(z.string().includes('x')), ['x', 'axb', 'xx'], ['', 'ab', 'X']],
  ['z.lowercase', zod(z.string().lowercase()), ['ab', '', 'a1'], ['A', 'aB', 1]],
  ['z.templateLiteral', zod(z.templateLiteral(['v', z.int()])), ['v1', 'v20', 'v0'], ['1', 'v', 'vx']],
  [
    'z.hostname',
    { type: 'string', format: 'hostname' },
    ['localhost', 'a.example.com', 'x-1.org'],
    ['-a', 'a..b', 'a b'],
  ],
  // Numbers.
  ['z.number', zod(z.number()), [0, -1.5, 1e9], ['1', null, true]],
  ['z.int', zod(z.int()), [0, -7, 123456], [1.5, '1', null]],
  ['z.number.min.max of fractions', zod(z.number().min(0.5).max(1.25)), [0.5, 1, 1.25], [0.49, 1.26, -1]],
  ['z.number.positive', zod(z.number().positive()), [0.1, 1, 100.5], [0, -0.1, -5]],
  ['z.number.between 0 and 1', zod(z.number().gte(0).lt(1)), [0, 0.25, 0.999], [1, -0.1, 1.5]],
  ['z.multipleOf 5', zod(z.number().multipleOf(5)), [0, 10, -25], [1, 12, 2.5]],
  ['z.multipleOf 0.01', zod(z.number().multipleOf(0.01)), [1, 2.5, -0.25], [0.001, 1.234, '1']],
  ['z.int32', zod(z.int32()), [0, -2147483648, 2147483647], [2147483648, 1.5, -2147483649]],
  // Constants and alternatives.
  ['z.boolean', zod(z.boolean()), [true, false, true], [0, 'true', null]],
  ['z.null', zod(z.null()), [null, null, null], [0, '', false]],
  ['z.literal', zod(z.literal(['a', 1, null])), ['a', 1, null], ['b', 2, true]],
  ['z.enum', zod(z.enum(['red', 'green'])), ['red', 'green', 'red'], ['blue', '', 1]],
  ['z.nullable', zod(z.string().nullable()), ['a', null, ''], [1, true, []]],
  ['z.union', zod(z.union([z.int(), z.string()])), [1, 'a', -5], [1.5, null, []]],
  [
    'z.discriminatedUnion',
    zod(z.discriminatedUnion('kind', [Cat, Dog])),
    [
      { kind: 'cat', lives: 9 },
      { kind: 'dog', name: 'x' },
      { kind: 'cat', lives: -1 },
    ],
    [{ kind: 'cat', name: 'x' }, { kind: 'cow' }, { lives: 9 }],
  ],
  [
    'z.intersection',
    zod(z.intersection(z.object({ a: z.int() }), z.object({ b: z.string() }))),
    [
      { a: 1, b: '' },
      { a: 0, b: 'x' },
      { a: -1, b: 'y' },
    ],
    [{ a: 1 }, { b: 'x' }, { a: 'x', b: 'x' }],
  ],
  ['objects as constants', { enum: [{ a: 1 }, [1, 2], 'x'] }, [{ a: 1 }, [1, 2], 'x'], [{ a: 2 }, [1], 'y']],
  // Objects.
  [
    'z.object',
    zod(z.object({ a: z.string(), b: z.int().optional() })),
    [{ a: '' }, { a: 'x', b: 1 }, { a: 'y', b: -1 }],
    [{}, { b: 1 }, { a: 1 }],
  ],
  [
    'z.object in draft 7',
    old(z.object({ a: z.string(), b: z.tuple([z.int(), z.string()]) })),
    [
      { a: '', b: [1, 'x'] },
      { a: 'x', b: [0, ''] },
      { a: 'y', b: [-3, 'z'] },
    ],
    [{ a: '' }, { a: '', b: [1] }, { a: '', b: ['x', 1] }],
  ],
  [
    'z.strictObject',
    zod(z.strictObject({ a: z.int() })),
    [{ a: 1 }, { a: 0 }, { a: -1 }],
    [{}, { a: 1, b: 2 }, { a: '1' }],
  ],
  [
    'z.looseObject',
    zod(z.looseObject({ a: z.int() })),
    [{ a: 1 }, { a: 0, b: 'x' }, { a: 1, z: null, y: [] }],
    [{}, { a: 'x' }, { b: 1 }],
  ],
  [
    'z.object.catchall',
    zod(z.object({ a: z.string() }).catchall(z.int())),
    [{ a: 'x' }, { a: 'x', b: 1 }, { a: '', c: 1, d: 2 }],
    [{ a: 'x', b: 'y' }, {}, { b: 1 }],
  ],
  ['z.record', zod(z.record(z.string(), z.int())), [{}, { a: 1 }, { a: 1, b: 2 }], [{ a: 'x' }, [], { a: 1.5 }]],
  [
    'z.record of an enum',
    zod(z.record(z.enum(['x', 'y']), z.int())),
    [
      { x: 1, y: 2 },
      { x: 0, y: 0 },
      { x: -1, y: 5 },
    ],
    [{ x: 1 }, { z: 1 }, { x: 1, y: 'a' }],
  ],
  [
    'z.partialRecord of an enum',
    zod(z.partialRecord(z.enum(['x', 'y']), z.int())),
    [{}, { x: 1 }, { x: 1, y: 2 }],
    [{ z: 1 }, { x: 'a' }, []],
  ],
  [
    'z.record of a pattern',
    zod(z.record(z.string().regex(/^[a-z]+$/), z.boolean())),
    [{}, { a: true }, { ab: false, c: true }],
    [{ A: true }, { a: 1 }, { 1: true }],
  ],
  [
    'pattern properties',
    {
      type: 'object',
      patternProperties: { '^x-': { type: 'string' }, '^n': { type: 'integer' } },
      additionalProperties: false,
    },
    [{}, { 'x-a': 'b' }, { n: 1, 'x-': '' }],
    [{ y: 1 }, { 'x-a': 1 }, { n: 'a' }],
  ],
  [
    'one property at least',
    { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'integer' } }, minProperties: 1 },
    [{ a: 1 }, { b: 1 }, { a: 1, b: 2 }],
    [{}, { a: 'x' }, { c: 1 }],
  ],
  [
    'counted properties',
    { type: 'object', additionalProperties: { type: 'integer' }, minProperties: 2, maxProperties: 3 },
    [
      { a: 1, b: 2 },
      { a: 1, b: 2, c: 3 },
      { x: 0, y: 0 },
    ],
    [{}, { a: 1 }, { a: 1, b: 2, c: 3, d: 4 }],
  ],
  // Arrays.
  ['z.array', zod(z.array(z.int()).min(1).max(3)), [[1], [1, 2], [1, 2, 3]], [[], [1, 2, 3, 4], ['a']]],
  [
    'z.tuple',
    zod(z.tuple([z.int(), z.string()])),
    [
      [1, 'a'],
      [0, ''],
      [-1, 'b'],
    ],
    [[1], ['a', 1], [1, 'a', 2]],
  ],
  ['z.tuple.rest', zod(z.tuple([z.int()], z.string())), [[1], [1, 'a'], [1, 'a', 'b']], [[], ['a'], [1, 2]]],
  [
    'unique items',
    { type: 'array', items: { enum: ['a', 'b', 'c'] }, uniqueItems: true },
    [[], ['a'], ['a', 'c']],
    [['a', 'a'], ['d'], ['a', 'b', 'a']],
  ],
  [
    'contained items',
    { type: 'array', items: { type: 'integer' }, contains: { minimum: 5 } },
    [[5], [1, 7], [9, 9]],
    [[], [1], ['a']],
  ],
  // References.
  [
    'z.lazy',
    zod(Tree),
    [
      { value: 1, children: [] },
      { value: 1, children: [{ value: 2, children: [] }] },
      { value: 0.5, children: [] },
    ],
    [{ value: 1 }, { value: 1, children: [{}] }, []],
  ],
  [
    'a reference with a default',
    pydantic(
      { a: { $ref: '#/$defs/A', description: 'x', default: 'r' } },
      { $defs: { A: { enum: ['r', 's'], type: 'string', title: 'A' } } },
    ),
    [{ a: 'r' }, { a: 's' }, { a: 'r' }],
    [{ a: 't' }, {}, { a: 1 }],
  ],
  [
    'allOf of a reference and more',
    {
      allOf: [{ $ref: '#/$defs/Base' }, { type: 'object', properties: { b: { type: 'integer' } }, required: ['b'] }],
      $defs: { Base: { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] } },
    },
    [
      { a: '', b: 1 },
      { a: 'x', b: 0 },
      { a: 'y', b: -1 },
    ],
    [{ a: '' }, { b: 1 }, { a: 1, b: 1 }],
  ],
  // As pydantic and OpenAI write them.
  [
    'pydantic Optional',
    pydantic({ a: { anyOf: [{ type: 'integer' }, { type: 'null' }], default: null, title: 'A' } }),
    [{ a: 1 }, { a: null }, { a: 0 }],
    [{}, { a: 'x' }, { a: 1.5 }],
  ],
  [
    'pydantic discriminator',
    pydantic(
      {
        pet: {
          discriminator: { mapping: { cat: '#/$defs/Cat', dog: '#/$defs/Dog' }, propertyName: 'kind' },
          oneOf: [{ $ref: '#/$defs/Cat' }, { $ref: '#/$defs/Dog' }],
        },
      },
      {
        $defs: {
          Cat: {
            properties: { age: { type: 'integer' }, kind: { const: 'cat', default: 'cat', type: 'string' } },
            required: ['age'],
            type: 'object',
          },
          Dog: {
            properties: { age: { type: 'integer' }, kind: { const: 'dog', default: 'dog', type: 'string' } },
            required: ['age'],
            type: 'object',
          },
        },
      },
    ),
    [{ pet: { age: 1, kind: 'cat' } }, { pet: { age: 2, kind: 'dog' } }, { pet: { age: 0, kind: 'cat' } }],
    [{ pet: { age: 1, kind: 'cow' } }, { pet: {} }, {}],
  ],
  [
    'pydantic HttpUrl, Decimal, set',
    pydantic({
      url: { format: 'uri', maxLength: 2083, minLength: 1, type: 'string' },
      price: { anyOf: [{ type: 'number' }, { pattern: '^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$', type: 'string' }] },
      tags: { items: { type: 'string' }, type: 'array', uniqueItems: true },
    }),
    [
      { url: 'https://a.org', price: 1.5, tags: [] },
      { url: 'http://a.b/c', price: '1.50', tags: ['a'] },
      { url: 'ftp://x.y', price: -2, tags: ['a', 'b'] },
    ],
    [
      { url: 'a', price: 1, tags: [] },
      { url: 'https://a.org', price: 'x', tags: [] },
      { url: 'https://a.org', price: 1, tags: ['a', 'a'] },
    ],
  ],
  [
    'pydantic timedelta, time, bytes',
    pydantic({
      a: { format: 'duration', type: 'string' },
      b: { format: 'time', type: 'string' },
      c: { format: 'binary', type: 'string' },
    }),
    [
      { a: 'P1D', b: '01:02:03Z', c: 'x' },
      { a: 'PT5M', b: '23:59:59+01:00', c: '' },
      { a: 'P2W', b: '00:00:00Z', c: 'y' },
    ],
    [{ a: '1', b: '01:02:03Z', c: '' }, { a: 'P1D', b: '1', c: '' }, {}],
  ],
  [
    'OpenAI strict',
    {
      type: 'object',
      properties: {
        steps: {
          type: 'array',
          items: {
            type: 'object',
            properties: { explanation: { type: 'string' }, output: { type: 'string' } },
            required: ['explanation', 'output'],
            additionalProperties: false,
          },
        },
        final_answer: { type: 'string' },
      },
      required: ['steps', 'final_answer'],
      additionalProperties: false,
    },
    [
      { steps: [], final_answer: 'x' },
      { steps: [{ explanation: 'a', output: 'b' }], final_answer: '' },
      {
        steps: [
          { explanation: '', output: '' },
          { explanation: '1', output: '2' },
        ],
        final_answer: 'z',
      },
    ],
    [{ steps: [] }, { steps: [{}], final_answer: '' }, { steps: [], final_answer: '', more: 1 }],
  ],
  [
    'OpenAI recursive',
    {
      type: 'object',
      properties: {
        type: { type: 'string', enum: ['div', 'form'] },
        children: { type: 'array', items: { $ref: '#' } },
      },
      required: ['type', 'children'],
      additionalProperties: false,
    },
    [
      { type: 'div', children: [] },
      { type: 'form', children: [{ type: 'div', children: [] }] },
      { type: 'form', children: [] },
    ],
    [{ type: 'p', children: [] }, { type: 'div' }, { type: 'div', children: [{}] }],
  ],
  // Older and rarer forms.
  [
    'OpenAPI nullable',
    { type: 'object', properties: { a: { type: 'string', nullable: true } }, required: ['a'] },
    [{ a: null }, { a: 'x' }, { a: '' }],
    [{ a: 1 }, {}, { a: [] }],
  ],
  ['a list of types', { type: ['string', 'integer', 'null'] }, ['a', 1, null], [1.5, true, []]],
  [
    'overlapping oneOf',
    {
      oneOf: [
        { type: 'integer', multipleOf: 3 },
        { type: 'integer', multipleOf: 5 },
      ],
    },
    [3, 5, 9],
    [15, 1, 0],
  ],
  ['not', { type: 'string', not: { enum: ['a', 'b'] } }, ['c', '', 'ab'], ['a', 'b', 1]],
  [
    'if and then',
    {
      type: 'object',
      properties: { a: { type: 'boolean' }, b: { type: 'integer' } },
      required: ['a'],
      ...JSON.parse('{"if": {"properties": {"a": {"const": true}}}, "then": {"required": ["b"]}}'),
    },
    [{ a: false }, { a: true, b: 1 }, { a: false, b: 2 }],
    [{ a: true }, {}, { a: 1 }],
  ],
  [
    'required of one or the other',
    {
      type: 'object',
      properties: { a: { type: 'integer' }, b: { type: 'integer' } },
      anyOf: [{ required: ['a'] }, { required: ['b'] }],
    },
    [{ a: 1 }, { b: 1 }, { a: 1, b: 1 }],
    [{}, { a: 'x' }, { c: 1 }],
  ],
  [
    'dependent properties',
    { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'integer' } }, dependentRequired: { a: ['b'] } },
    [{}, { b: 1 }, { a: 1, b: 2 }],
    [{ a: 1 }, { a: 'x', b: 1 }, []],
  ],
  [
    'draft 7 tuple',
    { type: 'array', items: [{ type: 'string' }, { type: 'number' }], additionalItems: false, minItems: 2 },
    [
      ['a', 1],
      ['', 0],
      ['b', 2.5],
    ],
    [['a'], ['a', 1, 2], [1, 'a']],
  ],
];

/** Whether llama.cpp takes a text under a grammar, token by token, to its end. */
async function follows(grammar: string, text: string): Promise<boolean> {
  const { vocabulary } = model;
  const [tokens] = await vocabulary.tokenize([{ text, parseSpecial: false }]);
  const ends = Array.from({ length: vocabulary.size }, (_, token) => token).filter((token) =>
    vocabulary.endsGeneration(token),
  );
  const open = vocabulary.grammars.open(grammar);
  try {
    for (const token of tokens!) {
      if (!open.allows([token])[0]!) {
        return false;
      }
      open.accept(token);
    }
    return open.allows(ends).some(Boolean);
  } finally {
    open.free();
  }
}

describe('the schemas that people send', () => {
  it.each(KINDS)('take what fits, and not what does not: %s', async (_, schema, right, wrong) => {
    const { node, check } = readJsonSchema(schema, 's');
    const grammar = writeGrammar(node, 's');
    const takes = async (value: unknown): Promise<boolean> =>
      (await follows(grammar, JSON.stringify(value))) && (check?.(value) ?? true);
    const taken = async (values: readonly unknown[]): Promise<boolean[]> => Promise.all(values.map(takes));
    expect([await taken(right), await taken(wrong)]).toEqual([right.map(() => true), wrong.map(() => false)]);
  });

  it('may have ten fields of each kind', () => {
    const kinds: readonly ((at: number) => z.ZodType)[] = [
      () => z.int(),
      () => z.int().positive(),
      () => z.email(),
      () => z.iso.datetime(),
      () => z.iso.date(),
      () => z.uuid(),
      () => z.url(),
      (at) =>
        z
          .number()
          .min(0)
          .max(at + 1),
      (at) =>
        z
          .int()
          .min(at)
          .max(1000 * at + 7),
      (at) => z.string().regex(new RegExp(`^[A-Z]{2}-\\d{${at + 1}}$`)),
      (at) =>
        z
          .string()
          .min(1)
          .max(20 + at),
    ];
    const fields = kinds.flatMap((make, kind) => Array.from({ length: 10 }, (_, at) => [`f${kind}_${at}`, make(at)]));
    const { node } = readJsonSchema(zod(z.object(Object.fromEntries(fields))), 's');
    expect(writeGrammar(node, 's').length).toBeGreaterThan(10_000);
  });
});
