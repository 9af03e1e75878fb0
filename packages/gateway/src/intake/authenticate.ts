import { createPublicKey, createSecretKey, hash, type KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { IncomingHttpHeaders } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import { ANONYMOUS_TENANT, anonymousTenant } from '@warmpath/core/internal';
import type { JWTPayload } from 'jose';
import { isOwnerName, isTenantName, NAME_MAX_LENGTH, type ServerConfig } from '../config/schema-server.js';

/** One of `server.keys`. */
export type ClientKey = NonNullable<ServerConfig['keys']>[number];

/** The sender of a request. Decided once, before the body is read (`request.report.caller`). */
export interface Caller {
  /**
   * The isolation boundary: nothing is shared across tenants, because an order shows what others asked for. A name from
   * the configuration, a token or a trusted header. Without checked keys: see `ANONYMOUS_TENANT`. Never logged.
   */
  readonly tenant: string;
  /** From a token or a trusted header. */
  readonly endUser: string | undefined;
  /** Whether the body may name the end user: no other source is configured. */
  readonly bodyNamesEndUser: boolean;
  /** Whether the gateway checked a key or token, or trusts the proxy that did. */
  readonly isAuthenticated: boolean;
  readonly isOperator: boolean;
  /** The key with its limits; `undefined` if the caller used none of `server.keys`. */
  readonly key: ClientKey | undefined;
}

/** A caller without a key, if keys are not checked. */
export const ANONYMOUS_CALLER: Caller = {
  tenant: ANONYMOUS_TENANT,
  endUser: undefined,
  bodyNamesEndUser: false,
  isAuthenticated: false,
  isOperator: false,
  key: undefined,
};

/** The holder of `server.operatorKey`. Sends no prompts. */
export const OPERATOR: Caller = {
  tenant: 'operator',
  endUser: undefined,
  bodyNamesEndUser: false,
  isAuthenticated: true,
  isOperator: true,
  key: undefined,
};

/** Headers in which clients send keys: OpenAI's, Anthropic's, Azure's. */
export const KEY_HEADERS = ['authorization', 'x-api-key', 'api-key'] as const;

/** Seconds by which the token issuer's clock may differ. */
const CLOCK_TOLERANCE_S = 5;

const BEARER = /^bearer +(\S+)$/i;

/** A JWT: three parts. */
const JWT = /^[\w-]+\.[\w-]+\.[\w-]+$/;

type TokenVerifier = (token: string) => Promise<JWTPayload>;

/** Identifies the caller of a request by its headers. */
export class Authenticator {
  readonly #settings: ServerConfig;
  readonly #keys: ReadonlyMap<string, ClientKey> | undefined;
  readonly #verify: TokenVerifier | undefined;
  /** False if another source of end users is configured, also for requests without it. */
  readonly #bodyNamesEndUser: boolean;

  private constructor(settings: ServerConfig, verify: TokenVerifier | undefined) {
    this.#settings = settings;
    this.#keys = settings.keys && new Map(settings.keys.map((key) => [key.sha256, key]));
    this.#verify = verify;
    this.#bodyNamesEndUser = settings.trustedHeaders.endUser === undefined && settings.jwt?.endUserClaim === undefined;
  }

  /** Reads the public key, if one is configured. Error: `WARMPATH_CONFIG_INVALID`. */
  static async open(settings: ServerConfig): Promise<Authenticator> {
    return new Authenticator(settings, settings.jwt && (await tokenVerifier(settings.jwt)));
  }

  /** Whether the headers contain the operator's key. */
  isOperator(headers: IncomingHttpHeaders): boolean {
    const { operatorKey } = this.#settings;
    return operatorKey !== undefined && presentedKeys(headers).some((key) => digestOf(key) === operatorKey.sha256);
  }

  /**
   * The caller with these headers. Errors: `WARMPATH_UNAUTHORIZED` for a missing or wrong key, token or trusted header;
   * `WARMPATH_INVALID_REQUEST` for an invalid name.
   */
  callerOf(headers: IncomingHttpHeaders): Caller | Promise<Caller> {
    const endUser = this.#trustedEndUser(headers);
    const { trustedHeaders } = this.#settings;
    if (trustedHeaders.tenant !== undefined) {
      return this.#authenticated(trustedTenant(headers, trustedHeaders.tenant), endUser);
    }
    if (this.#keys === undefined && this.#verify === undefined) {
      const bodyNamesEndUser = this.#bodyNamesEndUser;
      return { ...ANONYMOUS_CALLER, tenant: uncheckedTenant(headers), endUser, bodyNamesEndUser };
    }
    const presented = presentedKeys(headers);
    for (const text of presented) {
      const key = this.#keys?.get(digestOf(text));
      if (key !== undefined) {
        return { ...this.#authenticated(key.tenant ?? key.name, endUser), key };
      }
    }
    const token = this.#verify && presented.find((text) => JWT.test(text));
    if (token !== undefined) return this.#callerOfToken(token, endUser);
    throw unauthorized(presented.length === 0 ? undefined : 'This gateway does not know the key of this request.');
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
    const tenant = claims[tenantClaim];
    if (!isTenantName(tenant)) throw unauthorized(`The token of this request names no tenant in \`${tenantClaim}\`.`);
    const claim = endUserClaim === undefined ? endUser : claims[endUserClaim];
    return this.#authenticated(tenant, isOwnerName(claim) ? claim : undefined);
  }

  #authenticated(tenant: string, endUser: string | undefined): Caller {
    const bodyNamesEndUser = this.#bodyNamesEndUser;
    return { tenant, endUser, bodyNamesEndUser, isAuthenticated: true, isOperator: false, key: undefined };
  }

  /** The end user in the trusted header; `undefined` if it is missing or invalid. */
  #trustedEndUser(headers: IncomingHttpHeaders): string | undefined {
    const name = this.#settings.trustedHeaders.endUser;
    const value = name === undefined ? undefined : headers[name];
    return isOwnerName(value) && !isRepeated(value) ? value : undefined;
  }
}

/** The tenant in the trusted header. */
function trustedTenant(headers: IncomingHttpHeaders, header: string): string {
  const value = headers[header];
  if (value === undefined || value === '') {
    throw unauthorized('The trusted header with the tenant is missing: the proxy in front of the gateway must set it.');
  }
  if (isTenantName(value) && !isRepeated(value)) return value;
  const detail = `one name of 1 to ${NAME_MAX_LENGTH} characters, without a comma, was expected`;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: header, detail });
}

/** A repeated header is one value with a comma: the proxy did not remove the client's own. */
function isRepeated(value: string): boolean {
  return value.includes(',');
}

/** The tenant of a client whose key is not checked: a digest of all keys that it sends. */
function uncheckedTenant(headers: IncomingHttpHeaders): string {
  const credentials: (readonly [string, string])[] = [];
  for (const name of KEY_HEADERS) {
    const value = headers[name];
    if (typeof value === 'string') credentials.push([name, value]);
  }
  if (credentials.length === 0) return ANONYMOUS_TENANT;
  return anonymousTenant(hash('sha256', JSON.stringify(credentials)));
}

/** The keys in a client's headers. */
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
 * Keys are compared by digest. The time of a comparison tells nothing about a key, because a client cannot choose
 * digests byte by byte.
 */
function digestOf(key: string): string {
  return hash('sha256', key);
}

function unauthorized(detail?: string): WarmpathError {
  return new WarmpathError('WARMPATH_UNAUTHORIZED', detail === undefined ? {} : { detail });
}

/** Loads `jose` only if tokens are configured. */
async function tokenVerifier(settings: NonNullable<ServerConfig['jwt']>): Promise<TokenVerifier> {
  const { jwtVerify } = await import('jose');
  const { key, algorithm } = await verificationKey(settings);
  const { audience, issuer } = settings;
  const options = {
    // One algorithm per key: a token must not choose its own verification.
    algorithms: [algorithm],
    // A token must expire.
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
