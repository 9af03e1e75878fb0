import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { BreakCause } from '../src/explain/prefix-break.js';
import { BREAK_CAUSES, findPrefixBreak, outlinePrompt, type PromptPiece } from '../src/internal.js';

const SYSTEM = 'You are the keeper of the archive of Velmora. Answer in one sentence, and say so when you do not know.';
const piece = (kind: PromptPiece['kind'], text: string, documents?: PromptPiece['documents']): PromptPiece => ({
  name: kind,
  kind,
  text,
  ...(documents !== undefined && { documents }),
});
const tools = (...names: string[]) => piece('tools', JSON.stringify(names.map((name) => ({ name, type: 'function' }))));
const talk = (...texts: string[]) => texts.map((text, i) => piece(i % 2 === 0 ? 'user' : 'assistant', text));
const documents = (...keys: string[]) => {
  const text = `Context:\n${keys.map((key) => `<doc>${key.repeat(20)}</doc>`).join('\n')}`;
  return piece(
    'user',
    `${text}\nWhy?`,
    keys.map((key) => ({ start: text.indexOf(`<doc>${key}`), key })),
  );
};

const CASES: readonly (readonly [string, BreakCause, readonly PromptPiece[], readonly PromptPiece[]])[] = [
  ['another model', 'model', [piece('model', 'a'), ...talk('x')], [piece('model', 'b'), ...talk('x')]],
  ['tools in another order', 'tools-order', [tools('a', 'b'), ...talk('x')], [tools('b', 'a'), ...talk('x')]],
  ['another tool', 'tools-changed', [tools('a', 'b'), ...talk('x')], [tools('a', 'c'), ...talk('x')]],
  ['a tool less', 'tools-changed', [tools('a'), ...talk('x')], talk('x')],
  [
    'keys in another order',
    'json-keys',
    [piece('tools', '[{"name":"a","type":"function"}]'), ...talk('x')],
    [piece('tools', '[{"type":"function","name":"a"}]'), ...talk('x')],
  ],
  [
    'another setting',
    'field-changed',
    [piece('field', '"low"'), ...talk('x')],
    [piece('field', '"high"'), ...talk('x')],
  ],
  [
    'a clock',
    'timestamp',
    [piece('system', `${SYSTEM} It is 2026-11-21T08:31:07Z.`), ...talk('x')],
    [piece('system', `${SYSTEM} It is 2026-11-21T08:34:12Z.`), ...talk('x')],
  ],
  [
    'a date in words',
    'timestamp',
    [piece('system', `Today is Friday, November 20, 2026. ${SYSTEM}`), ...talk('x')],
    [piece('system', `Today is Saturday, November 21, 2026. ${SYSTEM}`), ...talk('x')],
  ],
  [
    'seconds since 1970',
    'timestamp',
    [piece('system', `now=1795254185 ${SYSTEM}`), ...talk('x')],
    [piece('system', `now=1795254990 ${SYSTEM}`), ...talk('x')],
  ],
  [
    'a drawn id',
    'random-id',
    [piece('system', `Request 0b9c1f6e-3a52-4f9e-8a07-6a1a2b3c4d5e. ${SYSTEM}`), ...talk('x')],
    [piece('system', `Request 7f1d2c3b-9e84-4c21-b6d5-0f9e8d7c6b5a. ${SYSTEM}`), ...talk('x')],
  ],
  [
    'a short drawn id',
    'random-id',
    [piece('system', `${SYSTEM} session=k3Jd92mxQp7t`), ...talk('x')],
    [piece('system', `${SYSTEM} session=k3Zw41nvBb2u`), ...talk('x')],
  ],
  [
    'other words in the system prompt',
    'system-prompt',
    [piece('system', `${SYSTEM} Be brief.`), ...talk('x')],
    [piece('system', `${SYSTEM} Be kind.`), ...talk('x')],
  ],
  [
    'a clock at the start of a single prompt',
    'timestamp',
    [piece('user', `[2026-11-21 08:31:07] ${SYSTEM}\n\nQuestion: what burns in the lanterns of the north quay?`)],
    [piece('user', `[2026-11-21 08:34:12] ${SYSTEM}\n\nQuestion: what burns in the lanterns of the north quay?`)],
  ],
  [
    'a date that the question is about',
    'question',
    [piece('system', SYSTEM), ...talk('What happened on 2026-11-21?')],
    [piece('system', SYSTEM), ...talk('What happened on 2026-10-12?')],
  ],
  [
    'documents in pieces of their own, in another order',
    'documents-order',
    [documents('a'), documents('b'), ...talk('x')],
    [documents('b'), documents('a'), ...talk('x')],
  ],
  ['documents in another order', 'documents-order', [documents('a', 'b', 'c')], [documents('a', 'c', 'b')]],
  ['other documents', 'documents-changed', [documents('a', 'b', 'c')], [documents('a', 'd', 'b')]],
  [
    'another question',
    'question',
    [piece('system', SYSTEM), ...talk('Why?')],
    [piece('system', SYSTEM), ...talk('How?')],
  ],
  [
    'a history that was cut',
    'history-cut',
    [piece('system', SYSTEM), ...talk('one', 'two', 'three', 'four', 'five')],
    [piece('system', SYSTEM), ...talk('three', 'four', 'five', 'six', 'seven')],
  ],
  [
    'a short history that was cut while it grew',
    'history-cut',
    [piece('system', SYSTEM), ...talk('one', 'two', 'three', 'four', 'five')],
    [piece('system', SYSTEM), ...talk('three', 'four', 'five', 'six', 'seven', 'eight', 'nine')],
  ],
  [
    'a summary of the whole history',
    'history-compacted',
    [piece('system', SYSTEM), ...talk('one', 'two', 'three', 'four', 'five')],
    [piece('system', SYSTEM), ...talk('So far: one, two, three and four.', 'six', 'seven')],
  ],
  [
    'a summary of its middle, with an answer',
    'history-compacted',
    [piece('system', SYSTEM), ...talk('one', 'two', 'three', 'four', 'five', 'six', 'seven')],
    [piece('system', SYSTEM), ...talk('one', 'So far: two to five.', 'Good.', 'six', 'seven', 'eight')],
  ],
  [
    'a system message in the history that is gone',
    'history-cut',
    [piece('system', SYSTEM), ...talk('one', 'two'), piece('system', 'A reminder.'), ...talk('three')],
    [piece('system', SYSTEM), ...talk('one', 'two'), ...talk('three', 'four', 'five')],
  ],
  [
    'a system message in the history that is another one',
    'history-changed',
    [
      piece('system', SYSTEM),
      ...talk('one'),
      piece('system', 'A reminder.'),
      piece('assistant', 'two'),
      ...talk('three'),
    ],
    [piece('system', SYSTEM), ...talk('one'), piece('system', 'A hint.'), piece('assistant', 'two'), ...talk('three')],
  ],
  [
    'a message that was edited',
    'history-changed',
    [piece('system', SYSTEM), ...talk('one', 'two', 'three')],
    [piece('system', SYSTEM), ...talk('one!', 'two', 'three', 'four', 'five')],
  ],
  [
    'a later date in the question',
    'question',
    [piece('system', SYSTEM), ...talk('What happened on 2026-01-02?')],
    [piece('system', SYSTEM), ...talk('What happened on 2026-03-04?')],
  ],
];

describe('why a prefix broke', () => {
  it('names every cause in these cases', () => {
    expect(new Set(CASES.map(([, cause]) => cause))).toEqual(new Set(Object.keys(BREAK_CAUSES)));
  });

  it.each(CASES)('%s: %s, with the text and without', (_, cause, before, after) => {
    const exact = findPrefixBreak(outlinePrompt(before, { keepText: true }), after)!;
    expect(exact.cause).toBe(cause);
    expect(exact.exact).toBe(true);
    const outlined = findPrefixBreak(outlinePrompt(before, { keepText: false }), after)!;
    expect(outlined.cause).toBe(cause);
    expect(outlined.piece).toBe(exact.piece);
    expect(outlined.offset).toBeLessThanOrEqual(exact.offset);
    expect(exact.offset - outlined.offset).toBeLessThan(64 + 1);
  });

  it('is none where a conversation goes on', () => {
    const before = [piece('system', SYSTEM), ...talk('one', 'two')];
    const after = [...before, ...talk('three')];
    expect(findPrefixBreak(outlinePrompt(before, { keepText: false }), after)).toBeUndefined();
    expect(findPrefixBreak(outlinePrompt(before, { keepText: true }), before)).toBeUndefined();
  });

  it('stands where the first character differs, for any two prompts', () => {
    const prompts = fc.array(
      fc.record({
        kind: fc.constantFrom('system' as const, 'user' as const, 'tool' as const, 'assistant' as const),
        text: fc.oneof(fc.string({ maxLength: 200 }), fc.constantFrom(SYSTEM, `${SYSTEM}${SYSTEM}`, '')),
      }),
      { maxLength: 5 },
    );
    fc.assert(
      fc.property(prompts, prompts, fc.nat(5), (head, tail, keep) => {
        const before = head.map(({ kind, text }) => piece(kind, text));
        const after = [...before.slice(0, keep), ...tail.map(({ kind, text }) => piece(kind, text))];
        const flat = (pieces: readonly PromptPiece[]) =>
          pieces.map(({ kind, text }) => `${kind}\u0000${text}\u0001`).join('');
        const found = findPrefixBreak(outlinePrompt(before, { keepText: true }), after);
        expect(found === undefined).toBe(flat(after).startsWith(flat(before)));
        if (found === undefined) return;
        const at = after.findIndex(
          (each, i) => i >= before.length || each.kind !== before[i]!.kind || each.text !== before[i]!.text,
        );
        if (at < 0) {
          expect(found.offset).toBe(0);
          return;
        }
        expect(after[at]!.text.slice(0, found.offset)).toBe(before[at]!.text.slice(0, found.offset));
        expect(found.sharedTokens).toBeLessThanOrEqual(found.promptTokens + 1);
      }),
      { seed: 20_261_121, numRuns: 1_000 },
    );
  });

  it('an outline without text holds none of it', () => {
    const outline = outlinePrompt([piece('system', SYSTEM), tools('secret-tool')], { keepText: false });
    expect(JSON.stringify(outline)).not.toContain('Velmora');
    expect(JSON.stringify(outline)).not.toContain('secret');
  });
});
