import { z } from 'zod';
import { gatewayConfigSchema } from './schema.js';

/** The configuration's JSON Schema (draft 2020-12), for editors, `--help` and the documentation. */
export function configJsonSchema(): Record<string, unknown> {
  return z.toJSONSchema(gatewayConfigSchema, { io: 'input' });
}

/** One key of the configuration, for a documentation table. */
export interface ConfigKey {
  /** Dotted path, for instance `upstream.timeouts.idleMs`. */
  readonly path: string;
  /** `string`, `integer`, `boolean`, or the allowed values joined by `|`. */
  readonly type: string;
  /** `undefined` where there is none. */
  readonly default: unknown;
  readonly required: boolean;
  readonly description: string;
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
    });
  }
}
