import { hash } from 'node:crypto';
import { isIPv4 } from 'node:net';
import { isAnonymousTenant } from '@warmpath/core/internal';
import { z } from 'zod';

/** A span of time, in milliseconds, up to a day. */
export const milliseconds = () => z.int().min(1).max(86_400_000);
/** A positive number of something. */
export const count = (max: number) => z.int().min(1).max(max);

const MAX_DOCUMENTS = 1_000;
const MAX_DOCUMENT_LENGTH = 1_000_000;
const DEFAULT_BODY_LIMIT_BYTES = 33_554_432;

/** The shortest key that is taken in clear: a shorter one can be guessed. */
const KEY_MIN_LENGTH = 16;

const sha256 = (whose: string) =>
  z
    .string()
    .regex(/^[0-9a-fA-F]{64}$/, { error: 'must be a SHA-256 in hexadecimal, 64 digits, as `sha256sum` prints it' })
    .toLowerCase()
    .optional()
    .describe(`SHA-256 of ${whose} in hexadecimal, as \`sha256sum\` prints it. The key ends without a line break.`);

const clearKey = () =>
  z
    .string()
    .min(KEY_MIN_LENGTH)
    .optional()
    .describe(
      `The key itself, in place of \`sha256\`: ${KEY_MIN_LENGTH} characters or more. Take it from the environment. The gateway keeps only its hash.`,
    );

/** A key of which only the SHA-256 is kept. */
interface KeyInput {
  readonly sha256?: string | undefined;
  readonly key?: string | undefined;
}

const hasOneKey = ({ sha256, key }: KeyInput) => (sha256 === undefined) !== (key === undefined);
const ONE_KEY = { error: 'must have one of `sha256` and `key`' };

/** The same settings with the digest in place of the key in clear. */
function hashed<Settings extends KeyInput>({ key, sha256: digest, ...rest }: Settings) {
  return { ...rest, sha256: digest ?? hash('sha256', key!) };
}

/** Longest name of a tenant or an end user that the configuration, a proxy or a token may give. */
export const NAME_MAX_LENGTH = 256;

/**
 * Whether this can name a tenant or an end user. Names become keys and hash inputs: half of a surrogate pair has no
 * bytes of its own, and control characters separate joined texts.
 */
export function isOwnerName(value: unknown): value is string {
  if (typeof value !== 'string' || value === '' || value.length > NAME_MAX_LENGTH) return false;
  return value.isWellFormed() && !/\p{Cc}/u.test(value);
}

/** Whether this can name an authenticated tenant. */
export function isTenantName(value: unknown): value is string {
  return isOwnerName(value) && !isAnonymousTenant(value);
}

const tenantName = () =>
  z.string().min(1).max(NAME_MAX_LENGTH).refine(isTenantName, {
    error: 'must be well-formed Unicode without control characters, and not `anonymous` nor begin with `anonymous:`',
  });

const clientKey = z
  .strictObject({
    name: tenantName().describe('Name of the key in errors.'),
    sha256: sha256('the key'),
    key: clearKey(),
    tenant: tenantName().optional().describe('Tenant of its requests. Default: `name`.'),
    requestsPerMinute: count(10_000_000).optional().describe('Requests in a minute, at most.'),
    tokensPerMinute: count(10_000_000_000).optional().describe('Tokens in a minute, at most.'),
    maxConcurrent: count(65_536).optional().describe('Requests at once, at most.'),
  })
  .refine(hasOneKey, ONE_KEY)
  .transform(hashed);

const headerName = (what: string) =>
  z
    .string()
    .regex(/^[A-Za-z0-9-]+$/, { error: 'must be the name of a header' })
    .toLowerCase()
    .optional()
    .describe(what);

const trustedHeaders = z.strictObject({
  tenant: headerName(
    'Header in which a trusted proxy names the tenant. Only that proxy may reach the gateway, and it must overwrite the header of a client. A request without the header gets 401.',
  ),
  endUser: headerName(
    'Header in which a trusted proxy names the end user. The body then cannot name one, and a request without the header continues no conversation. The engine never gets either header.',
  ),
});

const jwt = z
  .strictObject({
    secret: z
      .string()
      .min(32)
      .optional()
      .describe('Secret that tokens are signed with (HS256), 32 characters or more. Take it from the environment.'),
    publicKeyFile: z
      .string()
      .min(1)
      .optional()
      .describe('File of the public key (PEM) that verifies tokens: RSA (RS256), P-256 (ES256) or Ed25519 (EdDSA).'),
    tenantClaim: z.string().min(1).default('sub').describe('Claim that names the tenant.'),
    endUserClaim: z
      .string()
      .min(1)
      .optional()
      .describe(
        'Claim that names the end user. The body then cannot name one, and a request without the claim continues no conversation.',
      ),
    audience: z.string().min(1).optional().describe('Required value of `aud`, or one of its values.'),
    issuer: z.string().min(1).optional().describe('Required value of `iss`.'),
  })
  .refine(({ secret, publicKeyFile }) => (secret === undefined) !== (publicKeyFile === undefined), {
    error: 'must have one of `secret` and `publicKeyFile`',
  });

const operatorKey = z
  .strictObject({ sha256: sha256("the operator's key"), key: clearKey() })
  .refine(hasOneKey, ONE_KEY)
  .transform(hashed);

const origin = z.string().regex(/^(\*|[a-z][a-z0-9+.-]*:\/\/[^/?#\s]+)$/, {
  error: 'must be `*`, or an origin such as `https://app.example`',
});

export const server = z
  .strictObject({
    host: z.string().min(1).default('127.0.0.1').describe('Address to listen on. `0.0.0.0` is every interface.'),
    port: z.int().min(0).max(65_535).default(8080).describe('TCP port to listen on. 0 is any free port.'),
    bodyLimitBytes: count(1_073_741_824)
      .default(DEFAULT_BODY_LIMIT_BYTES)
      .describe(
        'Largest request body, in bytes. A larger body gets 413 `WARMPATH_BODY_TOO_LARGE`. A limit above the default also allows more and longer documents.',
      ),
    drainDelayMs: z
      .int()
      .min(0)
      .max(600_000)
      .default(0)
      .describe(
        'Milliseconds at shutdown in which `/readyz` answers 503 and all other requests are still served. Set it to the time in which a load balancer notices the 503.',
      ),
    keys: z
      .array(clientKey)
      .min(1)
      .max(100_000)
      .optional()
      .describe(
        'Keys of clients. Each has a `name` and `sha256` (or `key` in clear). `tenant`, `requestsPerMinute`, `tokensPerMinute` and `maxConcurrent` are optional. Without `keys`, the gateway tells clients apart by the key that they send, and the engine gets that key.',
      ),
    trustedHeaders: trustedHeaders.prefault({}),
    jwt: jwt.optional(),
    operatorKey: operatorKey.optional(),
    open: z
      .boolean()
      .default(false)
      .describe(
        'Serve every program that reaches the gateway, without keys. This includes `/metrics` without `operatorKey`, and requests that `upstream.apiKey` pays for. Web pages still need `cors`.',
      ),
    cors: z
      .array(origin)
      .optional()
      .describe(
        'Origins whose pages may call the gateway from a browser, such as `https://app.example`. `*` is every origin.',
      ),
  })
  .superRefine((settings, context) => {
    const problem = (path: (string | number)[], message: string) => context.addIssue({ code: 'custom', path, message });
    const { keys = [], trustedHeaders: trusted, operatorKey: operator } = settings;
    const known = new Set(operator && [operator.sha256]);
    const names = new Set<string>();
    for (const [place, { name, sha256: digest }] of keys.entries()) {
      if (known.has(digest)) problem(['keys', place], 'is a key that another entry, or the operator, has already');
      if (names.has(name)) problem(['keys', place, 'name'], 'is the name of another key');
      known.add(digest);
      names.add(name);
    }
    if (trusted.tenant !== undefined && checksKeys(settings)) {
      problem(
        ['trustedHeaders', 'tenant'],
        'cannot be combined with `server.keys` or `server.jwt`, which name the tenant',
      );
    }
  });

export type ServerConfig = z.output<typeof server>;

/**
 * Whether the gateway checks keys or tokens itself: then what a client sends as one is the gateway's, not the engine's.
 */
export function checksKeys({ keys, jwt: tokens }: Pick<ServerConfig, 'keys' | 'jwt'>): boolean {
  return keys !== undefined || tokens !== undefined;
}

/** Whether the gateway knows which tenant sent a request: by a key, a token, or a header of a trusted proxy. */
export function identifiesTenants(server: Pick<ServerConfig, 'keys' | 'jwt' | 'trustedHeaders'>): boolean {
  return checksKeys(server) || server.trustedHeaders.tenant !== undefined;
}

/** Whether only this machine reaches what listens there. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'));
}

/** Bounds of one exchange with an engine, in milliseconds. */
export interface Timeouts {
  /** Until the first token, or the first data of what has none. */
  readonly headersMs: number;
  /** Between two chunks of a response body, and until a client takes something of an answer that waits for it. */
  readonly idleMs: number;
  readonly totalMs: number;
}

/** All timeouts follow from one key, so that a slower engine needs one change. */
export function timeoutsOf({ timeoutMs }: { readonly timeoutMs: number }): Timeouts {
  return { headersMs: timeoutMs, idleMs: Math.ceil(0.4 * timeoutMs), totalMs: 6 * timeoutMs };
}

/** Bounds on the documents of one request. */
export interface DocumentLimits {
  readonly documents: number;
  /** UTF-16 units of one document's text. */
  readonly documentLength: number;
}

/** A larger body limit than the default allows more and longer documents, in proportion. */
export function documentLimits({ bodyLimitBytes }: { readonly bodyLimitBytes: number }): DocumentLimits {
  const factor = Math.max(1, bodyLimitBytes / DEFAULT_BODY_LIMIT_BYTES);
  return {
    documents: Math.floor(factor * MAX_DOCUMENTS),
    documentLength: Math.floor(factor * MAX_DOCUMENT_LENGTH),
  };
}
