import { z } from 'zod';
import type { Schema } from './merge-schemas.js';
import { refuse } from './schema-node.js';

/** Most characters of a property's name in the path of an error. */
const SHOWN_KEY = 64;

/** Keywords that say nothing about which answers fit. */
const ANNOTATIONS: ReadonlySet<string> = new Set([
  ...['$schema', '$id', '$anchor', '$comment', '$defs', 'definitions', 'title', 'description', 'default', 'example'],
  ...['examples', 'deprecated', 'readOnly', 'writeOnly', 'discriminator', 'contentEncoding', 'contentMediaType'],
  ...['contentSchema', 'externalDocs', 'xml', 'markdownDescription', 'enumNames'],
]);

/** Keywords that no grammar keeps: the answer is checked when it is whole. */
export const CHECKED: ReadonlySet<string> = new Set([
  ...['not', 'if', 'then', 'else', 'contains', 'minContains', 'maxContains', 'dependentRequired', 'dependentSchemas'],
  ...['unevaluatedProperties', 'unevaluatedItems', 'uniqueItems'],
]);

export const TYPES = ['object', 'array', 'string', 'integer', 'number', 'boolean', 'null'] as const;
export type JsonType = (typeof TYPES)[number];

const NUMBER_KEYWORDS = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf', 'format'];

/** The keywords that speak of one type of values. */
export const KEYWORDS_OF: Readonly<Record<JsonType, readonly string[]>> = {
  object: [
    ...['properties', 'required', 'additionalProperties', 'patternProperties', 'propertyNames'],
    ...['minProperties', 'maxProperties'],
  ],
  array: ['items', 'prefixItems', 'additionalItems', 'minItems', 'maxItems', 'uniqueItems', 'contains'],
  string: ['minLength', 'maxLength', 'format', 'pattern'],
  integer: NUMBER_KEYWORDS,
  number: NUMBER_KEYWORDS,
  boolean: [],
  null: [],
};

/** Keywords that ask for nothing with these values. */
const HARMLESS: Readonly<Record<string, unknown>> = {
  uniqueItems: false,
  nullable: false,
  minProperties: 0,
  minContains: 0,
  unevaluatedProperties: false,
  unevaluatedItems: false,
};

export function isOfType(value: unknown, type: JsonType): boolean {
  switch (type) {
    case 'null':
      return value === null;
    case 'integer':
      return Number.isInteger(value);
    case 'array':
      return Array.isArray(value);
    case 'object':
      return isObject(value);
    default:
      return typeof value === type;
  }
}

export function typesOf(schema: Schema, path: string): readonly JsonType[] {
  const { type } = schema;
  if (type === undefined) {
    // Without a type, keywords of one type bind values of that type alone; one that is named by its keywords is meant.
    const meant = TYPES.filter((each) =>
      KEYWORDS_OF[each].some((keyword) => keyword !== 'format' && Object.hasOwn(schema, keyword)),
    );
    const types = meant.length > 0 ? meant : Object.hasOwn(schema, 'format') ? (['string'] as const) : TYPES;
    return types.some((each) => each === 'number') ? types.filter((each) => each !== 'integer') : types;
  }
  const given: readonly unknown[] = Array.isArray(type) ? type : [type];
  const types = TYPES.filter((each) => given.includes(each));
  if (types.length === 0 || types.length !== given.length) {
    throw refuse(join(path, 'type'), `Expected some of ${TYPES.join(', ')}, each once`);
  }
  // A number may be an integer.
  return types.includes('number') ? types.filter((each) => each !== 'integer') : types;
}

/** Most items, properties, constants, and characters of a length that a schema may name. */
const MAX_ITEMS = 1000;
const MAX_CONSTANTS = 1000;
const MAX_LENGTH = 65_536;

const count = (most: number) => {
  const error = `Expected a whole number from 0 to ${most}`;
  return z.int(error).min(0, error).max(most, error).optional();
};
/** `allOf` may have joined several values of these keywords. */
const several = <T>(one: z.ZodType<T>, error: string) => z.union([one, z.array(one)], { error }).optional();
const number = z.number('Expected a number').optional();
const constants = z
  .array(z.unknown(), 'Expected an array of constants')
  .max(MAX_CONSTANTS, `Expected at most ${MAX_CONSTANTS} constants`)
  .optional();
const schemas = z.array(z.unknown(), 'Expected schemas in an array').optional();
const schemasByName = z.custom<Schema>(isObject, 'Expected an object of schemas').optional();
const schema = z
  .custom<Schema | boolean>((value) => typeof value === 'boolean' || isObject(value), 'Expected a JSON schema')
  .optional();

const each = <Name extends string, Type>(names: readonly Name[], type: Type) =>
  Object.fromEntries(names.map((name) => [name, type])) as Record<Name, Type>;

/** The values that keywords may have; those of other keywords are read where they are used. */
const VALUES = {
  ...each(['allOf', 'anyOf', 'oneOf', 'prefixItems'], schemas),
  ...each(['properties', 'patternProperties'], schemasByName),
  ...each(['additionalProperties', 'propertyNames'], schema),
  ...each(['minItems', 'maxItems', 'minProperties', 'maxProperties'], count(MAX_ITEMS)),
  ...each(['minLength', 'maxLength'], count(MAX_LENGTH)),
  ...each(['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'], number),
  multipleOf: several(z.number().positive(), 'Expected a number above 0'),
  pattern: several(z.string(), 'Expected a regular expression'),
  enum: constants,
};
const KEYWORDS = z.looseObject(VALUES);
export type Keywords = z.output<typeof KEYWORDS>;

/** @throws WARMPATH_INVALID_REQUEST with the path of the first keyword whose value is none that it may have. */
export function readKeywords(schema: Schema, path: string): Keywords {
  const { data, error } = KEYWORDS.safeParse(schema);
  if (data !== undefined) return data;
  const { path: place, message } = error.issues[0]!;
  throw refuse(join(path, String(place[0])), message);
}

export function checkOrder(min: number, max: number | undefined, path: string): void {
  if (max !== undefined && min > max) throw refuse(path, 'Expected no less than the minimum');
}

/** The keywords that say something about which answers fit. */
export function usedKeywords(schema: Schema): string[] {
  return Object.keys(schema).filter((keyword) => {
    const isHarmless = Object.hasOwn(HARMLESS, keyword) && HARMLESS[keyword] === schema[keyword];
    const isSaid = schema[keyword] !== undefined && !isHarmless;
    return isSaid && !ANNOTATIONS.has(keyword) && !keyword.startsWith('x-');
  });
}

export function decodePointer(part: string, path: string): string {
  try {
    return decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    throw refuse(path, 'Expected a reference into this schema, such as #/$defs/name');
  }
}

export function isObject(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function join(path: string, key: string): string {
  return `${path}.${key.length > SHOWN_KEY ? `${key.slice(0, SHOWN_KEY)}…` : key}`;
}

/** The property by which alternatives are told apart, as OpenAPI and pydantic write it. */
export function tagOf({ discriminator }: Schema): string | undefined {
  const name = isObject(discriminator) ? discriminator['propertyName'] : undefined;
  return typeof name === 'string' ? name : undefined;
}
