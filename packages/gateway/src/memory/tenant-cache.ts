import { hash } from 'node:crypto';
import { FairCache } from '@warmpath/core/internal';

/** Longer keys are replaced by their digest, because clients choose keys of any length. In characters. */
const MAX_KEY_LENGTH = 128;

/** The bounded, fair map of everything that clients can make the gateway keep (core's `FairCache`). */
export class TenantCache<Value> extends FairCache<Value> {
  override peek(tenant: string, key: string): Value | undefined {
    return super.peek(tenant, shortKey(key));
  }

  override get(tenant: string, key: string): Value | undefined {
    return super.get(tenant, shortKey(key));
  }

  override set(tenant: string, key: string, value: Value, valueBytes: number): boolean {
    return super.set(tenant, shortKey(key), value, valueBytes);
  }

  override resize(tenant: string, key: string, valueBytes: number): void {
    super.resize(tenant, shortKey(key), valueBytes);
  }

  override take(tenant: string, key: string): Value | undefined {
    return super.take(tenant, shortKey(key));
  }
}

function shortKey(key: string): string {
  return key.length > MAX_KEY_LENGTH ? hash('sha256', key) : key;
}
