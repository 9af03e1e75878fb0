import { createPublicKey, createSecretKey, hash, type KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { IncomingHttpHeaders } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import { ANONYMOUS_TENANT, anonymousTenant } from '@warmpath/core/internal';
import type { JWTPayload } from 'jose';
import { isOwnerName, isTenantName, NAME_MAX_LENGTH, type ServerConfig } from '../config/schema-server.js';

/** One of `server.keys`. */
export type ClientKey = NonNullable<ServerConfig['keys']>[number];

/** Who sent a request. Decided once, before the body is read; kept as `request.report.caller`. */
export interface Caller {
  /**
   * The isolation boundary: nothing is shared across tenants, because an order tells what others asked for. A name from
   * the configuration, a token or a trusted header. Where keys are not checked: see `ANONYMOUS_TENANT`. Never logged.
   */
  readonly tenant: string;
  /** As a token or a trusted header says. */
  readonly endUser: string | undefined;
  /** Whether the request's body may name the end user: the operator configured no other source of it. */
  readonly bodyNamesEndUser: boolean;
  /** Whether the gateway checked the key or the token, or believes the proxy that did. */
  readonly isAuthenticated: boolean;
  readonly isOperator: boolean;
  /** With its limits; `undefined` where `server.keys` is not what it was known by. */
  readonly key: ClientKey | undefined;
}

/** Whoever sent no key, where none is asked for. */
export const ANONYMOUS_CALLER: Caller = {
  tenant: ANONYMOUS_TENANT,
  endUser: undefined,
  bodyNamesEndUser: false,
  isAuthenticated: false,
  isOperator: false,
  key: undefined,
};

/** Whoever has `server.operatorKey`; sends no prompts. */
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
  /** No request's body names the end user where another source is configured, whatever way this request came. */
  readonly #bodyNamesEndUser: boolean;

  private constructor(settings: ServerConfig, verify: TokenVerifier | undefined) {
    this.#settings = settings;
    this.#keys = settings.keys && new Map(settings.keys.map((key) => [key.sha256, key]));
    this.#verify = verify;
    this.#bodyNamesEndUser = settings.trustedHeaders.endUser === undefined && settings.jwt?.endUserClaim === undefined;
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
    const tenant = claims[tenantClaim];
    if (!isTenantName(tenant)) throw unauthorized(`The token of this request names no tenant in \`${tenantClaim}\`.`);
    const claim = endUserClaim === undefined ? endUser : claims[endUserClaim];
    return this.#authenticated(tenant, isOwnerName(claim) ? claim : undefined);
  }

  #authenticated(tenant: string, endUser: string | undefined): Caller {
    const bodyNamesEndUser = this.#bodyNamesEndUser;
    return { tenant, endUser, bodyNamesEndUser, isAuthenticated: true, isOperator: false, key: undefined };
  }

  /** The end user that the proxy in front names; `undefined` for none, and for what cannot be a name. */
  #trustedEndUser(headers: IncomingHttpHeaders): string | undefined {
    const name = this.#settings.trustedHeaders.endUser;
    const value = name === undefined ? undefined : headers[name];
    return isOwnerName(value) && !isRepeated(value) ? value : undefined;
  }
}

/** The tenant that the proxy in front names. */
function trustedTenant(headers: IncomingHttpHeaders, header: string): string {
  const value = headers[header];
  if (value === undefined || value === '') {
    throw unauthorized('The proxy in front of the gateway did not say whose request this is.');
  }
  if (isTenantName(value) && !isRepeated(value)) return value;
  const detail = `one name of 1 to ${NAME_MAX_LENGTH} characters, without a comma, was expected`;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: header, detail });
}

/** A header that came twice is one value with a comma: the proxy left the client's in place. */
function isRepeated(value: string): boolean {
  return value.includes(',');
}

/** The tenant of a client that is not checked: it follows from everything that the client sends as a key. */
function uncheckedTenant(headers: IncomingHttpHeaders): string {
  const credentials: (readonly [string, string])[] = [];
  for (const name of KEY_HEADERS) {
    const value = headers[name];
    if (typeof value === 'string') credentials.push([name, value]);
  }
  if (credentials.length === 0) return ANONYMOUS_TENANT;
  return anonymousTenant(hash('sha256', JSON.stringify(credentials)));
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
