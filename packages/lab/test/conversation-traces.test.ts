import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  createWorkload,
  mean,
  multiSessionTrace,
  multiTurnTrace,
  RAGBOOST_SESSIONS,
  RAGBOOST_TURNS,
  type Trace,
} from '../src/index.js';
import { interleave } from '../src/workloads/trace.js';

const SEEDS = [101, 102, 103];

/** Share of all mentions that go to the most mentioned fifth of a corpus. */
function shareOfTopFifth(trace: Trace, corpus: number): number {
  const mentions = new Map<number, number>();
  for (const { documents } of trace) for (const each of documents) mentions.set(each, (mentions.get(each) ?? 0) + 1);
  const sorted = [...mentions.values()].sort((a, b) => b - a);
  const sum = (counts: readonly number[]) => counts.reduce((all, count) => all + count, 0);
  return sum(sorted.slice(0, corpus / 5)) / sum(sorted);
}

/** Share of the documents of later turns that the session has had. */
function repeatedShare(trace: Trace): number {
  const had = new Map<number, Set<number>>();
  let repeated = 0;
  let documents = 0;
  for (const request of trace) {
    const known = had.get(request.session!);
    if (known !== undefined) {
      documents += request.documents.length;
      repeated += request.documents.filter((document) => known.has(document)).length;
    }
    had.set(request.session!, new Set([...(known ?? []), ...request.documents]));
  }
  return repeated / documents;
}

describe("RAGBoost's multi-session traces", () => {
  it.each([
    ['multihoprag', 0.792],
    ['narrativeqa', 0.574],
    ['qasper', 0.496],
  ] as const)('%s: as many accesses to the top fifth as published', (name, published) => {
    const options = RAGBOOST_SESSIONS[name];
    const shares = SEEDS.map((seed) =>
      shareOfTopFifth(multiSessionTrace(seed, options), options.topics * options.topicSize),
    );
    expect(Math.abs(mean(shares) - published)).toBeLessThan(0.02);
  });

  it('are of one topic a request, every request a session of its own', () => {
    const trace = multiSessionTrace(5, RAGBOOST_SESSIONS.qasper);
    for (const { documents } of trace) expect(new Set(documents.map((each) => Math.floor(each / 80))).size).toBe(1);
    expect(new Set(trace.map(({ session }) => session)).size).toBe(1_000);
  });
});

describe("RAGBoost's conversations", () => {
  it('repeat what the paper says they repeat', () => {
    const shares = SEEDS.map((seed) => repeatedShare(multiTurnTrace(seed, RAGBOOST_TURNS)));
    expect(Math.abs(mean(shares) - 0.4)).toBeLessThan(0.02);
  });

  it('are the same conversations, one after another or many at a time', () => {
    const of = (atOnce: number) => multiTurnTrace(9, { ...RAGBOOST_TURNS, atOnce });
    const bySession = (trace: Trace) => trace.toSorted((a, b) => a.session! - b.session!);
    expect(bySession(of(32))).toEqual(bySession(of(1)));
    expect(
      new Set(
        of(32)
          .slice(0, 32)
          .map(({ session }) => session),
      ).size,
    ).toBe(32);
    expect(of(1).map(({ session }) => session!)).toEqual(
      of(1)
        .map(({ session }) => session!)
        .toSorted((a, b) => a - b),
    );
  });

  it('come to an end even if a topic is used up', () => {
    const long = { ...RAGBOOST_TURNS, conversations: 3, turns: { least: 30, most: 30 }, repeated: 0 };
    for (const { documents } of multiTurnTrace(1, long)) expect(new Set(documents).size).toBe(5);
  });

  it('bring answers along, of the length of the catalogue', () => {
    const { requests } = createWorkload('hybrid', { seed: 1 });
    expect(requests[0]).toMatchObject({ answer: { tokens: 100 }, session: 'session_0' });
    expect(requests[0]!.documents.map(({ tokens }) => tokens)).toEqual([1_024, 1_024, 1_024, 1_024, 1_024]);
    expect(new Set(requests.map(({ answer }) => answer!.key)).size).toBe(requests.length);
  });
});

describe('interleave', () => {
  it('keeps every turn, and the order within a conversation; no more than `atOnce` are open', () => {
    const conversations = fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 12 });
    fc.assert(
      fc.property(conversations, fc.integer({ min: 1, max: 15 }), (lengths, atOnce) => {
        const all = lengths.map((turns, name) => Array.from({ length: turns }, (_, turn) => ({ name, turn })));
        const order = interleave(all, atOnce);
        for (const [name, turns] of all.entries()) expect(order.filter((each) => each.name === name)).toEqual(turns);
        expect(order).toHaveLength(lengths.reduce((sum, turns) => sum + turns, 0));
        for (const [place, { turn }] of order.entries()) {
          const begun = order.slice(0, place + 1).filter((each) => each.turn === 0);
          const open = begun.filter(({ name }) => order.slice(place).some((each) => each.name === name));
          expect(open.length).toBeLessThanOrEqual(atOnce);
          expect(turn).toBeGreaterThanOrEqual(0);
        }
      }),
      { seed: 2 },
    );
  });
});
