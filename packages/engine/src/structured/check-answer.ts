import { type Schema as CheckedSchema, Validator } from '@cfworker/json-schema';
import type { Schema } from './merge-schemas.js';
import { isObject } from './schema-keywords.js';
import { refuse } from './schema-node.js';

/** Keywords whose value is a schema or several in an array, and those whose value is schemas by name. */
const SCHEMAS: ReadonlySet<string> = new Set([
  ...['additionalItems', 'additionalProperties', 'contains', 'else', 'if', 'items', 'not', 'propertyNames', 'then'],
  ...['allOf', 'anyOf', 'oneOf', 'prefixItems'],
]);
const NAMED: ReadonlySet<string> = new Set(['$defs', 'definitions', 'dependentSchemas', 'properties']);

/** Keywords whose result depends on a schema that may not fit. */
const DECISIVE: ReadonlySet<string> = new Set(['contains', 'if', 'not', 'oneOf']);

/** The grammar enforces these: a client's regular expression could run without end on an answer. */
const EXPRESSIONS = ['pattern', 'format'];

/**
 * Checks a whole answer for keywords that the grammar does not enforce.
 *
 * @param path Where the schema stands in the request.
 * @returns Whether a JSON value fits the schema.
 * @throws WARMPATH_INVALID_REQUEST with the place of a pattern on which the check would depend.
 */
export function answerCheck(schema: unknown, path: string): (value: unknown) => boolean {
  const validator = new Validator(checkable(schema, path, false) as CheckedSchema, '2020-12');
  return (value) => validator.validate(value).valid;
}

/** The schema in the form of draft 2020-12, without patterns and formats. */
function checkable(schema: unknown, path: string, isDecisive: boolean): unknown {
  if (!isObject(schema)) return schema;
  const { nullable, patternProperties, ...said } = schema;
  const isBound = patternProperties !== undefined || EXPRESSIONS.some((keyword) => Object.hasOwn(said, keyword));
  if (isDecisive && isBound) {
    throw refuse(path, 'This engine supports no patterns and formats where an answer is checked when it is whole');
  }
  // Without patterns, their properties would count as additional ones.
  const left = new Set([...EXPRESSIONS, ...(patternProperties === undefined ? [] : ['additionalProperties'])]);
  const checked: Record<string, unknown> = {};
  for (const [keyword, value] of Object.entries(said)) {
    if (left.has(keyword)) continue;
    const read = (part: unknown, at: string): unknown =>
      checkable(part, `${path}.${keyword}${at}`, isDecisive || DECISIVE.has(keyword));
    if (NAMED.has(keyword)) {
      const parts = Object.entries(value as Schema).map(([name, part]) => [name, read(part, `.${name}`)]);
      checked[keyword] = Object.fromEntries(parts);
    } else if (!SCHEMAS.has(keyword)) {
      checked[keyword] = value;
    } else if (Array.isArray(value)) {
      // Before 2020 the first items stood in `items`, and the others in `additionalItems`.
      const name = keyword === 'items' ? 'prefixItems' : keyword;
      checked[name] = value.map((part, index) => read(part, `[${index}]`));
    } else {
      checked[keyword === 'additionalItems' ? 'items' : keyword] = read(value, '');
    }
  }
  return nullable === true ? { anyOf: [{ type: 'null' }, checked] } : checked;
}
