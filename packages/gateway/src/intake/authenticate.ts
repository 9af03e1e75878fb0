import { createPublicKey, createSecretKey, hash, type KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { IncomingHttpHeaders } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import type { JWTPayload } from 'jose';
import type { ServerConfig } from '../config/schema-server.js';

/** One of `server.keys`. */
export type ClientKey = NonNullable<ServerConfig['keys']>[number];

/** Who sent a request. Decided once, before the body is read; kept as `request.exchange.caller`. */
export interface Caller {
  /**
   * The isolation boundary: nothing is shared across tenants, because an order tells what others asked for. A name from
   * the configuration, a token or a trusted header, or the digest of whatever key the client sent. Never logged.
   */
  readonly tenant: string;
  /** As a token or a trusted header says; a request's body may name one too. */
  readonly endUser: string | undefined;
  /** Whether it can be distinguished from others: it sent a key, or came through a trusted proxy. */
  readonly isAuthenticated: boolean;
  readonly isOperator: boolean;
  /** With its limits; `undefined` where `server.keys` is not what it was known by. */
  readonly key: ClientKey | undefined;
}

/** The tenant of requests without a key. */
const ANONYMOUS = 'anonymous';

/** Whoever sent no key, where none is asked for. */
export const ANONYMOUS_CALLER: Caller = {
  tenant: ANONYMOUS,
  endUser: undefined,
  isAuthenticated: false,
  isOperator: false,
  key: undefined,
};

/** Whoever has `server.operatorKey`; sends no prompts. */
export const OPERATOR: Caller = {
  tenant: 'operator',
  endUser: undefined,
  isAuthenticated: true,
  isOperator: true,
  key: undefined,
};

/** Headers in which clients send keys: OpenAI's, Anthropic's, Azure's. */
export const KEY_HEADERS = ['authorization', 'x-api-key', 'api-key'] as const;

/** Longest name of a tenant or an end user that a proxy or a token may give. */
const NAME_MAX_LENGTH = 256;

/** Seconds by which the clock of whoever issues tokens may differ. */
const CLOCK_TOLERANCE_S = 5;

const BEARER = /^bearer +(\S+)$/i;

/** A token of three parts, as JWTs are written. */
const JWT = /^[\w-]+\.[\w-]+\.[\w-]+$/;

type TokenVerifier = (token: string) => Promise<JWTPayload>;

/** Says whose a request is, by its headers and the configuration. */
export class Authenticator {
  readonly #settings: ServerConfig;
  readonly #keys: ReadonlyMap<string, ClientKey> | undefined;
  readonly #verify: TokenVerifier | undefined;

  private constructor(settings: ServerConfig, verify: TokenVerifier | undefined) {
    this.#settings = settings;
    this.#keys = settings.keys && new Map(settings.keys.map((key) => [key.sha256, key]));
    this.#verify = verify;
  }

  /** Reads the public key, where one is configured. Error: `WARMPATH_CONFIG_INVALID`. */
  static async open(settings: ServerConfig): Promise<Authenticator> {
    return new Authenticator(settings, settings.jwt && (await tokenVerifier(settings.jwt)));
  }

  /** Whether these headers have the operator's key. */
  isOperator(headers: IncomingHttpHeaders): boolean {
    const { operatorKey } = this.#settings;
    return operatorKey !== undefined && presentedKeys(headers).some((key) => digestOf(key) === operatorKey.sha256);
  }

  /**
   * Whose request has these headers. Errors: `WARMPATH_UNAUTHORIZED` where a key, a token or a trusted header is needed
   * and missing or wrong; `WARMPATH_INVALID_REQUEST` for a name that cannot be one.
   */
  callerOf(headers: IncomingHttpHeaders): Caller | Promise<Caller> {
    const endUser = this.#trusted(headers, 'endUser');
    if (this.#settings.trustedHeaders.tenant !== undefined) {
      const tenant = this.#trusted(headers, 'tenant');
      if (tenant !== undefined) return { ...ANONYMOUS_CALLER, tenant, endUser, isAuthenticated: true };
      throw unauthorized('The proxy in front of the gateway did not say whose request this is.');
    }
    if (this.#keys === undefined && this.#verify === undefined) return unchecked(headers, endUser);
    const presented = presentedKeys(headers);
    for (const text of presented) {
      const key = this.#keys?.get(digestOf(text));
      if (key !== undefined) {
        return { tenant: key.tenant ?? key.name, endUser, isAuthenticated: true, isOperator: false, key };
      }
    }
    const token = this.#verify && presented.find((text) => JWT.test(text));
    if (token !== undefined) return this.#callerOfToken(token, endUser);
    throw unauthorized(
      presented.length === 0 ? undefined : 'The key of this request is not one that this server knows.',
    );
  }

  async #callerOfToken(token: string, endUser: string | undefined): Promise<Caller> {
    const { tenantClaim, endUserClaim } = this.#settings.jwt!;
    let claims: JWTPayload;
    try {
      claims = await this.#verify!(token);
    } catch (error) {
      // For instance ERR_JWT_EXPIRED.
      throw unauthorized(
        `The token of this request is not valid: ${(error as { code?: string }).code ?? 'unreadable'}.`,
      );
    }
    const tenant = claimOf(claims, tenantClaim);
    if (tenant === undefined) throw unauthorized(`The token of this request names no tenant in \`${tenantClaim}\`.`);
    const named = endUserClaim === undefined ? endUser : claimOf(claims, endUserClaim);
    return { ...ANONYMOUS_CALLER, tenant, endUser: named, isAuthenticated: true };
  }

  /** What the proxy in front says; `undefined` for nothing, or where it is not to be believed. */
  #trusted(headers: IncomingHttpHeaders, what: 'tenant' | 'endUser'): string | undefined {
    const name = this.#settings.trustedHeaders[what];
    const value = name === undefined ? undefined : headers[name];
    if (name === undefined || value === undefined || value === '') return undefined;
    // A header that came twice is one value with a comma: the proxy left the client's in place.
    if (typeof value === 'string' && value.length <= NAME_MAX_LENGTH && !value.includes(',')) return value;
    const detail = `one name of 1 to ${NAME_MAX_LENGTH} characters, without a comma, was expected`;
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: name, detail });
  }
}

/** Clients whom nobody checks are distinguished by all that they send as a key. */
function unchecked(headers: IncomingHttpHeaders, endUser: string | undefined): Caller {
  const credentials: string[] = [];
  for (const name of KEY_HEADERS) {
    const value = headers[name];
    if (typeof value === 'string') credentials.push(name === 'authorization' ? value : `${name} ${value}`);
  }
  if (credentials.length === 0) {
    return endUser === undefined ? ANONYMOUS_CALLER : { ...ANONYMOUS_CALLER, endUser };
  }
  return { ...ANONYMOUS_CALLER, tenant: hash('sha256', credentials.join('\n')), endUser, isAuthenticated: true };
}

/** The keys that a client sent: any of its headers may hold the one that is known. */
function presentedKeys(headers: IncomingHttpHeaders): string[] {
  const keys: string[] = [];
  for (const name of KEY_HEADERS) {
    const value = headers[name];
    if (typeof value !== 'string' || value === '') continue;
    const key = name === 'authorization' ? BEARER.exec(value)?.[1] : value;
    if (key !== undefined) keys.push(key);
  }
  return keys;
}

/**
 * What keys are compared by. Digests may be compared, and looked up, in a time that depends on them: a client cannot
 * choose the digest of what it sends byte by byte, so the time tells it nothing about a key.
 */
function digestOf(key: string): string {
  return hash('sha256', key);
}

function claimOf(claims: JWTPayload, name: string): string | undefined {
  const value = claims[name];
  const isName = typeof value === 'string' && value !== '' && value.length <= NAME_MAX_LENGTH;
  return isName ? value : undefined;
}

function unauthorized(detail?: string): WarmpathError {
  return new WarmpathError('WARMPATH_UNAUTHORIZED', detail === undefined ? {} : { detail });
}

/** Loaded only where tokens are configured. */
async function tokenVerifier(settings: NonNullable<ServerConfig['jwt']>): Promise<TokenVerifier> {
  const { jwtVerify } = await import('jose');
  const { key, algorithm } = await verificationKey(settings);
  const { audience, issuer } = settings;
  const options = {
    // One algorithm for one key: a token must not choose how it is verified.
    algorithms: [algorithm],
    // A token without an end would never end.
    requiredClaims: ['exp'],
    clockTolerance: CLOCK_TOLERANCE_S,
    ...(audience !== undefined && { audience }),
    ...(issuer !== undefined && { issuer }),
  };
  return async (token) => (await jwtVerify(token, key, options)).payload;
}

async function verificationKey({
  secret,
  publicKeyFile,
}: NonNullable<ServerConfig['jwt']>): Promise<{ readonly key: KeyObject; readonly algorithm: string }> {
  if (secret !== undefined) return { key: createSecretKey(secret, 'utf8'), algorithm: 'HS256' };
  const invalid = (detail: string, cause?: unknown) =>
    new WarmpathError('WARMPATH_CONFIG_INVALID', { path: 'server.jwt.publicKeyFile', detail, cause });
  let key: KeyObject;
  try {
    key = createPublicKey(await readFile(publicKeyFile!));
  } catch (cause) {
    throw invalid(`cannot read a public key (PEM) from ${publicKeyFile}`, cause);
  }
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key;
  if (type === 'rsa') return { key, algorithm: 'RS256' };
  if (type === 'ed25519') return { key, algorithm: 'EdDSA' };
  if (type === 'ec' && details?.namedCurve === 'prime256v1') return { key, algorithm: 'ES256' };
  throw invalid(`${publicKeyFile} has a key of another kind than RSA, P-256 and Ed25519`);
}
