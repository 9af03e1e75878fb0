import { readFile } from 'node:fs/promises';
import { type ErrorCode, WarmpathError } from '@warmpath/core';
import { fileErrorReason, nearestName } from '@warmpath/core/internal';
import {
  type Document,
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type Pair,
  parse,
  parseDocument,
  visit,
} from 'yaml';
import type { z } from 'zod';
import { describeConfig } from './describe.js';
import { type GatewayConfig, type GatewayConfigInput, gatewayConfigSchema } from './schema.js';

/** One error in a configuration. */
export interface ConfigProblem {
  readonly code: Extract<ErrorCode, `WARMPATH_CONFIG_${string}`>;
  /** Dotted path of the key, for instance `upstream.url`; empty for the file as a whole. */
  readonly path: string;
  /** Line in the file, counted from 1; `undefined` if unknown. */
  readonly line: number | undefined;
  readonly message: string;
}

/** Variables for `${NAME}`: `process.env` in the program. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** The result of a check: the configuration, or all its errors. */
export type ConfigCheck =
  | { readonly config: GatewayConfig; readonly problems: readonly [] }
  | { readonly config: undefined; readonly problems: readonly ConfigProblem[] };

/**
 * Reads a YAML or JSON file, replaces `${NAME}` and `${NAME:-default}`, validates it, and fills in defaults.
 *
 * @param engineUrl replaces the file's `upstream.url` or `engines`, which may then be left out
 * @throws WarmpathError `WARMPATH_CONFIG_…` with the key's path, and the line in the message
 */
export async function loadConfig(file: string, environment: Environment, engineUrl?: string): Promise<GatewayConfig> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_NOT_FOUND', {
      detail: `cannot read ${file}: ${fileErrorReason(cause)}`,
      cause,
    });
  }
  const { config, problems } = checkConfig(text, environment, engineUrl);
  if (config === undefined) throw toError(problems, file);
  return config;
}

/** Otherwise the parser prints warnings about keys that are not text, with the keys, to standard error. */
const QUIET = { logLevel: 'error' } as const;

/** Validates a configuration made in code and fills in defaults. Throws as `loadConfig`, without lines. */
export function resolveConfig(input: GatewayConfigInput): GatewayConfig {
  const result = gatewayConfigSchema.safeParse(input);
  if (result.success) return result.data;
  throw toError(result.error.issues.flatMap((issue) => describeIssue(issue, () => undefined)));
}

/** Checks a configuration text. Returns all errors in the file's order. Never throws. */
export function checkConfig(text: string, environment: Environment, engineUrl?: string): ConfigCheck {
  const lines = new LineCounter();
  const document = parseDocument(text, { ...QUIET, lineCounter: lines, prettyErrors: false });
  // A warning is an unknown tag or directive, which would have no effect.
  const syntax = [...document.errors, ...document.warnings].map((error) =>
    problem('WARMPATH_CONFIG_SYNTAX', '', lines.linePos(error.pos[0]).line, error.message),
  );
  if (syntax.length > 0) return { config: undefined, problems: syntax };

  const { missing, originals } = interpolate(document, environment, lines);
  if (missing.length > 0) return { config: undefined, problems: missing };

  const { value = {}, unreadable } = toValue(document, lines);
  if (unreadable !== undefined) return { config: undefined, problems: [unreadable] };
  if (engineUrl !== undefined) placeEngine(value, engineUrl);
  let result = gatewayConfigSchema.safeParse(value);
  if (!result.success && restoreStrings(value, result.error.issues, originals)) {
    result = gatewayConfigSchema.safeParse(value);
  }
  if (result.success) return { config: result.data, problems: [] };
  const lineOf = (path: readonly PropertyKey[]) => lineOfPath(document, path, lines);
  const problems = result.error.issues.flatMap((issue) => describeIssue(issue, lineOf));
  return { config: undefined, problems: problems.sort((a, b) => (a.line ?? 0) - (b.line ?? 0)) };
}

/** The plain value of a document. Aliases are resolved here, so that an unknown one is reported. */
function toValue(
  document: Document,
  lines: LineCounter,
): { readonly value?: unknown; readonly unreadable?: ConfigProblem } {
  try {
    return { value: document.toJS() ?? {} };
  } catch (error) {
    let line: number | undefined;
    visit(document, {
      Alias(_, alias) {
        if (alias.resolve(document) !== undefined) return undefined;
        if (alias.range) ({ line } = lines.linePos(alias.range[0]));
        return visit.BREAK;
      },
    });
    return { unreadable: problem('WARMPATH_CONFIG_SYNTAX', '', line, (error as Error).message) };
  }
}

/** Replaces the engines of the file by one address. A file of another shape stays as it is. */
function placeEngine(value: unknown, url: string): void {
  if (!isRecord(value)) return;
  const { upstream = {} } = value;
  if (isRecord(upstream)) value['upstream'] = { ...upstream, url };
  delete value['engines'];
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function problem(code: ConfigProblem['code'], path: string, line: number | undefined, message: string): ConfigProblem {
  return { code, path, line, message };
}

function toError(problems: readonly ConfigProblem[], file?: string): WarmpathError {
  const first = problems[0]!;
  const line = first.line === undefined ? undefined : `line ${first.line}`;
  const place = [line, file].filter((part) => part !== undefined).join(' of ');
  const where = place === '' ? '' : ` (${place})`;
  const all = file === undefined ? '' : `: \`warmpath check-config ${file}\` lists them`;
  const more = problems.length === 1 ? '' : `; and ${problems.length - 1} more${all}`;
  const detail = `${first.message}${where}${more}`;
  return new WarmpathError(first.code, first.path === '' ? { detail } : { detail, path: first.path });
}

const VARIABLE = /\$(\$)?\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}/g;

/**
 * Replaces variables in string scalars after parsing, so that a value cannot add keys. A value that looks like a number
 * or boolean becomes one, in quotes or without. `originals` keeps the text for keys that need a string.
 */
function interpolate(document: Document, environment: Environment, lines: LineCounter) {
  const missing: ConfigProblem[] = [];
  const originals = new Map<string, string>();
  visit(document, {
    Scalar(key, node, ancestors) {
      if (key === 'key' || typeof node.value !== 'string' || !node.value.includes('${')) return;
      const path = pathOf(ancestors, node);
      const line = node.range ? lines.linePos(node.range[0]).line : undefined;
      const text = node.value.replace(VARIABLE, (match, escaped?: string, name?: string, fallback?: string) => {
        if (escaped !== undefined) return match.slice(1);
        const value = environment[name!];
        // As in a shell, `:-` also replaces an empty variable.
        if (value !== undefined && (value !== '' || fallback === undefined)) return value;
        if (fallback !== undefined) return fallback;
        missing.push(problem('WARMPATH_CONFIG_VARIABLE', path, line, `the environment variable ${name} is not set`));
        return '';
      });
      node.value = readScalar(text);
      originals.set(path, text);
    },
  });
  return { missing, originals };
}

function readScalar(text: string): unknown {
  try {
    const value: unknown = parse(text, QUIET);
    return typeof value === 'number' || typeof value === 'boolean' ? value : text;
  } catch {
    return text;
  }
}

function pathOf(ancestors: readonly unknown[], leaf: unknown): string {
  const parts: string[] = [];
  for (const [depth, ancestor] of ancestors.entries()) {
    const pair = ancestor as { key?: unknown; items?: readonly unknown[] };
    if (isScalar(pair.key)) parts.push(String(pair.key.value));
    else if (Array.isArray(pair.items)) {
      const position = pair.items.indexOf(ancestors[depth + 1] ?? leaf);
      if (position >= 0 && isNode(pair.items[position])) parts.push(String(position));
    }
  }
  return parts.join('.');
}

/** Restores the text of string keys whose variable looked like a number, such as an API key of digits. */
function restoreStrings(
  value: unknown,
  issues: readonly z.core.$ZodIssue[],
  originals: ReadonlyMap<string, string>,
): boolean {
  let restored = false;
  for (const issue of issues) {
    const text = originals.get(issue.path.join('.'));
    if (issue.code !== 'invalid_type' || issue.expected !== 'string' || text === undefined) continue;
    let parent = value as Record<PropertyKey, unknown>;
    for (const part of issue.path.slice(0, -1)) parent = parent[part] as Record<PropertyKey, unknown>;
    parent[issue.path.at(-1)!] = text;
    restored = true;
  }
  return restored;
}

/**
 * The line of a key or list element. For a missing key, the line of its nearest parent. For an alias, the line of its
 * anchor.
 */
function lineOfPath(document: Document, path: readonly PropertyKey[], lines: LineCounter): number | undefined {
  let node: unknown = document.contents;
  let found: Node | undefined;
  for (const part of path) {
    if (isAlias(node)) node = node.resolve(document);
    if (isMap(node)) {
      const pair: Pair | undefined = node.items.find(
        ({ key }) => String(isScalar(key) ? key.value : key) === String(part),
      );
      if (pair === undefined) break;
      if (isNode(pair.key)) found = pair.key;
      node = pair.value;
    } else if (isSeq(node)) {
      node = node.items[Number(part)];
      if (!isNode(node)) break;
      found = node;
    } else break;
  }
  return found?.range ? lines.linePos(found.range[0]).line : undefined;
}

/** Removed keys, and what happens instead. Dotted paths, without positions of lists. */
export const REMOVED_KEYS: Readonly<Record<string, string>> = {
  residency:
    "delete it. The gateway knows what an engine holds from the engine's KV events (`kvEvents`), or from what it served. How the engine evicts follows from `upstream.dialect`",
  'queue.adaptive':
    'delete it. An engine that reports how many prompts wait inside it sets the limit; any other gets `upstream.maxConcurrent` prompts at once',
  'server.drainMs': 'delete it. Answers in flight at shutdown have 30 seconds to finish',
  'upstream.apiKeyHeader':
    "delete it. The key is sent as `Authorization: Bearer …`, and to Anthropic's API (by its address, or `upstream.dialect: anthropic`) as `x-api-key`",
  'upstream.messages':
    'delete it. The gateway asks the engine whether it speaks Messages, and translates where it does not',
  'upstream.responses':
    'delete it. The gateway asks the engine whether it speaks Responses, and translates where it does not',
  'upstream.cacheBreakpoints':
    "delete it. Anthropic's API (by its address, or `upstream.dialect: anthropic`) gets breakpoints, other engines none",
  'upstream.segments': 'delete it. With `upstream.dialect: embedded`, the engine is told where documents end',
  'upstream.slots': 'delete it. The gateway asks a llama-server how many slots it has',
  'upstream.timeouts':
    'use `upstream.timeoutMs`, the time until the response headers. The other timeouts follow from it',
  'limits.documents':
    'delete it. A request may bring 1,000 documents, and more where `server.bodyLimitBytes` is higher',
  'limits.documentLength':
    'delete it. A document may have 1,000,000 characters, and more where `server.bodyLimitBytes` is higher',
  prewarm: 'delete it. `POST /v1/warmup` prefills what stands before the documents',
  'session.store.tls':
    "delete it. Name the certificates that sign the server's in the environment variable NODE_EXTRA_CA_CERTS. A server that asks for a client certificate needs a TLS proxy",
  'collections.maxBytes': 'delete it. A collection holds at most 10 GiB of text',
  'arrange.wording': 'delete it. The hints have fixed English words; `arrange.hints: false` leaves out the order hint',
  'session.enabled': 'delete it. A conversation is remembered only where a request names one',
  'session.deduplicate': 'delete it. A request may set `warmpath.deduplicate: false`',
  'session.blocks': 'delete it. A request may set `warmpath.blocks: true`',
  'collections.wastedShare':
    'delete it. On an engine of your own, a tenth of the prompt tokens may be prefilled in vain; on a hosted API, none',
  health:
    'delete it. Three failures in a row eject one of several engines for 5 seconds, and each engine is checked every 5 seconds',
  'dashboard.savedPerMillionTokens': 'delete it. The dashboard shows saved tokens, without a price',
  'dashboard.savedUnit': 'delete it. The dashboard shows saved tokens, without a price',
  'session.store.password':
    'delete it. The password stands in `session.store.url`, percent-encoded: `redis://:password@host`',
  'session.store.prefix':
    'delete it. Each key begins with `warmpath:`. Gateways that must not share conversations use another database or server',
  'session.store.timeoutMs': 'delete it. A request waits 50 ms for the store',
  'collections.embeddings.timeoutMs': 'delete it. A request for vectors of passages may take 30 seconds',
  'collections.embeddings.questionTimeoutMs': "delete it. A search waits 2 seconds for its question's vector",
  'collections.rerank.candidates': 'delete it. 50 passages of a search are ranked',
  'engines.instance': 'delete it. It named the engine to a foreign index, which the gateway no longer asks',
};

function describeIssue(
  issue: z.core.$ZodIssue,
  lineOf: (path: readonly PropertyKey[]) => number | undefined,
): ConfigProblem[] {
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => {
      const path = [...issue.path, key];
      const removed = REMOVED_KEYS[path.filter((part) => typeof part === 'string').join('.')];
      if (removed !== undefined) {
        return problem('WARMPATH_CONFIG_UNKNOWN_KEY', path.join('.'), lineOf(path), `removed key: ${removed}`);
      }
      const nearest = nearestName(key, knownKeys(issue.path));
      const suggestion =
        nearest === undefined ? known(issue.path) : `; did you mean ${[...issue.path, nearest].join('.')}?`;
      return problem('WARMPATH_CONFIG_UNKNOWN_KEY', path.join('.'), lineOf(path), `unknown key${suggestion}`);
    });
  }
  const path = issue.path.join('.');
  return [problem('WARMPATH_CONFIG_INVALID', path, lineOf(issue.path), `${inWords(issue)}${wanted(issue.path)}`)];
}

/** The schema's message about a wrong type, in plain words. */
function inWords({ code, message }: z.core.$ZodIssue): string {
  if (code !== 'invalid_type') return message;
  const [, expected, received] = /expected (\w+), received (\w+)$/.exec(message) ?? [];
  if (expected === undefined) return message;
  return received === 'undefined' ? `is missing (a ${expected})` : `must be of type ${expected}, and not ${received}`;
}

/** The key's description, if it says which values are valid. */
function wanted(path: readonly PropertyKey[]): string {
  const name = path.filter((part) => typeof part === 'string').join('.');
  const description = describeConfig().find((key) => key.path === name)?.description ?? '';
  const [first = ''] = description.split(/(?<=[.;])\s/, 1);
  return first === '' ? '' : `; it is: ${first.replace(/[.;]$/, '')}`;
}

/** The known keys beside an unknown one. */
function known(parent: readonly PropertyKey[]): string {
  const keys = knownKeys(parent);
  return keys.length === 0 ? '' : `; there are ${keys.join(', ')}`;
}

/** Names of the keys at a path. Passes through lists. */
function knownKeys(parent: readonly PropertyKey[]): readonly string[] {
  let schema: SchemaPart | undefined = gatewayConfigSchema as unknown as SchemaPart;
  for (const part of parent) {
    const inner = unwrap(schema);
    schema = typeof part === 'number' ? inner?.def?.element : inner?.shape?.[String(part)];
  }
  return Object.keys(unwrap(schema)?.shape ?? {});
}

/** The parts of a schema that lead to its keys. */
interface SchemaPart {
  readonly shape?: Readonly<Record<string, SchemaPart>>;
  readonly def?: { readonly innerType?: SchemaPart; readonly in?: SchemaPart; readonly element?: SchemaPart };
}

function unwrap(schema: SchemaPart | undefined): SchemaPart | undefined {
  let current = schema;
  while (current !== undefined && current.shape === undefined && current.def?.element === undefined) {
    current = current.def?.innerType ?? current.def?.in;
  }
  return current;
}
