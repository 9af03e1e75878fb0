import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  ConversationLog,
  type ConversationName,
  type ConversationStore,
  type ConversationStoreListener,
  type SentTurn,
} from '../../src/internal.js';

export const LIMITS = { maxBytes: 1e8, maxAgeMs: 60_000 };

export const SILENT: ConversationStoreListener = { done: () => {}, failed: () => {}, changed: () => {} };

/** A turn at a link, with everything that a turn may have. */
export function turnAt(link: string, id = `id-${link}`, parent?: SentTurn): SentTurn {
  return {
    link,
    id,
    length: 2,
    parent: parent && { link: parent.link, id: parent.id },
    supplied: `supplied-${id}`,
    order: ['a'],
    edits: [{ at: 1, add: 'text-before', text: `The "text"\n of ${id} 🦀 \ud800` }],
    documents: [
      { hash: 'p1', label: 'a', title: undefined, content: `Content of ${id}` },
      { hash: 'p2', label: 'b', title: 'Title', content: '' },
    ],
    steps: [{ key: 'k', tokens: 3 }],
    tail: 1.5,
    answers: [],
  };
}

/** A store to write to, and one that sees what was written: the same, or another gateway's over the same server. */
export interface StorePair {
  readonly writer: ConversationStore;
  readonly reader: ConversationStore;
}

/** What a store says of a link, once everything before has arrived. */
export async function turnsOf({ writer, reader }: StorePair, name: ConversationName, link: string, now = 0) {
  await writer.find(name, [], now);
  return (await reader.find(name, [link], now))(link);
}

const NAMES: readonly [ConversationName, ...ConversationName[]] = [
  { tenant: 'a', session: 's' },
  { tenant: 'a', user: 'u', session: 's' },
  { tenant: 'a', user: 'u', session: 't' },
  { tenant: 'b', session: 's' },
];

/** What is told to a store. */
type Step =
  | { readonly kind: 'sent'; readonly name: number; readonly link: string; readonly id: string }
  | {
      readonly kind: 'answered';
      readonly name: number;
      readonly link: string;
      readonly id: string;
      readonly answer: string;
    };

const link = fc.constantFrom('l1', 'l2');
const id = fc.constantFrom(...Array.from({ length: 10 }, (_, i) => `i${i}`));
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant('sent' as const), name: fc.nat(NAMES.length - 1), link, id }),
  fc.record({
    kind: fc.constant('answered' as const),
    name: fc.nat(NAMES.length - 1),
    link,
    id,
    answer: fc.constantFrom(...Array.from({ length: 12 }, (_, i) => `a${i}`)),
  }),
);

/** What every store of conversations keeps to. `open` gives an empty one; it is closed afterwards. */
export function conversationStoreCases(kind: string, open: () => Promise<StorePair>): void {
  describe(`${kind}, as a store of conversations`, () => {
    it('gives back what was sent, where it was sent', async () => {
      const pair = await open();
      const first = turnAt('1');
      const second = turnAt('2', 'x', first);
      for (const turn of [first, second]) pair.writer.sent(NAMES[0], turn, 0);
      expect(await turnsOf(pair, NAMES[0], '1')).toEqual([first]);
      expect(await turnsOf(pair, NAMES[0], '2')).toEqual([second]);
      expect(await turnsOf(pair, NAMES[0], '3')).toEqual([]);
    });

    it('is what a memory is, whatever it is told', async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
          const pair = await open();
          const twin = new ConversationLog(LIMITS);
          for (const told of steps) {
            const name = NAMES[told.name]!;
            const turn = turnAt(told.link, told.id);
            for (const store of [pair.writer, twin]) {
              if (told.kind === 'sent') store.sent(name, turn, 0);
              else store.answered(name, turn, told.answer, 0);
            }
          }
          for (const name of NAMES) {
            for (const at of ['l1', 'l2']) {
              expect(await turnsOf(pair, name, at)).toEqual(twin.lookup(name, 0)(at));
            }
          }
        }),
        { seed: 11, numRuns: 40 },
      );
    });

    it('never gives one tenant, end user or conversation what another sent, whatever they are called', async () => {
      // Few signs and short names, so that one name and the next put together differently are the same signs.
      const sign = fc.constantFrom('a', 'b', '\n', '{', '}', ':', '"', ',', '\0');
      const text = fc.oneof(fc.string({ unit: sign, maxLength: 2 }), fc.constantFrom('null', '*'));
      const name = fc.record({ tenant: text, user: fc.option(text, { nil: undefined }), session: text });
      await fc.assert(
        fc.asyncProperty(fc.uniqueArray(name, { selector: keyOf, minLength: 2, maxLength: 6 }), async (names) => {
          const pair = await open();
          for (const [i, one] of names.entries()) pair.writer.sent(one, turnAt('l', `${i}`), 0);
          const isTaken = new Set(names.map(keyOf));
          for (const [i, one] of names.entries()) {
            expect((await turnsOf(pair, one, 'l')).map(({ id }) => id)).toEqual([`${i}`]);
            const { tenant, user = '', session } = one;
            for (const shifted of [
              { tenant: tenant + user, user: undefined, session },
              { tenant, user: undefined, session: user + session },
              { tenant: tenant + user + session, user: undefined, session: '' },
            ]) {
              if (!isTaken.has(keyOf(shifted))) expect(await turnsOf(pair, shifted, 'l')).toEqual([]);
            }
          }
        }),
        { seed: 12, numRuns: 25 },
      );
    });

    it('says how much it holds, and how many turns it forgot', async () => {
      const pair = await open();
      const { writer, reader } = pair;
      for (const name of NAMES) for (const id of ['x', 'y']) writer.sent(name, turnAt('1', id), 0);
      expect(writer.turns).toBe(2 * NAMES.length);
      expect(writer.bytes).toBeGreaterThan(0);
      // Behind what was told.
      await writer.find(NAMES[0], [], 0);
      expect(await reader.forget({ tenant: 'a', user: 'u' })).toBe(4);
      expect(await reader.forget({ tenant: 'a', session: 's' })).toBe(2);
      expect(await reader.forget({})).toBe(2);
      expect(await reader.forget({})).toBe(0);
    });

    it('leaves an answer alone whose turn it never had', async () => {
      const pair = await open();
      pair.writer.answered(NAMES[0], turnAt('1'), 'a', 0);
      expect(await turnsOf(pair, NAMES[0], '1')).toEqual([]);
    });
  });
}

function keyOf({ tenant, user, session }: ConversationName): string {
  return JSON.stringify([tenant, user ?? null, session]);
}
