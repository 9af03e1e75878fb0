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
    const documents = [0, spans.length] as const;
    return salt === undefined ? { spans: filled, documents } : { spans: filled, documents, salt };
  });

/** Prompts to serve one after another, with many common prefixes. */
export const promptsArbitrary = fc.array(promptArbitrary, { minLength: 1, maxLength: 25 });

/** No prompt of `promptsArbitrary` has more tokens. */
const LONGEST_PROMPT = 6 * 33 + 3;

/** What happens to several prompts under way: `pick` chooses one of them by its place. */
export type Action =
  | { readonly kind: 'admit'; readonly prompt: CachedPrompt }
  | { readonly kind: 'enter'; readonly pick: number; readonly tokens: number }
  | { readonly kind: 'release'; readonly pick: number };

const answerArbitrary = fc.constantFrom(
  undefined,
  { key: 'span3', tokens: 16 },
  { key: 'answer', tokens: 1 },
  { key: 'answer', tokens: 21 },
);

/** No prompt of `actionsArbitrary` has more tokens, its answer included. */
export const LONGEST_RUN = LONGEST_PROMPT + 21;

/** Prompts that overlap in time, computed in pieces, some given up before their end. */
export const actionsArbitrary: fc.Arbitrary<readonly Action[]> = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: fc.tuple(promptArbitrary, answerArbitrary).map(toAdmission) },
    {
      weight: 3,
      arbitrary: fc
        .record({ pick: fc.nat({ max: 9 }), tokens: fc.constantFrom(1, 16, 40, 100, LONGEST_RUN) })
        .map((action) => ({ kind: 'enter' as const, ...action })),
    },
    { weight: 2, arbitrary: fc.nat({ max: 9 }).map((pick) => ({ kind: 'release' as const, pick })) },
  ),
  { minLength: 1, maxLength: 60 },
);

function toAdmission([prompt, answer]: [CachedPrompt, CachedPrompt['answer']]): Action {
  return { kind: 'admit', prompt: answer === undefined ? prompt : { ...prompt, answer } };
}
