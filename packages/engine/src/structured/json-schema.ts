import { answerCheck } from './check-answer.js';
import { mergeSchemas, type Schema } from './merge-schemas.js';
import { isExactStep, languageOfNumbers } from './number-language.js';
import {
  CHECKED,
  checkOrder,
  decodePointer,
  isObject,
  isOfType,
  type JsonType,
  join,
  KEYWORDS_OF,
  type Keywords,
  readKeywords,
  TYPES,
  tagOf,
  typesOf,
  usedKeywords,
} from './schema-keywords.js';
import {
  ANY_VALUE,
  checkNodes,
  MAX_READINGS,
  mayOverlap,
  type ObjectNode,
  optionalRun,
  type ReferenceNode,
  refuse,
  type SchemaNode,
} from './schema-node.js';
import { languageOfFormat } from './string-formats.js';
import { holds, LanguageMaker, type TextLanguage, UnreadablePattern } from './text-language.js';

/** Most levels of schemas, and schemas. */
const MAX_DEPTH = 64;
const MAX_SCHEMAS = 2048;

/** Most alternatives of one place; those of several keywords multiply. */
const MAX_ALTERNATIVES = 256;

/** Longest texts whose length the grammar counts, alone and beside a pattern; others are checked when all is there. */
const MAX_COUNTED_LENGTH = 1024;
const MAX_COUNTED_BESIDE_PATTERN = 32;

/** Most different bounds of numbers in one schema: each becomes an automaton. */
const MAX_RANGES = 64;

/** A schema as nodes for the grammar, and a check of the whole answer. */
export interface ReadSchema {
  readonly node: SchemaNode;
  /** Whether a value that fits the node fits the schema too. Left out where every such value does. */
  readonly check?: (value: unknown) => boolean;
}

/**
 * Reads a JSON schema. The nodes are narrower than the schema: properties have an order, and others come only where
 * the schema names them. The check covers keywords that the grammar cannot enforce.
 *
 * @param path Where the schema stands in the request.
 * @throws WARMPATH_INVALID_REQUEST with the path of the first keyword that is wrong or not supported. Cost: O(schema),
 *   plus bounded automata for patterns, plus O(n²) for n alternatives.
 */
export function readJsonSchema(schema: unknown, path: string): ReadSchema {
  const reader = new SchemaReader(schema, path);
  const node = reader.read(schema, path, 0);
  checkNodes(node);
  const isExact = reader.isExact && !mayOverlap(node);
  return isExact ? { node } : { node, check: answerCheck(schema, path) };
}

class SchemaReader {
  /** Whether the nodes enforce the whole schema. */
  isExact = true;
  readonly #root: unknown;
  readonly #rootPath: string;
  readonly #known = new Map<object, ReferenceNode>();
  readonly #languages = new LanguageMaker();
  readonly #made = new Map<string, TextLanguage | undefined>();
  #ranges = 0;
  #places = 0;

  constructor(root: unknown, rootPath: string) {
    this.#root = root;
    this.#rootPath = rootPath;
  }

  read(schema: unknown, path: string, depth: number): SchemaNode {
    if (depth > MAX_DEPTH || ++this.#places > MAX_SCHEMAS) {
      throw refuse(path, `Expected at most ${MAX_SCHEMAS} schemas, ${MAX_DEPTH} deep`);
    }
    if (schema === true) return ANY_VALUE;
    if (!isObject(schema)) {
      throw refuse(path, schema === false ? 'No answer fits the schema `false`' : 'Expected a JSON schema');
    }
    const known = this.#known.get(schema);
    if (known !== undefined) return known;
    const node: ReferenceNode = { kind: 'reference', path, target: undefined };
    this.#known.set(schema, node);
    node.target = this.#readKeywords(schema, path, depth + 1);
    return node;
  }

  #readKeywords(given: Schema, path: string, depth: number): SchemaNode {
    const schema = readKeywords(given, path);
    const used = usedKeywords(schema);
    if (used.length === 0) return ANY_VALUE;
    const [only, ...others] = used;
    if (only === '$ref' && others.length === 0) {
      const { target, place } = this.#follow(schema['$ref'], join(path, '$ref'));
      return this.read(target, place, depth);
    }
    if (used.includes('$ref') || used.includes('allOf')) {
      const parts = this.#partsOf(schema, path, new Set());
      return this.#readKeywords(merge(parts, path), path, depth + 1);
    }
    if (used.includes('nullable')) {
      const { nullable: _, ...rest } = schema;
      const value = this.#readKeywords(rest, path, depth);
      return unionOf([value, { kind: 'texts', texts: ['null'] }], path);
    }
    for (const keyword of ['oneOf', 'anyOf'] as const) {
      if (used.includes(keyword)) return this.#readAlternatives(schema, keyword, path, depth);
    }
    for (const keyword of used) this.isExact &&= !CHECKED.has(keyword);
    return used.includes('const') || used.includes('enum')
      ? readTexts(schema, path)
      : this.#readTypes(schema, path, depth);
  }

  #readTypes(schema: Keywords, path: string, depth: number): SchemaNode {
    const types = typesOf(schema, path);
    const known = new Set(['type', ...CHECKED, ...types.flatMap((type) => KEYWORDS_OF[type])]);
    const other = usedKeywords(schema).find((key) => !known.has(key));
    if (other !== undefined && !TYPES.some((type) => KEYWORDS_OF[type].includes(other))) {
      throw refuse(join(path, other), 'This engine does not support this keyword here');
    }
    return unionOf(
      types.map((type) => this.#readType(type, schema, path, depth)),
      join(path, 'type'),
    );
  }

  /** The schema's own keywords, and those of its reference and of `allOf`. */
  #partsOf(schema: unknown, path: string, seen: Set<unknown>): Schema[] {
    if (schema === true) return [];
    if (!isObject(schema)) throw refuse(path, 'Expected a JSON schema');
    if (seen.has(schema)) throw refuse(path, 'This schema is nothing but itself');
    seen.add(schema);
    const { $ref, allOf = [], ...own } = readKeywords(schema, path);
    const parts: Schema[] = [own];
    if ($ref !== undefined) {
      const { target, place } = this.#follow($ref, join(path, '$ref'));
      parts.push(...this.#partsOf(target, place, seen));
    }
    for (const [index, member] of allOf.entries()) {
      parts.push(...this.#partsOf(member, `${join(path, 'allOf')}[${index}]`, new Set(seen)));
    }
    return parts;
  }

  /** Alternatives, each merged with the keywords beside them. */
  #readAlternatives(schema: Keywords, keyword: 'anyOf' | 'oneOf', path: string, depth: number): SchemaNode {
    const { [keyword]: given = [], ...beside } = schema;
    const place = join(path, keyword);
    if (given.length === 0) throw refuse(place, 'Expected schemas in an array');
    this.#places += given.length;
    if (given.length > MAX_ALTERNATIVES) throw refuse(place, `Expected at most ${MAX_ALTERNATIVES} alternatives`);
    const tag = tagOf(schema);
    const isAlone = usedKeywords(beside).length === 0;
    const members = given.map((member: unknown, index) => {
      const memberPath = `${place}[${index}]`;
      if (isAlone && tag === undefined) return this.read(member, memberPath, depth);
      const parts = this.#partsOf(member, memberPath, new Set());
      const tagged = tag === undefined ? [] : [{ required: [tag] }];
      return this.#readKeywords(
        merge([...parts, ...(isAlone ? [] : [beside]), ...tagged], memberPath),
        memberPath,
        depth + 1,
      );
    });
    return unionOf(members, place, keyword === 'oneOf');
  }

  #follow(given: unknown, path: string): { readonly target: unknown; readonly place: string } {
    if (typeof given !== 'string' || !/^#(\/|$)/.test(given)) {
      throw refuse(path, 'Expected a reference into this schema, such as #/$defs/name');
    }
    let target = this.#root;
    let place = this.#rootPath;
    for (const part of given.split('/').slice(1)) {
      const key = decodePointer(part, path);
      const isThere = typeof target === 'object' && target !== null && Object.hasOwn(target, key);
      if (!isThere) throw refuse(path, 'Nothing stands where this refers to');
      place = Array.isArray(target) ? `${place}[${key}]` : join(place, key);
      target = (target as Schema)[key];
    }
    return { target, place };
  }

  #readType(type: JsonType, schema: Keywords, path: string, depth: number): SchemaNode {
    switch (type) {
      case 'object':
        return this.#readObject(schema, path, depth);
      case 'array':
        return this.#readArray(schema, path, depth);
      case 'string':
        return this.#readString(schema, path);
      case 'boolean':
        return { kind: 'texts', texts: ['true', 'false'] };
      case 'null':
        return { kind: 'texts', texts: ['null'] };
      default:
        return this.#readNumber(schema, path, type === 'integer');
    }
  }

  #readArray(schema: Keywords, path: string, depth: number): SchemaNode {
    const { minItems: min = 0, maxItems: max } = schema;
    checkOrder(min, max, join(path, 'maxItems'));
    // Before 2020 the first items stood in `items`, and the others in `additionalItems`.
    const isOld = Array.isArray(schema['items']);
    const [firstKey, othersKey] = isOld ? ['items', 'additionalItems'] : ['prefixItems', 'items'];
    const given = schema[firstKey] as readonly unknown[] | undefined;
    const first = (given ?? [])
      .slice(0, max)
      .map((item, index) => this.read(item, `${join(path, firstKey)}[${index}]`, depth));
    const others = schema[othersKey];
    const isTuple = first.length > 0 && others === undefined && min <= first.length;
    const isClosed = others === false || isTuple || (max !== undefined && max <= first.length);
    if (isClosed && min > first.length) {
      throw refuse(join(path, 'minItems'), 'Expected no more items than there may be');
    }
    const items = isClosed ? undefined : this.read(others ?? true, join(path, othersKey), depth);
    return { kind: 'array', first, items, min, max };
  }

  #readObject(schema: Keywords, path: string, depth: number): SchemaNode {
    const { properties, required = [], additionalProperties: more } = schema;
    // Some schemas say `required: true` of a property, which says nothing of other types.
    if (!Array.isArray(required) || !required.every((key) => typeof key === 'string')) {
      throw refuse(join(path, 'required'), 'Expected an array of names');
    }
    const names = this.#readNames(schema.propertyNames, path);
    const listed = new Map(Object.entries(properties ?? {}));
    for (const key of [...required, ...(names?.texts ?? [])]) {
      if (!listed.has(key) && (more !== false || required.includes(key))) {
        listed.set(key, this.#valueOf(key, schema, path));
      }
    }
    const nodes = [...listed]
      .filter(([key, value]) => value !== false || required.includes(key))
      .map(([key, value]) => ({
        key,
        isRequired: required.includes(key),
        value: this.read(value, join(join(path, 'properties'), key), depth),
      }));
    const isOpen = more !== undefined || (properties === undefined && names?.texts === undefined && nodes.length === 0);
    const others =
      names?.texts === undefined
        ? this.#readOthers(schema, [...listed.keys()], { path, depth, isOpen, names: names?.language })
        : [];
    this.#checkCounts(schema, path, others.length > 0 ? Number.POSITIVE_INFINITY : nodes.length);
    const node: ObjectNode = { kind: 'object', properties: nodes, others };
    if (optionalRun(node) > MAX_READINGS) {
      throw refuse(path, `Expected at most ${MAX_READINGS - 1} optional properties in a row`);
    }
    return node;
  }

  /** The names that `propertyNames` allows: texts, or a language. */
  #readNames(
    names: Keywords['propertyNames'],
    path: string,
  ): { readonly texts?: readonly string[]; readonly language?: TextLanguage } | undefined {
    if (names === undefined || names === true) return undefined;
    const place = join(path, 'propertyNames');
    if (names === false) throw refuse(place, 'No name fits the schema `false`');
    const { type: _, ...said } = merge(this.#partsOf(names, place, new Set()), place);
    const node = this.#readKeywords({ ...said, type: 'string' }, place, 0);
    if (node.kind === 'texts') return { texts: node.texts.map((text) => JSON.parse(text) as string) };
    if (node.kind === 'language') return { language: node.language };
    if (node.kind !== 'string') {
      throw refuse(place, 'This engine supports names as constants, by lengths, a pattern or a format only');
    }
    return { language: this.#languages.length(node.min, node.max) };
  }

  /** The schema of a property that is not listed. */
  #valueOf(
    key: string,
    { additionalProperties: more = true, patternProperties = {} }: Keywords,
    path: string,
  ): unknown {
    const found = Object.entries(patternProperties).filter(([pattern]) =>
      holds(this.#pattern(pattern, join(path, 'patternProperties')), key),
    );
    return found.length === 0 ? more : { allOf: found.map(([, value]) => value) };
  }

  /** Properties that are not listed: by the pattern that their names match, else by `additionalProperties`. */
  #readOthers(
    { additionalProperties: more = true, patternProperties = {} }: Keywords,
    listed: readonly string[],
    { path, depth, isOpen, names }: { path: string; depth: number; isOpen: boolean; names: TextLanguage | undefined },
  ): ObjectNode['others'] {
    const below = join(path, 'patternProperties');
    const patterns = Object.entries(patternProperties).map(([pattern, value]) => ({
      language: this.#pattern(pattern, below),
      value,
      place: join(below, pattern),
    }));
    const mayBeOpen = isOpen && (patterns.length === 0 || more !== true) && more !== false;
    const rest = { language: undefined, value: more, place: join(path, 'additionalProperties') };
    const groups = [...patterns, ...(mayBeOpen ? [rest] : [])].filter(({ value }) => value !== false);
    const known =
      groups.length === 0 || listed.length === 0
        ? []
        : [attempt(join(path, 'properties'), () => this.#languages.texts(listed))];
    return groups.flatMap(({ language, value, place }): ObjectNode['others'] => {
      const others = patterns.map((each) => each.language).filter((each) => each !== language);
      const excluded = [...known, ...others];
      const node = this.read(value, place, depth);
      if (language === undefined && excluded.length === 0 && names === undefined) {
        return [{ keys: undefined, value: node }];
      }
      const keys = attempt(below, () => {
        const wanted = [language ?? [], names ?? []].flat();
        const all = this.#languages.intersection(wanted.length > 0 ? wanted : [this.#languages.length(0, undefined)]);
        return all && this.#languages.without(all, excluded);
      });
      return keys === undefined ? [] : [{ keys, value: node }];
    });
  }

  #pattern(pattern: string, path: string): TextLanguage {
    return attempt(path, () => this.#languages.pattern(pattern));
  }

  /** The check of the whole answer counts the properties. */
  #checkCounts(schema: Keywords, path: string, possible: number): void {
    const { minProperties: least, maxProperties: most } = schema;
    checkOrder(least ?? 0, most, join(path, 'maxProperties'));
    if (least !== undefined && least > possible) {
      throw refuse(join(path, 'minProperties'), 'Expected no more properties than there may be');
    }
    this.isExact &&= least === undefined && most === undefined;
  }

  #readString(schema: Keywords, path: string): SchemaNode {
    const { minLength: min = 0, maxLength: max, pattern } = schema;
    checkOrder(min, max, join(path, 'maxLength'));
    const isFree = pattern === undefined && languagesOfFormats(schema).length === 0;
    const most = isFree ? MAX_COUNTED_LENGTH : MAX_COUNTED_BESIDE_PATTERN;
    const isCounted = min <= most && (max === undefined || max <= most);
    this.isExact &&= isCounted;
    if (isFree) {
      return { kind: 'string', min: Math.min(min, most), max: max !== undefined && max <= most ? max : undefined };
    }
    const keyword = join(path, pattern === undefined ? 'format' : 'pattern');
    const language = this.#once([pattern, schema['format'], min, max], () => {
      const patterns = [pattern ?? []].flat().map((each) => this.#pattern(each, join(path, 'pattern')));
      const isAnyLength = !isCounted || (min === 0 && max === undefined);
      return attempt(keyword, () => {
        const lengths = isAnyLength ? [] : [this.#languages.length(min, max)];
        return this.#languages.intersection([...patterns, ...languagesOfFormats(schema), ...lengths]);
      });
    });
    if (language === undefined) throw refuse(keyword, 'No text fits all that is said of it here');
    return { kind: 'language', isNumber: false, language };
  }

  #readNumber(schema: Keywords, path: string, isInteger: boolean): SchemaNode {
    const { minimum: from, maximum: to, exclusiveMinimum: above, exclusiveMaximum: below } = schema;
    const steps = [schema.multipleOf ?? []].flat();
    const min = from === undefined || above === undefined ? (from ?? above) : Math.max(from, above);
    const max = to === undefined || below === undefined ? (to ?? below) : Math.min(to, below);
    this.isExact &&= steps.every(isExactStep);
    const bounds = {
      isInteger,
      min,
      max,
      isMinOpen: above !== undefined && above === min,
      isMaxOpen: below !== undefined && below === max,
    };
    const language = this.#once({ ...bounds, multipleOf: steps }, () => {
      this.#ranges++;
      if (this.#ranges > MAX_RANGES) throw refuse(path, `Expected at most ${MAX_RANGES} different bounds of numbers`);
      return attempt(path, () => languageOfNumbers({ ...bounds, multipleOf: steps }));
    });
    if (language === undefined) throw refuse(path, 'No number lies within these bounds');
    return { kind: 'language', isNumber: true, language };
  }

  /** The same keywords share one automaton. */
  #once(said: unknown, make: () => TextLanguage | undefined): TextLanguage | undefined {
    const key = JSON.stringify(said);
    if (!this.#made.has(key)) this.#made.set(key, make());
    return this.#made.get(key);
  }
}

function languagesOfFormats(schema: Schema): readonly TextLanguage[] {
  return [schema['format'] ?? []].flat().flatMap((format) => languageOfFormat(String(format)) ?? []);
}

function merge(parts: readonly Schema[], path: string): Schema {
  const result = mergeSchemas(parts.map(withoutAnnotations));
  if ('keyword' in result) {
    throw refuse(join(path, result.keyword), 'This engine cannot join what is said with this keyword twice');
  }
  return result.merged;
}

function withoutAnnotations(schema: Schema): Schema {
  return Object.fromEntries(usedKeywords(schema).map((key) => [key, schema[key]]));
}

function unionOf(members: readonly SchemaNode[], path: string, isExclusive = false): SchemaNode {
  const [only] = members;
  return members.length === 1 ? only! : { kind: 'union', members, path, isExclusive };
}

function attempt<T>(path: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw error instanceof UnreadablePattern ? refuse(path, error.message) : error;
  }
}

/** The constants of `const` and `enum` that have the type. */
function readTexts(schema: Keywords, path: string): SchemaNode {
  const { const: constant, enum: listed, ...beside } = schema;
  const keyword = Object.hasOwn(schema, 'const') ? 'const' : 'enum';
  const given: readonly unknown[] = keyword === 'const' ? [constant] : (listed ?? []);
  const other = usedKeywords(beside).find((key) => key !== 'type' && !CHECKED.has(key));
  if (other !== undefined) throw refuse(join(path, other), 'This engine supports no such keyword beside constants');
  const types = typesOf(schema, path);
  const texts = given
    .filter((value) => types.some((type) => isOfType(value, type)))
    .map((value) => JSON.stringify(value));
  const isListed = (text: string): boolean =>
    keyword === 'enum' || listed === undefined || listed.some((value) => JSON.stringify(value) === text);
  const fitting = [...new Set(texts)].filter(isListed);
  if (fitting.length === 0) throw refuse(join(path, keyword), 'Expected a constant that fits the type');
  return { kind: 'texts', texts: fitting };
}
