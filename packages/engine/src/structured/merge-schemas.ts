import { isDeepStrictEqual } from 'node:util';

export type Schema = Readonly<Record<string, unknown>>;

/** Joins two values of one keyword; `undefined` where one value cannot express both. */
type Merge = (one: unknown, other: unknown) => unknown;

const areNumbers = (one: unknown, other: unknown): boolean => typeof one === 'number' && typeof other === 'number';
const least: Merge = (one, other) => (areNumbers(one, other) ? Math.max(one as number, other as number) : undefined);
const most: Merge = (one, other) => (areNumbers(one, other) ? Math.min(one as number, other as number) : undefined);
const both: Merge = (one, other) => ({ allOf: [one, other] });
const listed: Merge = (one, other) => [...new Set([one, other].flat())];
const common: Merge = (one, other) => {
  const others = [other].flat();
  return [one].flat().filter((value) => others.some((each) => isDeepStrictEqual(each, value)));
};
const byKey: Merge = (one, other) => {
  const merged: Record<string, unknown> = { ...(one as Schema) };
  for (const [key, value] of Object.entries(other as Schema)) {
    merged[key] = Object.hasOwn(merged, key) ? both(merged[key], value) : value;
  }
  return merged;
};

/** An integer is a number. */
const types: Merge = (one, other) => {
  const [left, right] = [[one].flat(), [other].flat()];
  const fits = (type: unknown, those: readonly unknown[]): boolean =>
    those.includes(type) || (type === 'integer' && those.includes('number'));
  return [...new Set([...left.filter((type) => fits(type, right)), ...right.filter((type) => fits(type, left))])];
};

const pairs: Merge = (one, other) =>
  [one].flat().flatMap((left) => [other].flat().map((right) => ({ allOf: [left, right] })));

const MERGES: Readonly<Record<string, Merge>> = {
  type: types,
  anyOf: pairs,
  oneOf: pairs,
  enum: common,
  properties: byKey,
  patternProperties: byKey,
  required: listed,
  additionalProperties: both,
  propertyNames: both,
  items: both,
  minItems: least,
  minLength: least,
  minProperties: least,
  minimum: least,
  exclusiveMinimum: least,
  maxItems: most,
  maxLength: most,
  maxProperties: most,
  maximum: most,
  exclusiveMaximum: most,
  pattern: listed,
  format: listed,
  multipleOf: listed,
  uniqueItems: (one, other) => one === true || other === true,
  nullable: (one, other) => one === true && other === true,
};

/**
 * Merges schemas into one that a value fits exactly when it fits all.
 *
 * @returns The keyword whose values cannot be joined, where there is one.
 */
export function mergeSchemas(schemas: readonly Schema[]): { readonly merged: Schema } | { readonly keyword: string } {
  const merged: Record<string, unknown> = {};
  for (const schema of schemas) {
    for (const [keyword, value] of Object.entries(schema)) {
      const known = merged[keyword];
      const isNew = !Object.hasOwn(merged, keyword) || isDeepStrictEqual(known, value);
      const together = isNew ? value : MERGES[keyword]?.(known, value);
      if (together === undefined) return { keyword };
      merged[keyword] = together;
    }
  }
  return { merged };
}
