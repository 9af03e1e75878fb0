import { createClient } from '@redis/client';
import type { ConversationStoreListener } from '@warmpath/core/internal';
import { onTestFinished } from 'vitest';
import { LIMITS, SILENT } from '../../core/test/conformance/conversation-store.cases.js';
import { RedisConversationStore, type RedisConversationStoreOptions } from '../src/redis-conversation-store.js';

export type StoreSettings = Partial<RedisConversationStoreOptions> & { readonly url: string };

/** Closes it after the test. */
export function closing<Resource extends { close(): Promise<void> }>(resource: Resource): Resource {
  onTestFinished(() => resource.close());
  return resource;
}

/** A store whose requests wait as long as a loaded machine may need. */
export async function openStore(
  settings: StoreSettings,
  listener: ConversationStoreListener = SILENT,
): Promise<RedisConversationStore> {
  const store = closing(new RedisConversationStore({ prefix: 'w:', timeoutMs: 20_000, memory: LIMITS, ...settings }));
  await store.open(listener);
  return store;
}

/** The server's reply to one command. */
export async function ask(url: string, ...command: readonly string[]): Promise<unknown> {
  const client = createClient({ url, RESP: 2 });
  client.on('error', () => {});
  await client.connect();
  try {
    return await client.sendCommand(command);
  } finally {
    client.destroy();
  }
}
