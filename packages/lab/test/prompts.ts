import fc from 'fast-check';
import type { CachedPrompt } from '../src/index.js';

/** Lengths chosen so that spans start and end in every position of a block. */
const LENGTHS = [0, 1, 5, 16, 20, 33] as const;

const spanArbitrary = fc.nat({ max: 5 }).map((index) => ({ key: `span${index}`, tokens: LENGTHS[index]! }));

const promptArbitrary: fc.Arbitrary<CachedPrompt> = fc
  .record({
    spans: fc.array(spanArbitrary, { minLength: 1, maxLength: 6 }),
    salt: fc.constantFrom(undefined, 'a', 'b'),
  })
  .map(({ spans, salt }) => {
    // At least one token: an engine refuses an empty prompt.
    const filled = [...spans, { key: 'question', tokens: 3 }];
    return salt === undefined ? { spans: filled } : { spans: filled, salt };
  });

/** Prompts to serve one after another, with many common prefixes. */
export const promptsArbitrary = fc.array(promptArbitrary, { minLength: 1, maxLength: 25 });

/** No prompt of `promptsArbitrary` has more tokens. */
export const LONGEST_PROMPT = 6 * 33 + 3;
