import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { conversationStoreCases, LIMITS } from '../../core/test/conformance/conversation-store.cases.js';
import { checkConfig, resolveConfig } from '../src/config/load.js';
import { MemoryConversationStore, probeConversationStore } from '../src/conversation/conversation-memory.js';
import { closing } from './harness.js';
import { RedisServer } from './redis-server.js';

conversationStoreCases("a process's memory", async () => {
  const store = new MemoryConversationStore(LIMITS);
  return { writer: store, reader: store };
});

describe('the store of a configuration', () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await RedisServer.start();
  });

  afterAll(() => server.close());

  it('loads @warmpath/redis only where it is configured, and says how to install it', async () => {
    vi.resetModules();
    vi.doMock('@warmpath/redis', () => {
      throw new Error('not installed');
    });
    try {
      const { createConversationStore } = await import('../src/conversation/conversation-memory.js');
      const at = (store: object) =>
        createConversationStore(resolveConfig({ upstream: { url: 'http://127.0.0.1:1' }, session: { store } }));
      expect((await at({})).isUp).toBe(true);
      await expect(at({ url: server.url })).rejects.toMatchObject({
        code: 'WARMPATH_CONFIG_INVALID',
        path: 'session.store.url',
        message: expect.stringContaining('npm install @warmpath/redis'),
      });
    } finally {
      vi.doUnmock('@warmpath/redis');
      vi.resetModules();
    }
  });

  it('says how it stands, without a secret', async () => {
    const at = (url: string) => {
      const session = { store: { url } };
      return probeConversationStore(resolveConfig({ upstream: { url: 'http://127.0.0.1:1' }, session }));
    };
    expect(await at(server.url)).toEqual({ kind: 'redis', isUp: true, reason: 'connected' });
    const secured = closing(await RedisServer.start('--requirepass', 'right'));
    expect(await at(secured.url)).toEqual({ kind: 'redis', isUp: false, reason: 'NOAUTH' });
    const wrong = secured.url.replace('//', '//:secret@');
    expect(await at(wrong)).toEqual({ kind: 'redis', isUp: false, reason: 'WRONGPASS' });
    await secured.close();
    expect(await at(wrong)).toEqual({ kind: 'redis', isUp: false, reason: 'ECONNREFUSED' });
  });

  it('takes a URL of a kind that it knows', () => {
    const problems = (store: string) =>
      checkConfig(`upstream: { url: 'http://h' }\nsession: { store: ${store} }`, {}).problems;
    expect(problems("{ url: 'http://user:secret@h' }")).toMatchObject([
      { path: 'session.store.url', message: expect.stringContaining('must be a redis://, rediss:// or unix:// URL') },
    ]);
    expect(problems('{ urll: x }')[0]!.message).toContain('did you mean session.store.url?');
    for (const url of ['rediss://user@h:6380/1', 'unix:///run/redis.sock?db=1']) {
      expect(problems(`{ url: '${url}' }`)).toEqual([]);
    }
  });
});
