import { WarmpathError } from '@warmpath/core';
import { z } from 'zod';
import { engineOptionsSchema } from './options.js';

type OptionName = keyof typeof engineOptionsSchema.shape;

export interface EngineFlag {
  readonly name: OptionName;
  /** With its dashes: the option's name in kebab case. */
  readonly flag: string;
  /** What stands behind it; `switch` for nothing. */
  readonly kind: 'text' | 'number' | 'bytes' | 'switch';
  readonly description: string;
  /** The default as a command line would have it; `undefined` for none, and for a switch. */
  readonly fallback: string | undefined;
}

/** The options of the schema that have a flag, in the schema's order. */
export function engineFlags(): readonly EngineFlag[] {
  const names = (Object.keys(engineOptionsSchema.shape) as OptionName[]).filter(
    (name) => engineOptionsSchema.shape[name].meta()?.['hasFlag'] !== false,
  );
  return names.map((name) => {
    const schema = engineOptionsSchema.shape[name];
    const kind = kindOf(name);
    return {
      name,
      flag: `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`,
      kind,
      description: schema.description ?? '',
      fallback: shownDefault(kind, z.safeParse(schema, undefined).data),
    };
  });
}

/**
 * What the text behind a flag means.
 *
 * @throws WARMPATH_CONFIG_INVALID for a number or a size that is none, and for a value that the option cannot have.
 */
export function readFlag({ name, flag, kind }: EngineFlag, text: string): string | number {
  if (kind === 'switch') return text;
  const refuse = (detail: string) => new WarmpathError('WARMPATH_CONFIG_INVALID', { path: flag, detail });
  const value = kind === 'text' ? text : kind === 'bytes' ? readBytes(text) : readNumber(text);
  if (value === undefined) {
    throw refuse(`${kind === 'bytes' ? 'A size in bytes, like 536870912 or 512MiB,' : 'A number'} was expected.`);
  }
  const { error } = z.safeParse(engineOptionsSchema.shape[name], value);
  if (error !== undefined) throw refuse(`${error.issues[0]!.message}.`);
  return value;
}

/** By what the option's schema takes and says of its unit. */
function kindOf(name: OptionName): EngineFlag['kind'] {
  const schema = engineOptionsSchema.shape[name];
  const { type } = z.toJSONSchema(schema, { io: 'input' });
  if (type === 'boolean') return 'switch';
  return type === 'string' ? 'text' : schema.meta()?.['unit'] === 'bytes' ? 'bytes' : 'number';
}

function shownDefault(kind: EngineFlag['kind'], value: string | number | boolean | undefined): string | undefined {
  if (kind === 'switch' || value === undefined || value === '') return undefined;
  return kind === 'bytes' ? writeBytes(Number(value)) : String(value);
}

function readNumber(text: string): number | undefined {
  const value = text.trim() === '' ? Number.NaN : Number(text);
  return Number.isNaN(value) ? undefined : value;
}

/** Binary units, by the power of 1024. */
const UNITS = ['', 'KiB', 'MiB', 'GiB', 'TiB'];

/** A size as people write it: `536870912`, `512MiB`, `1.5 GiB`. `undefined` for anything else. */
export function readBytes(text: string): number | undefined {
  const [, number, unit] = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(text) ?? [];
  const power = UNITS.findIndex((name) => name.toLowerCase() === unit?.toLowerCase());
  if (number === undefined || power < 0) return undefined;
  return Math.round(Number(number) * 1024 ** power);
}

/** The shortest text that {@link readBytes} reads as this size. */
export function writeBytes(bytes: number): string {
  let power = 0;
  while (bytes !== 0 && bytes % 1024 ** (power + 1) === 0 && power + 1 < UNITS.length) power++;
  return `${bytes / 1024 ** power}${UNITS[power]!}`;
}
