import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SpecialTextGuard } from '../../src/chat/special-text.js';
import { specialTextPattern } from '../../src/native/vocabulary.js';

const SPECIALS = ['<|im_start|>', '<|im_end|>', '<s>', '</s>', '<s><s>x', '[a.b*]'];
const pattern = specialTextPattern([...SPECIALS].sort((a, b) => b.length - a.length));

const content = fc
  .array(fc.constantFrom(...SPECIALS, '<s', '>', '<|im_', 'start|>', ' text ', '\n', '﷐', '﷑'), {
    maxLength: 12,
    size: 'max',
  })
  .map((parts) => parts.join(''));

describe('special tokens that a message spells out', () => {
  it('never stand in text whose special tokens are parsed, and no character is lost', () => {
    fc.assert(
      fc.property(content, content, (system, user) => {
        const guard = SpecialTextGuard.create(pattern, [system, user])!;
        const segments = guard.split(`${guard.guard(system)}|${guard.guard(user)}`);
        expect(segments.map((segment) => segment.text).join('')).toBe(`${system}|${user}`);
        for (const { text } of segments.filter((segment) => segment.parseSpecial)) {
          expect(SPECIALS.filter((special) => text.includes(special))).toEqual([]);
        }
      }),
      { seed: 1, numRuns: 1000 },
    );
  });

  it("leave the template's own special tokens alone", () => {
    const guard = SpecialTextGuard.create(pattern, ['a<s>b'])!;
    expect(guard.split(`<|im_start|>user\n${guard.guard('a<s>b')}<|im_end|>`)).toEqual([
      { text: '<|im_start|>user\na', parseSpecial: true },
      { text: '<s>', parseSpecial: false },
      { text: 'b<|im_end|>', parseSpecial: true },
    ]);
  });

  it('change nothing in text without any', () => {
    const guard = SpecialTextGuard.create(pattern, ['plain < text'])!;
    expect(guard.guard('plain < text')).toBe('plain < text');
    expect(guard.split('plain < text')).toEqual([{ text: 'plain < text', parseSpecial: true }]);
  });

  it('lose their marks when a template cuts a message apart, and take nothing of the template with them', () => {
    const guard = SpecialTextGuard.create(pattern, ['think</s>answer'])!;
    const [before, after] = guard.guard('think</s>answer').split('</s>') as [string, string];
    expect(guard.split(`${before}<|im_end|>${after}`)).toEqual([{ text: 'think<|im_end|>answer', parseSpecial: true }]);
  });

  it('are refused when a text uses up every mark', () => {
    const all = Array.from({ length: 32 }, (_, index) => String.fromCharCode(0xfdd0 + index)).join('');
    expect(SpecialTextGuard.create(pattern, [all])).toBeUndefined();
    expect(SpecialTextGuard.create(pattern, [all.slice(0, 30)])).toBeDefined();
  });

  it('do not exist in a vocabulary without special tokens', () => {
    const guard = SpecialTextGuard.create(specialTextPattern([]), ['<s>'])!;
    expect(guard.guard('<s>')).toBe('<s>');
  });
});
