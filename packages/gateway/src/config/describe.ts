import { z } from 'zod';
import { gatewayConfigSchema } from './schema.js';

/** The configuration's JSON Schema (draft 2020-12), for editors, `--help` and the documentation. */
export function configJsonSchema(): Record<string, unknown> {
  return z.toJSONSchema(gatewayConfigSchema, { io: 'input' });
}

/** One key of the configuration, for a documentation table. */
export interface ConfigKey {
  /** Dotted path, for instance `upstream.timeoutMs`. */
  readonly path: string;
  /** `string`, `integer`, `boolean`, or the allowed values joined by `|`. */
  readonly type: string;
  /** `undefined` where there is none. */
  readonly default: unknown;
  readonly required: boolean;
  readonly description: string;
  /** Whether a new value counts when the configuration is read again; otherwise the gateway must be started again. */
  readonly changesAtOnce: boolean;
}

/**
 * Keys whose new value counts as soon as a configuration is read again; of a section, all of its keys. Every other key
 * needs a restart: it decides where the gateway listens, how memory is divided, or what remembered state means.
 */
const AT_ONCE: readonly string[] = [
  'server.drainDelayMs',
  'server.keys',
  'server.jwt',
  'server.operatorKey',
  'server.open',
  'server.cors',
  'upstream.url',
  'upstream.apiKey',
  'upstream.timeoutMs',
  'upstream.kvEvents',
  'engines',
  'arrange.policy',
  'arrange.maxShift',
  'arrange.shiftPrice',
  'arrange.hints',
  'recognise',
  'unchanged',
  'queue.capacity',
  'queue.maxWaitMs',
  'queue.discipline',
  'prices',
  'explain',
  'dashboard',
  'collections.models',
  'log',
  'passthrough',
];

/** Whether a new value of that key, or of a key below it, counts at once. */
export function isChangedAtOnce(path: string): boolean {
  return AT_ONCE.some((known) => path === known || path.startsWith(`${known}.`));
}

interface SchemaNode {
  readonly type?: string;
  readonly enum?: readonly string[];
  readonly default?: unknown;
  readonly description?: string;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly required?: readonly string[];
}

/** Every key of the configuration in the schema's order, with type, default and description. */
export function describeConfig(): readonly ConfigKey[] {
  const keys: ConfigKey[] = [];
  collectKeys(configJsonSchema() as SchemaNode, '', keys);
  return keys;
}

function collectKeys(node: SchemaNode, prefix: string, keys: ConfigKey[]): void {
  for (const [name, child] of Object.entries(node.properties ?? {})) {
    const path = prefix === '' ? name : `${prefix}.${name}`;
    if (child.properties !== undefined) {
      collectKeys(child, path, keys);
      continue;
    }
    keys.push({
      path,
      type: child.enum?.join('|') ?? child.type ?? 'string',
      default: child.default,
      required: node.required?.includes(name) ?? false,
      description: child.description ?? '',
      changesAtOnce: isChangedAtOnce(path),
    });
  }
}
