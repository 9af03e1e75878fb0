import {
  ANY_VALUE,
  checkNodes,
  MAX_READINGS,
  type NumberBounds,
  type PropertyNode,
  type ReferenceNode,
  refuse,
  type SchemaNode,
} from './schema-node.js';
import { readPattern, STRING_FORMATS } from './string-pattern.js';

/** How deep schemas may stand in each other, how many there may be, and the most that counts and lengths may say. */
const MAX_DEPTH = 64;
const MAX_SCHEMAS = 2048;
const MAX_CONSTANTS = 1000;
const MAX_ITEMS = 1000;
const MAX_LENGTH = 65_536;

/** Up to here, bounds of numbers with fractions can be kept to six digits behind the point. */
const MAX_FRACTION_BOUND = 1e9;

/** Most characters of a property's name in the path of an error. */
const SHOWN_KEY = 64;

type Schema = Readonly<Record<string, unknown>>;

/** Keywords that say nothing about which answers fit. */
const ANNOTATIONS: ReadonlySet<string> = new Set([
  ...['$schema', '$id', '$comment', '$defs', 'definitions', 'title', 'description', 'default', 'example', 'examples'],
  ...['deprecated', 'readOnly', 'writeOnly'],
]);

const TYPES = ['object', 'array', 'string', 'integer', 'number', 'boolean', 'null'] as const;
type JsonType = (typeof TYPES)[number];

/** The keywords that speak of one type of values. */
const KEYWORDS_OF: Readonly<Record<JsonType, readonly string[]>> = {
  object: ['properties', 'required', 'additionalProperties'],
  array: ['items', 'minItems', 'maxItems'],
  string: ['minLength', 'maxLength', 'format', 'pattern'],
  integer: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  boolean: [],
  null: [],
};

/** Keywords that ask for nothing with these values. */
const HARMLESS: Readonly<Record<string, unknown>> = {
  uniqueItems: false,
  nullable: false,
  minProperties: 0,
  minContains: 0,
};

/**
 * Reads a JSON schema. What is read fits what the schema says, or is narrower: of an object with `properties`, only
 * those are made, in their order; what the schema asks for and this engine does not keep is refused.
 *
 * @param path Where the schema stands in the request.
 * @throws WARMPATH_INVALID_REQUEST with the path of the first keyword that is wrong or not supported. Cost: O(schema),
 *   but for alternatives, which are compared with each other.
 */
export function readJsonSchema(schema: unknown, path: string): SchemaNode {
  const node = new SchemaReader(schema, path).read(schema, path, 0);
  checkNodes(node);
  return node;
}

class SchemaReader {
  readonly #root: unknown;
  readonly #rootPath: string;
  readonly #known = new Map<object, ReferenceNode>();
  #places = 0;

  constructor(root: unknown, rootPath: string) {
    this.#root = root;
    this.#rootPath = rootPath;
  }

  read(schema: unknown, path: string, depth: number): SchemaNode {
    if (depth > MAX_DEPTH || ++this.#places > MAX_SCHEMAS) {
      throw refuse(path, `Expected at most ${MAX_SCHEMAS} schemas, ${MAX_DEPTH} deep`);
    }
    if (schema === true) {
      return ANY_VALUE;
    }
    if (!isObject(schema)) {
      throw refuse(path, schema === false ? 'No answer fits the schema `false`' : 'Expected a JSON schema');
    }
    const known = this.#known.get(schema);
    if (known !== undefined) {
      return known;
    }
    const node: ReferenceNode = { kind: 'reference', path, target: undefined };
    this.#known.set(schema, node);
    node.target = this.#readKeywords(schema, path, depth + 1);
    return node;
  }

  #readKeywords(schema: Schema, path: string, depth: number): SchemaNode {
    const used = new Set(Object.keys(schema).filter((key) => !isNothing(key, schema[key])));
    const only = (...keywords: readonly string[]): void => {
      const other = [...used].find((key) => !keywords.includes(key));
      if (other !== undefined) {
        throw refuse(join(path, other), 'This engine does not support this keyword here');
      }
    };
    if (used.has('$ref')) {
      only('$ref');
      return this.#follow(schema['$ref'], join(path, '$ref'), depth);
    }
    if (used.has('const') || used.has('enum')) {
      only('const', 'enum', 'type');
      return readTexts(schema, path);
    }
    for (const keyword of ['anyOf', 'oneOf', 'allOf'] as const) {
      if (used.has(keyword)) {
        only(keyword);
        return this.#readAlternatives(schema[keyword], keyword, { path: join(path, keyword), depth });
      }
    }
    const types = readTypes(schema, path);
    only('type', ...types.flatMap((type) => KEYWORDS_OF[type]));
    if (schema['type'] === undefined && used.size === 0) {
      return ANY_VALUE;
    }
    const members = types.map((type) => this.#readType(type, schema, path, depth));
    return members.length === 1
      ? members[0]!
      : { kind: 'union', members, path: join(path, 'type'), isExclusive: false };
  }

  #readAlternatives(
    given: unknown,
    keyword: 'anyOf' | 'oneOf' | 'allOf',
    { path, depth }: { readonly path: string; readonly depth: number },
  ): SchemaNode {
    if (!Array.isArray(given) || given.length === 0) {
      throw refuse(path, 'Expected schemas in an array');
    }
    if (keyword === 'allOf' && given.length > 1) {
      throw refuse(path, 'This engine supports `allOf` of one schema only');
    }
    const members = given.map((member, index) => this.read(member, `${path}[${index}]`, depth));
    return members.length === 1 ? members[0]! : { kind: 'union', members, path, isExclusive: keyword === 'oneOf' };
  }

  #follow(given: unknown, path: string, depth: number): SchemaNode {
    if (typeof given !== 'string' || !/^#(\/|$)/.test(given)) {
      throw refuse(path, 'Expected a reference into this schema, such as #/$defs/name');
    }
    let target = this.#root;
    let place = this.#rootPath;
    for (const part of given.split('/').slice(1)) {
      const key = decodePointer(part, path);
      const isThere = typeof target === 'object' && target !== null && Object.hasOwn(target, key);
      if (!isThere) {
        throw refuse(path, 'Nothing stands where this refers to');
      }
      place = Array.isArray(target) ? `${place}[${key}]` : join(place, key);
      target = (target as Schema)[key];
    }
    return this.read(target, place, depth);
  }

  #readType(type: JsonType, schema: Schema, path: string, depth: number): SchemaNode {
    switch (type) {
      case 'object':
        return this.#readObject(schema, path, depth);
      case 'array': {
        const min = readCount(schema, 'minItems', path, MAX_ITEMS) ?? 0;
        const max = readCount(schema, 'maxItems', path, MAX_ITEMS);
        checkOrder(min, max, join(path, 'maxItems'));
        const items =
          schema['items'] === undefined ? ANY_VALUE : this.read(schema['items'], join(path, 'items'), depth);
        return { kind: 'array', items, min, max };
      }
      case 'string':
        return readString(schema, path);
      case 'boolean':
        return { kind: 'texts', texts: ['true', 'false'] };
      case 'null':
        return { kind: 'texts', texts: ['null'] };
      default:
        return { kind: 'number', isInteger: type === 'integer', bounds: readBounds(schema, path, type === 'integer') };
    }
  }

  #readObject(schema: Schema, path: string, depth: number): SchemaNode {
    const { properties = {}, required = [], additionalProperties: others } = schema;
    if (!isObject(properties)) {
      throw refuse(join(path, 'properties'), 'Expected an object of schemas');
    }
    if (!Array.isArray(required)) {
      throw refuse(join(path, 'required'), 'Expected an array of names');
    }
    const unknown = required.findIndex((key) => typeof key !== 'string' || !Object.hasOwn(properties, key));
    if (unknown >= 0) {
      throw refuse(`${join(path, 'required')}[${unknown}]`, 'Expected the name of a property in `properties`');
    }
    const below = join(path, 'properties');
    const names = new Set(required);
    const nodes = Object.entries(properties).map(
      ([key, value]): PropertyNode => ({
        key,
        isRequired: names.has(key),
        value: this.read(value, join(below, key), depth),
      }),
    );
    if (others !== undefined && typeof others !== 'boolean' && !isObject(others)) {
      throw refuse(join(path, 'additionalProperties'), 'Expected a JSON schema');
    }
    const isMap =
      nodes.length === 0 && others !== false && (others !== undefined || schema['properties'] === undefined);
    return isMap
      ? { kind: 'map', values: this.read(others ?? true, join(path, 'additionalProperties'), depth) }
      : { kind: 'object', properties: nodes };
  }
}

/** The constants of `const` and `enum`; with a type, those of it. */
function readTexts(schema: Schema, path: string): SchemaNode {
  const keyword = Object.hasOwn(schema, 'const') ? 'const' : 'enum';
  const given: unknown = keyword === 'const' ? [schema['const']] : schema['enum'];
  const types = readTypes(schema, path);
  if (!Array.isArray(given)) {
    throw refuse(join(path, 'enum'), 'Expected an array of constants');
  }
  if (given.length > MAX_CONSTANTS) {
    throw refuse(join(path, 'enum'), `Expected at most ${MAX_CONSTANTS} constants`);
  }
  const wrong = given.findIndex((value) => typeof value === 'object' && value !== null);
  if (wrong >= 0) {
    const place = join(path, keyword);
    throw refuse(keyword === 'const' ? place : `${place}[${wrong}]`, 'Expected a string, a number, a boolean or null');
  }
  const fitting = given.filter((value) => types.some((type) => isOfType(value, type)));
  if (fitting.length === 0) {
    throw refuse(join(path, keyword), 'Expected a constant that fits the type');
  }
  return { kind: 'texts', texts: [...new Set(fitting.map((value) => JSON.stringify(value)))] };
}

function isOfType(value: unknown, type: JsonType): boolean {
  switch (type) {
    case 'null':
      return value === null;
    case 'integer':
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}

function readTypes(schema: Schema, path: string): readonly JsonType[] {
  const { type } = schema;
  if (type === undefined) {
    // Without a type, keywords of one type bind values of that type alone; one that is named by its keywords is meant.
    const meant = TYPES.filter((each) => KEYWORDS_OF[each].some((keyword) => Object.hasOwn(schema, keyword)));
    return meant.length === 0 ? TYPES : meant.includes('number') ? meant.filter((each) => each !== 'integer') : meant;
  }
  const given: readonly unknown[] = Array.isArray(type) ? type : [type];
  const types = TYPES.filter((each) => given.includes(each));
  if (types.length === 0 || types.length !== given.length) {
    throw refuse(join(path, 'type'), `Expected some of ${TYPES.join(', ')}, each once`);
  }
  // A number may be an integer.
  return types.includes('number') ? types.filter((each) => each !== 'integer') : types;
}

function readString(schema: Schema, path: string): SchemaNode {
  const min = readCount(schema, 'minLength', path, MAX_LENGTH) ?? 0;
  const max = readCount(schema, 'maxLength', path, MAX_LENGTH);
  checkOrder(min, max, join(path, 'maxLength'));
  const { format, pattern } = schema;
  if (format === undefined && pattern === undefined) {
    return { kind: 'string', min, max };
  }
  const keyword = join(path, format === undefined ? 'pattern' : 'format');
  if (min > 0 || max !== undefined || (format !== undefined && pattern !== undefined)) {
    throw refuse(keyword, 'This engine supports one of a format, a pattern and lengths');
  }
  const known = typeof pattern === 'string' ? readPattern(pattern) : STRING_FORMATS.get(String(format));
  if (known === undefined) {
    const formats = [...STRING_FORMATS.keys()].join(', ');
    const patterns = 'rows of ASCII characters and classes from ^ to $, such as ^[A-Z]{2}-\\d+$';
    throw refuse(keyword, `This engine supports ${format === undefined ? patterns : `the formats ${formats}`} only`);
  }
  if (known.readings > MAX_READINGS) {
    throw refuse(keyword, 'Too many parts of this pattern may come more or less often');
  }
  return { kind: 'pattern', pattern: known };
}

function readBounds(schema: Schema, path: string, isInteger: boolean): NumberBounds {
  const read = (keyword: string): number | undefined => {
    const value = schema[keyword];
    if (value !== undefined && typeof value !== 'number') {
      throw refuse(join(path, keyword), 'Expected a number');
    }
    if (!isInteger && value !== undefined && !Number.isInteger(value)) {
      throw refuse(join(path, keyword), 'This engine supports whole numbers as bounds only');
    }
    return value;
  };
  const closed = { min: read('minimum'), max: read('maximum') };
  const open = { min: read('exclusiveMinimum'), max: read('exclusiveMaximum') };
  const bounds = isInteger ? wholeBounds(closed, open) : fractionBounds(closed, open);
  const { min, max } = bounds;
  if (!isInteger && Math.max(Math.abs(min ?? 0), Math.abs(max ?? 0)) > MAX_FRACTION_BOUND) {
    throw refuse(path, `This engine supports bounds of numbers up to ${MAX_FRACTION_BOUND} only`);
  }
  const isAnyOpen = bounds.isMinOpen === true || bounds.isMaxOpen === true;
  if (min !== undefined && max !== undefined && (isAnyOpen ? min >= max : min > max)) {
    throw refuse(path, 'No number lies within these bounds');
  }
  return bounds;
}

type Range = Pick<NumberBounds, 'min' | 'max'>;

/** The whole numbers within the bounds, and within those that JavaScript counts exactly. */
function wholeBounds(closed: Range, open: Range): NumberBounds {
  const min = higher(closed.min, open.min === undefined ? undefined : Math.floor(open.min) + 1);
  const max = lower(closed.max, open.max === undefined ? undefined : Math.ceil(open.max) - 1);
  return {
    min: min === undefined ? undefined : Math.max(Math.ceil(min), Number.MIN_SAFE_INTEGER),
    max: max === undefined ? undefined : Math.min(Math.floor(max), Number.MAX_SAFE_INTEGER),
  };
}

function fractionBounds(closed: Range, open: Range): NumberBounds {
  const min = higher(closed.min, open.min);
  const max = lower(closed.max, open.max);
  return {
    min,
    max,
    isMinOpen: open.min !== undefined && open.min === min,
    isMaxOpen: open.max !== undefined && open.max === max,
  };
}

function higher(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.max(a, b);
}

function lower(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.min(a, b);
}

function readCount(schema: Schema, keyword: string, path: string, most: number): number | undefined {
  const value = schema[keyword];
  if (value === undefined) {
    return undefined;
  }
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > most) {
    throw refuse(join(path, keyword), `Expected a whole number from 0 to ${most}`);
  }
  return value;
}

function checkOrder(min: number, max: number | undefined, path: string): void {
  if (max !== undefined && min > max) {
    throw refuse(path, 'Expected no less than the minimum');
  }
}

/** Whether a keyword says nothing about which answers fit. */
function isNothing(keyword: string, value: unknown): boolean {
  const isHarmless = Object.hasOwn(HARMLESS, keyword) && HARMLESS[keyword] === value;
  return value === undefined || isHarmless || ANNOTATIONS.has(keyword) || keyword.startsWith('x-');
}

function decodePointer(part: string, path: string): string {
  try {
    return decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    throw refuse(path, 'Expected a reference into this schema, such as #/$defs/name');
  }
}

function isObject(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function join(path: string, key: string): string {
  return `${path}.${key.length > SHOWN_KEY ? `${key.slice(0, SHOWN_KEY)}…` : key}`;
}
