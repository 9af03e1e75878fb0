import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { chat, DOCUMENTS, errorOf, labelsIn, memoryOf, type StandConfig, send, stand } from './harness.js';

const CODED: [coding: string, encode: (text: string) => Buffer][] = [
  ['gzip', gzipSync],
  ['GZIP', gzipSync],
  ['x-gzip', gzipSync],
  ['identity, gzip', gzipSync],
  ['deflate', deflateSync],
  ['br', brotliCompressSync],
  ['identity', Buffer.from],
  ['Identity', Buffer.from],
  [',', Buffer.from],
];
/** 20 MB of spaces. */
const BOMB = gzipSync(Buffer.alloc(20_000_000, ' '));
const CHAT = '/v1/chat/completions';
const SALTED: StandConfig = { upstream: { cacheSaltKey: 'a-key-of-16-letters-or-more' } };

async function standing(config: StandConfig = {}) {
  const { engine, gateway } = await stand(undefined, config, { apiRoute: 'native' });
  const ask = async (body: string | Buffer | object, headers: Record<string, string>, path = CHAT) => {
    const reply = await send(gateway.url + path, body, { headers });
    return reply.status === 200 ? 200 : `${reply.status} ${errorOf(reply).code}`;
  };
  return { engine, gateway, ask };
}

describe('a body with a content-encoding', () => {
  it.each(CODED)('%s is decoded, and read as any other', async (coding, encode) => {
    const { engine, ask } = await standing(SALTED);
    const { ask: askPlain, engine: plain } = await standing(SALTED);
    const text = JSON.stringify(chat());
    expect(await askPlain(text, {})).toBe(200);
    expect(await ask(encode(text), { 'content-encoding': coding })).toBe(200);
    expect(engine.last.body).toBe(plain.last.body);
    expect(engine.last.body).toContain('"cache_salt":');
    expect(labelsIn(engine.last.body)).toEqual(DOCUMENTS.map(({ id }) => id));
    expect(engine.last.headers['content-encoding']).toBeUndefined();
    expect(engine.last.headers['content-length']).toBe(String(Buffer.byteLength(engine.last.body)));
    for (const path of ['/v1/embeddings', '/v1/messages', '/v1/responses', '/v1/arrange']) {
      const body = JSON.stringify(
        path === '/v1/arrange' ? { documents: DOCUMENTS } : { model: 'm', input: 'x', messages: [] },
      );
      expect([path, await ask(encode(body), { 'content-encoding': coding }, path)]).toEqual([path, 200]);
    }
  });

  it.each(['gzip, gzip', 'gzip, br', 'zstd', 'compress', 'aes128gcm', 'gzip;q=1', '"gzip"', 'gzip gzip', 'none'])(
    'that is not understood is refused before it is read: %s',
    async (coding) => {
      const { engine, ask } = await standing(SALTED);
      for (const path of [CHAT, '/v1/messages', '/v1/embeddings', '/v1/files', '/unknown'])
        expect(await ask(chat(), { 'content-encoding': coding }, path)).toBe('415 WARMPATH_CONTENT_ENCODING');
      expect(engine.received).toHaveLength(0);
    },
  );

  it.each(['gzip', 'deflate', 'br'])('that is not true is refused: %s', async (coding) => {
    const { engine, gateway, ask } = await standing(SALTED);
    const [, encode] = CODED.find(([name]) => name === coding)!;
    const whole = encode(JSON.stringify(chat()));
    for (const body of [JSON.stringify(chat()), whole.subarray(0, whole.length - 9), Buffer.alloc(100, 0xff)]) {
      expect(await ask(body, { 'content-encoding': coding })).toBe('400 WARMPATH_INVALID_REQUEST');
      expect(await ask(body, { 'content-encoding': coding }, '/v1/embeddings')).toBe('400 WARMPATH_INVALID_REQUEST');
    }
    expect(engine.received).toHaveLength(0);
    expect((await memoryOf(gateway))['bodies']).toBe(0);
  });

  it('is bounded by what it becomes', async () => {
    const { engine, gateway, ask } = await standing({ server: { bodyLimitBytes: 1_000_000 } });
    expect(BOMB.length).toBeLessThan(1_000_000);
    expect(await ask(BOMB, { 'content-encoding': 'gzip' })).toBe('413 WARMPATH_BODY_TOO_LARGE');
    const long = JSON.stringify(chat(DOCUMENTS, { padding: 'x'.repeat(900_000) }));
    expect(await ask(gzipSync(long), { 'content-encoding': 'gzip' })).toBe(200);
    expect(engine.received).toHaveLength(1);
    expect((await memoryOf(gateway))['bodies']).toBe(0);
  });
});

describe('a body that cannot be given its salt', () => {
  const text = JSON.stringify(chat());
  const utf16 = Buffer.from(text, 'utf16le');
  const bodies: [string, string | Buffer][] = [
    ['two byte order marks', `\uFEFF\uFEFF${text}`],
    ['UTF-16', utf16],
    ['UTF-16, the other way', Buffer.from(utf16).swap16()],
    ['UTF-32', Buffer.concat([...text].map((letter) => Buffer.from([letter.charCodeAt(0), 0, 0, 0])))],
    ['a number that is none', text.replace('"m"', 'NaN')],
    ['a comment', text.replace('{', '{/* */')],
    ['a trailing comma', text.replace(/}$/, ',}')],
    ['two objects', `${text}{}`],
    ['a list', `[${text}]`],
    ['a text', '"x"'],
    ['nothing', ' '],
    ['gzip that does not say so', gzipSync(text)],
    ['more values than are read', text.replace(/}$/, `,"x":[${'0,'.repeat(700_000)}0]}`)],
  ];

  it.each(bodies)('never reaches the engine: %s', async (_, body) => {
    const { engine, ask } = await standing(SALTED);
    for (const path of [CHAT, '/v1/completions', '/v1/messages', '/v1/responses'])
      expect(await ask(body, {}, path)).toMatch(/^4(?:00|13) WARMPATH_(?:INVALID_JSON|BODY_TOO_COMPLEX)$/);
    expect(engine.received).toHaveLength(0);
  });

  it('is none behind a byte order mark, which is no part of it', async () => {
    const { engine, ask } = await standing(SALTED);
    expect(await ask(`\uFEFF${text}`, {})).toBe(200);
    expect((JSON.parse(engine.last.body) as { cache_salt?: string }).cache_salt).toMatch(/\S/);
  });

  it('has the salt in every place where its key stands', async () => {
    const { engine, ask } = await standing(SALTED);
    expect(await ask('{"cache_salt":"a","model":"m","messages":[],"cache\\u005fsalt":"b"}', {})).toBe(200);
    expect(engine.last.body).not.toMatch(/"[ab]"/);
    const salts = [...engine.last.body.matchAll(/"cache(?:_|\\u005f)salt":"([^"]*)"/g)].map(([, salt]) => salt);
    expect(salts).toHaveLength(2);
    expect(new Set(salts).size).toBe(1);
  });
});

it.each(['gzip, chunked', 'identity', 'chunked, chunked', 'deflate'])(
  'a transfer-encoding of %s is refused',
  async (coding) => {
    const { engine, gateway } = await standing();
    const headers = { 'transfer-encoding': coding, connection: 'close' };
    const reply = await send(gateway.url + CHAT, undefined, { method: 'POST', headers }).catch(() => ({ status: 400 }));
    expect([400, 415]).toContain(reply.status);
    expect(engine.received).toHaveLength(0);
  },
);
