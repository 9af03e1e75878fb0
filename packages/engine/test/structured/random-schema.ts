import fc from 'fast-check';
import { z } from 'zod';

/** A JSON schema of what the engine supports, small enough that answers end soon. */
export type TestSchema = Record<string, unknown>;

const bound = fc.integer({ min: -1200, max: 1200 });

const integers = fc.tuple(bound, bound, fc.constantFrom('closed', 'open', 'none')).map(([a, b, ends]): TestSchema => {
  const [min, max] = [Math.min(a, b), Math.max(a, b)];
  if (ends === 'none') {
    return { type: 'integer' };
  }
  return ends === 'closed'
    ? { type: 'integer', minimum: min, maximum: max }
    : { type: 'integer', exclusiveMinimum: min - 1, exclusiveMaximum: max + 1 };
});

const numbers = fc
  .tuple(bound, fc.nat({ max: 40 }), fc.boolean(), fc.boolean(), fc.boolean())
  .map(([min, width, isMinOpen, isMaxOpen, isFree]): TestSchema => {
    const lower = isMinOpen ? { exclusiveMinimum: min } : { minimum: min };
    const upper = isMaxOpen ? { exclusiveMaximum: min + width + 1 } : { maximum: min + width + 1 };
    return isFree ? { type: 'number' } : { type: 'number', ...lower, ...upper };
  });

const formats = fc
  .constantFrom('date', 'time', 'date-time', 'uuid')
  .map((format): TestSchema => ({ type: 'string', format }));

const strings = fc.oneof(
  formats,
  fc.constant<TestSchema>({ type: 'string' }),
  fc
    .tuple(fc.nat({ max: 12 }), fc.nat({ max: 12 }))
    .map(([a, b]): TestSchema => ({ type: 'string', minLength: Math.min(a, b), maxLength: Math.max(a, b) })),
);

const constant = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 6 }).filter((text) => text.isWellFormed()),
  fc.integer({ min: -50, max: 50 }),
  fc.boolean(),
  fc.constant(null),
);

const constants = fc.oneof(
  fc.uniqueArray(constant, { minLength: 1, maxLength: 12 }).map((values): TestSchema => ({ enum: values })),
  constant.map((value): TestSchema => ({ const: value })),
  fc.constantFrom<TestSchema[]>({ type: 'boolean' }, { type: 'null' }, { type: ['string', 'null'], maxLength: 4 }),
);

const key = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 5 }).filter((text) => text.isWellFormed() && text !== '__proto__'),
  fc.constantFrom('a', 'ab', 'abc', '"', '\\', 'ключ', '🌍'),
);

const { schema: anySchema } = fc.letrec<{ schema: TestSchema; compound: TestSchema }>((tie) => ({
  schema: fc.oneof({ maxDepth: 3 }, integers, numbers, strings, constants, tie('compound')),
  compound: fc.oneof(
    fc.tuple(tie('schema'), fc.nat({ max: 3 }), fc.nat({ max: 3 })).map(
      ([items, a, b]): TestSchema => ({
        type: 'array',
        items,
        minItems: Math.min(a, b),
        maxItems: Math.max(a, b),
      }),
    ),
    fc.uniqueArray(fc.tuple(key, tie('schema'), fc.boolean()), { maxLength: 5, selector: ([name]) => name }).map(
      (properties): TestSchema => ({
        type: 'object',
        properties: Object.fromEntries(properties.map(([name, schema]) => [name, schema])),
        required: properties.filter(([, , isRequired]) => isRequired).map(([name]) => name),
        additionalProperties: false,
      }),
    ),
    tie('schema').map((additionalProperties): TestSchema => ({ type: 'object', additionalProperties })),
    fc.array(tie('schema'), { minLength: 1, maxLength: 3 }).map((anyOf): TestSchema => ({ anyOf })),
  ),
}));

export { anySchema };

/** A list and a tree that hold themselves. */
export const RECURSIVE_SCHEMAS: readonly TestSchema[] = [
  {
    $ref: '#/$defs/list',
    $defs: {
      list: {
        type: 'object',
        properties: { value: { type: 'integer' }, next: { anyOf: [{ $ref: '#/$defs/list' }, { type: 'null' }] } },
        required: ['value', 'next'],
        additionalProperties: false,
      },
    },
  },
  {
    oneOf: [
      {
        type: 'object',
        properties: { kind: { const: 'leaf' }, name: { enum: ['a', 'ab', 'b'] } },
        required: ['kind'],
        additionalProperties: false,
      },
      {
        type: 'object',
        properties: {
          kind: { const: 'node' },
          children: { type: 'array', items: { $ref: '#' }, maxItems: 2 },
        },
        required: ['kind', 'children'],
        additionalProperties: false,
      },
    ],
  },
  { type: 'array', items: { $ref: '#' } },
  {},
];

/** What is wrong with a text that should fit a schema, as zod reads the schema; `undefined` when it fits. */
export function misfit(text: string, schema: TestSchema): string | undefined {
  try {
    const value: unknown = JSON.parse(text);
    // zod reads these two otherwise than JSON Schema does: UUIDs of known versions only, times without a zone.
    const relaxed = JSON.parse(
      JSON.stringify(schema).replaceAll(/"format":"(uuid|time)"/g, '"pattern":""'),
    ) as Parameters<typeof z.fromJSONSchema>[0];
    const result = z.fromJSONSchema(relaxed).safeParse(value);
    return result.success ? undefined : result.error.message;
  } catch (error) {
    return String(error);
  }
}
