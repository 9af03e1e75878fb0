import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SeenSegments } from '../src/internal.js';
import { anyText } from './arbitraries.js';

/** A file of so many lines, each longer than nothing and unlike the others. */
export function lines(seed: string, count: number): string {
  return Array.from({ length: count }, (_, i) => `const ${seed}${i} = compute("${seed}", ${i * i}, ${i % 7});\n`).join(
    '',
  );
}

describe('SeenSegments', () => {
  it('replaces an exact copy, and leaves a text alone that holds nothing known', () => {
    const seen = new SeenSegments();
    const text = lines('a', 60);
    expect(seen.shorten(text)).toMatchObject({ text, replaced: 0 });
    seen.add(text);
    const copy = seen.shorten(text);
    expect(copy.replaced).toBeGreaterThan(0);
    expect(copy.text.length).toBeLessThan(text.length / 4);
    expect(copy.text).toContain('Given earlier in this conversation: [«');
    const other = lines('b', 60);
    expect(seen.shorten(other)).toMatchObject({ text: other, replaced: 0 });
  });

  it('keeps a changed line, and still knows the blocks around it', () => {
    const seen = new SeenSegments();
    const text = lines('a', 200);
    seen.add(text);
    const changed = text.replace('const a100 =', 'const changed =');
    const shortened = seen.shorten(changed);
    expect(shortened.text).toContain('const changed = compute("a", 10000, 2);');
    expect(shortened.text.length).toBeLessThan(changed.length / 2);
  });

  it('finds the part that two passages of one page share, wherever it begins', () => {
    const sentence = (i: number) =>
      `Sentence ${i} of the page tells of the year ${1_800 + i} and of what came of it in the end. `;
    const page = Array.from({ length: 60 }, (_, i) => sentence(i));
    const seen = new SeenSegments();
    seen.add(page.slice(0, 40).join(''));
    const next = page.slice(20).join('');
    const shortened = seen.shorten(next);
    expect(shortened.replaced).toBeGreaterThan(0);
    expect(shortened.text).toContain(sentence(59));
    expect(shortened.text.length).toBeLessThan(next.length * 0.75);
  });

  it('loses nothing: what is not replaced stands there, what is replaced was added', () => {
    fc.assert(
      fc.property(fc.array(anyText({ maxLength: 400 }), { maxLength: 6 }), fc.nat(5), (texts, again) => {
        const seen = new SeenSegments();
        for (const [place, text] of texts.entries()) {
          const known = texts.slice(0, place);
          const { text: shortened, replaced } = seen.shorten(text);
          if (replaced === 0) expect(shortened).toBe(text);
          if (known.every((other) => other !== text) && text.length < 120) expect(shortened).toBe(text);
          seen.add(text);
        }
        const text = texts[again];
        if (text !== undefined) expect(seen.shorten(text).text.length).toBeLessThanOrEqual(text.length);
      }),
    );
  });

  it('takes time in proportion to the text', () => {
    const seen = new SeenSegments();
    for (const text of ['.'.repeat(100_000), 'a'.repeat(100_000), `${'\n'.repeat(100_000)}a`, ' .'.repeat(50_000)]) {
      seen.add(text);
      expect(seen.shorten(text).segments).toBeGreaterThan(0);
    }
  });
});
