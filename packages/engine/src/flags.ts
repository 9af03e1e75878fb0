import { parseArgs } from 'node:util';
import { WarmpathError } from '@warmpath/core';
import { z } from 'zod';
import { type EngineOptions, engineOptionsSchema } from './options.js';

type OptionName = keyof typeof engineOptionsSchema.shape;
type OptionKind = 'text' | 'number' | 'switch';

const OPTION_NAMES = Object.keys(engineOptionsSchema.shape) as OptionName[];

/** What the command line asks for. */
export type CommandLine =
  | { readonly help: true }
  | {
      readonly help: false;
      /** Measure instead of serving. */
      readonly profile: boolean;
      readonly options: EngineOptions;
    };

const PROFILE_HELP = 'Measure prefill and copies, keep the figures for later starts, and end';

/**
 * Reads the flags of `warmpath-engine`: every option of the schema is one, in kebab case.
 *
 * @throws WARMPATH_CONFIG_INVALID for a flag that does not exist or a number that is none; what the schema says of the
 *   values is checked later.
 */
export function parseCommandLine(args: string[]): CommandLine {
  const flags = OPTION_NAMES.map((name) => {
    const type = kindOf(name) === 'switch' ? 'boolean' : 'string';
    return [flagOf(name), { type }] as const;
  });
  let values: Record<string, string | boolean | undefined>;
  try {
    values = parseArgs({
      args,
      options: { ...Object.fromEntries(flags), profile: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } },
    }).values;
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      detail: `${(cause as Error).message}. See warmpath-engine --help`,
      cause,
    });
  }
  if (values['help'] === true) {
    return { help: true };
  }
  const given = OPTION_NAMES.flatMap((name) => {
    const value = values[flagOf(name)];
    return value === undefined ? [] : [[name, kindOf(name) === 'number' ? toNumber(name, String(value)) : value]];
  });
  return { help: false, profile: values['profile'] === true, options: Object.fromEntries(given) as EngineOptions };
}

/** @returns What `warmpath-engine --help` prints: every option with its meaning and default. */
export function helpText(): string {
  const rows = OPTION_NAMES.map((name) => {
    const schema = engineOptionsSchema.shape[name];
    const kind = kindOf(name);
    const fallback = z.safeParse(schema, undefined).data;
    const suffix = fallback === undefined || fallback === '' || kind === 'switch' ? '' : ` (default: ${fallback})`;
    const placeholder = kind === 'switch' ? '' : ` <${kind}>`;
    return [`--${flagOf(name)}${placeholder}`, `${schema.description ?? ''}${suffix}`] as const;
  });
  const all = [...rows, ['--profile', PROFILE_HELP] as const, ['-h, --help', 'Print this and end'] as const];
  const width = Math.max(...all.map(([flag]) => flag.length));
  const lines = all.map(([flag, text]) => `  ${flag.padEnd(width)}  ${text}`);
  return [
    'Usage: warmpath-engine [options]',
    '',
    'The embedded engine on an OpenAI-compatible address.',
    '',
    ...lines,
    '',
  ].join('\n');
}

function flagOf(name: OptionName): string {
  return name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/** By what the option's schema takes. */
function kindOf(name: OptionName): OptionKind {
  const { type } = z.toJSONSchema(engineOptionsSchema.shape[name], { io: 'input' });
  if (type === 'boolean') {
    return 'switch';
  }
  return type === 'string' ? 'text' : 'number';
}

function toNumber(name: OptionName, text: string): number {
  const value = text.trim() === '' ? Number.NaN : Number(text);
  if (Number.isNaN(value)) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', { path: name, detail: `--${flagOf(name)} takes a number` });
  }
  return value;
}
