import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import {
  type AnsweredPrompt,
  findSessionBreak,
  isSameThread,
  lostCost,
  outlinePrompt,
  type PromptPiece,
  promptCost,
  SESSION_BREAK_CAUSES,
} from '../src/internal.js';

const words = (topic: string, count: number) =>
  Array.from({ length: count }, (_, i) => `${topic} ${i} stands.`).join(' ');
const piece = (kind: PromptPiece['kind'], text: string): PromptPiece => ({ name: kind, kind, text });
const tools = (...names: string[]) =>
  piece('tools', JSON.stringify(names.map((name) => ({ name, text: words(name, 40) }))));
const SYSTEM = piece('system', words('The rule', 100));
const turn = (number: number) => [
  piece('assistant', words(`Answer ${number}`, 5)),
  piece('tool', words(`Result ${number}`, 60)),
];
const FIRST = [piece('model', 'm'), tools('read', 'write'), SYSTEM, piece('user', 'Mend it.')];
const turns = (...numbers: number[]) => numbers.flatMap(turn);

/** Tokens in these tests: four characters each. */
const tokensOf = (pieces: readonly PromptPiece[]) =>
  Math.ceil(pieces.reduce((sum, { kind, text }) => sum + (kind === 'model' ? 0 : text.length), 0) / 4);

function answered(pieces: readonly PromptPiece[], more: Partial<AnsweredPrompt> = {}): AnsweredPrompt {
  const outline = outlinePrompt(pieces, { keepText: false });
  return { outline, engine: 'a', heldTokens: tokensOf(pieces), answeredAt: 0, keptMs: 300_000, ...more };
}

function next(
  pieces: readonly PromptPiece[],
  cachedTokens: number | undefined,
  { engine = 'a', dispatchedAt = 1_000 }: { readonly engine?: string; readonly dispatchedAt?: number } = {},
) {
  const outline = outlinePrompt(pieces, { keepText: false });
  const promptTokens = tokensOf(pieces);
  return { pieces, outline, engine, dispatchedAt, promptTokens, cachedTokens, reusable: (tokens: number) => tokens };
}

const BEFORE = [...FIRST, ...turns(1, 2, 3)];
const HELD = tokensOf(BEFORE);
const SUMMARY = piece('user', words('So far, this was done:', 20));

type Case = readonly [
  title: string,
  cause: string | undefined,
  pieces: readonly PromptPiece[],
  cachedTokens: number,
  more?: { readonly engine?: string; readonly dispatchedAt?: number },
];

describe('what a session lost of the cache', () => {
  const cases: readonly Case[] = [
    ['nothing, where it goes on', undefined, [...BEFORE, ...turns(4)], HELD],
    ['nothing, where the question is another one', undefined, [...FIRST.slice(0, 3), piece('user', 'Stop.')], 1_900],
    ['next to nothing, where the engine counts a block less', undefined, [...BEFORE, ...turns(4)], HELD - 15],
    ['all, with another model', 'model', [piece('model', 'n'), ...BEFORE.slice(1), ...turns(4)], 0],
    ['all, with tools in another order', 'tools-order', [FIRST[0]!, tools('write', 'read'), ...BEFORE.slice(2)], 5],
    ['all, with another tool', 'tools-changed', [FIRST[0]!, tools('look', 'write'), ...BEFORE.slice(2)], 5],
    [
      'what stands behind the rules, with another word in them',
      'system-prompt',
      [...FIRST.slice(0, 2), piece('system', SYSTEM.text.replace('stands', 'lies')), ...BEFORE.slice(3)],
      tokensOf(FIRST.slice(0, 2)),
    ],
    ['what follows the cut', 'history-cut', [...FIRST, ...turns(2, 3, 4)], tokensOf(FIRST)],
    [
      'what follows the edited message',
      'history-changed',
      [...FIRST, piece('assistant', words('Answer 1!', 5)), ...BEFORE.slice(5), ...turns(4)],
      tokensOf(FIRST),
    ],
    [
      'what follows the question, which is not as it was',
      'history-changed',
      [...BEFORE.slice(0, -1), piece('tool', words('Result 3!', 60)), ...turns(4)],
      tokensOf(BEFORE.slice(0, -1)),
    ],
    ['all, on another engine', 'other-engine', [...BEFORE, ...turns(4)], 0, { engine: 'b' }],
    ['all, after an hour', 'expired', [...BEFORE, ...turns(4)], 0, { dispatchedAt: 3_600_000 }],
    ['all, without a reason in the prompt', 'evicted', [...BEFORE, ...turns(4)], 0],
    ['the end, without a reason in the prompt', 'evicted', [...BEFORE, ...turns(4)], HELD - 600],
    ['more by time than by the cut', 'expired', [...FIRST, ...turns(3, 4)], 0, { dispatchedAt: 3_600_000 }],
  ];
  it.each(cases.map((row) => ({ title: row[0], row })))('$title', ({ row: [, cause, pieces, cachedTokens, more] }) => {
    const found = findSessionBreak(answered(BEFORE), next(pieces, cachedTokens, more));
    expect(found?.cause).toBe(cause);
    if (found === undefined) return;
    const isRepeated = (text: string) => BEFORE.some((earlier) => earlier.text === text);
    const repeated = tokensOf(pieces.filter(({ text }) => isRepeated(text))) - cachedTokens;
    // A piece that is nearly the same is computed again, too.
    const nearly = pieces.filter(
      ({ text, kind }) => !isRepeated(text) && kind !== 'model' && pieces.length >= BEFORE.length,
    );
    expect(found.lostTokens).toBeGreaterThanOrEqual(repeated - 8);
    expect(found.lostTokens).toBeLessThanOrEqual(repeated + tokensOf(nearly.slice(0, 1)) + 8);
  });

  it.each([
    ['that stands alone', [...FIRST.slice(0, 3), SUMMARY], 0],
    ['before the last turn', [...FIRST, SUMMARY, ...turns(3)], tokensOf(turns(3))],
  ])('is what a summary has behind it: one %s', (_, pieces, lost) => {
    const cached = tokensOf(pieces) - tokensOf([SUMMARY]) - lost;
    const found = findSessionBreak(answered(BEFORE), next(pieces, cached));
    expect(found).toMatchObject({ cause: 'history-compacted', isAvoidable: false });
    expect(Math.abs(found!.lostTokens - lost)).toBeLessThan(8);
  });

  it('is what the prompt shares, where the engine does not say what it had cached', () => {
    expect(findSessionBreak(answered(BEFORE), next([...BEFORE, ...turns(4)], undefined))).toBeUndefined();
    const cut = findSessionBreak(answered(BEFORE), next([...FIRST, ...turns(2, 3)], undefined))!;
    expect(Math.abs(cut.lostTokens - tokensOf(turns(2, 3)))).toBeLessThan(8);
  });

  it('says where the prompts part', () => {
    const pieces = [
      ...FIRST.slice(0, 2),
      piece('system', SYSTEM.text.replace('50 stands', '50 lies')),
      ...BEFORE.slice(3),
    ];
    const found = findSessionBreak(answered(BEFORE), next(pieces, 0))!;
    const offset = SYSTEM.text.indexOf('50 stands') + 3;
    expect(found.piece).toBe('system');
    expect(offset - found.offset).toBeGreaterThanOrEqual(0);
    expect(offset - found.offset).toBeLessThan(64);
  });

  it('is a break of the session where it is compacted right after its tools changed', () => {
    const compacted = [FIRST[0]!, tools('look'), SYSTEM, SUMMARY];
    const found = findSessionBreak(answered(BEFORE), next(compacted, 0));
    expect(found).toMatchObject({ cause: 'tools-changed', lostTokens: expect.any(Number) });
    expect(found!.lostTokens).toBeGreaterThanOrEqual(tokensOf([SYSTEM]) - 1);
  });

  it('is nothing for another agent with the same tools and rules that goes on with its own', () => {
    const of = (question: string, ...numbers: number[]) => [
      ...FIRST.slice(0, 3),
      piece('user', question),
      ...turns(...numbers),
    ];
    const opening = tokensOf(FIRST);
    expect(findSessionBreak(answered(of('Find A.')), next(of('Find B.', 1), opening))).toBeUndefined();
    // The history was rewritten where the engine had to compute it again.
    const rewritten = of('Find A, please.', 1);
    expect(findSessionBreak(answered(of('Find A.', 1)), next(rewritten, opening))).toMatchObject({
      cause: 'history-changed',
    });
  });

  it('is never more than what the engine held, nor than what it computed', () => {
    const pool = [...FIRST, ...turns(1, 2, 3, 4, 5), SUMMARY, piece('user', 'a'), piece('system', 'A reminder.')];
    const prompt = fc.array(fc.constantFrom(...pool), { minLength: 1, maxLength: 12 });
    fc.assert(
      fc.property(prompt, prompt, fc.nat(), (before, after, cached) => {
        const promptTokens = tokensOf(after);
        fc.pre(promptTokens > 0);
        const found = findSessionBreak(answered(before), next(after, cached % promptTokens));
        if (found === undefined) return;
        expect(Object.keys(SESSION_BREAK_CAUSES)).toContain(found.cause);
        expect(found.lostTokens).toBeGreaterThanOrEqual(0);
        expect(found.lostTokens).toBeLessThanOrEqual(
          Math.min(tokensOf(before), promptTokens - (cached % promptTokens)),
        );
      }),
      { numRuns: runs(500), seed: 39 },
    );
  });
});

describe('the thread of a prompt', () => {
  const outline = (pieces: readonly PromptPiece[]) => outlinePrompt(pieces, { keepText: false });
  it.each([
    ['goes on', [...BEFORE, ...turns(4)], true],
    ['has another model', [piece('model', 'n'), ...BEFORE.slice(1)], true],
    ['has other tools', [FIRST[0]!, tools('look'), ...BEFORE.slice(2)], true],
    ['has another system prompt', [...FIRST.slice(0, 2), piece('system', 'Rules.'), ...BEFORE.slice(3)], true],
    ['is compacted', [...FIRST.slice(0, 3), SUMMARY], true],
    ['is compacted after its tools changed', [FIRST[0]!, tools('look'), SYSTEM, SUMMARY], true],
    ['asks for a title with the system prompt', [FIRST[0]!, SYSTEM, piece('user', 'The session: …')], false],
    ['has a rule of the system prompt', [tools('look'), piece('system', 'The rule'), SUMMARY], false],
    ['asks for a title', [FIRST[0]!, piece('system', 'Write a title.'), piece('user', 'The session: …')], false],
    ['asks for a title of the question', [FIRST[0]!, piece('system', 'Write.'), piece('user', 'Of'), FIRST[3]!], false],
    [
      'is of an agent with other tools and rules',
      [FIRST[0]!, tools('look'), piece('system', 'Look.'), ...turns(9)],
      false,
    ],
  ])('%s', (_, pieces, expected) => {
    expect(isSameThread(outline(BEFORE), outline(pieces))).toBe(expected);
  });
});

describe('what it costs', () => {
  const price = { input: 4, cached: 0.4, cacheWrite: 5 };
  it('is what was read, written and computed, at the price of each', () => {
    const tokens = { promptTokens: 1_000_000, cachedTokens: 500_000, cacheWriteTokens: 300_000 };
    expect(promptCost(tokens, price)).toBeCloseTo(0.2 + 1.5 + 0.8);
    expect(promptCost(tokens, { input: 4, cached: 0.4 })).toBeCloseTo(0.2 + 2);
  });
  it('is, of lost tokens, what is beyond the price of cached ones', () => {
    const tokens = { promptTokens: 1_000_000, cachedTokens: 0, cacheWriteTokens: 300_000 };
    expect(lostCost(100_000, tokens, price)).toBeCloseTo(0.5 - 0.04);
    expect(lostCost(500_000, tokens, price)).toBeCloseTo(1.5 + 0.8 - 0.2);
    expect(lostCost(0, tokens, price)).toBe(0);
  });
});
