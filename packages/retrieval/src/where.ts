import { WarmpathError } from '@warmpath/core';

export type WhereValue = string | number | boolean;

/** What a field must be. All that is given holds, for one value where the field has a list of them. */
export interface WhereCondition {
  /** One of these. */
  readonly in?: readonly WhereValue[] | undefined;
  /** Bounds, of numbers or of strings by their code points. */
  readonly gt?: string | number | undefined;
  readonly gte?: string | number | undefined;
  readonly lt?: string | number | undefined;
  readonly lte?: string | number | undefined;
  /** How a string begins: `{ source: { prefix: 'docs/' } }`. */
  readonly prefix?: string | undefined;
}

/**
 * Which passages may be found, by fields of their metadata; all of them hold. A value alone is what the field is, or
 * has in its list. A dot leads into an object. A collection has the id of the document as `source`.
 */
export type Where = Readonly<Record<string, WhereValue | WhereCondition>>;

type Metadata = Readonly<Record<string, unknown>>;

/** Whether metadata are as `where` says. Pure. */
export function matchesWhere(where: Where, metadata: Metadata = {}): boolean {
  return conditionsOf(where).every(([field, condition]) => {
    const value = valueAt(metadata, field);
    return (Array.isArray(value) ? value : [value]).some((each) => holds(condition, each));
  });
}

/** The fields of a filter with their conditions, each in its long form. */
export function conditionsOf(where: Where): [field: string, condition: WhereCondition][] {
  return Object.entries(where).map(([field, given]) => [field, typeof given === 'object' ? given : { in: [given] }]);
}

/** @throws WARMPATH_INVALID_REQUEST: a store cannot do what `where` asks. */
export function refuseWhere(field: string, detail: string): never {
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: `where.${field}`, detail });
}

function valueAt(metadata: Metadata, field: string): unknown {
  return field
    .split('.')
    .reduce<unknown>(
      (value, name) =>
        typeof value === 'object' && value !== null && Object.hasOwn(value, name)
          ? (value as Record<string, unknown>)[name]
          : undefined,
      metadata,
    );
}

function holds({ in: values, prefix, gt, gte, lt, lte }: WhereCondition, value: unknown): boolean {
  if (values !== undefined && !values.some((each) => each === value)) return false;
  if (prefix !== undefined && !(typeof value === 'string' && value.startsWith(prefix))) return false;
  const isInside = (bound: string | number | undefined, fits: (order: number) => boolean) => {
    if (bound === undefined) return true;
    if (typeof bound === 'number') return typeof value === 'number' && fits(value - bound);
    return typeof value === 'string' && fits(Buffer.compare(Buffer.from(value), Buffer.from(bound)));
  };
  return (
    isInside(gt, (order) => order > 0) &&
    isInside(gte, (order) => order >= 0) &&
    isInside(lt, (order) => order < 0) &&
    isInside(lte, (order) => order <= 0)
  );
}
