import fc from 'fast-check';
import { expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { FakeEngine } from './fake-engine.js';
import { gatewayAt, send, told } from './harness.js';
import { LeakEngine } from './leak/leak-engine.js';

const APIS = ['chat', 'messages', 'responses', 'completions'] as const;
const PATHS = {
  chat: '/v1/chat/completions',
  messages: '/v1/messages',
  responses: '/v1/responses',
  completions: '/v1/completions',
};
const SAID = 'It is 42 kg.';

/** What one client does next. Few tenants, users, names and words, so that they meet all the time. */
const step = fc.record({
  api: fc.constantFrom(...APIS),
  tenant: fc.constantFrom(undefined, 'one', 'two'),
  user: fc.constantFrom(undefined, 'ann', 'bob', '7', 7, 8),
  session: fc.constantFrom(undefined, 's', 's', 't'),
  cacheKey: fc.constantFrom(undefined, 'shared', 'shared'),
  way: fc.constantFrom('go on', 'go on', 'go on', 'again', 'edit', 'bypass'),
  documents: fc.constantFrom('none', 'field', 'field', 'text'),
});
type Step = typeof step extends fc.Arbitrary<infer Value> ? Value : never;

/** One request of a conversation as its client knows it. */
interface Turn {
  readonly question: string;
  readonly documents: readonly { readonly id: string; readonly content: string }[];
  readonly isBypassed: boolean;
}

/** A client's own side of one conversation: nothing in it is of another user. */
interface Talk {
  turns: readonly Turn[];
  /** Everything that was ever sent in it. */
  readonly brought: Set<string>;
  /** Whether a part of it may be forgotten: a turn went past the gateway's memory. */
  mayBeForgotten: boolean;
}

const markersIn = (text: string): Set<string> => new Set(text.match(/mk\d+x/g));

function messagesOf(turns: readonly Turn[]): object[] {
  return turns.flatMap(({ question }, at) => [
    { role: 'user', content: question },
    ...(at < turns.length - 1 ? [{ role: 'assistant', content: SAID }] : []),
  ]);
}

function bodyOf({ api, user, session, cacheKey }: Step, turns: readonly Turn[]): object {
  const { documents, isBypassed, question } = turns.at(-1)!;
  const prompts = {
    chat: { messages: messagesOf(turns) },
    messages: { max_tokens: 9, messages: messagesOf(turns) },
    responses: { input: messagesOf(turns) },
    completions: { prompt: question },
  };
  const named = session === undefined ? {} : { session: `${api} ${session}`, forgotten: 'mark' };
  const warmpath = { ...named, ...(isBypassed && { bypass: true }) };
  return {
    model: 'm',
    ...prompts[api],
    ...(documents.length > 0 && { documents }),
    ...(Object.keys(warmpath).length > 0 && { warmpath }),
    ...(cacheKey !== undefined && { prompt_cache_key: cacheKey }),
    ...(user !== undefined && (api === 'messages' ? { metadata: { user_id: user } } : { user })),
  };
}

it('a prompt holds the documents that its own user brought in its conversation, all of them and no other', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 2, maxLength: 30 }),
      fc.constantFrom('native' as const, 'translate' as const),
      async (steps, way) => {
        const says = new LeakEngine(way);
        says.says = SAID;
        const engine = await FakeEngine.start((response, request) => {
          if (request.path !== PATHS.completions) says.answer(response, request);
          else response.writeHead(200, { 'content-type': 'application/json' }).end('{"choices":[{"text":"It."}]}');
        });
        const gateway = await gatewayAt(engine.url, {}, { apiRoute: way });
        const talks = new Map<string, Talk>();
        let markers = 0;
        try {
          for (const next of steps) {
            const { api, tenant, user, session } = next;
            const key = JSON.stringify([api, tenant, user === undefined ? null : String(user), session]);
            const talk = talks.get(key) ?? { turns: [], brought: new Set(), mayBeForgotten: false };
            talks.set(key, talk);
            const isRepeated = next.way === 'again' && talk.turns.length > 0;
            const past = next.way === 'edit' || isRepeated ? talk.turns.slice(0, -1) : talk.turns;
            const marker = `mk${markers++}x`;
            const fresh: Turn = {
              question:
                next.documents === 'text'
                  ? `<documents><document id="a">${marker} of a.</document><document id="b">${marker} of b.</document></documents>\nHello.`
                  : 'Hello.',
              documents: next.documents === 'field' ? [{ id: 'a', content: `${marker} is its text.` }] : [],
              isBypassed: next.way === 'bypass',
            };
            const turns = [...past, isRepeated ? talk.turns.at(-1)! : fresh];
            const body = JSON.stringify(bodyOf(next, turns));
            for (const own of markersIn(body)) talk.brought.add(own);
            engine.received.length = 0;
            const headers: Record<string, string> = tenant === undefined ? {} : { authorization: `Bearer ${tenant}` };
            const reply = await send(gateway.url + PATHS[api], body, { headers });
            expect(reply.status, `${key} ${reply.text}`).toBe(200);
            const sent = markersIn(engine.received.filter(({ path }) => path !== '/v1/models').at(-1)!.body);
            const isBypassed = turns.at(-1)!.isBypassed;
            const isForgotten = told(reply).conversation === 'forgotten';
            const isNamed = session !== undefined && api !== 'completions' && !isBypassed;
            talk.mayBeForgotten ||= isBypassed;
            if (isForgotten) expect(talk.mayBeForgotten, 'forgot what it knows').toBe(true);
            const permitted = isNamed ? talk.brought : markersIn(body);
            expect(
              [...sent].filter((one) => !permitted.has(one)),
              'foreign',
            ).toEqual([]);
            const earlier = isNamed && !talk.mayBeForgotten ? turns : turns.slice(-1);
            const needed = new Set([...markersIn(body), ...markersIn(JSON.stringify(earlier))]);
            expect(
              [...needed].filter((one) => !sent.has(one)),
              'lost',
            ).toEqual([]);
            talk.turns = turns;
          }
        } finally {
          await gateway.close();
          await engine.close();
        }
      },
    ),
    { seed: 34, numRuns: runs(150) },
  );
});
