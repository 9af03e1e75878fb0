import type { ArrangeRequest } from './arrangement.js';
import type { Document, PreparedDocuments } from './document.js';
import { WarmpathError } from './errors.js';
import { nearestName } from './nearest-name.js';
import { isShiftPrice } from './ordering/placement.js';
import { POLICY_NAMES, type PolicyName } from './ordering/policy.js';
import {
  type DocumentList,
  documentSteps,
  type PrepareDocumentsOptions,
  prepareDocuments,
} from './prepare-documents.js';
import type { WorkSteps } from './work-steps.js';

export interface PrepareRequestOptions extends PrepareDocumentsOptions {
  /** Where the switches of the order stand in the caller's input, for error paths; none by default. */
  readonly switchesPath?: string | undefined;
}

/**
 * Checks an arrange request from outside and prepares its documents. `null` counts as absent; unknown fields are
 * ignored.
 *
 * @throws the errors of `prepareDocuments`; `WARMPATH_INVALID_REQUEST` for a wrong type; `WARMPATH_UNKNOWN_POLICY`,
 * `WARMPATH_INVALID_MAX_SHIFT`, `WARMPATH_INVALID_SHIFT_PRICE`, `WARMPATH_INVALID_PIN`
 */
export function prepareRequest(raw: unknown, options: PrepareRequestOptions = {}): ArrangeRequest {
  const input = asRecord(raw);
  return withSwitches(prepareDocuments(input['documents'], options), input, options);
}

/**
 * The same, one document a step, for documents that are read when they are needed. `switches`: policy, maxShift,
 * shiftPrice, pin and hints, unchecked.
 */
export function* requestSteps(
  documents: DocumentList,
  switches: Readonly<Record<string, unknown>>,
  options: PrepareRequestOptions = {},
): WorkSteps<ArrangeRequest> {
  return withSwitches(yield* documentSteps(documents, options), switches, options);
}

function asRecord(raw: unknown): Readonly<Record<string, unknown>> {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) {
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', { detail: 'An object with `documents` was expected.' });
  }
  return raw as Readonly<Record<string, unknown>>;
}

function withSwitches(
  { documents, warnings }: PreparedDocuments,
  input: Readonly<Record<string, unknown>>,
  options: PrepareRequestOptions,
): ArrangeRequest {
  const pathOf = (field: string) => (options.switchesPath === undefined ? field : `${options.switchesPath}.${field}`);
  const policy = readPolicy(input['policy'], pathOf('policy'));
  const maxShift = readMaxShift(input['maxShift'], pathOf('maxShift'));
  const shiftPrice = readShiftPrice(input['shiftPrice'], pathOf('shiftPrice'));
  const pin = readPin(input['pin'], documents, pathOf('pin'));
  const hints = readHints(input['hints'], pathOf('hints'));
  // What is absent stays absent, for callers who spread this over defaults of their own.
  const request: { -readonly [Field in keyof ArrangeRequest]: ArrangeRequest[Field] } = { documents, warnings };
  if (policy !== undefined) request.policy = policy;
  if (maxShift !== undefined) request.maxShift = maxShift;
  if (shiftPrice !== undefined) request.shiftPrice = shiftPrice;
  if (pin !== undefined) request.pin = pin;
  if (hints !== undefined) request.hints = hints;
  return request;
}

/** The policy of that name. Error: `WARMPATH_UNKNOWN_POLICY`, which names the nearest known policy. */
export function readPolicyName(name: unknown, path = 'policy'): PolicyName {
  if (typeof name === 'string') {
    const known = POLICY_NAMES.find((candidate) => candidate === name);
    if (known !== undefined) return known;
  }
  const nearest = typeof name === 'string' ? nearestName(name, POLICY_NAMES) : undefined;
  const detail =
    nearest === undefined ? undefined : `There is no ordering policy of that name; did you mean \`${nearest}\`?`;
  throw new WarmpathError('WARMPATH_UNKNOWN_POLICY', detail === undefined ? { path } : { path, detail });
}

function readPolicy(value: unknown, path: string): PolicyName | undefined {
  return value === undefined || value === null ? undefined : readPolicyName(value, path);
}

function readMaxShift(value: unknown, path: string): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (!Number.isSafeInteger(value) || (value as number) < 0) {
    throw new WarmpathError('WARMPATH_INVALID_MAX_SHIFT', { path });
  }
  return value as number;
}

function readShiftPrice(value: unknown, path: string): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (!isShiftPrice(value)) throw new WarmpathError('WARMPATH_INVALID_SHIFT_PRICE', { path });
  return value;
}

function readPin(value: unknown, documents: readonly Document[], path: string): readonly string[] | undefined {
  if (value === undefined || value === null) return undefined;
  if (!Array.isArray(value)) throw new WarmpathError('WARMPATH_INVALID_PIN', { path });
  const ids = new Set(documents.map((document) => document.id));
  const pin = new Set<string>();
  for (let i = 0; i < value.length; i++) {
    const id: unknown = value[i];
    if (typeof id !== 'string' || !ids.has(id))
      throw new WarmpathError('WARMPATH_INVALID_PIN', { path: `${path}[${i}]` });
    pin.add(id);
  }
  return [...pin];
}

function readHints(value: unknown, path: string): boolean | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'boolean') {
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail: '`hints` is true or false.' });
  }
  return value;
}
