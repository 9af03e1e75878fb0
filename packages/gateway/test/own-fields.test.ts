import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { z } from 'zod';
import { arrangeRequest, observation, retrieval, switches } from '../src/intake/own-fields.js';
import { OPERATIONS, openApiDocument } from '../src/routes/openapi.js';
import { chat, DOCUMENTS, errorOf, send, stand } from './harness.js';
import '../../core/test/seed.js';

const CHAT = '/v1/chat/completions';

/** Values that some field takes, and values that none does. */
const anyValue = fc.constantFrom<unknown>(
  ...[null, true, false, '', 'mark', 'refuse', 'marked', 'off', 'exact', 'completed', 'failed', 'velka'],
  ...['x'.repeat(256), 'x'.repeat(257), '\ud800', 0, 1, 2.5, -1, 1e10, [], ['velka'], [''], [1], {}, { a: 1 }],
);

/** Objects of the fields of a schema, of which some are wrong. */
const objectOf = (schema: z.ZodObject) =>
  fc.dictionary(fc.constantFrom(...Object.keys(schema.shape), 'unknown'), anyValue, { maxKeys: 3 });

interface JsonSchema {
  readonly properties: Readonly<Record<string, JsonSchema>>;
}

describe('the own fields of a request', () => {
  it('are taken as the OpenAPI document has them: `warmpath`', async () => {
    const { gateway } = await stand();
    await fc.assert(
      fc.asyncProperty(objectOf(switches), async (warmpath) => {
        const reply = await send(gateway.url + CHAT, chat(DOCUMENTS, { warmpath }));
        // A new conversation that is named is answered, too: these messages hold no answer.
        expect([reply.status, reply.text]).toEqual([
          switches.safeParse(warmpath).success ? 200 : 400,
          expect.anything(),
        ]);
      }),
      { numRuns: 300 },
    );
  });

  it('are taken as the OpenAPI document has them: arrange and observe', async () => {
    const { gateway } = await stand();
    await fc.assert(
      fc.asyncProperty(objectOf(arrangeRequest.omit({ documents: true, engine: true })), async (fields) => {
        const body = { ...fields, documents: DOCUMENTS };
        const reply = await send(`${gateway.url}/v1/arrange`, body);
        expect(reply.status, reply.text).toBe(arrangeRequest.safeParse(body).success ? 200 : 400);
      }),
      { numRuns: 200 },
    );
    await fc.assert(
      fc.asyncProperty(objectOf(observation), async (fields) => {
        const reply = await send(`${gateway.url}/v1/observe`, fields);
        expect(reply.status, reply.text).toBe(observation.safeParse(fields).success ? 200 : 400);
      }),
      { numRuns: 200 },
    );
  });

  it.each([
    ['warmpath', [], 'an object was expected'],
    ['warmpath', 'x', 'an object was expected'],
    [
      'warmpath.polcy',
      { polcy: 'exact', bypass: 3 },
      `unknown field; known ones are ${Object.keys(switches.shape).join(', ')}`,
    ],
    ['warmpath.bypass', { bypass: 'yes' }, 'true or false was expected'],
    ['warmpath.forgotten', { forgotten: 'x' }, 'one of mark, refuse was expected'],
    ['warmpath.session', { session: 3 }, 'a string was expected'],
    ['warmpath.session', { session: '' }, 'a name of 1 to 256 characters was expected'],
    ['warmpath.session', { session: 'x'.repeat(257) }, 'a name of 1 to 256 characters was expected'],
    ['warmpath.retrieval', { retrieval: {} }, 'there is nothing to search'],
  ])('say where they are wrong, and what was expected: %s %j', async (path, warmpath, message) => {
    const { gateway } = await stand();
    const reply = await send(gateway.url + CHAT, chat(DOCUMENTS, { warmpath }));
    expect(reply.status).toBe(400);
    expect(errorOf(reply)).toMatchObject({ code: 'WARMPATH_INVALID_REQUEST', param: path });
    expect(errorOf(reply).message).toContain(message);
  });

  it('stand in the document with their names, whichever API has them', () => {
    const { paths } = openApiDocument('1.0.0');
    for (const path of [CHAT, '/v1/completions', '/v1/messages', '/v1/responses']) {
      const { requestBody } = paths[path]!['post'] as {
        requestBody: { content: { 'application/json': { schema: JsonSchema } } };
      };
      const { properties } = requestBody.content['application/json'].schema.properties['warmpath']!;
      expect(Object.keys(properties)).toEqual(expect.arrayContaining(Object.keys(switches.shape)));
      if (path === CHAT) expect(Object.keys(properties['retrieval']!.properties)).toEqual(Object.keys(retrieval.shape));
    }
    expect(OPERATIONS['/v1/arrange']!['post']!.body).toBe(arrangeRequest);
  });
});
