import fc from 'fast-check';
import { expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { FakeEngine } from './fake-engine.js';
import { chat, closing, gatewayAt, send } from './harness.js';
import '../../core/test/seed.js';

const CHAT = '/v1/chat/completions';
const PASSAGES = Array.from({ length: 6 }, (_, place) => ({
  id: `passage-${(place * 5) % 6}`,
  content: `Passage ${place} says ${'word '.repeat(10 + 7 * place)}and nothing else.`,
}));

const documents = fc
  .uniqueArray(fc.nat(5), { minLength: 1, maxLength: 6 })
  .map((places) => places.map((place) => PASSAGES[place]!));
/** Requests that only one of the gateways has served. */
const history = fc.array(documents, { maxLength: 5 });
const turns = fc.array(
  fc.record({ documents, isInText: fc.boolean(), constraints: fc.constantFrom({}, {}, { maxShift: 2 }) }),
  { minLength: 1, maxLength: 4 },
);

const tagged = (given: readonly (typeof PASSAGES)[number][]) =>
  `<warmpath-documents>\n${given.map(({ id, content }) => `<document id="${id}">${content}</document>`).join('\n')}\n</warmpath-documents>`;

it('with `arrange.policy: sorted`, gateways of different histories send the same bytes, hints and turns included', async () => {
  const engine = closing(await FakeEngine.start());
  const config = { arrange: { policy: 'sorted' } } as const;
  const gateways = [closing(await gatewayAt(engine.url, config)), closing(await gatewayAt(engine.url, config))];
  let conversations = 0;
  let hints = 0;
  await fc.assert(
    fc.asyncProperty(history, history, turns, async (left, right, asked) => {
      for (const [place, served] of [left, right].entries()) {
        for (const given of served) await send(gateways[place]!.url + CHAT, chat(given));
      }
      const session = `s${++conversations}`;
      const sent: string[][] = [];
      for (const { url } of gateways) {
        const bodies: string[] = [];
        let messages: object[] = [{ role: 'system', content: 'Answer from the documents.' }];
        for (const [turn, { documents: given, isInText, constraints }] of asked.entries()) {
          const question = `Question ${turn}?`;
          const content = isInText ? `${tagged(given)}\n\n${question}` : question;
          messages = [...messages, { role: 'user', content }];
          const warmpath = { session, ...constraints };
          const reply = await send(
            url + CHAT,
            chat(isInText ? undefined : given, { messages, warmpath, ...(isInText && { documents: undefined }) }),
          );
          expect(reply.status, reply.text).toBe(200);
          bodies.push(engine.last.body);
          const [{ message }] = (JSON.parse(reply.text) as { choices: [{ message: object }] }).choices;
          messages = [...messages, message];
        }
        sent.push(bodies);
      }
      expect(sent[1]).toEqual(sent[0]);
      hints += sent[0]!.filter((body) => body.includes('order of relevance')).length;
    }),
    { numRuns: runs(40) },
  );
  expect(hints).toBeGreaterThan(0);
});

it('with every other policy that looks for reuse, they do not', async () => {
  const engine = closing(await FakeEngine.start());
  const gateways = [closing(await gatewayAt(engine.url)), closing(await gatewayAt(engine.url))];
  await send(gateways[0]!.url + CHAT, chat(PASSAGES.toReversed()));
  const bodies: string[] = [];
  for (const { url } of gateways) {
    await send(url + CHAT, chat(PASSAGES));
    bodies.push(engine.last.body);
  }
  expect(bodies[1]).not.toBe(bodies[0]);
});
