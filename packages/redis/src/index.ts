export type { ServerAddress } from './client.js';
export { RedisConversationStore, type RedisConversationStoreOptions } from './redis-conversation-store.js';
