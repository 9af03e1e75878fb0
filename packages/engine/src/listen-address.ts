import type { AddressInfo } from 'node:net';
import { WarmpathError } from '@warmpath/core';

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/** @returns The URL of what a server is bound to, without a slash at its end; of a socket without a port, its path. */
export function baseUrl(address: AddressInfo | string | null): string {
  if (address === null || typeof address === 'string') return `unix:${address ?? ''}`;
  const host = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return `http://${host}:${address.port}`;
}

/** The error for an address that cannot be had. */
export function cannotListen({ host, port }: ListenAddress, cause: unknown): WarmpathError {
  const code = (cause as NodeJS.ErrnoException).code ?? 'unknown error';
  return new WarmpathError('WARMPATH_CONFIG_INVALID', {
    path: 'port',
    detail: `Cannot listen on ${host}:${port} (${code})`,
    cause,
  });
}
