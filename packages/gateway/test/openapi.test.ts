import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MEDIA_TYPES } from '@warmpath/retrieval';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { z } from 'zod';
import { pdf } from '../../retrieval/test/hand-written-pdf.js';
import { OPERATIONS, openApiDocument } from '../src/routes/openapi.js';
import { CLIENT_PATHS } from '../src/routes/passthrough.js';
import { type Stand, send, stand } from './harness.js';

const routes: string[] = [];
let here: Stand;
let folder: string;

/** Fastify announces every server before its routes are added. */
const listen = (message: unknown) => {
  (message as { fastify: FastifyInstance }).fastify.addHook('onRoute', ({ method, url }) => {
    for (const verb of [method].flat()) routes.push(`${verb} ${url}`);
  });
};

beforeEach(async () => {
  routes.length = 0;
  subscribe('fastify.initialization', listen);
  folder = await mkdtemp(join(tmpdir(), 'warmpath-openapi-'));
  // A salt adds a route, and so do collections; a translation lets the gateway count itself.
  here = await stand(
    undefined,
    {
      upstream: { cacheSaltKey: 'a secret of this test' },
      collections: {
        folder,
        models: { handbook: { model: 'm', collection: 'handbook' } },
        stores: { manual: { kind: 'opensearch', url: 'http://127.0.0.1:9', index: 'manual' } },
      },
    },
    { apiRoute: 'translate' },
  );
  await send(`${here.gateway.url}/v1/collections/handbook/documents`, { documents: [{ id: 'a', text: 'Which, a.' }] });
});

afterEach(async () => {
  unsubscribe('fastify.initialization', listen);
  await rm(folder, { recursive: true, force: true });
});

const documents = [
  { id: 'velka', title: 'Velka', content: 'The weight of Velka is 42 kg.', metadata: { page: 3 } },
  { text: 'The weight of Orsin is 17 kg.' },
];
const messages = [{ role: 'user', content: 'Which is heavier?' }];
const ordering = { policy: 'exact', maxShift: 1, shiftPrice: 0.5, pin: ['velka'], hints: true };
const warmpath = {
  ...ordering,
  bypass: false,
  session: 'one',
  forgotten: 'mark',
  deduplicate: true,
  blocks: false,
};

/** A request for every operation, as large as its schema allows. */
const EXAMPLES: Readonly<Record<string, object>> = {
  'post /v1/chat/completions': { model: 'm', messages, documents, warmpath },
  'post /v1/completions': { model: 'm', prompt: 'Which is heavier?', documents, warmpath },
  'post /v1/messages': { model: 'm', max_tokens: 9, messages, documents, warmpath },
  'post /v1/responses': { model: 'm', input: 'Which is heavier?', documents, warmpath },
  'post /v1/messages/count_tokens': { model: 'm', messages, documents },
  'post /v1/arrange': { documents, ...ordering, preamble: 'Be brief.', model: 'm' },
  'post /v1/observe': { id: 'unknown', outcome: 'completed', promptTokens: 30, cachedTokens: 16 },
  'post /v1/plan': { contexts: [['a', 'b'], { documents: [{ id: 'c', tokens: 9 }, 'b'] }], capacity: 100 },
  'post /v1/warmup': { model: 'm', messages },
  'post /v1/collections/{name}/search': { query: 'Which?', k: 3 },
  'post /v1/collections/{name}/documents': {
    documents: [{ id: 'b', title: 'B', content: 'B.', metadata: { page: 1 }, format: 'markdown' }],
  },
  'get /v1/prompts': {},
  'get /v1/collections': {},
  'get /v1/collections/{name}/documents': {},
  'delete /v1/collections/{name}': {},
};

const answersOf = (key: string) => {
  const [method, path] = key.split(' ') as [string, string];
  return OPERATIONS[path]![method]!;
};

describe('the OpenAPI document', () => {
  it('has every route of the server, and no other', () => {
    const documented = Object.entries(OPERATIONS).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path.replaceAll(/\{(\w+)\}/g, ':$1')}`),
    );
    const passed = new Set(CLIENT_PATHS.map((path) => `POST ${path}`));
    const isOwn = (route: string) => !route.includes('*') && !passed.has(route) && !/ \/(ui.*)?$/.test(route);
    const own = routes.filter((route) => isOwn(route) && !/^(HEAD|OPTIONS) /.test(route));
    expect(own.toSorted()).toEqual(documented.toSorted());
  });

  it('has no reference that leads nowhere', () => {
    expect(JSON.stringify(openApiDocument('1.0.0'))).not.toContain('$ref');
  });

  it.each(Object.keys(EXAMPLES))('says what %s takes and answers', async (key) => {
    const { body, answers, isRelayed } = answersOf(key);
    if (body !== undefined) expect(body.safeParse(EXAMPLES[key]).error).toBeUndefined();
    const [method, path] = key.split(' ') as [string, string];
    const url = `${here.gateway.url}${path.replace('{name}', 'handbook')}`;
    const reply = await send(url, body && EXAMPLES[key], { method: method.toUpperCase() });
    expect(Object.keys(answers)).toContain(String(reply.status));
    if (isRelayed !== true) check(answers[reply.status], reply.text);
  });

  it.each(['application/pdf', 'text/markdown', 'text/html', 'text/plain'])(
    'says that %s is a document',
    async (type) => {
      const { paths } = openApiDocument('1.0.0', [...MEDIA_TYPES.keys()]);
      expect(JSON.stringify(paths['/v1/collections/{name}/documents'])).toContain(`"${type}":`);
      const { answers, query } = answersOf('post /v1/collections/{name}/documents');
      const given = { id: 'whole file', title: 'A title' };
      for (const [name, value] of Object.entries(given)) expect(query![name]!.safeParse(value).success).toBe(true);
      expect(Object.keys(query!)).toEqual(Object.keys(given));
      const url = `${here.gateway.url}/v1/collections/handbook/documents?${new URLSearchParams(given)}`;
      const body = type === 'application/pdf' ? Buffer.from(pdf([['A page.']])) : 'A text.';
      const reply = await send(url, body, { headers: { 'content-type': type } });
      check(answers[200], reply.text);
    },
  );

  it.each(['/healthz', '/readyz'])('says what GET %s answers', async (path) => {
    const reply = await send(`${here.gateway.url}${path}`);
    check(OPERATIONS[path]!['get']!.answers[reply.status], reply.text);
  });

  it('says what is told of a request just served, and of a conversation that is forgotten', async () => {
    await send(`${here.gateway.url}/v1/chat/completions`, EXAMPLES['post /v1/chat/completions'], {
      headers: { 'x-request-id': 'mine' },
    });
    const record = await send(`${here.gateway.url}/v1/requests/mine`);
    check(answersOf('get /v1/requests/{id}').answers[200], record.text);
    const forgotten = await send(`${here.gateway.url}/v1/sessions/one`, undefined, { method: 'DELETE' });
    check(answersOf('delete /v1/sessions/{name}').answers[200], forgotten.text);
  });

  it('refuses the unknown field that the gateway refuses', async () => {
    const body = { ...EXAMPLES['post /v1/arrange'], polcy: 'exact' };
    expect(answersOf('post /v1/arrange').body!.safeParse(body).success).toBe(false);
    const reply = await send(`${here.gateway.url}/v1/arrange`, body);
    expect(reply.status).toBe(400);
  });
});

function check(schema: z.ZodType | undefined, text: string): void {
  expect(schema!.safeParse(JSON.parse(text)).error).toBeUndefined();
}
