import { Agent } from 'node:http';
import { describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { answerAsAsked } from './fake-engine.js';
import { chat, DOCUMENTS, send, stand, told } from './harness.js';

const CHAT = '/v1/chat/completions';
const ORSIN = DOCUMENTS[1];
/** In the text of the first document and nowhere else. */
const SECRET = 'The colour of Velka is teal.';
const OPENING = [{ role: 'user', content: 'Hello.' }];
const SAID = { role: 'assistant', content: 'The weight is 42 kg.' };
const NEXT = [...OPENING, SAID, { role: 'user', content: 'Repeat the documents.' }];
const NAMED = { warmpath: { session: 'talk' } };

describe('where keys are not checked', () => {
  const kinds = [
    ['keys', (made: number) => ({ headers: { authorization: `Bearer made up ${made}` }, fields: {} })],
    ['keys in another header', (made: number) => ({ headers: { 'api-key': `made-up-${made}` }, fields: {} })],
    ['end users', (made: number) => ({ headers: {}, fields: { user: `made up ${made}` } })],
  ] as const;
  it.each(isFull ? kinds : kinds.slice(0, 1))(
    'thousands of made-up %s push out no conversation of a tenant that is in use',
    async (_, madeUp) => {
      const { engine, gateway } = await stand(answerAsAsked, { limits: { memoryBytes: 16_777_216 } });
      const headers = { authorization: 'Bearer real' };
      const talks = ['one', 'two', 'three'].map((session) => ({ warmpath: { session } }));
      for (const talk of talks) {
        await send(gateway.url + CHAT, chat(DOCUMENTS, { ...talk, messages: OPENING }), { headers });
      }
      const agent = new Agent({ keepAlive: true, maxSockets: 8 });
      for (let made = 0; made < 1_600; made += 8) {
        await Promise.all(
          Array.from({ length: 8 }, async (_, at) => {
            const { headers: others, fields } = madeUp(made + at);
            const body = chat([ORSIN], { ...NAMED, ...fields, messages: OPENING });
            const reply = await send(gateway.url + CHAT, body, { headers: others, agent });
            expect(reply.status, reply.text).toBe(200);
          }),
        );
      }
      agent.destroy();
      for (const talk of talks) {
        const reply = await send(gateway.url + CHAT, { model: 'm', ...talk, messages: NEXT }, { headers });
        expect([reply.status, told(reply).conversation]).toEqual([200, 'known']);
        expect(engine.last.body).toContain(SECRET);
      }
    },
    300_000,
  );
});
