import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { heldBytes } from '../../../test/held-bytes.js';
import { type ChatMessage, WarmpathError } from '../src/index.js';
import {
  ConversationLog,
  type ConversationName,
  MAX_ANSWERS,
  MAX_RENDERINGS,
  readSessionEntry,
  type SentTurn,
  type SessionFilter,
} from '../src/internal.js';
import { Pipeline } from './conversation-model.js';
import { bytesOf, bytesOfLog, NaiveConversationLog } from './naive-conversation-log.js';
import './seed.js';
import { isFull, runs } from '../../../test/suite.js';

const NAME = { tenant: 'a', user: 'u', session: 's' };
const A = { id: 'a', content: 'Text of a.' };
const B = { id: 'b', content: 'Text of b.' };
const C = { id: 'c', content: 'Text of c.' };

function user(content: string): ChatMessage {
  return { role: 'user', content };
}

function said(content: string): ChatMessage {
  return { role: 'assistant', content };
}

/** A turn with `length` characters of text. */
function turn(link: string, length = 0, id = link): SentTurn {
  return {
    link,
    id,
    length: 1,
    parent: undefined,
    supplied: '',
    order: [],
    edits: length === 0 ? [] : [{ at: 0, add: 'text-before', text: 'x'.repeat(length) }],
    documents: [],
    steps: [],
    tail: 0,
    answers: [],
  };
}

const LINKS = ['1', '2', '3'];
const NAMES: readonly ConversationName[] = ['a', 'b', 'c'].flatMap((tenant) =>
  [undefined, 'u', 'v'].flatMap((user) => ['s', 't', 'w'].map((session) => ({ tenant, user, session }))),
);

const name = fc.constantFrom(...NAMES);
const filter: fc.Arbitrary<SessionFilter> = fc.record(
  {
    tenant: fc.constantFrom('a', 'b', 'd'),
    user: fc.constantFrom(null, 'u', 'z'),
    session: fc.constantFrom('s', 't'),
  },
  { requiredKeys: [] },
);
const operation = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant('sent' as const),
      name,
      link: fc.constantFrom(...LINKS),
      id: fc.nat({ max: 3 }),
      length: fc.constantFrom(0, 100, 500, 2_000),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('answered' as const),
      name,
      link: fc.constantFrom(...LINKS),
      id: fc.nat({ max: 3 }),
      answer: fc.constantFrom('x', 'y'),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('wait' as const), ms: fc.nat({ max: 8 }) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('forget' as const), filter }) },
);

/** A name alone is that of a conversation without an end user; an end user `null` is nobody. */
function isMeant(of: ConversationName, { tenant, user, session }: SessionFilter): boolean {
  if (tenant !== undefined && of.tenant !== tenant) return false;
  if (session !== undefined && of.session !== session) return false;
  if (user === undefined) return session === undefined || of.user === undefined;
  return user === null ? of.user === undefined : of.user === user;
}

/** What is found under every name and link. */
function contentsOf(log: Pick<ConversationLog, 'lookup'>, now: number) {
  return NAMES.flatMap((each) =>
    LINKS.map((link) =>
      log
        .lookup(
          each,
          now,
        )(link)
        .map(({ id, answers }) => [id, ...answers]),
    ),
  );
}

/** The same log on the other side of an export, as plain JSON, at another clock. */
function revive(log: ConversationLog, now: number, later: number, maxBytes?: number): ConversationLog {
  const lines = [...log.export(now)].map((entry) => JSON.stringify(entry));
  const revived = new ConversationLog(maxBytes === undefined ? {} : { maxBytes });
  for (const line of lines) revived.restore(JSON.parse(line), later);
  return revived;
}

describe('the conversation log', () => {
  it('finds what a naive log finds, within its bytes and its age', () => {
    let evicted = 0;
    let expired = 0;
    let forgotten = 0;
    fc.assert(
      fc.property(
        fc.array(operation, { minLength: 10, maxLength: 60 }),
        fc.integer({ min: 5_000, max: 60_000 }),
        fc.integer({ min: 5, max: 60 }),
        (operations, maxBytes, maxAgeMs) => {
          const log = new ConversationLog({ maxBytes, maxAgeMs });
          const naive = new NaiveConversationLog(maxBytes, maxAgeMs);
          let now = 1_000;
          for (const each of operations) {
            if (each.kind === 'wait') {
              now += each.ms;
              expect(contentsOf(log, now)).toEqual(contentsOf(naive, now));
              log.expire(now);
              expired += naive.expire(now);
            } else if (each.kind === 'forget') {
              const count = log.forget(each.filter);
              expect(count).toBe(naive.forget((of) => isMeant(of, each.filter)));
              forgotten += count;
            } else if (each.kind === 'answered') {
              const of = { link: each.link, id: `${each.link} ${each.id}` };
              log.answered(each.name, of, each.answer, now);
              naive.answered(each.name, of, each.answer, now);
            } else {
              const sent = turn(each.link, each.length, `${each.link} ${each.id}`);
              log.sent(each.name, sent, now);
              naive.add(each.name, sent, now);
              // Whole conversations are gone, and only such as may go.
              const gone = naive.names.filter((of) => LINKS.every((link) => log.lookup(of, now)(link).length === 0));
              evicted += gone.length;
              expect(naive.evict(each.name, gone), JSON.stringify(gone)).toBe(true);
            }
            expect(contentsOf(log, now)).toEqual(contentsOf(naive, now));
            expect([log.size, log.turns, log.bytes]).toEqual([naive.names.length, naive.turns, naive.bytes]);
            expect(log.bytes).toBeLessThanOrEqual(maxBytes);
          }
        },
      ),
      { numRuns: runs(500) },
    );
    expect(evicted).toBeGreaterThan(300);
    expect(expired).toBeGreaterThan(runs(100));
    expect(forgotten).toBeGreaterThan(runs(50));
  });

  it('is the same on the other side of an export', () => {
    const sends = fc.array(fc.record({ name, link: fc.constantFrom(...LINKS), id: fc.nat({ max: 3 }) }), {
      minLength: 1,
      maxLength: 60,
    });
    fc.assert(
      fc.property(sends, fc.constantFrom(0, 5_000), (sent, later) => {
        const log = new ConversationLog();
        for (const [now, each] of sent.entries()) {
          const one = turn(each.link, 10, `${each.link} ${each.id}`);
          log.sent(each.name, one, now);
          log.answered(each.name, one, `${now}`, now);
        }
        const now = sent.length;
        const revived = revive(log, now, later);
        expect(contentsOf(revived, later)).toEqual(contentsOf(log, now));
        expect([revived.size, revived.turns, revived.bytes]).toEqual([log.size, log.turns, log.bytes]);
        expect([...revived.export(later)]).toEqual([...log.export(now)]);
      }),
      { numRuns: runs(200) },
    );
  });

  it('never lets somebody who holds much push out somebody who holds less than half of it', () => {
    const log = new ConversationLog({ maxBytes: 200_000 });
    const quiet = ['a', 'b'].flatMap((tenant) =>
      Array.from({ length: 8 }, (_, i) => ({ tenant, user: `quiet ${i}`, session: 's' })),
    );
    for (const each of quiet) log.sent(each, turn('1', 100), 0);
    for (let i = 0; i < 1_000; i++) {
      const session = `${i}`;
      log.sent({ tenant: 'a', user: 'loud', session }, turn('1', 5_000), 0);
      // The largest user of another tenant is safe as well: its tenant holds less.
      if (i === 0) log.sent({ tenant: 'b', user: 'loud', session }, turn('1', 5_000), 0);
    }
    for (const each of quiet) expect(log.lookup(each, 0)('1'), JSON.stringify(each)).toHaveLength(1);
    expect(log.lookup({ tenant: 'b', user: 'loud', session: '0' }, 0)('1')).toHaveLength(1);
    expect(log.bytes).toBeLessThanOrEqual(200_000);
  });

  describe('of anonymous tenants', () => {
    const named = (tenant: string, session = 's', user?: string): ConversationName => ({ tenant, user, session });
    const holds = (log: ConversationLog, name: ConversationName) => log.lookup(name, 0)('1').length > 0;
    /** A log that is full after some dozen small turns. */
    const small = () => new ConversationLog({ maxBytes: 200_000 });

    it('keeps all conversations of one that came back, however many others are made up', () => {
      const log = small();
      const own = Array.from({ length: 10 }, (_, at) => named('anonymous:real', `talk ${at}`));
      for (const name of own) log.sent(name, turn('1', 2_000), 0);
      for (let made = 0; made < 4_000; made++) log.sent(named(`anonymous:${made}`), turn('1'), 0);
      expect(own.map((name) => holds(log, name))).toEqual(own.map(() => true));
      expect(log.bytes).toBeLessThanOrEqual(200_000);
      // The latest of the others are there, too: who comes for the first time can go on.
      for (let made = 3_990; made < 4_000; made++) expect(holds(log, named(`anonymous:${made}`))).toBe(true);
    });

    it('keeps a conversation that is in use, however many others come back', () => {
      const log = small();
      log.sent(named('anonymous:real'), turn('1', 2_000), 0);
      for (let made = 0; made < 4_000; made++) {
        for (const link of ['1', '2']) log.sent(named(`anonymous:${made}`), turn(link), 0);
        if (made % 10 === 0) log.sent(named('anonymous:real'), turn('2'), 0);
      }
      expect(holds(log, named('anonymous:real'))).toBe(true);
    });

    it.each([
      ['names', (made: number) => named('anonymous', `talk ${made}`)],
      ['end users', (made: number) => named('anonymous', 's', `user ${made}`)],
      ['large turns', () => named('anonymous:loud')],
    ])('lets one that holds much make room by its own, which has many %s', (what, nameOf) => {
      const log = small();
      const quiet = [named('anonymous:quiet'), named('anonymous:other')];
      for (const link of ['1', '2']) for (const name of quiet) log.sent(name, turn(link, 2_000), 0);
      for (let made = 0; made < 1_000; made++) {
        log.sent({ ...nameOf(made), ...(what === 'large turns' && { session: `${made}` }) }, turn('1', 1_000), 0);
      }
      expect(quiet.map((name) => holds(log, name))).toEqual([true, true]);
    });

    it('forgets these before any of an authenticated tenant, also the one that just grew', () => {
      const log = small();
      const checked = Array.from({ length: 9 }, (_, at) => named('checked', `talk ${at}`));
      for (const name of checked) log.sent(name, turn('1', 4_500), 0);
      for (let made = 0; made < 1_000; made++) {
        for (const link of ['1', '2']) log.sent(named(`anonymous:${made % 100}`), turn(link, 100 * (made % 90)), 0);
        log.sent(named('anonymous', `talk ${made}`), turn('1', 5_000), 0);
      }
      expect(checked.map((name) => holds(log, name))).toEqual(checked.map(() => true));
      for (let more = 0; more < 20; more++) log.sent(named('checked too', `talk ${more}`), turn('1', 1_000), 0);
      expect(log.size).toBeGreaterThan(20);
      expect(log.bytes).toBeLessThanOrEqual(200_000);
    });

    it('forgets and counts them as the others', () => {
      const log = small();
      for (let made = 0; made < 500; made++) {
        log.sent(named(made % 3 === 0 ? 'anonymous' : `anonymous:${made % 7}`, `${made}`), turn('1'), made);
        if (made % 50 === 0) log.forget({ tenant: `anonymous:${made % 7}` });
      }
      log.forget({});
      expect([log.size, log.turns, log.bytes]).toEqual([0, 0, 0]);
      log.sent(named('anonymous:new'), turn('1'), 0);
      expect(holds(log, named('anonymous:new'))).toBe(true);
    });
  });

  it('forgets of one user the conversation first that was not used for the longest time', () => {
    const log = new ConversationLog({ maxBytes: bytesOfLog(turn('1'), 5) });
    const named = (session: string) => ({ ...NAME, session });
    for (const session of ['1', '2', '3', '4', '5']) log.sent(named(session), turn('1'), 0);
    log.sent(named('1'), turn('1'), 0);
    log.answered(named('2'), turn('1'), 'x', 0);
    for (const session of ['6', '7']) log.sent(named(session), turn('1'), 0);
    expect([...log.export(0)].map(({ session }) => session)).toEqual(['5', '1', '2', '6', '7']);
  });

  it('forgets a conversation that takes more than a quarter of the log, and no other for it', () => {
    const log = new ConversationLog({ maxBytes: 20_000 });
    const other = { ...NAME, session: 'other' };
    log.sent(other, turn('1'), 0);
    for (const link of ['1', '2', '3', '4']) log.sent(NAME, turn(link), 0);
    expect(log.size).toBe(2);
    log.sent(NAME, turn('5'), 0);
    expect(log.size).toBe(1);
    expect(log.lookup(NAME, 0)('1')).toEqual([]);
    expect(log.lookup(other, 0)('1')).toHaveLength(1);
  });

  it('keeps the conversation that just grew, whoever else is as large', () => {
    const log = new ConversationLog({ maxBytes: bytesOfLog(turn('1', 100), 10, 10) });
    const names = Array.from({ length: 10 }, (_, i) => ({ ...NAME, user: `${i}` }));
    for (const each of names) log.sent(each, turn('1', 100), 0);
    log.sent(names[0]!, turn('2', 100), 1);
    expect(log.lookup(names[0]!, 1)('2')).toHaveLength(1);
    expect(log.size).toBeLessThan(10);
  });

  it('gives everything back with age', () => {
    const log = new ConversationLog({ maxAgeMs: 10 });
    log.sent(NAME, turn('1'), 0);
    log.sent({ ...NAME, session: 't' }, turn('1'), 5);
    expect(log.lookup(NAME, 10)('1')).toHaveLength(1);
    expect(log.lookup(NAME, 11)('1')).toEqual([]);
    log.expire(11);
    expect(log.size).toBe(1);
    log.expire(16);
    expect([log.size, log.turns, log.bytes]).toEqual([0, 0, 0]);
  });

  it('keeps forgotten what is too old, when an answer or an export comes late', () => {
    const filled = () => {
      const log = new ConversationLog({ maxAgeMs: 10 });
      log.sent(NAME, turn('1'), 0);
      return log;
    };
    const answered = filled();
    answered.answered(NAME, turn('1'), 'x', 20);
    expect(answered.lookup(NAME, 20)('1')).toEqual([]);
    const restored = filled();
    restored.restore({ version: 3, ...NAME, link: '2', idleMs: 0, turns: [turn('2')] }, 20);
    expect(restored.lookup(NAME, 20)('1')).toEqual([]);
    expect(restored.lookup(NAME, 20)('2')).toHaveLength(1);
  });

  it('forgets a conversation, an end user, those without one, or a tenant, and exports them by themselves', () => {
    const names = [
      { tenant: 'a', session: 's' },
      { tenant: 'a', user: 'u', session: 's' },
      { tenant: 'a', user: 'u', session: 't' },
      { tenant: 'b', user: 'u', session: 's' },
    ];
    const cases = [
      [{ tenant: 'a', session: 's' }, [0]],
      [{ tenant: 'a', user: 'u', session: 's' }, [1]],
      [{ tenant: 'a', user: 'u' }, [1, 2]],
      [{ tenant: 'a', user: null }, [0]],
      [{ user: null }, [0]],
      [{ tenant: 'a' }, [0, 1, 2]],
      [{}, [0, 1, 2, 3]],
      [{ tenant: 'c' }, []],
    ] as const;
    for (const [filter, places] of cases) {
      const log = new ConversationLog();
      for (const each of names) for (const link of ['1', '2']) log.sent(each, turn(link), 0);
      const meant = JSON.stringify(filter);
      expect([...log.export(0, filter)], meant).toHaveLength(2 * places.length);
      expect(log.forget(filter), meant).toBe(places.length);
      expect([...log.export(0, filter)], meant).toEqual([]);
      const left = names.filter((_, place) => !(places as readonly number[]).includes(place));
      expect([...log.export(0)], meant).toHaveLength(2 * left.length);
      for (const each of left) expect(log.lookup(each, 0)('1'), meant).toHaveLength(1);
    }
  });

  it('keeps tenants, end users and names apart', () => {
    const log = new ConversationLog();
    log.sent(NAME, turn('1'), 0);
    for (const other of [
      { ...NAME, tenant: 'b' },
      { ...NAME, user: 'v' },
      { ...NAME, user: undefined },
      { ...NAME, session: 't' },
      { ...NAME, session: '' },
    ]) {
      expect(log.lookup(other, 0)('1'), JSON.stringify(other)).toEqual([]);
    }
    expect(log.lookup({ ...NAME }, 0)('1')).toHaveLength(1);
  });

  it('takes an end user with the empty name for another one than none', () => {
    const log = new ConversationLog();
    log.sent({ ...NAME, user: '' }, turn('1'), 0);
    expect(log.lookup({ ...NAME, user: undefined }, 0)('1')).toEqual([]);
    expect(log.forget({ user: null })).toBe(0);
  });

  it('holds a bounded number of renderings of one request, and of answers of each', () => {
    const log = new ConversationLog();
    for (let i = 0; i < MAX_RENDERINGS + 4; i++) {
      const one = turn('1', 0, `${i}`);
      log.sent(NAME, one, 0);
      for (let answer = 0; answer < MAX_ANSWERS + 4; answer++) log.answered(NAME, one, `${answer}`, 0);
    }
    const turns = log.lookup(NAME, 0)('1');
    expect(turns.map(({ id }) => Number(id))).toEqual(Array.from({ length: MAX_RENDERINGS }, (_, i) => i + 4));
    expect(turns[0]!.answers).toEqual(Array.from({ length: MAX_ANSWERS }, (_, i) => `${i + 4}`));
    expect(log.turns).toBe(MAX_RENDERINGS);
    log.sent(NAME, turn('1', 0, '4'), 0);
    expect(log.lookup(NAME, 0)('1').at(-1)!.id).toBe('4');
  });
});

describe('the memory of a conversation log', () => {
  it.runIf(isFull).each([1, 4])(
    'is what it says, where each tenant has one conversation of %i small turns',
    async (turns) => {
      const log = new ConversationLog();
      const before = await heldBytes();
      for (let i = 0; i < 3_000; i++) {
        const name = { tenant: `tenant ${i}`, user: `user ${i}`, session: `session ${i}` };
        log.sent(name, turn(`link ${i}`, 100), 0);
        // It grows through several sizes.
        for (let more = 1; more < turns; more++) log.sent(name, turn(`link ${i} ${more}`, 100), 0);
      }
      expect(log.size).toBe(3_000);
      expect((await heldBytes()) - before).toBeLessThan(log.bytes);
    },
  );

  it.runIf(isFull)('holds nothing of what the caller knew of a conversation when it began', async () => {
    const log = new ConversationLog();
    const before = await heldBytes();
    for (let i = 0; i < 100; i++) {
      const recalled = { ...NAME, session: `${i}`, turns: [new Uint8Array(1_000_000)] };
      log.sent(recalled, turn('1'), 0);
    }
    expect(log.size).toBe(100);
    expect((await heldBytes()) - before).toBeLessThan(10_000_000);
  });

  it('has room for the text that was added to a message, and for its bytes beside it', () => {
    expect(bytesOf(turn('1', 1_000)) - bytesOf(turn('1'))).toBe(4_000);
  });
});

describe('an import of conversations', () => {
  it('goes on as if nothing had happened', () => {
    const pipeline = new Pipeline();
    const names = [NAME, { tenant: 'a', session: 's' }];
    for (const each of names) pipeline.serve(each, [user('Q1')], [A, B], said('R1'));
    const revived = new Pipeline();
    for (const entry of pipeline.memory.export(5)) revived.memory.restore(JSON.parse(JSON.stringify(entry)), 1_000);
    revived.now = 1_000;
    pipeline.now = 1_000;
    for (const each of names) {
      const messages = [user('Q1'), said('R1'), user('Q2')];
      const [one, other] = [pipeline, revived].map((served) => served.serve(each, messages, [B, C], said('R2')));
      expect(other).toEqual(one);
      expect(one!.references).toBe(1);
    }
  });

  it('into a log that is too small leaves conversations that are replayed to the byte, or reported', () => {
    const pipeline = new Pipeline();
    const large = 'A long text. '.repeat(100);
    let reported = 0;
    const names = Array.from({ length: 6 }, (_, i) => ({ tenant: 'a', user: `${i % 3}`, session: `${i}` }));
    const chats = names.map((each, i) => {
      let messages: readonly ChatMessage[] = [];
      let prompt: readonly ChatMessage[] = [];
      for (let round = 0; round <= i; round++) {
        messages = [...messages, user(`Q${round}`)];
        prompt = pipeline.serve(each, messages, [{ id: `${round}`, content: `${large}${round}` }], said('R')).prompt;
        messages = [...messages, said('R')];
      }
      return { name: each, messages, prompt };
    });
    for (let maxBytes = 5_000; maxBytes < 150_000; maxBytes += 5_000) {
      const small = new Pipeline({ limits: { maxBytes } });
      for (const entry of pipeline.memory.export(pipeline.now)) small.memory.restore(entry, 0);
      expect(small.memory.bytes).toBeLessThanOrEqual(maxBytes);
      for (const { name: each, messages, prompt } of chats) {
        const served = small.serve(each, [...messages, user('And now?')], [], undefined);
        if (served.isForgotten) reported++;
        else expect(served.prompt.slice(0, prompt.length)).toEqual(prompt);
      }
    }
    expect(reported).toBeGreaterThan(20);
  });

  it('takes in beside what is remembered, and loses nothing of either', () => {
    const entryOf = (idleMs: number, ...turns: object[]) => ({ version: 3, ...NAME, link: 'l', idleMs, turns });
    const [mine, both, theirs] = [turn('l', 0, 'mine'), turn('l', 0, 'both'), turn('l', 0, 'theirs')];
    const log = new ConversationLog();
    log.sent(NAME, mine, 1_000);
    log.sent(NAME, both, 1_000);
    log.answered(NAME, both, 'a', 1_000);
    const imported = [{ ...both, answers: ['b'] }, theirs];
    expect(log.restore(entryOf(500, ...imported), 2_000)).toBe(true);
    const idsAt = () =>
      log
        .lookup(
          NAME,
          2_000,
        )('l')
        .map(({ id }) => id);
    expect(idsAt()).toEqual(['mine', 'both', 'theirs']);
    expect(log.lookup(NAME, 2_000)('l')[1]!.answers).toEqual(['a', 'b']);
    // What was used longer ago does not go before what is used.
    log.sent(NAME, mine, 2_000);
    log.restore(entryOf(700, ...imported), 2_000);
    expect(idsAt().at(-1)).toBe('mine');
    expect([log.turns, log.bytes]).toEqual([3, bytesOfLog(mine, 1) + 2 * bytesOf(mine)]);
    expect(log.restore(entryOf(1e9, ...imported), 2_000)).toBe(false);
  });

  it('lets the least recently used conversation go first, whatever came in which order', () => {
    const log = new ConversationLog({ maxBytes: bytesOfLog(turn('1'), 5), maxAgeMs: 1_000 });
    const named = (session: string) => ({ ...NAME, session });
    log.sent(named('n'), turn('1'), 1_000);
    for (const [session, idleMs] of [
      ['b', 10],
      ['c', 20],
      ['a', 500],
    ] as const) {
      log.restore({ version: 3, ...named(session), link: '1', idleMs, turns: [turn('1')] }, 1_000);
    }
    expect([...log.export(1_000)].map(({ session }) => session)).toEqual(['a', 'c', 'b', 'n']);
    log.expire(1_501);
    expect(log.size).toBe(3);
    for (const session of ['x', 'y', 'z']) log.sent(named(session), turn('1'), 1_501);
    expect([...log.export(1_501)].map(({ session }) => session)).toEqual(['b', 'n', 'x', 'y', 'z']);
  });

  it('opens no conversation for an entry without turns', () => {
    const log = new ConversationLog();
    log.restore({ version: 3, ...NAME, link: '1', idleMs: 0, turns: [] }, 0);
    expect(log.size).toBe(0);
  });

  it('refuses what no export wrote', () => {
    const log = new ConversationLog();
    const entry = { version: 3, tenant: 'a', user: null, session: 's', link: 'l', idleMs: 0, turns: [turn('l')] };
    log.restore(entry, 0);
    const { user: _, ...nobody } = entry;
    for (const bad of [
      null,
      [],
      {},
      nobody,
      { ...entry, version: 1 },
      { ...entry, session: null },
      { ...entry, turns: [{}] },
      { ...entry, link: 3 },
    ]) {
      expect(() => log.restore(bad, 0), JSON.stringify(bad)).toThrow(WarmpathError);
    }
    expect([log.size, log.turns]).toEqual([1, 1]);
  });

  it('refuses an entry in which any one field is something else', () => {
    const pipeline = new Pipeline();
    pipeline.serve(NAME, [user('Q1')], [A, B], said('R1'));
    pipeline.serve(NAME, [user('Q1'), said('R1'), user('Q2')], [{ id: 'n', content: 'No title.' }], said('R2'));
    for (const entry of pipeline.memory.export(5)) {
      const text = JSON.stringify(entry);
      readSessionEntry(JSON.parse(text));
      const paths = pathsIn(entry);
      expect(paths.length).toBeGreaterThan(25);
      for (const path of paths) {
        const foreign = JSON.parse(text) as Record<string, unknown>;
        const parent = path.slice(0, -1).reduce((value, key) => value[key] as Record<string, unknown>, foreign);
        parent[path.at(-1)!] = { foreign: true };
        const named = path.map((step) => (/^\d+$/.test(step) ? `[${step}]` : `.${step}`)).join('');
        // Of an object, the first field that it should have.
        expect(pathOf(() => readSessionEntry(foreign))?.slice(0, named.length - 1), named).toBe(named.slice(1));
      }
    }
  });
});

/** The path that a refusal names. */
function pathOf(refused: () => unknown): string | undefined {
  try {
    refused();
  } catch (error) {
    if (WarmpathError.isInstance(error)) return error.path;
  }
  return undefined;
}

/** The place of every value in a piece of plain data. */
function pathsIn(value: unknown): string[][] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, child]) =>
    child === undefined ? [] : [[key], ...pathsIn(child).map((path) => [key, ...path])],
  );
}
