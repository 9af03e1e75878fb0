import { type Schema as CheckedSchema, Validator } from '@cfworker/json-schema';
import type { Schema } from './merge-schemas.js';
import { refuse } from './schema-node.js';

/** Keywords whose value is a schema, schemas in an array, or schemas by name. */
const ONE = ['additionalProperties', 'contains', 'else', 'if', 'items', 'not', 'propertyNames', 'then'];
const SEVERAL = ['allOf', 'anyOf', 'oneOf', 'prefixItems'];
const NAMED = ['$defs', 'definitions', 'dependentSchemas', 'properties'];

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
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) {
    return schema;
  }
  const { nullable, patternProperties, ...said } = schema as Schema;
  const isBound = patternProperties !== undefined || EXPRESSIONS.some((keyword) => Object.hasOwn(said, keyword));
  if (isDecisive && isBound) {
    throw refuse(path, 'This engine supports no patterns and formats where an answer is checked when it is whole');
  }
  const entries = Object.entries(said)
    // Without patterns, their properties would count as additional ones.
    .filter(
      ([keyword]) =>
        !EXPRESSIONS.includes(keyword) && !(patternProperties !== undefined && keyword === 'additionalProperties'),
    )
    .map(([keyword, value]): [string, unknown] => {
      const place = `${path}.${keyword}`;
      const inside = isDecisive || DECISIVE.has(keyword);
      const list = (): unknown[] =>
        (value as unknown[]).map((each, index) => checkable(each, `${place}[${index}]`, inside));
      if (keyword === 'items' && Array.isArray(value)) {
        return ['prefixItems', list()];
      }
      if (keyword === 'additionalItems') {
        return ['items', checkable(value, place, inside)];
      }
      if (SEVERAL.includes(keyword)) {
        return [keyword, list()];
      }
      if (NAMED.includes(keyword)) {
        const named = Object.entries(value as Schema).map(([name, each]) => [
          name,
          checkable(each, `${place}.${name}`, inside),
        ]);
        return [keyword, Object.fromEntries(named)];
      }
      return [keyword, ONE.includes(keyword) ? checkable(value, place, inside) : value];
    });
  const checked = Object.fromEntries(entries);
  return nullable === true ? { anyOf: [{ type: 'null' }, checked] } : checked;
}
