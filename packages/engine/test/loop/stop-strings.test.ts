import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { StopStrings } from '../../src/loop/stop-strings.js';

const letters = (maxLength: number) =>
  fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength, size: 'max' }).map((text) => text.join(''));

describe('stop strings', () => {
  it('end the text at the first one, however the text is cut into pieces', () => {
    fc.assert(
      fc.property(
        fc.array(letters(4), { maxLength: 12, size: 'max' }),
        fc.array(letters(3), { maxLength: 3 }),
        (pieces, stops) => {
          const whole = pieces.join('');
          const ends = stops.map((stop) => whole.indexOf(stop)).filter((at) => at >= 0);
          const matcher = new StopStrings(stops);
          let text = '';
          let stopped = false;
          for (const piece of pieces) {
            const result = matcher.push(piece);
            text += result.text;
            // What is out is out: it must be the beginning of the answer at every moment.
            expect(whole.startsWith(text)).toBe(true);
            if (result.stopped) {
              stopped = true;
              break;
            }
          }
          if (!stopped) {
            text += matcher.flush();
          }
          expect(stopped).toBe(ends.length > 0);
          if (!stopped) {
            expect(text).toBe(whole);
          } else {
            // A longer stop that begins earlier may be completed later than a shorter one that stands inside it.
            expect(ends).toContain(text.length);
          }
        },
      ),
      { seed: 1, numRuns: runs(2000) },
    );
  });

  it('hold back only what could still become one', () => {
    const matcher = new StopStrings(['###', 'END']);
    expect(matcher.push('one ##').text).toBe('one ');
    expect(matcher.push(' two E').text).toBe('## two ');
    expect(matcher.push('N').text).toBe('');
    expect(matcher.matched).toBeUndefined();
    expect(matcher.push('D three')).toEqual({ text: '', stopped: true });
    expect(matcher.matched).toBe('END');
    expect(matcher.flush()).toBe('');
  });

  it('pass everything at once when there is none', () => {
    expect(new StopStrings([]).push('text')).toEqual({ text: 'text', stopped: false });
  });
});
